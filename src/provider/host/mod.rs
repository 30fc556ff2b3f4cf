//! What an engine has of its NICs, whichever provider drives them. Each type is an enum over the providers, as [`HostLane`] is. An engine
//! names none of the providers itself.
//!
//! An [`EngineDevice`] is a NIC that is open. A [`HostRail`] is what an engine has on it, of which a peer knows the [`HostPort`]. The rail makes
//! a [`HostPair`] for each lane of a connection, and a [`HostReaper`] for each of its workers. The pair makes the [`HostOffer`] that the other
//! end needs, and the [`HostLane`] that a worker posts to. The rail registers memory as a [`HostRegistration`], and makes a [`HostKey`] for
//! each grant. [`BareLanes`] write without an engine, for measurements.

mod bare;
mod device;
mod lane;
mod memory;
mod offer;
mod pair;
mod rail;
mod reaper;

pub use bare::BareLanes;
pub use device::EngineDevice;
pub(crate) use lane::HostLane;
pub(crate) use memory::{HostKey, HostRegistration};
pub(crate) use offer::{HostOffer, HostPort, RC};
pub(crate) use pair::{HostPair, HostTerms};
pub(crate) use rail::{HostRail, Naming};
pub(crate) use reaper::{Host, HostReaper};
