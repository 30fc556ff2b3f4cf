//! What one rank has on its HCAs, whatever uses it: rails, ways to offer memory, its identity among processes, packet numbers.
//!
//! A team makes its QPs and windows on this. Nothing here knows other ranks.

mod error;
mod identity;
mod offered;
mod port;
mod psn;
mod rail;

pub(crate) use error::FabricError;
pub(crate) use identity::{Identity, LiveTeam, Reach, RegisteredWindow, teams_on};
pub(crate) use offered::Offered;
pub(crate) use port::{PortRecord, mtu_of};
pub(crate) use psn::{PSN_BITS, any_psn, far_from, first_psn};
pub(crate) use rail::{Rail, RailConfig};
