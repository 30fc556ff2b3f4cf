//! The arguments of a call, its state, and explanations of arguments that differ between ranks.

pub(in crate::moe) mod arguments;
pub(in crate::moe) mod call;
pub(in crate::moe) mod call_args;
pub(in crate::moe) mod shape;
pub(in crate::moe) mod staging;
