//! How ranks meet in a store: what each tells all others, and how a failure of one ends the waits of all.

pub(in crate::team) mod arguments;
pub(in crate::team) mod exchange;
pub(in crate::team) mod failed;
pub(in crate::team) mod gather;
mod glance;
pub(in crate::team) mod link_layer;
pub(in crate::team) mod living;
pub(in crate::team) mod program;
pub(in crate::team) mod settings;
pub(in crate::team) mod tidy;
pub(in crate::team) mod tries;
