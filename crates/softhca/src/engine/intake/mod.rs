//! What comes from software: a store to a doorbell register, the doorbell record, and the bytes of WQEs in their ring. The record
//! says how far to run. This module makes operations of them.
//!
//! The device's [`watch`](crate::device::objects::watch) says which registers to look at, [`doorbell`] takes them over, [`fetch`] copies
//! a WQE out of its ring and [`decode`] decodes it. Nothing of it is trusted; [`scrutiny`] reports to software what hardware would not.

pub(super) mod decode;
pub(crate) mod doorbell;
pub(super) mod fetch;
pub(crate) mod scrutiny;
