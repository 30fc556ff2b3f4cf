//! The host engine: a program on the CPU moves memory to and from peers, striped over QPs, and always learns what became of it.
//!
//! An [`Engine`] has regions of memory, and peers: engines that it has connected to, or that have connected to it. A program
//! gives [`Peer::submit`] a vector of WRITEs and READs; it gets the id of a transfer, which it polls, waits for or awaits. A
//! transfer is concluded only when the HCA has nothing more of it, so its buffers may be used again at once. Its [`Report`] says
//! what became of each operation.
//!
//! ```
//! use std::sync::Arc;
//! use std::time::Duration;
//! use warpverbs::engine::{Engine, EngineConfig, HostMemory, Outcome, Status};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let _hca = softhca::Hca::new()?; // where there is no ConnectX
//! let [here, there] = [HostMemory::new(1 << 20)?, HostMemory::new(1 << 20)?].map(Arc::new);
//!
//! let server = Engine::start(EngineConfig::new("server"))?;
//! let region = server.register(&there)?;
//! let address = server.listen("127.0.0.1:0".parse()?)?;
//!
//! let client = Engine::start(EngineConfig::new("client"))?;
//! client.register(&here)?;
//! let peer = client.connect(&address.to_string())?;
//! peer.import(&server.descriptor(region)?)?; // 72 bytes, which a program carries as it likes
//!
//! here.write(0, b"from here")?;
//! let id = peer.write(here.address(), there.address() + 512, 9)?;
//! let status = client.wait(id, Duration::from_secs(20))?;
//! assert_eq!(status, Status::Concluded(Outcome::Done));
//! client.release(id)?;
//!
//! let mut bytes = [0; 9];
//! there.read(512, &mut bytes)?;
//! assert_eq!(&bytes, b"from here");
//! # Ok(())
//! # }
//! ```
//!
//! No call waits unless `wait` is in its name. If all slots have a transfer, [`Peer::submit`] is refused without an effect, and
//! [`Peer::submit_wait`] waits for a slot. A future for any executor is [`Engine::concluded`].
//!
//! # How it works
//!
//! A vector of operations is planned as slices (`cut`, `plan`), without an object for each. A transfer is a slot (`slots`) with one
//! atomic word (`account`). Workers pull slices from it when their QPs have room (`worker`) and finish what completes. The thread
//! that settles the account concludes the transfer. The models of these words (`models::engine`) run on them too. `transfers` is
//! shared by submitters, workers and waiters (`waiting`), and names no provider. `tally` counts the work. Where
//! several QPs have room, `share` says how much each takes. `devices` chooses the ports, and `cpus` where workers run.
//!
//! A transfer may count at the peer (`counter`): each of its operations is one WRITE with an immediate.
//!
//! Slices for a peer of this machine are copied by the same workers, where both ends let each other (`local`).
//!
//! Engines find each other by address, or by name in a store (`names`). Two connect over TCP or a Unix socket (`listener`, `streams`, `frames`, `seal`, `wire`, `handshake`, `admission`), and programs speak under their key
//! (`words`). A `link` is a connection as workers see it, and `connection` is the thread that waits for its end. The module
//! `recovery` says what that thread does when one QP of several fails; `known` is what stays across connections. Programs call
//! `host`, the engine with its regions (`registry`, `table`), and `peer`. What they hold of an engine names it (`ids`, `slots`).
//!
//! Regions may be memory of a GPU (`gpus`), which no thread copies: QPs move it. Before the engine tells of
//! its bytes, `flush` makes kernels see them.
//!
//! Programs carry descriptors (`regions`) and grants as bytes of one form (`carried`). A peer gets a key of its own by a `grant`.
//! `grants` has the calls, and `keys` ends each key once, and in time.

mod config;
mod connection;
mod error;
mod gpus;
mod grants;
mod host;
mod ids;
mod ledger;
mod lives;
mod memory;
mod peer;
mod route;
mod send;
mod sinks;
mod start;
#[cfg(test)]
mod tests;
mod text;
mod transfers;
mod wire;
mod worker;

pub use crate::config::{
    BadAddress, CpuList, EngineAddress, EngineConfig, EngineCpus, EngineCq, EngineKey,
    EnginePairing, EnginePath, SocketPath,
};
pub use crate::provider::{AnyMemory, Cause, GpuMemory, HostMemory, Mappings, ProviderError};
pub use connection::publication::Publication;
pub use error::{Distrust, EngineError, HostError, Side};
pub use host::{CloseReport, Engine};
pub use ids::RegionId;
pub use ledger::account::Outcome;
pub use ledger::plan::{Kind, MOST_OPERATIONS, Operation};
pub use ledger::report::{FirstCause, OperationStatus, Remote, Report};
pub use ledger::slots::{Status, TransferId};
pub use ledger::tally::{SliceCounts, Statistics};
pub use lives::known::PeerGone;
pub use memory::grant::{GRANT_BYTES, Grant, Rights};
pub use memory::regions::{DESCRIPTOR_BYTES, Descriptor};
pub use peer::Peer;
pub use route::counter::{Counter, MOST_COUNTERS};
pub use route::devices::{EngineDevices, Near};
pub use route::flow::{Stalled, WaitsFor};
pub use route::local::PeerPath;
pub use route::mirror::Mirror;
pub use route::rails::{MOST_RAILS, RailKeys, RailState, RailStatus};
pub use text::printable;
pub use transfers::waiting::Concluded;
pub use transfers::{Options, Prepared};
pub use wire::keyed::KeyedStream;
pub use wire::listener::{Accepted, Listener, Shortage};
pub use wire::notices::{Behind, MOST_NOTICE_BYTES, Notice};
pub use wire::streams::Stream;

/// What only the tests and measurements of this workspace need: parts of a transfer, and an engine without an HCA.
pub(crate) mod parts {
    pub use super::host::{wakes, ways};
    pub use super::ledger::account::{Account, AtomicAccount, Change, Close, MOST_SLICES};
    pub use super::ledger::cut::{Cut, LEAST_BLOCK, MOST_SLICE_BYTES};
    pub use super::ledger::plan::{Local, MOST_GATHER, MOST_PIECES, Plan, Region, Regions, Slice};
    pub use super::ledger::slots::{MOST_SLOTS, SlotWord, Slots};
    pub use super::memory::table::RegionTable;
    pub use super::sinks::SinkEngine;
    pub use crate::provider::sink::SinkFault;
}
