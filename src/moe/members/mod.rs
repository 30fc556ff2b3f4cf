//! What a layer needs of membership: the ranks that take part from one call on, the experts that they hold, and the words that host
//! and kernels exchange about them. This module does not know tokens or their slots.

pub(in crate::moe) mod board;
pub(in crate::moe) mod control;
pub(in crate::moe) mod deadlines;
pub(in crate::moe) mod rule;
pub(in crate::moe) mod views;
