//! The ports and CPUs on which an engine works.

pub(in crate::engine) mod cpus;
pub(in crate::engine) mod devices;
mod domains;
pub(in crate::engine) mod near;
