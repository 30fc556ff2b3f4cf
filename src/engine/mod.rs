//! The host engine: a program on the CPU moves memory, striped over QPs and NICs, and learns what became of it.
//!
//! A vector of operations is planned as slices (`cut`, `plan`), without an object for each. A transfer is a slot (`slots`) with one
//! atomic word (`account`): workers pull slices from it when their QPs have room (`worker`), finish what completes, and who settles
//! the account concludes. The models of these words (`models::engine`) run on them too. `transfers` is what submitters, workers and
//! waiters share; no provider is named there.
//!
//! Two engines connect over TCP (`wire`, `handshake`, `admission`). A `link` is a connection as workers see it, `connection` the thread
//! that waits for its end, and `recovery` what it does when one QP of several fails. Programs call `host`, the engine with its regions (`registry`), and `peer`.

mod account;
mod admission;
mod config;
mod connection;
mod cut;
mod error;
mod handshake;
mod host;
mod link;
mod peer;
mod plan;
mod queue;
mod recovery;
mod regions;
mod registry;
mod report;
mod sinks;
mod slots;
#[cfg(test)]
mod tests;
mod transfers;
mod wire;
mod worker;

pub use crate::provider::sink::SinkFault;
pub use crate::provider::{Cause, HostMemory, ProviderError};
pub use account::{Account, AtomicAccount, Change, Close, MOST_SLICES, Outcome};
pub use config::EngineConfig;
pub use cut::{Cut, LEAST_BLOCK, MOST_SLICE_BYTES};
pub use error::{EngineError, HostError, Side};
pub use host::{CloseReport, Engine};
pub use peer::Peer;
pub use plan::{
    Kind, Local, MOST_GATHER, MOST_OPERATIONS, MOST_PIECES, Operation, Plan, Region, Regions, Slice,
};
pub use regions::{DESCRIPTOR_BYTES, Descriptor};
pub use registry::RegionId;
pub use report::{FirstCause, OperationStatus, Remote, Report};
pub use sinks::SinkEngine;
pub use slots::{MOST_SLOTS, SlotWord, Slots, Status, TransferId};
pub use transfers::{Options, Prepared};
