//! What a rank tells of itself: its paths, itself in one line, and ring space for a launch.

pub(in crate::team) mod budget;
pub(in crate::team) mod paths;
pub(in crate::team) mod summary;
