//! What a call is given, how far it is, and why it differs between ranks.

pub(in crate::moe) mod arguments;
pub(in crate::moe) mod call;
pub(in crate::moe) mod call_args;
pub(in crate::moe) mod shape;
pub(in crate::moe) mod staging;
