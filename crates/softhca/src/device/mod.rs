//! The device model: HCAs, their objects, and the commands that make, change and end them.
//!
//! A process has one registry of HCAs, its `World`; a [`Simulation`] has one of its own, with a clock that a test moves. Everything about all of them is behind one lock, taken by calls of this module
//! for microseconds and by the engine thread for a bounded piece of work at a time.
//!
//! - [`Hca`] is the owner's handle: makes a device, looks at its counters, makes its commands fail.
//! - [`Context`] is what an opened device gives, the counterpart of the kernel's user context: all objects belong to one,
//!   and closing it ends them in the right order (QPs, CQs, keys, UMEMs, UAR pages, PDs).
//!
//! Commands are byte buffers as in the programmer's manual. Nothing in them is trusted: any bytes give an answer with a
//! status, and nothing panics.
//!
//! Memory is used where it lies. A registration is a promise that the range stays mapped until it is ended (what the
//! kernel gets by pinning pages); it is checked once, when it is made.

pub(crate) mod arming;
mod carrier;
pub(crate) mod checker;
mod command;
mod context;
mod counters;
pub(crate) mod cq;
mod describe;
mod error;
pub(crate) mod faults;
mod hca;
pub(crate) mod keys;
pub(crate) mod mapping;
pub(crate) mod memory;
pub(crate) mod null;
mod observer;
pub(crate) mod placement;
pub(crate) mod qp;
pub(crate) mod qp_state;
pub(crate) mod regions;
mod simulation;
pub(crate) mod srq;
pub(crate) mod state;
pub mod syndrome;
pub(crate) mod table;
pub(crate) mod translation;
mod uar;
pub(crate) mod umr;
pub(crate) mod work;
pub(crate) mod world;
pub(crate) mod xrcd;

pub use carrier::CarrierError;
pub use checker::{CheckConfig, CheckConfigError, Finding};
pub use context::{Context, DevxObject, Event, MrChange, MrKeys, UarPage};
pub use counters::{Counters, ObjectCounts};
pub(crate) use describe::described;
pub use error::DeviceError;
pub(crate) use faults::set_faults_of_all;
pub use faults::{
    CommandFault, CommandOutcome, CompletionFault, CompletionMishap, FailCommand, FaultItemError,
    FaultSpec, FaultSpecError, ReplayError, TimedFault,
};
pub(crate) use hca::identity;
pub use hca::{Hca, HcaConfig, HcaError, counters, device_names};
pub use keys::Access;
pub(crate) use null::NULL_KEY;
pub use observer::{MemoryObserver, observe_memory};
pub use placement::{Adversary, DataOrder, UnknownAdversary, UnknownOrder};
pub use simulation::{Simulation, Step};
pub use xrcd::XrcFile;
