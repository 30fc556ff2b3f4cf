//! What a layer needs of membership: the ranks that take part from one call on, and the words of host and kernels about them.

pub(in crate::moe) mod board;
pub(in crate::moe) mod view;
