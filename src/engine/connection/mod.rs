//! Connections: how they are found, begin, recover and end.

pub(in crate::engine) mod admission;
pub(in crate::engine) mod control;
pub(in crate::engine) mod core;
mod counts;
pub(in crate::engine) mod handshake;
pub(in crate::engine) mod own_qps;
pub(in crate::engine) mod peers;
pub(in crate::engine) mod publication;
pub(in crate::engine) mod recovery;
