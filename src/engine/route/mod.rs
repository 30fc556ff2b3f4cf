//! By which QPs, rails and copies slices go to a peer.

pub(in crate::engine) mod counter;
pub(in crate::engine) mod crossing;
pub(in crate::engine) mod flow;
pub(in crate::engine) mod lanes;
pub(in crate::engine) mod link;
pub(in crate::engine) mod local;
pub(in crate::engine) mod mirror;
pub(in crate::engine) mod rails;
pub(in crate::engine) mod rest;
pub(in crate::engine) mod share;
