//! The peers of a rank: the QPs to each, how far it is, and what this rank knows of it.

pub(in crate::team) mod attempts;
pub(in crate::team) mod list;
pub(in crate::team) mod state;
