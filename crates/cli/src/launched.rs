//! A command that runs as one rank of a launcher's job: torchrun, mpirun, MPICH or srun has started a process of it for each rank.
//!
//! Rank number and local rank come from the launcher, and the store from `WARPVERBS_STORE`. A failure is reported once for the whole job: a
//! rank writes it to the store, and rank 0 prints the reports of all ranks. If rank 0 does not print, the first other rank does.

use std::env;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::output;
use crate::sim::{self, SimArgs};
use warpverbs::config::{Config, ConfigError};
use warpverbs::deadline::Looks;
use warpverbs::error::Error;
use warpverbs::internal::tell_failure;
use warpverbs::team::{RankDevices, Store, StoreError, TeamConfig, open_store};

/// How long ranks that fail because of others have to report that.
const GRACE: Duration = Duration::from_secs(2);
/// How long rank 0 has to print before another rank does.
const PRINTED: Duration = Duration::from_secs(8);
/// The longest wait between two looks at the store.
const LOOK: Duration = Duration::from_millis(100);

/// One rank of a job.
pub struct Job {
    /// What the launcher and the variables of the rank say.
    pub config: Config,
    /// The store in which the ranks of the job meet.
    pub store: Arc<dyn Store>,
    /// The name of the command in its messages and in its keys of the store.
    name: &'static str,
}

/// Why a rank gives up.
#[derive(Debug)]
pub struct Cause {
    /// The reason, in words.
    pub message: String,
    /// True if another rank is the cause, and reports it itself.
    pub is_remote: bool,
    /// True if another process has the number of this rank.
    pub is_taken: bool,
}

impl Job {
    /// Returns the job of this process.
    ///
    /// # Errors
    /// The exit status of the command, where no launcher has started it, or its store cannot be used. The error has been printed.
    pub fn of_this_process(name: &'static str) -> Result<Self, ExitCode> {
        let config = match Config::from_env() {
            Ok(config) => config,
            Err(error) => {
                let is_alone = matches!(error, ConfigError::NoRank);
                let code = if is_alone { 2 } else { 1 };
                if is_alone || speaks_for_machine(None) {
                    output::say(format_args!("{name} --launched: {error}"));
                }
                return Err(ExitCode::from(code));
            }
        };
        let store = match config.store.as_str() {
            "" => Err(
                "WARPVERBS_STORE is not set: ranks meet in file:///DIRECTORY, which all machines share, or in etcd://HOST:PORT/PREFIX"
                    .to_owned(),
            ),
            url => open_store(url, &config.run_id).map_err(|error| error.to_string()),
        };
        match store {
            Ok(store) => Ok(Self {
                config,
                store,
                name,
            }),
            Err(why) => {
                if speaks_for_machine(config.local_rank) {
                    output::say(format_args!("{name} --launched: {why}"));
                }
                Err(ExitCode::FAILURE)
            }
        }
    }

    /// Opens the devices of this rank that `config` names, on the link layer of the other ranks.
    ///
    /// # Errors
    /// There is no such device, or it cannot be opened; the store fails.
    pub fn open_devices(&self, config: &Config) -> Result<RankDevices, Error> {
        RankDevices::open_in(config, &TeamConfig::of(config), &self.store)
    }

    /// Returns the number of this rank.
    #[must_use]
    pub fn rank(&self) -> u32 {
        self.config.rank
    }

    /// Returns whether this rank prints the results of the job.
    #[must_use]
    pub fn prints(&self) -> bool {
        self.rank() == 0
    }

    /// Publishes a value of this rank to the other ranks.
    ///
    /// # Errors
    /// The store fails.
    ///
    /// # Panics
    /// If the value cannot be written as JSON.
    pub fn tell(&self, topic: &str, value: &impl Serialize) -> Result<(), StoreError> {
        let bytes = serde_json::to_vec(value).expect("numbers and strings");
        self.store.put(&self.key(topic, self.rank()), &bytes)
    }

    /// Returns the values that all ranks have published, by rank, with None for a rank that has not done so within `timeout`. It ends early
    /// if a rank has failed.
    ///
    /// # Errors
    /// The store fails.
    pub fn hear<T: DeserializeOwned>(
        &self,
        topic: &str,
        timeout: Duration,
    ) -> Result<Vec<Option<T>>, StoreError> {
        let mut told: Vec<Option<T>> = (0..self.config.ranks).map(|_| None).collect();
        for left in Looks::within(timeout) {
            for (rank, told) in (0..).zip(&mut told) {
                if told.is_none() {
                    let value = self.store.try_get(&self.key(topic, rank))?;
                    *told = value.and_then(|value| serde_json::from_slice(&value).ok());
                }
            }
            let is_over = told.iter().all(Option::is_some) || !self.failures()?.is_empty();
            if is_over {
                break;
            }
            if !left.is_zero() {
                self.store.wait_for_change(LOOK.min(left));
            }
        }
        Ok(told)
    }

    /// Ends this rank with this cause, which is printed once for the job. Returns the exit status.
    #[must_use]
    pub fn fail(&self, cause: &Cause) -> ExitCode {
        if !cause.is_remote {
            let line = format!("rank {}: {}", self.rank(), cause.message);
            let own = format!("{}-{:08x}", self.rank(), fastrand::u32(..));
            let told = self.store.put(&self.key("cause", own), line.as_bytes());
            if !cause.is_taken {
                // A team looks here while it is built.
                let _ = tell_failure(self.store.as_ref(), self.rank(), &cause.message);
            }
            if let Err(error) = told {
                output::say(format_args!("{} --launched: {line} ({error})", self.name));
                return ExitCode::FAILURE;
            }
        }
        self.say_once(cause);
        ExitCode::FAILURE
    }

    /// Prints all causes, if this is the rank that prints them.
    fn say_once(&self, own: &Cause) {
        let is_first = self.prints() && !own.is_taken;
        let is_printed = || matches!(self.store.try_get(&self.key("printed", "")), Ok(Some(_)));
        let patience = if is_first { GRACE } else { PRINTED };
        for left in Looks::within(patience) {
            if !is_first && is_printed() {
                return;
            }
            if !left.is_zero() {
                self.store.wait_for_change(LOOK.min(left));
            }
        }
        let claimed = self
            .store
            .compare_and_set(&self.key("printed", ""), None, b"1");
        if !matches!(claimed, Ok(true)) {
            return;
        }
        let mut causes = self.failures().unwrap_or_default();
        if causes.is_empty() {
            causes.push(format!("rank {}: {}", self.rank(), own.message));
        }
        for cause in causes {
            output::say(format_args!("{} --launched: {cause}", self.name));
        }
    }

    /// Returns the causes that ranks have reported.
    ///
    /// # Errors
    /// The store fails.
    pub fn failures(&self) -> Result<Vec<String>, StoreError> {
        let names = self.store.list(&self.key("cause", ""))?;
        let cause = |name: &String| {
            let value = self
                .store
                .try_get(&self.key("cause", name))
                .ok()
                .flatten()?;
            Some(String::from_utf8_lossy(&value).into_owned())
        };
        let mut causes: Vec<String> = names.iter().filter_map(cause).collect();
        causes.dedup();
        Ok(causes)
    }

    fn key(&self, topic: &str, of: impl ToString) -> String {
        let command = self.name.replace(' ', "-");
        match of.to_string().as_str() {
            "" => format!("{command}/{topic}"),
            of => format!("{command}/{topic}/{of}"),
        }
    }
}

/// Returns whether this is the process that prints what all processes of its machine find alike.
fn speaks_for_machine(local_rank: Option<u32>) -> bool {
    const LOCAL: [&str; 5] = [
        "WARPVERBS_LOCAL_RANK",
        "LOCAL_RANK",
        "OMPI_COMM_WORLD_LOCAL_RANK",
        "MPI_LOCALRANKID",
        "SLURM_LOCALID",
    ];
    let told = || LOCAL.iter().find_map(|name| env::var(name).ok());
    match local_rank {
        Some(number) => number == 0,
        None => told().is_none_or(|number| number == "0"),
    }
}

/// Runs this command again with a software HCA of its own, for a rank that has no NIC. `option` tells the new process to use that HCA.
#[must_use]
pub fn on_software_hca(name: &str, option: &str) -> ExitCode {
    let program = match env::current_exe() {
        Ok(program) => program,
        Err(error) => {
            output::say(format_args!(
                "{name} --launched: cannot find out where wv itself is: {error}"
            ));
            return ExitCode::FAILURE;
        }
    };
    let mut command = vec![program.into_os_string()];
    command.extend(env::args_os().skip(1));
    command.push(option.into());
    sim::run(&SimArgs::plain(1, command)).unwrap_or_else(|error| {
        output::say(format_args!("{name} --launched: {error}"));
        ExitCode::from(error.exit_status())
    })
}
