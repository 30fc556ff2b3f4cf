//! An HCA as a whole, from outside: how its owner makes it and looks at it, the other HCAs beside it, and their clock.
//!
//! [`handle`] is what an owner holds. A [`world`] is a number of HCAs behind one lock. It is that of the process, which the
//! engine thread serves, or that of a [`simulation`], which a test steps by itself. The inside of an HCA is the
//! [state](super::state)'s.

mod carrier;
mod counters;
mod describe;
mod handle;
mod simulation;
pub(crate) mod world;

pub use carrier::CarrierError;
pub use counters::{Counters, ObjectCounts, PortCounters};
pub(crate) use describe::described;
pub(crate) use handle::identity;
pub(crate) use handle::port_counters;
pub use handle::{EventSupport, Hca, HcaConfig, HcaError, counters, device_names};
pub use simulation::{Simulation, Step};
