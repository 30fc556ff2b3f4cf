//! What stands behind the objects of C. Calls of C are in [`calls`](crate::calls), the work of endpoints in [`engine`](crate::engine).

mod domain;
mod endpoint;
mod fabric;
mod keys;
mod queue;
mod registration;
mod vector;

pub(crate) use domain::Domain;
pub(crate) use endpoint::{Bound, Endpoint};
pub(crate) use fabric::Fabric;
pub(crate) use keys::{Access, Wish};
pub(crate) use queue::{Entry, Format, Head, Queue};
pub use registration::DmaBuf;
pub(crate) use registration::{InUse, Mapping, Registration, dmabuf, record};
pub(crate) use vector::Vector;

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
