//! What comes from software: a store to a doorbell register, the doorbell record that says how far to run, and the bytes of
//! WQEs in their ring, until they are an operation.
//!
//! [`watch`] says which registers to look at, [`doorbell`] takes them over, [`fetch`] copies a WQE out of its ring and
//! [`decode`] says what it asks for. Nothing of it is trusted; [`scrutiny`] tells software what hardware would not.

pub(super) mod decode;
pub(crate) mod doorbell;
pub(super) mod fetch;
pub(crate) mod scrutiny;
pub(crate) mod watch;
