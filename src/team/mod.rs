//! Ranks, windows, the peer table in device memory, the rendezvous store.
//!
//! [`JoinOptions::join`] is collective: every rank makes its QPs to every other, they exchange numbers through the store and
//! connect. What kernels need is then in device memory, behind one address that does not move. A rank that fails in a
//! collective call tells the others, which end soon after with its error.
//!
//! A team has places for more ranks than it may begin with. A rank that comes later or again ([`TeamConfig::joining`]) joins
//! alone, makes its windows alone and publishes its record ([`Team::hello`]). Then each member and the new rank connect with each
//! other ([`Team::connect_peer`]). Nothing else of the members changes.
//!
//! ```
//! use std::sync::Arc;
//! use warpverbs::gpu::{self, GpuSelector};
//! use warpverbs::team::{JoinOptions, MemoryStore, TeamConfig};
//! use warpverbs::verbs::{Context, DeviceSelector};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let _hca = softhca::Hca::new()?; // where there is no ConnectX
//! let device = Context::open(&DeviceSelector::Auto)?;
//! let gpu = gpu::open(GpuSelector::Auto)?;
//! let team = JoinOptions::new(TeamConfig::new(0, 1))
//!     .with_contexts([&device])
//!     .with_gpu(&gpu)
//!     .with_store(Arc::new(MemoryStore::new()))
//!     .join()?;
//! let window = team.window(4096)?; // of every rank, at an address of its own
//! assert_eq!((team.ranks(), window.bytes), (1, 4096));
//! # Ok(())
//! # }
//! ```
//!
//! # Rooms
//!
//! Each floor may name those below it, and none above or beside it.
//!
//! ```text
//! options.rs   `JoinOptions`: how a program joins
//! peer.rs      `Team`: what a program does with one peer
//! team.rs      `Team`: what a program asks of the team as a whole
//! start.rs     a rank joins, and leaves with a report
//! together.rs change/   what founders make together; changes of one peer
//! report/      paths, one line, ring space for a launch
//! parts.rs     what one rank has: the parts below
//! peers/       each peer, how far it is, and which attempt of a reunion it is in
//! hello.rs     what a generation tells of itself and offers a peer, checked
//! qps/         the QPs to one peer, what they have done, how they end
//! windows/     windows of this rank, and the keys that peers have of them
//! tables.rs devices.rs   the team as kernels read it; the GPU and the HCAs of a rank
//! meeting/     what ranks tell each other in the store, and how a failure of one ends the waits of all
//! choices/     what a rank has chosen where its devices leave a choice
//! config.rs rails.rs   the settings with which a rank joins; which rails carry what is posted to a peer
//! error.rs ranks.rs holder.rs   all errors; sets of ranks; a generation of a rank and its keys
//! limits.rs    limits
//! ```

mod change;
mod choices;
mod config;
mod devices;
mod error;
pub(crate) mod hello;
mod holder;
mod limits;
mod meeting;
mod options;
mod parts;
mod peer;
mod peers;
mod qps;
mod rails;
mod ranks;
mod report;
mod start;
mod tables;
#[expect(clippy::module_inception, reason = "the file of the type `Team`")]
mod team;
mod together;
mod windows;

pub use choices::chosen::choices_on;
pub use config::TeamConfig;
pub use devices::RankDevices;
pub use error::TeamError;
pub use limits::{MAX_QPS_PER_PEER, MAX_RANKS, MAX_WINDOWS, MOST_WINDOWS};
pub(crate) use meeting::failed::tell_failure;
pub(crate) use meeting::program::{CallShape, Differs, Launches};
pub(crate) use meeting::tidy::Sweep;
pub use options::JoinOptions;
pub use qps::close::CloseReport;
pub use qps::counters::{QpCounters, QpReport};
pub use ranks::RankSet;
#[cfg(feature = "etcd")]
pub use rendezvous::EtcdStore;
pub(crate) use rendezvous::printable;
pub use rendezvous::{
    AroundStore, BringUpStore, Changed, Count, Entry, FileStore, KeyChange, KeyWatch, LEASE_TTL,
    Lease, LeaseId, MAX_KEY, MAX_VALUE, Measured, MemoryStore, Patient, RECORD_VERSION, Records,
    Store, StoreAnswer, StoreCall, StoreCallKind, StoreError, TextMap, check_url,
    measure as measure_store, open_store,
};
pub use report::budget::{PostOp, Posts};
pub use report::paths::{PathSource, RankPath};
pub use team::Team;
pub(crate) use together::Maker;

pub use crate::config::SignalOrder;
pub use crate::fabric::{Choice, Matter, RefusedStep, Step};
pub use crate::verbs::{CqKind, Doorbell, Queues, Sharing};
