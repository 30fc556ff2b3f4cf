//! Symmetric windows of a rank: their memory, the keys that peers have of it, and how kernels of other ranks reach it.

pub(in crate::team) mod list;
pub(in crate::team) mod shown;
pub(in crate::team) mod window;
