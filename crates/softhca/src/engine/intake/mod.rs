//! The way from software into the engine: a store to a doorbell register, the doorbell record, and the bytes of WQEs in their ring. The
//! record says how far to run. This module makes operations of the WQEs.
//!
//! The device's [`watch`](crate::device::objects::watch) says which registers to look at, [`doorbell`] takes doorbells from them, [`fetch`]
//! copies a WQE out of its ring and [`decode`] decodes it. All checks trust nothing that software wrote. [`scrutiny`] reports mistakes to
//! software that hardware would not report.

pub(super) mod decode;
pub(crate) mod doorbell;
pub(super) mod fetch;
pub(crate) mod scrutiny;
