//! The end of WQEs: which get a completion entry, and its contents.
//!
//! A send WQE ends in [`complete_send`] or [`fail_send`], a receive WQE in [`complete_receive`] or [`fail_receive`]. [`entry`] writes their
//! entries, and [`arming`] raises the event of a new entry for software that waits. [`error_state`] says which state a failure leads to;
//! [`flush`] ends the outstanding WQEs of a QP in error.

pub(super) mod arming;
mod entry;
mod error_state;
pub(crate) mod flush;
mod receives;
mod sends;
mod vendor;

pub(super) use entry::{overran, write_late};
pub(super) use error_state::{enter_error, send_failed};
pub(super) use receives::{complete_receive, fail_receive};
pub(super) use sends::{complete_send, fail_send};
