//! Tests over providers of the installed library, and over softofi.

mod domains;
mod lanes;
mod rig;

pub(crate) use rig::device;
