//! Why a WQE has failed.

use std::fmt;

use libfabric_abi::errors;
use mlx5_prm::cqe::Syndrome;

/// Why a WQE has failed, as its CQE, the system or libfabric says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cause {
    /// `syndrome` of the CQE. Of a cause that no HCA has reported it says whose number the cause has: [`Cause::SYSTEM`] or
    /// [`Cause::LIBFABRIC`].
    pub syndrome: u8,
    /// `vendor_err_synd` of the CQE, or the error number of the system or of libfabric. 255: the number is larger.
    pub vendor: u8,
    /// The numbers of libfabric, if it has reported the cause.
    pub libfabric: Option<LibfabricCause>,
}

/// Why an operation of libfabric has failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LibfabricCause {
    /// `err` of the completion: an error number of libfabric, positive.
    pub errno: i32,
    /// `prov_errno` of the completion: the provider's own number. 0: none.
    pub provider: i32,
}

impl Cause {
    /// The WQE was flushed: another one has failed before, or the queue was ended.
    pub const FLUSHED: Self = Self::of_hca(0x05, 0);

    /// The `syndrome` of a cause that no HCA has reported. Its `vendor` is the error number of the system.
    pub const SYSTEM: u8 = 0xe0;

    /// The `syndrome` of a cause that libfabric has reported.
    pub const LIBFABRIC: u8 = 0xe1;

    /// Returns the cause that a CQE has these two bytes.
    #[must_use]
    pub const fn of_hca(syndrome: u8, vendor: u8) -> Self {
        Self {
            syndrome,
            vendor,
            libfabric: None,
        }
    }

    /// Returns the cause that a system call has failed with this error number.
    #[must_use]
    pub fn of_system(errno: i32) -> Self {
        Self::of_hca(Self::SYSTEM, u8::try_from(errno).unwrap_or(u8::MAX))
    }

    /// Returns the cause that an operation of libfabric has failed with these numbers. The sign of the first does not matter.
    #[must_use]
    pub const fn of_libfabric(errno: i32, provider: i32) -> Self {
        let errno = errno.saturating_abs();
        let [low, ..] = errno.to_le_bytes();
        Self {
            syndrome: Self::LIBFABRIC,
            vendor: if errno > 255 { 255 } else { low },
            libfabric: Some(LibfabricCause { errno, provider }),
        }
    }

    /// Returns the error number of the system. Returns None if an HCA or libfabric has reported the cause.
    #[must_use]
    pub fn errno(self) -> Option<i32> {
        (self.syndrome == Self::SYSTEM).then(|| self.vendor.into())
    }

    /// Returns whether the WQE fails on every queue: its lengths, keys, bounds or rights are wrong, or the peer's process has ended.
    #[must_use]
    pub fn is_of_the_request(self) -> bool {
        if let Some(cause) = self.libfabric {
            return cause.is_of_the_request();
        }
        if let Some(libc::ESRCH | libc::EFAULT) = self.errno() {
            return true;
        }
        let own = [
            Syndrome::LOCAL_LENGTH_ERR,
            Syndrome::LOCAL_QP_OP_ERR,
            Syndrome::LOCAL_PROT_ERR,
            Syndrome::REMOTE_INVAL_REQ_ERR,
            Syndrome::REMOTE_ACCESS_ERR,
            Syndrome::REMOTE_OP_ERR,
        ];
        own.contains(&Syndrome(self.syndrome))
    }

    /// Returns whether the cause may be a refusal as well as a peer that has gone. tcp;ofi_rxm of libfabric says of a key that the peer
    /// refuses only that the connection of the endpoints has ended, which is also what it says of a peer's end.
    #[must_use]
    pub fn may_be_a_refusal(self) -> bool {
        let has_ended = |cause: LibfabricCause| HAS_ENDED.contains(&cause.errno);
        self.libfabric.is_some_and(has_ended)
    }

    /// Returns whether the WQE failed only because another WQE had failed or the queue was ended.
    #[must_use]
    pub fn is_flush(self) -> bool {
        let is_cancelled = |cause: LibfabricCause| cause.errno == errors::FI_ECANCELED;
        self.syndrome == Self::FLUSHED.syndrome || self.libfabric.is_some_and(is_cancelled)
    }
}

/// Errors of libfabric by which a provider says that an operation is itself wrong. All others are of the way to the peer.
const OF_THE_REQUEST: [i32; 10] = [
    errors::FI_EINVAL,
    errors::FI_EACCES,
    errors::FI_EPERM,
    errors::FI_EFAULT,
    errors::FI_EMSGSIZE,
    errors::FI_ENOKEY,
    errors::FI_EBADFLAGS,
    errors::FI_ETRUNC,
    // The peer has refused the key or the range.
    errors::FI_EREMOTEIO,
    libc::EKEYREJECTED,
];

/// Errors by which a provider over a stream says that the stream has ended.
const HAS_ENDED: [i32; 5] = [
    errors::FI_ENOTCONN,
    libc::ESHUTDOWN,
    errors::FI_ECONNABORTED,
    errors::FI_ECONNRESET,
    libc::EPIPE,
];

impl LibfabricCause {
    fn is_of_the_request(self) -> bool {
        OF_THE_REQUEST.contains(&self.errno)
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(LibfabricCause { errno, provider }) = self.libfabric {
            match name_of(errno) {
                Some(name) => write!(f, "libfabric error {errno} ({name})")?,
                // Below 256 its numbers are those of the system.
                None if errno < 256 => {
                    write!(f, "libfabric: {}", std::io::Error::from_raw_os_error(errno))?;
                }
                None => write!(f, "libfabric error {errno}")?,
            }
            return match provider {
                0 => Ok(()),
                own => write!(f, ", provider error {own}"),
            };
        }
        match self.errno() {
            Some(errno) => write!(f, "{}", std::io::Error::from_raw_os_error(errno)),
            None => write!(f, "syndrome {:#04x} ({:#04x})", self.syndrome, self.vendor),
        }
    }
}

/// Returns the name of an error that only libfabric has.
fn name_of(errno: i32) -> Option<&'static str> {
    Some(match errno {
        errors::FI_EOTHER => "FI_EOTHER",
        errors::FI_ETOOSMALL => "FI_ETOOSMALL",
        errors::FI_EOPBADSTATE => "FI_EOPBADSTATE",
        errors::FI_EAVAIL => "FI_EAVAIL",
        errors::FI_EBADFLAGS => "FI_EBADFLAGS",
        errors::FI_ENOKEY => "FI_ENOKEY",
        errors::FI_ECRC => "FI_ECRC",
        errors::FI_ETRUNC => "FI_ETRUNC",
        errors::FI_EOVERRUN => "FI_EOVERRUN",
        errors::FI_ENORX => "FI_ENORX",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cause_says_whose_number_it_is() {
        let text = |cause: Cause| cause.to_string();
        assert_eq!(text(Cause::of_hca(0x13, 0x88)), "syndrome 0x13 (0x88)");
        assert!(text(Cause::of_system(libc::EFAULT)).starts_with("Bad address"));
        let bad = Cause::of_libfabric(-errors::FI_EINVAL, 0);
        assert_eq!((bad.syndrome, bad.vendor, bad.errno()), (0xe1, 22, None));
        assert!(
            text(bad).starts_with("libfabric: Invalid argument"),
            "{bad}"
        );
        let own = Cause::of_libfabric(errors::FI_EOTHER, 4103);
        assert_eq!(own.vendor, 255);
        assert_eq!(
            text(own),
            "libfabric error 256 (FI_EOTHER), provider error 4103"
        );
    }

    #[test]
    fn what_is_wrong_with_a_request_is_not_blamed_on_the_rail() {
        for errno in OF_THE_REQUEST {
            assert!(Cause::of_libfabric(errno, 0).is_of_the_request(), "{errno}");
        }
        for errno in [
            errors::FI_EIO,
            errors::FI_ECONNRESET,
            errors::FI_ENOTCONN,
            errors::FI_EOTHER,
        ] {
            let cause = Cause::of_libfabric(errno, 0);
            assert!(!cause.is_of_the_request() && !cause.is_flush(), "{errno}");
        }
        for errno in HAS_ENDED {
            assert!(Cause::of_libfabric(errno, 0).may_be_a_refusal(), "{errno}");
        }
        assert!(!Cause::of_libfabric(errors::FI_EIO, 0).may_be_a_refusal());
        let of_system = Cause::of_system(errors::FI_ECONNRESET);
        assert!(!of_system.may_be_a_refusal());
        assert!(Cause::of_libfabric(errors::FI_ECANCELED, 0).is_flush());
        assert!(Cause::FLUSHED.is_flush() && !Cause::FLUSHED.is_of_the_request());
    }
}
