//! What stands behind the objects of C. Calls of C are in [`calls`](crate::calls), the work of endpoints in [`engine`](crate::engine).

mod domain;
mod endpoint;
mod fabric;
mod keys;
mod queue;
mod registration;
mod users;
mod vector;

pub(crate) use domain::Domain;
pub(crate) use endpoint::{Bound, Endpoint};
pub(crate) use fabric::Fabric;
pub(crate) use keys::{Access, Wish};
pub(crate) use queue::{Entry, Format, Head, Queue};
pub use registration::DmaBuf;
pub(crate) use registration::{InUse, Mapping, Registration, dmabuf, record};
pub(crate) use users::Users;
pub(crate) use vector::Vector;
