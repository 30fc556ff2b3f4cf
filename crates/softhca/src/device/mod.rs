//! The device model: HCAs, their objects, and the commands that make, change and end them.
//!
//! A process has one registry of HCAs, its `World`. A [`Simulation`] has a world of its own, with a clock that a test moves. All state of a
//! world is behind one lock. Calls of this module take the lock for microseconds, and the engine thread for a bounded piece of work at a
//! time.
//!
//! - [`Hca`] is the owner's handle. It makes a device, looks at its counters, and makes its commands fail.
//! - [`Context`] is an opened device, the counterpart of the kernel's user context. Every object belongs to a context, and closing the
//!   context ends its objects in the right order (QPs, CQs, keys, UMEMs, UAR pages, PDs).
//!
//! SRQs, XRC domains, memory windows and indirect keys are for other programs than Warpverbs: an RC write uses none of them. Their code is
//! in `objects/srq.rs`, `objects/xrcd.rs`, `memory/umr.rs`, `memory/translation.rs`, `memory/null.rs`, and in files of these names in
//! `command` and `context`.
//!
//! Commands are byte buffers as in the programmer's manual. Nothing in them is trusted: any bytes give an answer with a
//! status, and nothing panics.
//!
//! Memory is used where it lies. A registration is a promise that the range stays mapped until the registration is ended; the kernel gets
//! this by pinning pages. The range is checked once, when it is registered.
//!
//! # Rooms
//!
//! Each floor may name those below it, and none above or beside it.
//!
//! ```text
//! hca/                   an HCA as a whole: its owner's handle, its faults, simulations
//! context/ external/     an opened device and the calls that make and end its objects; the C functions that attach an executor
//! command/ world.rs      commands as bytes: what each checks and does; HCAs after their lock
//! state/                 all HCAs of a world as one value, what each of them has, and what an executor has of it
//! config.rs names.rs objects/  how an HCA is made;
//!                        how callers name what it has made; queue pairs, completion queues, doorbell pages, SRQs
//! memory/                registered memory, and the keys that give it
//! check/ counts.rs error.rs event.rs executor/ faults/ limits.rs table.rs  misuse that silicon would not report;
//!                        what a device counts; why calls fail; events; the tables of an
//!                        executor; faults to come; what the device can hold; the table that numbers objects
//! ```

pub(crate) mod check;
mod command;
pub(crate) mod config;
mod context;
pub(crate) mod counts;
mod error;
pub(crate) mod event;
pub(crate) mod executor;
pub mod external;
pub(crate) mod faults;
pub(crate) mod hca;
pub(crate) mod limits;
pub(crate) mod memory;
pub(crate) mod names;
pub(crate) mod objects;
pub(crate) mod state;
pub(crate) mod table;
pub(crate) mod world;

pub use check::{CheckConfig, CheckConfigError, Finding};
pub use command::syndrome;
pub use config::{EventSupport, HcaConfig};
pub use context::Context;
pub use counts::{Counters, ObjectCounts, PortCounters};
pub use error::DeviceError;
pub use event::Event;
pub use executor::execution::Execution;
pub use faults::{
    CommandFault, CommandOutcome, CompletionFault, CompletionMishap, FailCommand, FaultItemError,
    FaultSpec, FaultSpecError, TimedFault,
};
pub use hca::{CarrierError, Hca, HcaError, ReplayError, Simulation, Step, counters, device_names};
pub(crate) use hca::{described, identity, port_counters, set_faults_of_all};
pub(crate) use memory::null::NULL_KEY;
pub use memory::pending_writes::{Adversary, DataOrder, UnknownAdversary, UnknownOrder};
pub use memory::{Access, MemoryObserver, observe_memory};
pub use names::{DevxObject, MrChange, MrKeys, UarPage};
pub use objects::xrcd::XrcFile;
