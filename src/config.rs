//! The one configuration struct and its `WARPVERBS_*` variables.
//!
//! Fields may be added to any configuration of this crate, so programs start from `default` or `new` and change what they need:
//! every field is public, and has a setter `with_FIELD` for use in an expression.
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
//!
//! let config = Config::default().with_rank(3).with_ranks(8).with_store("file:///tmp/meet".to_owned());
//! assert_eq!(config.run_id, "0");
//! # Ok::<(), warpverbs::config::ConfigError>(())
//! ```

mod devices;
mod gid;
mod path;

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

pub use devices::{BadDevices, DeviceChoice, PortName};
pub use gid::{BadGid, GidChoice};
pub use path::{GrhUse, PathConfig};

/// A setter for each public field of a struct that other crates cannot write as an expression because fields may be added to it.
/// They are const where `const` stands before the type, which no struct can be whose fields are dropped.
macro_rules! setters {
    (const $type:ident $(<$life:lifetime>)? { $($setters:tt)+ }) => {
        impl$(<$life>)? $type$(<$life>)? { setters! { [const] $($setters)+ } }
    };
    ($type:ident { $($setters:tt)+ }) => {
        impl $type { setters! { [] $($setters)+ } }
    };
    ($const:tt $($setter:ident($field:ident: $value:ty),)+) => {
        $(setters! { @ $const $setter $field $value })+
    };
    (@ [$($const:tt)?] $setter:ident $field:ident $value:ty) => {
        #[doc = concat!("The same with this [`", stringify!($field), "`](#structfield.", stringify!($field), ").")]
        #[must_use]
        pub $($const)? fn $setter(self, $field: $value) -> Self {
            // No `mut self`: rustc 1.95 lets an optimized caller see such a change in its own copy of the argument.
            Self { $field, ..self }
        }
    };
}
pub(crate) use setters;

/// How a process takes part in a team. [`Config::from_env`] reads it; a program may also fill it in.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Config {
    /// This rank. `WARPVERBS_RANK`, or the launcher's.
    pub rank: u32,
    /// Ranks of the team. `WARPVERBS_RANKS`, or the launcher's.
    pub ranks: u32,
    /// Rendezvous store, `file://DIRECTORY`, `etcd://HOST:PORT/PREFIX` or `etcds://..`: see [`open_store`](crate::team::open_store).
    /// `WARPVERBS_STORE`, with `WARPVERBS_STORE_CA`, `_CERT`, `_KEY` and `_SHARED` as its options.
    pub store: String,
    /// Tells runs apart that might meet in one store. `WARPVERBS_RUN_ID`, or the launcher's job number. Default `0`.
    pub run_id: String,
    /// Number of this rank among those of its machine. `WARPVERBS_LOCAL_RANK`, or the launcher's. It chooses the GPU, and the NIC
    /// among equals. Default none, which counts as 0.
    pub local_rank: Option<u32>,
    /// RDMA devices, one per rail: `mlx5_3`, `mlx5_3:2` (a port), `mlx5_0,mlx5_1`, `^mlx5_bond_0` (all but this) or `auto`, which
    /// takes the best one for the GPU. `WARPVERBS_DEVICE`. Default `auto`.
    pub device: DeviceChoice,
    /// The GID that the rank speaks from: an index, a subnet as `10.1.0.0/16`, an interface as `ens3`, or `auto`. `WARPVERBS_GID`.
    /// Default `auto`.
    pub gid: GidChoice,
    /// Where kernels run. `WARPVERBS_GPU`: `auto`, `simt`, `simt-dmabuf` or the number of a GPU. Default `auto`.
    pub gpu: GpuSelector,
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
    /// How packets go to the peers.
    pub path: PathConfig,
}

setters! {
    Config {
        with_rank(rank: u32),
        with_ranks(ranks: u32),
        with_store(store: String),
        with_run_id(run_id: String),
        with_local_rank(local_rank: Option<u32>),
        with_device(device: DeviceChoice),
        with_gid(gid: GidChoice),
        with_gpu(gpu: GpuSelector),
        with_join_timeout(join_timeout: Duration),
        with_deadline(deadline: Duration),
        with_qps_per_peer(qps_per_peer: u32),
        with_log_depth(log_depth: u8),
        with_modes(modes: QpModes),
        with_path(path: PathConfig),
    }
}

/// How the QPs of a team work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct QpModes {
    /// Who posts. `WARPVERBS_SHARING`: `shared`, `exclusive` or `cta`. Default `shared`, which the MoE kernels need.
    pub sharing: Sharing,
    /// How the HCA hears of work. `WARPVERBS_DOORBELL`: `record`, `no-record`, `mailbox` (a thread of the host rings), or `auto`,
    /// which is `None` and takes `no-record` where the device can, else `record`, and `mailbox` where the GPU does not map the
    /// registers. Default `auto`.
    pub doorbell: Option<Doorbell>,
    /// Where rings and CQEs lie. `WARPVERBS_QUEUES`: `device` or `host` memory. Default `device`.
    pub queues: Queues,
    /// How completions are kept. `WARPVERBS_CQ`: `collapsed` (one entry) or `wide` (the first error is never overwritten).
    /// Default `collapsed`.
    pub cq: CqKind,
    /// log2 of the receive queue's WQEs, 4 to 15, which writes with immediate consume. `WARPVERBS_LOG_RECV_DEPTH`, where 0 means
    /// no receive queue. Default none.
    pub log_recv_depth: Option<u8>,
    /// Whether ranks of one machine may reach each other by load and store. `WARPVERBS_DIRECT`: 1 or 0. Default 0.
    pub direct: bool,
    /// How MoE signals are kept behind data. `WARPVERBS_MOE_ORDER`: `inline`, `swap`, `flush`, or `auto`, which is `None` and takes
    /// the first of them that the devices allow. Default `auto`.
    pub moe_order: Option<SignalOrder>,
}

setters! {
    const QpModes {
        with_sharing(sharing: Sharing),
        with_doorbell(doorbell: Option<Doorbell>),
        with_queues(queues: Queues),
        with_cq(cq: CqKind),
        with_log_recv_depth(log_recv_depth: Option<u8>),
        with_direct(direct: bool),
        with_moe_order(moe_order: Option<SignalOrder>),
    }
}

/// Who posts on a QP at the same time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Sharing {
    /// Any thread of any kernel.
    #[default]
    Shared,
    /// One thread or one warp at a time: no flags, no atomics.
    Exclusive,
    /// The threads of one block: flags and atomics of block scope.
    Cta,
}

/// How the HCA hears of posted work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Doorbell {
    /// A record in memory says how far to run; then the register is stored to.
    #[default]
    Record,
    /// There is no record: what is stored to the register says how far to run. By capability
    /// `send_dbr_mode_no_dbr_ext`; the register's page is no other QP's.
    NoRecord,
    /// A record in memory; then a word of host memory, from which a thread of the host stores to the register. For GPUs that
    /// the register cannot be mapped into.
    Mailbox,
}

/// Where send queue, doorbell records, CQEs and receive queue lie. Indices and flags always lie in device memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Queues {
    /// In the control heap, with everything else.
    #[default]
    Device,
    /// In a second heap of host memory that kernels reach: for devices whose memory the HCA cannot reach. Kernels then need
    /// fences of system scope.
    Host,
}

/// How send completions are kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum CqKind {
    /// One entry, overwritten by each completion.
    #[default]
    Collapsed,
    /// An entry for each WQEBB of the send queue: the first error is never overwritten.
    Wide,
}

/// How a signal is kept behind the data that it stands for. In the order of their cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SignalOrder {
    /// The signal is an inline write on the same QP: where the device places writes in order.
    Inline,
    /// The signal is an atomic swap on the same QP: where atomics are behind what was posted before.
    Swap,
    /// The data has completed before the signal is posted: anywhere.
    Flush,
}

/// Which device to open.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum GpuSelector {
    /// The CUDA GPU of the rank's number on its machine if there is a driver and a GPU, else simt.
    #[default]
    Auto,
    /// The CPU.
    Simt,
    /// The CPU, with device memory that a software HCA registers by DMA-BUFs, as a NIC does that of a GPU.
    SimtDmabuf,
    /// CUDA device with this ordinal.
    Cuda(u32),
}

impl GpuSelector {
    /// The one that a word stands for: `auto`, `simt`, `simt-dmabuf`, a number.
    pub(crate) fn of_word(word: &str) -> Option<Self> {
        match word {
            "auto" => Some(Self::Auto),
            "simt" => Some(Self::Simt),
            "simt-dmabuf" => Some(Self::SimtDmabuf),
            ordinal => ordinal.parse().ok().map(Self::Cuda),
        }
    }
}

impl fmt::Display for GpuSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Simt => f.write_str("simt"),
            Self::SimtDmabuf => f.write_str("simt-dmabuf"),
            Self::Cuda(ordinal) => write!(f, "{ordinal}"),
        }
    }
}

/// Words of `WARPVERBS_SHARING`.
const SHARING: [(&str, Sharing); 3] = [
    ("shared", Sharing::Shared),
    ("exclusive", Sharing::Exclusive),
    ("cta", Sharing::Cta),
];
/// Words of `WARPVERBS_DOORBELL`.
const DOORBELL: [(&str, Option<Doorbell>); 4] = [
    ("auto", None),
    ("record", Some(Doorbell::Record)),
    ("no-record", Some(Doorbell::NoRecord)),
    ("mailbox", Some(Doorbell::Mailbox)),
];
/// Words of `WARPVERBS_QUEUES`.
const QUEUES: [(&str, Queues); 2] = [("device", Queues::Device), ("host", Queues::Host)];
/// Words of `WARPVERBS_CQ`.
const CQ: [(&str, CqKind); 2] = [("collapsed", CqKind::Collapsed), ("wide", CqKind::Wide)];
/// Words of `WARPVERBS_MOE_ORDER`.
const MOE_ORDER: [(&str, Option<SignalOrder>); 4] = [
    ("auto", None),
    ("inline", Some(SignalOrder::Inline)),
    ("swap", Some(SignalOrder::Swap)),
    ("flush", Some(SignalOrder::Flush)),
];

impl QpModes {
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
            sharing: word(&variable, "WARPVERBS_SHARING", &SHARING)?,
            doorbell: word(&variable, "WARPVERBS_DOORBELL", &DOORBELL)?,
            queues: word(&variable, "WARPVERBS_QUEUES", &QUEUES)?,
            cq: word(&variable, "WARPVERBS_CQ", &CQ)?,
            log_recv_depth: match log {
                0 => None,
                log => Some(u8::try_from(log).expect("at most 15")),
            },
            direct: number(&variable, "WARPVERBS_DIRECT", 0, 1, 0)? == 1,
            moe_order: word(&variable, "WARPVERBS_MOE_ORDER", &MOE_ORDER)?,
        })
    }
}

/// Variables that are options of a store by TLS, and the option of each.
const STORE_FILES: [(&str, &str); 3] = [
    ("WARPVERBS_STORE_CA", "ca"),
    ("WARPVERBS_STORE_CERT", "cert"),
    ("WARPVERBS_STORE_KEY", "key"),
];

/// The URL of the store, with the options that variables give. One that the URL has itself stays.
fn store(variable: &impl Fn(&str) -> Option<String>, url: String) -> Result<String, ConfigError> {
    let shared = number(variable, "WARPVERBS_STORE_SHARED", 0, 1, 0)? == 1;
    let (place, own) = url.split_once('?').unwrap_or((&url, ""));
    let mut options: Vec<String> = own.split('&').map(str::to_owned).collect();
    options.retain(|option| !option.is_empty());
    if place.starts_with("file://") && shared && options.is_empty() {
        options.push("shared".to_owned());
    }
    if place.starts_with("etcds://") {
        for (name, option) in STORE_FILES {
            let begin = format!("{option}=");
            if let Some(file) = variable(name)
                && !options.iter().any(|own| own.starts_with(&begin))
            {
                options.push(begin + &percent_encoded(&file));
            }
        }
    }
    match options.is_empty() {
        true => Ok(url),
        false => Ok(format!("{place}?{}", options.join("&"))),
    }
}

/// `text` as it may stand in a URL.
fn percent_encoded(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/._-~".contains(&byte);
    let encoded = text.bytes().map(|byte| match plain(byte) {
        true => char::from(byte).to_string(),
        false => format!("%{byte:02x}"),
    });
    encoded.collect()
}

/// What the word of a variable stands for; the default of its type if the variable is not set.
fn word<T: Copy + Default>(
    variable: &impl Fn(&str) -> Option<String>,
    name: &str,
    words: &[(&'static str, T)],
) -> Result<T, ConfigError> {
    let Some(value) = variable(name) else {
        return Ok(T::default());
    };
    match words.iter().find(|(word, _)| *word == value) {
        Some((_, meaning)) => Ok(*meaning),
        None => Err(ConfigError::Word {
            name: name.to_owned(),
            value,
            words: words.iter().map(|(word, _)| *word).collect(),
        }),
    }
}

/// What a variable stands for whose type reads it.
fn parsed<T: FromStr>(
    variable: &impl Fn(&str) -> Option<String>,
    name: &str,
    default: T,
) -> Result<T, ConfigError>
where
    T::Err: fmt::Display,
{
    let Some(value) = variable(name) else {
        return Ok(default);
    };
    value.parse().map_err(|fault: T::Err| ConfigError::Form {
        name: name.to_owned(),
        fault: fault.to_string(),
    })
}

/// What `WARPVERBS_GPU` names.
fn gpu(variable: &impl Fn(&str) -> Option<String>) -> Result<GpuSelector, ConfigError> {
    const NAME: &str = "WARPVERBS_GPU";
    let Some(value) = variable(NAME) else {
        return Ok(GpuSelector::default());
    };
    GpuSelector::of_word(&value).ok_or_else(|| ConfigError::Word {
        name: NAME.to_owned(),
        value,
        words: vec!["auto", "simt", "simt-dmabuf", "the number of a CUDA device"],
    })
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
            local_rank: None,
            device: DeviceChoice::default(),
            gid: GidChoice::default(),
            gpu: GpuSelector::default(),
            join_timeout: Duration::from_secs(30),
            deadline: Duration::from_secs(1),
            qps_per_peer: 4,
            log_depth: 10,
            modes: QpModes::default(),
            path: PathConfig::default(),
        }
    }
}

/// Variables of a launcher.
struct Launcher {
    rank: &'static str,
    ranks: &'static str,
    job: &'static str,
    local_rank: &'static str,
}

/// In the order in which they are looked for: this library's own, torchrun, Open MPI's mpirun, MPICH's, srun.
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
    /// Whether it has started this process: the one variable without the other means nothing.
    fn has_started(&self, variable: &impl Fn(&str) -> Option<String>) -> bool {
        variable(self.rank).is_some() && variable(self.ranks).is_some()
    }
}

/// The rank's number on its machine: said in so many words, or by the launcher. A program that gives its ranks itself may have
/// been started by a launcher all the same.
fn local_rank(
    variable: &impl Fn(&str) -> Option<String>,
    ranks: u32,
) -> Result<Option<u32>, ConfigError> {
    let own = LAUNCHERS[0].local_rank;
    let started = LAUNCHERS
        .iter()
        .filter(|launcher| launcher.has_started(variable));
    let names = std::iter::once(own).chain(started.map(|launcher| launcher.local_rank));
    let Some(name) = names.into_iter().find(|name| variable(name).is_some()) else {
        return Ok(None);
    };
    let local = number(variable, name, 0, u64::from(ranks) - 1, 0)?;
    Ok(Some(u32::try_from(local).expect("below `ranks`")))
}

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
    /// A value that does not have the form that it must have.
    #[error("{name}: {fault}")]
    Form {
        /// The variable.
        name: String,
        /// What is wrong, with the value and the form.
        fault: String,
    },
    /// A value that is none of its words.
    #[error("{name} is '{value}'; it must be one of {}", words.join(", "))]
    Word {
        /// The variable.
        name: String,
        /// Its value.
        value: String,
        /// What it may be.
        words: Vec<&'static str>,
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
        let launcher = LAUNCHERS
            .iter()
            .find(|launcher| launcher.has_started(&variable))
            .ok_or(ConfigError::NoRank)?;
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
        let ranks = small(launcher.ranks, 1, 1024, 1)?;
        let run_id = variable(LAUNCHERS[0].job).or_else(|| variable(launcher.job));
        Ok(Self {
            rank: small(launcher.rank, 0, ranks - 1, 0)?,
            ranks,
            store: store(&variable, text("WARPVERBS_STORE", defaults.store))?,
            run_id: run_id.unwrap_or(defaults.run_id),
            local_rank: local_rank(&variable, ranks)?,
            device: parsed(&variable, "WARPVERBS_DEVICE", defaults.device)?,
            gid: parsed(&variable, "WARPVERBS_GID", defaults.gid)?,
            gpu: gpu(&variable)?,
            join_timeout: time("WARPVERBS_JOIN_TIMEOUT_MS", defaults.join_timeout)?,
            deadline: time("WARPVERBS_DEADLINE_MS", defaults.deadline)?,
            qps_per_peer: small("WARPVERBS_QPS_PER_PEER", 1, 64, defaults.qps_per_peer)?,
            log_depth: u8::try_from(small("WARPVERBS_LOG_DEPTH", 8, 15, 10)?).expect("at most 15"),
            modes: QpModes::from_variables(&variable)?,
            path: PathConfig::from_variables(&variable)?,
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
    fn the_variables_of_any_launcher_give_the_number_on_the_machine() {
        let local = |set: &[(&str, &str)]| from(set).map(|config| config.local_rank);
        for [rank, ranks, number] in [
            ["WARPVERBS_RANK", "WARPVERBS_RANKS", "WARPVERBS_LOCAL_RANK"],
            ["RANK", "WORLD_SIZE", "LOCAL_RANK"],
            [
                "OMPI_COMM_WORLD_RANK",
                "OMPI_COMM_WORLD_SIZE",
                "OMPI_COMM_WORLD_LOCAL_RANK",
            ],
            ["PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID"],
            ["SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID"],
        ] {
            let set = [(rank, "9"), (ranks, "16"), (number, "1")];
            assert_eq!(local(&set), Ok(Some(1)), "{number}");
            assert_eq!(local(&set[..2]), Ok(None), "{number}");
            let bad = local(&[(rank, "9"), (ranks, "16"), (number, "16")]).unwrap_err();
            let wanted = format!("{number} is '16'; it must be a number from 0 to 15");
            assert_eq!(bad.to_string(), wanted);
        }
        // Ranks of its own, and the machine's number from the launcher; a launcher that started nothing says nothing.
        let own = [("WARPVERBS_RANK", "0"), ("WARPVERBS_RANKS", "4")];
        let torch = [("RANK", "2"), ("WORLD_SIZE", "8"), ("LOCAL_RANK", "3")];
        assert_eq!(local(&[own.as_slice(), &torch].concat()), Ok(Some(3)));
        assert_eq!(local(&[own.as_slice(), &torch[2..]].concat()), Ok(None));
        let said = [("WARPVERBS_LOCAL_RANK", "1")];
        assert_eq!(local(&[torch.as_slice(), &said].concat()), Ok(Some(1)));
    }

    #[test]
    fn variables_of_the_store_are_options_of_its_url() {
        let url = |set: &[(&str, &str)]| {
            let rank = [("RANK", "0"), ("WORLD_SIZE", "1")];
            from(&[&rank, set].concat()).map(|config| config.store)
        };
        let store = |url| ("WARPVERBS_STORE", url);
        let shared = ("WARPVERBS_STORE_SHARED", "1");
        assert_eq!(
            url(&[store("file:///a"), shared]).unwrap(),
            "file:///a?shared"
        );
        assert_eq!(
            url(&[store("file:///a?shared"), shared]).unwrap(),
            "file:///a?shared"
        );
        assert_eq!(
            url(&[store("etcd://h:1/p"), shared]).unwrap(),
            "etcd://h:1/p"
        );
        let error = url(&[("WARPVERBS_STORE_SHARED", "yes")]).unwrap_err();
        assert!(error.to_string().contains("from 0 to 1"), "{error}");
        let files = [
            ("WARPVERBS_STORE_CA", "/etc/c a&b%.pem"),
            ("WARPVERBS_STORE_CERT", "/c"),
            ("WARPVERBS_STORE_KEY", "/k"),
        ];
        let with = |store| url(&[[store].as_slice(), &files].concat()).unwrap();
        assert_eq!(
            with(store("etcds://h:1/p")),
            "etcds://h:1/p?ca=/etc/c%20a%26b%25.pem&cert=/c&key=/k"
        );
        assert_eq!(
            with(store("etcds://h:1/p?key=/own")),
            "etcds://h:1/p?key=/own&ca=/etc/c%20a%26b%25.pem&cert=/c"
        );
        assert_eq!(
            with(store("etcd://h:1/p")),
            "etcd://h:1/p",
            "in plain text by its own word"
        );
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
        assert_eq!(
            message("WARPVERBS_GPU", "gpu7"),
            "WARPVERBS_GPU is 'gpu7'; it must be one of auto, simt, simt-dmabuf, the number of a CUDA device"
        );
        assert!(
            message("WARPVERBS_DEVICE", "mlx5_0:0")
                .starts_with("WARPVERBS_DEVICE: RDMA devices 'mlx5_0:0': port '0' is not from 1")
        );
        assert!(message("WARPVERBS_GID", "10.0.0.0/40").contains("the prefix is not from 0 to 32"));
        let unknown = from(&[("RANK", "4"), ("WORLD_SIZE", "4")])
            .unwrap_err()
            .to_string();
        assert_eq!(unknown, "RANK is '4'; it must be a number from 0 to 3");
    }

    #[test]
    fn every_word_of_a_mode_means_another_value() {
        let sets: [(_, &[&str]); 5] = [
            ("WARPVERBS_SHARING", &["shared", "exclusive", "cta"]),
            (
                "WARPVERBS_DOORBELL",
                &["auto", "record", "no-record", "mailbox"],
            ),
            ("WARPVERBS_QUEUES", &["device", "host"]),
            ("WARPVERBS_CQ", &["collapsed", "wide"]),
            ("WARPVERBS_MOE_ORDER", &["auto", "inline", "swap", "flush"]),
        ];
        for (name, words) in sets {
            let of = |word: &&str| {
                let variable = |asked: &str| (asked == name).then(|| (*word).to_owned());
                QpModes::from_variables(variable).unwrap()
            };
            let modes: Vec<_> = words.iter().map(of).collect();
            assert_eq!(modes[0], QpModes::default(), "{name}");
            for (at, one) in modes.iter().enumerate() {
                assert!(!modes[..at].contains(one), "{name}: {}", words[at]);
            }
        }
    }
}
