//! The tables of an executor outside of this library, as both sides lay them out.

pub(crate) mod entries;
pub(crate) mod execution;
