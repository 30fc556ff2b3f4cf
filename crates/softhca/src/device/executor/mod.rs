//! An executor outside of this library: its tables, as both sides lay them out.

pub(crate) mod entries;
pub(crate) mod execution;
pub(crate) mod layout;
