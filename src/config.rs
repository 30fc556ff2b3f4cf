//! The one configuration struct and its `WARPVERBS_*` variables.
//!
//! Rank and number of ranks are also taken from the variables of torchrun, mpirun, MPICH-like launchers and srun.
//!
//! ```
//! use warpverbs::config::Config;
//!
//! let of_torchrun = |name: &str| match name {
//!     "RANK" => Some("3".to_owned()),
//!     "WORLD_SIZE" => Some("8".to_owned()),
//!     "WARPVERBS_STORE" => Some("file:///tmp/meet".to_owned()),
//!     _ => None,
//! };
//! let config = Config::from_variables(of_torchrun)?;
//! assert_eq!((config.rank, config.ranks), (3, 8));
//! # Ok::<(), warpverbs::config::ConfigError>(())
//! ```

use std::time::Duration;

/// How a process takes part in a team. [`Config::from_env`] reads it; a program may also fill it in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// This rank. `WARPVERBS_RANK`, or the launcher's.
    pub rank: u32,
    /// Ranks of the team. `WARPVERBS_RANKS`, or the launcher's.
    pub ranks: u32,
    /// Rendezvous store, `file://DIRECTORY` or `etcd://HOST:PORT/PREFIX`. `WARPVERBS_STORE`.
    pub store: String,
    /// Tells runs apart that might meet in one store. `WARPVERBS_RUN_ID`, or the launcher's job number. Default `0`.
    pub run_id: String,
    /// RDMA device, or `auto`; several, one per rail, separated by commas. `WARPVERBS_DEVICE`. Default `auto`.
    pub device: String,
    /// `auto`, `simt`, `simt-dmabuf` or the number of a GPU. `WARPVERBS_GPU`. Default `auto`.
    pub gpu: String,
    /// Longest wait for other ranks while a team is built. `WARPVERBS_JOIN_TIMEOUT_MS`. Default 30 s.
    pub join_timeout: Duration,
    /// Longest wait of a device call. `WARPVERBS_DEADLINE_MS`. Default 1 s.
    pub deadline: Duration,
    /// QPs to each peer, 1 to 64. `WARPVERBS_QPS_PER_PEER`. Default 4: dispatch and combine, two sets.
    pub qps_per_peer: u32,
    /// log2 of the send queue's WQEBBs, 8 to 15. `WARPVERBS_LOG_DEPTH`. Default 10.
    pub log_depth: u8,
    /// How its QPs work.
    pub modes: QpModes,
}

/// How the QPs of a team work. The words are those of the variables.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QpModes {
    /// Who posts: `shared`, `exclusive` or `cta`. `WARPVERBS_SHARING`. Default `shared`, which the MoE kernels need.
    pub sharing: String,
    /// How the HCA hears of work: `record`, `no-record`, `mailbox` (a thread of the host rings), or `auto`, which takes
    /// `no-record` where the device can. `WARPVERBS_DOORBELL`. Default `auto`.
    pub doorbell: String,
    /// Where rings and CQEs lie: `device` or `host` memory. `WARPVERBS_QUEUES`. Default `device`.
    pub queues: String,
    /// How completions are kept: `collapsed` (one entry) or `wide` (the first error is never overwritten). `WARPVERBS_CQ`.
    /// Default `collapsed`.
    pub cq: String,
    /// log2 of the receive queue's WQEs, 4 to 15, which writes with immediate consume; 0: no receive queue.
    /// `WARPVERBS_LOG_RECV_DEPTH`. Default 0.
    pub log_recv_depth: u8,
    /// Whether ranks of one machine may reach each other by load and store: 1 or 0. `WARPVERBS_DIRECT`. Default 0.
    pub direct: bool,
    /// How MoE signals are kept behind data: `inline`, `swap`, `flush`, or `auto`, which takes the first of them that the devices
    /// allow. `WARPVERBS_MOE_ORDER`. Default `auto`.
    pub moe_order: String,
}

impl Default for QpModes {
    fn default() -> Self {
        Self {
            sharing: "shared".to_owned(),
            doorbell: "auto".to_owned(),
            queues: "device".to_owned(),
            cq: "collapsed".to_owned(),
            log_recv_depth: 0,
            direct: false,
            moe_order: "auto".to_owned(),
        }
    }
}

impl QpModes {
    /// Words for [`QpModes::sharing`].
    pub const SHARING: &'static [&'static str] = &["shared", "exclusive", "cta"];
    /// Words for [`QpModes::doorbell`].
    pub const DOORBELL: &'static [&'static str] = &["auto", "record", "no-record", "mailbox"];
    /// Words for [`QpModes::queues`].
    pub const QUEUES: &'static [&'static str] = &["device", "host"];
    /// Words for [`QpModes::cq`].
    pub const CQ: &'static [&'static str] = &["collapsed", "wide"];
    /// Words for [`QpModes::moe_order`].
    pub const MOE_ORDER: &'static [&'static str] = &["auto", "inline", "swap", "flush"];

    /// Those of this process, from its environment.
    ///
    /// # Errors
    /// A variable that is none of its words, or not a number in its range.
    pub fn from_env() -> Result<Self, ConfigError> {
        Self::from_variables(|name| std::env::var(name).ok())
    }

    /// The same from any source of variables.
    ///
    /// # Errors
    /// As [`QpModes::from_env`].
    pub fn from_variables(variable: impl Fn(&str) -> Option<String>) -> Result<Self, ConfigError> {
        let defaults = Self::default();
        let word =
            |name: &str, words: &'static [&'static str], default: String| match variable(name) {
                None => Ok(default),
                Some(value) if words.contains(&value.as_str()) => Ok(value),
                Some(value) => Err(ConfigError::Word {
                    name: name.to_owned(),
                    value,
                    words,
                }),
            };
        let log = number(&variable, "WARPVERBS_LOG_RECV_DEPTH", 0, 15, 0)?;
        if (1..4).contains(&log) {
            return Err(ConfigError::Number {
                name: "WARPVERBS_LOG_RECV_DEPTH".to_owned(),
                value: log.to_string(),
                least: 4,
                most: 15,
            });
        }
        Ok(Self {
            sharing: word("WARPVERBS_SHARING", Self::SHARING, defaults.sharing)?,
            doorbell: word("WARPVERBS_DOORBELL", Self::DOORBELL, defaults.doorbell)?,
            queues: word("WARPVERBS_QUEUES", Self::QUEUES, defaults.queues)?,
            cq: word("WARPVERBS_CQ", Self::CQ, defaults.cq)?,
            log_recv_depth: u8::try_from(log).expect("at most 15"),
            direct: number(&variable, "WARPVERBS_DIRECT", 0, 1, 0)? == 1,
            moe_order: word("WARPVERBS_MOE_ORDER", Self::MOE_ORDER, defaults.moe_order)?,
        })
    }
}

/// A variable that is a number from `least` to `most`.
fn number(
    variable: &impl Fn(&str) -> Option<String>,
    name: &str,
    least: u64,
    most: u64,
    default: u64,
) -> Result<u64, ConfigError> {
    match variable(name) {
        None => Ok(default),
        Some(value) => match value.parse() {
            Ok(number) if (least..=most).contains(&number) => Ok(number),
            _ => Err(ConfigError::Number {
                name: name.to_owned(),
                value,
                least,
                most,
            }),
        },
    }
}

impl Default for Config {
    fn default() -> Self {
        Self {
            rank: 0,
            ranks: 1,
            store: String::new(),
            run_id: "0".to_owned(),
            device: "auto".to_owned(),
            gpu: "auto".to_owned(),
            join_timeout: Duration::from_secs(30),
            deadline: Duration::from_secs(1),
            qps_per_peer: 4,
            log_depth: 10,
            modes: QpModes::default(),
        }
    }
}

/// Variables of a launcher: rank, number of ranks, job. A pair counts only if both are set.
const LAUNCHERS: [(&str, &str, &str); 5] = [
    ("WARPVERBS_RANK", "WARPVERBS_RANKS", "WARPVERBS_RUN_ID"),
    ("RANK", "WORLD_SIZE", "TORCHELASTIC_RUN_ID"),
    (
        "OMPI_COMM_WORLD_RANK",
        "OMPI_COMM_WORLD_SIZE",
        "OMPI_MCA_ess_base_jobid",
    ),
    ("PMI_RANK", "PMI_SIZE", "PMI_JOBID"),
    ("SLURM_PROCID", "SLURM_NTASKS", "SLURM_JOB_ID"),
];

/// A variable that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// No launcher has told rank and number of ranks.
    #[error(
        "no rank: set WARPVERBS_RANK and WARPVERBS_RANKS, or start with torchrun, mpirun or srun"
    )]
    NoRank,
    /// A value that is not a number in its range.
    #[error("{name} is '{value}'; it must be a number from {least} to {most}")]
    Number {
        /// The variable.
        name: String,
        /// Its value.
        value: String,
        /// Least value.
        least: u64,
        /// Greatest value.
        most: u64,
    },
    /// A value that is none of its words.
    #[error("{name} is '{value}'; it must be one of {}", words.join(", "))]
    Word {
        /// The variable.
        name: String,
        /// Its value.
        value: String,
        /// What it may be.
        words: &'static [&'static str],
    },
}

impl Config {
    /// The configuration of this process, from its environment.
    ///
    /// # Errors
    /// A variable that is not a number in its range; no rank.
    pub fn from_env() -> Result<Self, ConfigError> {
        Self::from_variables(|name| std::env::var(name).ok())
    }

    /// The same from any source of variables.
    ///
    /// # Errors
    /// As [`Config::from_env`].
    pub fn from_variables(variable: impl Fn(&str) -> Option<String>) -> Result<Self, ConfigError> {
        let defaults = Self::default();
        let both = |(rank, ranks, _): &&(&str, &str, &str)| {
            variable(rank).is_some() && variable(ranks).is_some()
        };
        let launcher = LAUNCHERS.iter().find(both).ok_or(ConfigError::NoRank)?;
        let number = |name: &str, least: u64, most: u64, default: u64| {
            number(&variable, name, least, most, default)
        };
        let small = |name: &str, least: u32, most: u32, default: u32| {
            let value = number(name, least.into(), most.into(), default.into())?;
            Ok(u32::try_from(value).expect("at most `most`"))
        };
        let time = |name: &str, default: Duration| {
            let default = u64::try_from(default.as_millis()).expect("a default of seconds");
            number(name, 1, 86_400_000, default).map(Duration::from_millis)
        };
        let text = |name: &str, default: String| variable(name).unwrap_or(default);
        let ranks = small(launcher.1, 1, 1024, 1)?;
        let run_id = variable(LAUNCHERS[0].2).or_else(|| variable(launcher.2));
        Ok(Self {
            rank: small(launcher.0, 0, ranks - 1, 0)?,
            ranks,
            store: text("WARPVERBS_STORE", defaults.store),
            run_id: run_id.unwrap_or(defaults.run_id),
            device: text("WARPVERBS_DEVICE", defaults.device),
            gpu: text("WARPVERBS_GPU", defaults.gpu),
            join_timeout: time("WARPVERBS_JOIN_TIMEOUT_MS", defaults.join_timeout)?,
            deadline: time("WARPVERBS_DEADLINE_MS", defaults.deadline)?,
            qps_per_peer: small("WARPVERBS_QPS_PER_PEER", 1, 64, defaults.qps_per_peer)?,
            log_depth: u8::try_from(small("WARPVERBS_LOG_DEPTH", 8, 15, 10)?).expect("at most 15"),
            modes: QpModes::from_variables(&variable)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn from(variables: &[(&str, &str)]) -> Result<Config, ConfigError> {
        let find = |name: &str| variables.iter().find(|(key, _)| *key == name);
        Config::from_variables(|name| find(name).map(|(_, value)| (*value).to_owned()))
    }

    #[test]
    fn the_variables_of_any_launcher_give_rank_and_number_of_ranks() {
        let torch = from(&[("RANK", "3"), ("WORLD_SIZE", "8"), ("SLURM_PROCID", "0")]).unwrap();
        assert_eq!((torch.rank, torch.ranks), (3, 8));
        let slurm = [
            ("SLURM_PROCID", "1"),
            ("SLURM_NTASKS", "2"),
            ("SLURM_JOB_ID", "77"),
        ];
        assert_eq!(from(&slurm).unwrap().run_id, "77");
        let own = [
            ("WARPVERBS_RANK", "0"),
            ("WARPVERBS_RANKS", "2"),
            ("RANK", "5"),
            ("WORLD_SIZE", "9"),
        ];
        assert_eq!(from(&own).unwrap().ranks, 2);
    }

    #[test]
    fn what_is_not_set_has_its_default() {
        let config = from(&[("RANK", "0"), ("WORLD_SIZE", "1")]).unwrap();
        assert_eq!(config, Config::default());
    }

    #[test]
    fn a_value_out_of_its_range_is_named_with_the_range() {
        assert_eq!(from(&[]), Err(ConfigError::NoRank));
        let message = |name, value| {
            let set = [("RANK", "0"), ("WORLD_SIZE", "4"), (name, value)];
            from(&set).unwrap_err().to_string()
        };
        assert_eq!(
            message("WARPVERBS_LOG_DEPTH", "16"),
            "WARPVERBS_LOG_DEPTH is '16'; it must be a number from 8 to 15"
        );
        assert_eq!(
            message("WARPVERBS_DOORBELL", "bell"),
            "WARPVERBS_DOORBELL is 'bell'; it must be one of auto, record, no-record, mailbox"
        );
        assert_eq!(
            message("WARPVERBS_LOG_RECV_DEPTH", "3"),
            "WARPVERBS_LOG_RECV_DEPTH is '3'; it must be a number from 4 to 15"
        );
        let unknown = from(&[("RANK", "4"), ("WORLD_SIZE", "4")])
            .unwrap_err()
            .to_string();
        assert_eq!(unknown, "RANK is '4'; it must be a number from 0 to 3");
    }
}
