//! The processes of a job.

use std::path::Path;
use std::process::{Command, Output, Stdio};

use tempfile::TempDir;

/// Whose variables tell a process its rank.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Launcher {
    Torchrun,
    Srun,
}

impl Launcher {
    /// Names of rank, number of ranks, local rank and job.
    fn names(self) -> [&'static str; 4] {
        match self {
            Self::Torchrun => ["RANK", "WORLD_SIZE", "LOCAL_RANK", "TORCHELASTIC_RUN_ID"],
            Self::Srun => [
                "SLURM_PROCID",
                "SLURM_NTASKS",
                "SLURM_LOCALID",
                "SLURM_JOB_ID",
            ],
        }
    }
}

/// Processes of one command, with a directory of their own.
pub(crate) struct Job {
    place: TempDir,
    launcher: Launcher,
    arguments: Vec<&'static str>,
    store: Option<String>,
}

impl Job {
    pub(crate) fn new(launcher: Launcher, arguments: &[&'static str]) -> Self {
        Self {
            place: tempfile::tempdir().unwrap(),
            launcher,
            arguments: arguments.to_vec(),
            store: None,
        }
    }

    /// In this store instead of a directory of its own.
    pub(crate) fn in_store(self, url: &str) -> Self {
        Self {
            store: Some(url.to_owned()),
            ..self
        }
    }

    /// Runs a process for each of these ranks of `size`, to their ends. `variables` adds to those of the n-th process.
    pub(crate) fn run(
        &self,
        ranks: &[u32],
        size: u32,
        variables: impl Fn(usize) -> Vec<(&'static str, String)>,
    ) -> Vec<Ended> {
        let start = |(nth, rank): (usize, &u32)| {
            let mut command = clean(Command::new(env!("CARGO_BIN_EXE_wv")), self.place.path());
            let values = [
                rank.to_string(),
                size.to_string(),
                nth.to_string(),
                "job7".to_owned(),
            ];
            command
                .args(&self.arguments)
                .env("WARPVERBS_STORE", self.store())
                .envs(self.launcher.names().into_iter().zip(values))
                .envs(variables(nth))
                .stdout(Stdio::piped())
                .stderr(Stdio::piped());
            command.spawn().unwrap()
        };
        let children: Vec<_> = ranks.iter().enumerate().map(start).collect();
        let ended = children
            .into_iter()
            .map(|child| Ended::of(&child.wait_with_output().unwrap()));
        ended.collect()
    }

    fn store(&self) -> String {
        let own = || {
            let folder = self.place.path().join("store");
            std::fs::create_dir_all(&folder).unwrap();
            format!("file://{}", folder.display())
        };
        self.store.clone().unwrap_or_else(own)
    }
}

/// Returns a command without variables of launchers, of this project and of software HCAs.
pub(crate) fn clean(mut command: Command, place: &Path) -> Command {
    const BEGINS: [&str; 6] = [
        "WARPVERBS_",
        "SOFTHCA_",
        "SLURM_",
        "OMPI_",
        "PMI",
        "TORCHELASTIC_",
    ];
    const NAMES: [&str; 6] = [
        "RANK",
        "WORLD_SIZE",
        "LOCAL_RANK",
        "LD_PRELOAD",
        "SYSFS_PATH",
        "CUDA_VISIBLE_DEVICES",
    ];
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if BEGINS.iter().any(|begin| text.starts_with(begin)) || NAMES.contains(&&*text) {
            command.env_remove(name);
        }
    }
    command.env("XDG_RUNTIME_DIR", place);
    command
}

/// A process that has ended.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) status: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Ended {
    pub(crate) fn of(output: &Output) -> Self {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Self {
            status: output.status.code(),
            out: text(&output.stdout),
            err: text(&output.stderr),
        }
    }
}

/// Returns how often words were printed by all of them together.
pub(crate) fn times(ended: &[Ended], words: &str) -> usize {
    let count = |one: &Ended| one.out.matches(words).count() + one.err.matches(words).count();
    ended.iter().map(count).sum()
}
