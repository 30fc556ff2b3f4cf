//! The way of slices to a peer: QPs, rails and copies.
//!
//! # Rooms
//!
//! ```text
//! link.rs      a connection: whether it is open, and its parts
//! counter.rs   counters of WRITEs that have landed
//! mirror.rs    words of the program that show counters
//! local.rs     peers of this machine
//! rails.rs     the NICs of an engine
//! rest.rs fences.rs load.rs flow.rs   when a rail rests; when nothing lands any more; which workers get transfers; how slices move
//! lanes.rs     which lanes take slices
//! crossing.rs share.rs   by which rails a lane goes; how many slices a lane may have in flight
//! ```

pub(in crate::engine) mod counter;
pub(in crate::engine) mod crossing;
pub(in crate::engine) mod fences;
pub(in crate::engine) mod flow;
pub(in crate::engine) mod lanes;
pub(in crate::engine) mod link;
pub(in crate::engine) mod load;
pub(in crate::engine) mod local;
pub(in crate::engine) mod mirror;
pub(in crate::engine) mod rails;
pub(in crate::engine) mod rest;
pub(in crate::engine) mod share;
