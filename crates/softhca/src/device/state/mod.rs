//! The state of HCAs that can reach each other by memory, as one value, and of each of them.
//!
//! [`fabric`] has all HCAs, and [`hca`] one of them. [`users`] counts what uses an object. `faults` makes faults take effect. `external` is
//! for HCAs whose WQEs an executor runs: `tables` follow their objects, each of which has one of the `places` of a table, `changes` are
//! written in a safe order, and `attached` calls the executor.

mod attached;
mod changes;
mod external;
pub(crate) mod fabric;
mod faults;
pub(crate) mod hca;
mod places;
mod tables;
pub(crate) mod users;

pub(crate) use fabric::{Engine, Fabric, Slot};
pub(crate) use hca::{ContextState, HcaState};
