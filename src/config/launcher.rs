//! Reads what the program that has started a rank says of the rank.

use crate::config::error::ConfigError;
use crate::config::limits::MAX_RANKS;
use crate::config::source::Source;

/// The variables of a launcher.
pub(super) struct Launcher {
    rank: &'static str,
    ranks: &'static str,
    job: &'static str,
    local_rank: &'static str,
}

/// The launchers in the order in which they are looked for: this library's own variables, torchrun, Open MPI's mpirun, MPICH's, srun.
const LAUNCHERS: [Launcher; 5] = [
    Launcher {
        rank: "WARPVERBS_RANK",
        ranks: "WARPVERBS_RANKS",
        job: "WARPVERBS_RUN_ID",
        local_rank: "WARPVERBS_LOCAL_RANK",
    },
    Launcher {
        rank: "RANK",
        ranks: "WORLD_SIZE",
        job: "TORCHELASTIC_RUN_ID",
        local_rank: "LOCAL_RANK",
    },
    Launcher {
        rank: "OMPI_COMM_WORLD_RANK",
        ranks: "OMPI_COMM_WORLD_SIZE",
        job: "OMPI_MCA_ess_base_jobid",
        local_rank: "OMPI_COMM_WORLD_LOCAL_RANK",
    },
    Launcher {
        rank: "PMI_RANK",
        ranks: "PMI_SIZE",
        job: "PMI_JOBID",
        local_rank: "MPI_LOCALRANKID",
    },
    Launcher {
        rank: "SLURM_PROCID",
        ranks: "SLURM_NTASKS",
        job: "SLURM_JOB_ID",
        local_rank: "SLURM_LOCALID",
    },
];

impl Launcher {
    /// Returns whether this launcher has started the process. The variable of the rank means nothing without the number of ranks, nor the
    /// other way round.
    fn has_started(&self, source: &Source<'_>) -> bool {
        source.set(self.rank).is_some() && source.set(self.ranks).is_some()
    }

    /// Returns the first launcher that says rank and number of ranks.
    ///
    /// # Errors
    /// No launcher says them. Or a variable of this library for one of them is set and is no such number, although it means nothing without
    /// the other.
    pub(super) fn of(source: &Source<'_>) -> Result<&'static Self, ConfigError> {
        let own = &LAUNCHERS[0];
        for (name, least, most) in [(own.rank, 0, MAX_RANKS - 1), (own.ranks, 1, MAX_RANKS)] {
            if source.set(name).is_some() {
                source.within(name, least, most)?;
            }
        }
        let mut all = LAUNCHERS.iter();
        let found = all.find(|launcher| launcher.has_started(source));
        found.ok_or(ConfigError::NoRank)
    }

    /// Returns the rank and the number of ranks.
    pub(super) fn place(&self, source: &Source<'_>) -> Result<(u32, u32), ConfigError> {
        let ranks = source.within(self.ranks, 1, MAX_RANKS)?;
        Ok((source.within(self.rank, 0, ranks - 1)?, ranks))
    }

    /// Returns the number of the job. This library's own variable for it comes before the launcher's.
    pub(super) fn job(&self, source: &Source<'_>) -> Option<String> {
        let own = source.set(LAUNCHERS[0].job);
        own.or_else(|| source.set(self.job))
    }
}

/// Returns the rank's number on its machine, from this library's own variable or from a launcher. A launcher may have started a program
/// that sets its ranks itself.
pub(super) fn local_rank(source: &Source<'_>, ranks: u32) -> Result<Option<u32>, ConfigError> {
    let own = LAUNCHERS[0].local_rank;
    let started = LAUNCHERS
        .iter()
        .filter(|launcher| launcher.has_started(source));
    let mut names = std::iter::once(own).chain(started.map(|launcher| launcher.local_rank));
    match names.find(|name| source.set(name).is_some()) {
        Some(name) => source.within(name, 0, ranks - 1).map(Some),
        None => Ok(None),
    }
}
