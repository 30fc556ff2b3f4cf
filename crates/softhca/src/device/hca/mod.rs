//! An HCA as a whole, from outside: how its owner makes it and looks at it, the other HCAs beside it, and their clock.
//!
//! [`handle`] is the handle that an owner holds. Its HCA is either in the [world](super::world) of the process, which the engine thread
//! serves, or in the world of a [`simulation`], which a test steps by itself. The inside of an HCA is its [state](super::state).

mod carrier;
mod describe;
mod faults;
mod handle;
mod look;
mod simulation;

pub use carrier::CarrierError;
pub(crate) use describe::described;
pub use faults::ReplayError;
pub(crate) use faults::set_faults_of_all;
pub use handle::{Hca, HcaError};
pub use look::{counters, device_names};
pub(crate) use look::{identity, port_counters};
pub use simulation::{Simulation, Step};
