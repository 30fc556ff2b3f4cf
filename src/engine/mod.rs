//! The host engine: a program on the CPU moves memory to and from peers, striped over QPs, and always learns what became of it.
//!
//! An [`Engine`] has regions of memory, and peers: engines that it has connected to, or that have connected to it. A program gives
//! [`Peer::submit`] a vector of WRITEs and READs; it gets the id of a transfer, which it polls, waits for or awaits. A transfer is
//! concluded only when the HCA has nothing more of it, so its buffers may be used again at once; what became of each operation
//! stands in its [`Report`].
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
//! peer.import(&server.descriptor(region)?)?; // 40 bytes, which a program carries as it likes
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
//! Nothing waits that is not called `wait`: where all slots have a transfer, [`Peer::submit`] is refused without an effect, and
//! [`Peer::submit_wait`] waits for a slot. [`Engine::concluded`] is a future for any executor.
//!
//! # How it works
//!
//! A vector of operations is planned as slices (`cut`, `plan`), without an object for each. A transfer is a slot (`slots`) with one
//! atomic word (`account`): workers pull slices from it when their QPs have room (`worker`), finish what completes, and who settles
//! the account concludes. The models of these words (`models::engine`) run on them too. `transfers` is what submitters, workers and
//! waiters share (`waiting`); no provider is named there.
//!
//! Two engines connect over TCP (`wire`, `handshake`, `admission`). A `link` is a connection as workers see it, `connection` the thread
//! that waits for its end, `recovery` what it does when one QP of several fails, and `known` what stays across connections. Programs call `host`, the engine with its regions (`registry`), and `peer`.

mod account;
mod admission;
mod config;
mod connection;
mod cut;
mod error;
mod handshake;
mod host;
mod known;
mod link;
mod notices;
mod overlap;
mod peer;
mod plan;
mod queue;
mod recovery;
mod regions;
mod registry;
mod report;
mod send;
mod sinks;
mod slots;
mod start;
#[cfg(test)]
mod tests;
mod transfers;
mod waiting;
mod wire;
mod worker;

pub use crate::config::EngineConfig;
pub use crate::provider::{Cause, HostMemory, ProviderError};
pub use account::Outcome;
pub use error::{EngineError, HostError, Side};
pub use host::{CloseReport, Engine};
pub use known::PeerGone;
pub use notices::{Behind, MOST_NOTICE_BYTES, Notice};
pub use peer::Peer;
pub use plan::{Kind, MOST_OPERATIONS, Operation};
pub use regions::{DESCRIPTOR_BYTES, Descriptor};
pub use registry::RegionId;
pub use report::{FirstCause, OperationStatus, Remote, Report};
pub use slots::{Status, TransferId};
pub use transfers::{Options, Prepared};
pub use waiting::Concluded;

/// What only the tests and measurements of this workspace need: parts of a transfer, and an engine without an HCA.
pub(crate) mod parts {
    pub use super::account::{Account, AtomicAccount, Change, Close, MOST_SLICES};
    pub use super::cut::{Cut, LEAST_BLOCK, MOST_SLICE_BYTES};
    pub use super::plan::{Local, MOST_GATHER, MOST_PIECES, Plan, Region, Regions, Slice};
    pub use super::sinks::SinkEngine;
    pub use super::slots::{MOST_SLOTS, SlotWord, Slots};
    pub use crate::provider::sink::SinkFault;
}
