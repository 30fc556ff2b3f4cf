//! The device model: HCAs, their objects, and the commands that make, change and end them.
//!
//! A process has one registry of HCAs, its `World`; a [`Simulation`] has one of its own, with a clock that a test moves.
//! Everything about all of them is behind one lock. Calls of this module take it for microseconds, and the engine thread for a
//! bounded piece of work at a time.
//!
//! - [`Hca`] is the owner's handle: makes a device, looks at its counters, makes its commands fail.
//! - [`Context`] is what an opened device gives, the counterpart of the kernel's user context. All objects belong to one, and
//!   closing it ends them in the right order (QPs, CQs, keys, UMEMs, UAR pages, PDs).
//!
//! | folder | duty |
//! |---|---|
//! | `hca` | an HCA as a whole: its owner's handle, its world, simulations, counters |
//! | `context` | an opened device, and the kernel's calls that make and end objects |
//! | `command` | commands as bytes: what each checks and does |
//! | `objects` | queue pairs, completion queues, doorbell pages, and the table that numbers them |
//! | `memory` | registered memory, and the keys that give it |
//! | `checker` | misuse that silicon would not report |
//! | `faults` | faults that a test or a user asks for |
//! | `external` | tables for an executor that runs the WQEs in place of the engine |
//! | `for_judges` | SRQs, XRC, memory windows, indirect keys: not met by an RC write |
//!
//! `state` is all of it as one value: the HCAs of a world, and what each of them has.
//!
//! Commands are byte buffers as in the programmer's manual. Nothing in them is trusted: any bytes give an answer with a
//! status, and nothing panics.
//!
//! Memory is used where it lies. A registration is a promise that the range stays mapped until it is ended; the kernel gets the
//! same by pinning pages. It is checked once, when it is made.

pub(crate) mod checker;
mod command;
mod context;
mod error;
pub mod external;
pub(crate) mod faults;
pub(crate) mod for_judges;
pub(crate) mod hca;
pub(crate) mod memory;
pub(crate) mod objects;
pub(crate) mod state;

pub use checker::{CheckConfig, CheckConfigError, Finding};
pub use command::syndrome;
pub use context::{Context, DevxObject, Event, MrChange, MrKeys, UarPage};
pub use error::DeviceError;
pub use external::Execution;
pub(crate) use faults::set_faults_of_all;
pub use faults::{
    CommandFault, CommandOutcome, CompletionFault, CompletionMishap, FailCommand, FaultItemError,
    FaultSpec, FaultSpecError, ReplayError, TimedFault,
};
pub(crate) use for_judges::null::NULL_KEY;
pub use for_judges::xrcd::XrcFile;
pub use hca::{
    CarrierError, Counters, EventSupport, Hca, HcaConfig, HcaError, ObjectCounts, PortCounters,
    Simulation, Step, counters, device_names,
};
pub(crate) use hca::{described, identity, port_counters};
pub use memory::keys::Access;
pub use memory::pending_writes::{Adversary, DataOrder, UnknownAdversary, UnknownOrder};
pub use memory::{MemoryObserver, observe_memory};
