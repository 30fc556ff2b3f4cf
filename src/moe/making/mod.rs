//! What is chosen and written when a layer is made.

pub(in crate::moe) mod fit;
pub(in crate::moe) mod grid;
pub(in crate::moe) mod state;
