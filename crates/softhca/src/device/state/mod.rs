//! The state of HCAs that can reach each other by memory, as one value, and of each of them.

pub(crate) mod fabric;
mod faults;
pub(crate) mod hca;
mod tables;
pub(crate) mod users;

pub(crate) use fabric::{Engine, Fabric, Slot};
pub(crate) use hca::{ContextState, HcaState};
