//! The count of those who use an object.

use std::ffi::c_int;
use std::fmt::Display;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::rules::Rule;

/// How many others use an object. It is not closed while there are any.
#[derive(Debug, Default)]
pub(crate) struct Users(AtomicUsize);

impl Users {
    pub(crate) fn add(&self) {
        self.0.fetch_add(1, Ordering::AcqRel);
    }

    pub(crate) fn remove(&self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }

    /// Refuses to close what is in use.
    pub(crate) fn none(&self, what: impl Display) -> Result<(), c_int> {
        match self.0.load(Ordering::Acquire) {
            0 => Ok(()),
            users => Err(Rule::CloseInUse.broken(format_args!("({what}, used by {users})"))),
        }
    }
}
