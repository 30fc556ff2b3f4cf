//! The error number of a system call, as this crate passes it around.

use std::fmt;
use std::io;

/// A positive `errno` value: the value that a kernel would have set.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Errno(pub(crate) i32);

impl Errno {
    pub(crate) const EACCES: Self = Self(libc::EACCES);
    pub(crate) const EBADF: Self = Self(libc::EBADF);
    pub(crate) const EFAULT: Self = Self(libc::EFAULT);
    pub(crate) const EHOSTUNREACH: Self = Self(libc::EHOSTUNREACH);
    pub(crate) const EINVAL: Self = Self(libc::EINVAL);
    pub(crate) const EIO: Self = Self(libc::EIO);
    pub(crate) const EMFILE: Self = Self(libc::EMFILE);
    pub(crate) const ENODATA: Self = Self(libc::ENODATA);
    pub(crate) const ENODEV: Self = Self(libc::ENODEV);
    pub(crate) const ENOENT: Self = Self(libc::ENOENT);
    pub(crate) const ENOMEM: Self = Self(libc::ENOMEM);
    pub(crate) const ENOSPC: Self = Self(libc::ENOSPC);
    pub(crate) const ENOTTY: Self = Self(libc::ENOTTY);
    pub(crate) const EOPNOTSUPP: Self = Self(libc::EOPNOTSUPP);
    pub(crate) const EPROTONOSUPPORT: Self = Self(libc::EPROTONOSUPPORT);
}

impl From<rustix::io::Errno> for Errno {
    fn from(error: rustix::io::Errno) -> Self {
        Self(error.raw_os_error())
    }
}

impl fmt::Debug for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", io::Error::from_raw_os_error(self.0))
    }
}

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

impl std::error::Error for Errno {}
