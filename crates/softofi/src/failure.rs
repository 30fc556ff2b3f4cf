//! Why an operation failed, as its completion says it.

use libfabric_abi::errors::{
    FI_EACCES, FI_ECONNABORTED, FI_EFAULT, FI_EHOSTUNREACH, FI_EINVAL, FI_ENOTCONN, FI_EOVERRUN,
    FI_EREMOTEIO,
};

/// The number of the first; that of EFA's own errors, above what 8 bits hold.
const FIRST: i32 = 4096;

macro_rules! failures {
    ($($(#[doc = $doc:literal])* $name:ident $error:ident $text:literal;)*) => {
        /// A failure. Its error of libfabric is that by which EFA 2.1 tells of the same (`prov/efa/src/efa_errno.h`, `to_fi_errno`).
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u32)]
        pub enum Failure {
            $($(#[doc = $doc])* $name,)*
        }

        impl Failure {
            /// All of them, in the order of their numbers.
            pub const ALL: &[Self] = &[$(Self::$name),*];

            /// `FI_E*`, positive.
            #[must_use]
            pub fn error(self) -> i32 {
                match self { $(Self::$name => $error,)* }
            }

            /// What `fi_cq_strerror` says.
            #[must_use]
            pub fn text(self) -> &'static std::ffi::CStr {
                match self { $(Self::$name => $text,)* }
            }
        }
    };
}

failures! {
    /// The target has no such key, or the range is not inside its registration.
    BadAddress FI_EINVAL c"the target has no such key, or it does not have the range";
    /// The registration, or the target's endpoint, does not let peers do that.
    NoRight FI_EACCES c"the target's registration does not allow it";
    /// The target's address vector does not have the initiator.
    UnknownPeer FI_ENOTCONN c"the target's address vector does not have the initiator";
    /// Nobody has ever answered there.
    Unreachable FI_EHOSTUNREACH c"nobody answers at the address";
    /// The peer has answered before, and is gone or silent.
    Unresponsive FI_ECONNABORTED c"the peer does not answer any more";
    /// Memory of the target was unmapped.
    TargetMemory FI_EREMOTEIO c"memory of the target is gone";
    /// Memory of the initiator was unmapped.
    OwnMemory FI_EFAULT c"memory of the operation is gone";
    /// Of the queue itself.
    Overrun FI_EOVERRUN c"the completion queue was overrun";
}

impl Failure {
    /// The provider's own number.
    #[must_use]
    pub fn provider_error(self) -> i32 {
        FIRST + self as i32
    }

    /// The one of this provider's number.
    #[must_use]
    pub fn of_provider_error(number: i32) -> Option<Self> {
        let mut all = Self::ALL.iter();
        all.find(|it| it.provider_error() == number).copied()
    }

    /// The one of a number in a frame.
    pub(crate) fn of_number(number: u32) -> Option<Self> {
        Self::ALL.get(number as usize).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_the_provider_do_not_fit_into_eight_bits_and_lead_back() {
        for failure in Failure::ALL {
            assert!(failure.provider_error() >= 4096);
            let back = Failure::of_provider_error(failure.provider_error());
            assert_eq!(back, Some(*failure));
            assert_eq!(Failure::of_number(*failure as u32), Some(*failure));
        }
        assert_eq!(Failure::of_provider_error(7), None);
        assert_eq!(Failure::of_number(99), None);
    }
}
