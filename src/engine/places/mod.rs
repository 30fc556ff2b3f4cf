//! On which ports and CPUs an engine works.

pub(in crate::engine) mod cpus;
pub(in crate::engine) mod devices;
