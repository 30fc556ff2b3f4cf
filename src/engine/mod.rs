//! The host engine: a program on the CPU moves memory to and from peers, striped over QPs, and always learns the outcome.
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
//! No call waits unless `wait` is in its name or in its options. If all slots have a transfer, [`Peer::submit`] is refused without an
//! effect. With [`Options::wait`] it waits for a slot. A future for any executor is [`Engine::concluded`].
//!
//! # Rooms
//!
//! Each floor may name those below it, and none above or beside it.
//!
//! ```text
//! parts.rs      what tests and measurements of this workspace need of the rooms
//! outcomes.rs   `Engine`: what became of transfers, notices, counters, peers that are gone
//! over.rs       an engine over any provider, for tests and measurements
//! host.rs       `Engine`: start, devices, regions, connections, close
//! peer.rs       `Peer`: imports, grants, and the calls that begin transfers
//! inner.rs      what an engine has, as handles share it, and how it ends
//! config.rs     values of a configuration that are in no range
//! connection/   how engines find each other and shake hands; the thread of a connection; what is done after a QP has failed
//! worker/       the threads that post slices and reap completions
//! transfers/    a transfer from its submission to its conclusion, as submitters, workers and waiters share it
//! places/       on which ports and CPUs an engine works
//! lives/        other engines as this one knows them, across connections; notices that wait for a transfer
//! memory/       regions, grants and their keys; flushes of GPUs
//! route/        by which QPs, rails and copies slices go to a peer; counters
//! wire/         what two engines say to each other, and how it is sealed
//! ledger/       a transfer in numbers: slots, plan, account, overlaps, tally. No thread and no HCA
//! error.rs      all errors
//! ids.rs kind.rs   names of transfers and regions; what operations do and grants allow
//! limits.rs lock.rs text.rs   limits; the lock of a mutex; what a peer has said
//! ```
//!
//! A vector of operations is planned as slices (`ledger::plan`), without an object for each. A transfer is a slot with one atomic word,
//! the account. Workers pull slices from it when their QPs have room, and finish what completes. The thread that settles the
//! account concludes the transfer. The models of these words (`models::engine`) run on them too.

mod config;
mod connection;
mod error;
mod host;
mod ids;
mod inner;
mod kind;
mod ledger;
mod limits;
mod lives;
mod lock;
mod memory;
mod outcomes;
mod over;
pub(crate) mod parts;
mod peer;
mod places;
mod route;
#[cfg(test)]
mod tests;
mod text;
mod transfers;
mod wire;
mod worker;

pub use crate::config::{
    BadAddress, CpuList, EngineAddress, EngineConfig, EngineCpus, EngineCq, EngineKey,
    EnginePairing, EnginePath, ProviderChoice, SocketPath,
};
pub use crate::provider::{
    AnyMemory, Cause, EngineDevice, GpuMemory, HostMemory, LibfabricCause, Mappings, OfiDevice,
    OfiError, OfiWish, ProviderError,
};
pub use connection::publication::Publication;
pub use error::{Distrust, EngineError, HostError, Side};
pub use host::Engine;
pub use ids::{RegionId, TransferId};
pub use inner::CloseReport;
pub use kind::{Kind, Rights};
pub use ledger::account::Outcome;
pub use ledger::plan::Operation;
pub use ledger::report::{FirstCause, OperationStatus, Remote, Report};
pub use ledger::slots::Status;
pub use ledger::tally::{SliceCounts, Statistics};
pub use limits::{MOST_COUNTERS, MOST_NOTICE_BYTES, MOST_OPERATIONS, MOST_RAILS};
pub use lives::life::PeerGone;
pub use memory::grant::{GRANT_BYTES, Grant};
pub use memory::regions::{DESCRIPTOR_BYTES, Descriptor};
pub use peer::Peer;
pub use places::devices::EngineDevices;
pub use places::near::Near;
pub use route::counter::Counter;
pub use route::flow::{Stalled, WaitsFor};
pub use route::local::PeerPath;
pub use route::mirror::Mirror;
pub use route::rails::{RailKeys, RailStatus};
pub use route::rest::RailState;
pub use text::printable;
pub use transfers::concluded::Concluded;
pub use transfers::{Options, Prepared};
pub use wire::keyed::KeyedStream;
pub use wire::listener::{Accepted, Listener, Shortage};
pub use wire::notices::{Behind, Notice};
pub use wire::streams::Stream;
