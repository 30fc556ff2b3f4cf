//! Reports of a rank on itself: its paths, a summary in one line, and the ring space that a launch needs.

pub(in crate::team) mod budget;
pub(in crate::team) mod paths;
pub(in crate::team) mod summary;
