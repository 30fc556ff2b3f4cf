//! The one configuration struct and its `WARPVERBS_*` variables.
//!
//! Fields may be added to any configuration of this crate. So programs start from `default` or `new` and change what they need.
//! Every field is public, and has a setter `with_FIELD` for use in an expression.
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
//!
//! # Rooms
//!
//! ```text
//! process.rs engine.rs   how a process takes part in a team, how a host engine works
//! team.rs launcher.rs store.rs   settings of a team, what a launcher says, the URL of the store
//! modes.rs path.rs   how QPs work, how their packets go
//! source.rs          reads variables, and checks fields by the same limits
//! variables.rs       the table of variables
//! variable.rs        what a variable is
//! choices.rs error.rs devices.rs cpus.rs engine_address.rs gpu.rs gid.rs key.rs provider.rs   values and their words;
//!                    why one cannot be used
//! address.rs         hosts and ports in text
//! number.rs limits.rs setters.rs   numbers in text; limits; setters
//! ```

mod address;
mod choices;
mod cpus;
mod devices;
mod engine;
mod engine_address;
mod error;
mod gid;
mod gpu;
mod key;
mod launcher;
mod limits;
mod modes;
mod number;
mod path;
mod process;
mod provider;
mod setters;
mod source;
mod store;
mod team;
mod variable;
mod variables;

pub(crate) use address::host_and_port;
pub use choices::{
    CqKind, Doorbell, EngineCq, EnginePairing, EnginePath, GrhUse, Memory, Queues, Sharing,
    SignalOrder,
};
pub use cpus::{BadCpus, CpuList, EngineCpus};
pub use devices::{BadDevices, DeviceChoice, PortName};
pub use engine::EngineConfig;
pub use engine_address::{BadAddress, EngineAddress, SocketPath};
pub use error::ConfigError;
pub use gid::{BadGid, GidChoice};
pub use gpu::GpuSelector;
pub use key::EngineKey;
pub(crate) use limits::{
    INBOX, MAX_QPS_PER_PEER, MAX_RANKS, MAX_WINDOWS, MOST_LOG_ENTRIES, MOST_WINDOWS,
};
pub use modes::QpModes;
pub use number::whole;
pub use path::PathConfig;
pub use process::Config;
pub use provider::{BadProvider, ProviderChoice};
pub(crate) use setters::setters;
pub(crate) use source::{OutOfRange, in_table};
pub use team::TeamSettings;
pub(crate) use team::{each_setting, holds_settings};
pub use variable::{Group, Reader, Values, Variable};
pub use variables::{GROUPS, variable, variables, variables_of};
