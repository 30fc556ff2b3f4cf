//! Tests over providers of the installed library, and over softofi.

mod domains;
mod lanes;
mod peers;
mod rig;

pub(crate) use rig::{broken_rules, device};
