//! All error numbers as `int`, the type of what functions return: in the headers those from 256 on are of an enum, which is unsigned.

use std::ffi::c_int;

use crate::bindings;

pub use crate::bindings::{
    FI_EACCES, FI_EADDRINUSE, FI_EADDRNOTAVAIL, FI_EAGAIN, FI_EBUSY, FI_ECANCELED, FI_ECONNABORTED,
    FI_ECONNREFUSED, FI_ECONNRESET, FI_EFAULT, FI_EHOSTUNREACH, FI_EINVAL, FI_EIO, FI_EMSGSIZE,
    FI_ENODATA, FI_ENODEV, FI_ENOMEM, FI_ENOPROTOOPT, FI_ENOSPC, FI_ENOSYS, FI_ENOTCONN,
    FI_EOPNOTSUPP, FI_EOVERFLOW, FI_EPERM, FI_EREMOTEIO, FI_ETIMEDOUT, FI_SUCCESS,
};
pub use crate::later::FI_ENOMR;

macro_rules! errors {
    ($($(#[doc = $doc:literal])* $name:ident;)*) => {
        $($(#[doc = $doc])* pub const $name: c_int = bindings::$name as c_int;)*
    };
}

errors! {
    /// Of no other kind.
    FI_EOTHER;
    /// The room given is too small.
    FI_ETOOSMALL;
    /// Not in this state of the object, such as an endpoint that is not enabled.
    FI_EOPBADSTATE;
    /// An error waits at the head of the queue.
    FI_EAVAIL;
    /// Flags that are not served.
    FI_EBADFLAGS;
    /// An event queue is missing.
    FI_ENOEQ;
    /// An object of another domain.
    FI_EDOMAIN;
    /// A completion queue is missing.
    FI_ENOCQ;
    /// Bytes arrived broken.
    FI_ECRC;
    /// A message was cut.
    FI_ETRUNC;
    /// The key is not to be had, or in use.
    FI_ENOKEY;
    /// An address vector is missing, or an entry of one.
    FI_ENOAV;
    /// A queue had more entries than room.
    FI_EOVERRUN;
    /// The peer had no buffer for a message.
    FI_ENORX;
}
