//! What one rank has on its HCAs, for any use: the ports that `auto` takes, rails, ladders of ways to reach the HCAs, ways to offer memory,
//! its identity among processes, and packet numbers.
//!
//! A team makes its QPs and windows on this. Nothing here knows other ranks.

mod choice;
mod devices;
mod error;
mod identity;
mod ladder;
mod offered;
mod patience;
mod port;
mod psn;
mod rail;
mod ways;

pub use choice::{Choice, Matter, RefusedStep, Step};
pub(crate) use devices::{Behind, Openable, Opened, Ports, gpus_of_ranks, open_named, usable};
pub(crate) use error::{FabricError, every};
pub(crate) use identity::{Identity, LiveTeam, Reach, RegisteredWindow, teams_on};
pub(crate) use offered::{Offered, memory_on};
pub(crate) use patience::{longest, patience};
pub(crate) use port::{PortRecord, Unfit, mtu_of};
pub(crate) use psn::{PSN_BITS, any_psn, far_from, first_psn};
pub(crate) use rail::{Rail, RailConfig};
pub(crate) use ways::{Allowed, Ways};
