//! The messages of two engines over TCP or a Unix socket, and their encryption.

pub(in crate::engine) mod credentials;
pub(in crate::engine) mod ends;
pub(in crate::engine) mod error;
pub(in crate::engine) mod frames;
pub(in crate::engine) mod keyed;
pub(in crate::engine) mod listener;
pub(in crate::engine) mod messages;
pub(in crate::engine) mod notices;
pub(in crate::engine) mod seal;
pub(in crate::engine) mod shake;
pub(in crate::engine) mod streams;
