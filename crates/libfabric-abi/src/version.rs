//! Versions of the library and of its API: one number for both, `FI_VERSION` of the headers.

use std::fmt;

/// The least release that programs of the project take: the one whose headers the bindings are made from.
pub const LEAST_API: Version = Version::new(1, 17);

/// The last API version that the structures of this crate speak.
pub const LATEST_API: Version = Version::new(2, 1);

/// A release, or the version of an API, as the C functions take it: the major number above 16 bits, the minor below.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version(pub u32);

impl Version {
    /// `FI_VERSION(major, minor)`.
    #[must_use]
    pub const fn new(major: u16, minor: u16) -> Self {
        Self(((major as u32) << 16) | minor as u32)
    }

    /// The number before the point.
    #[must_use]
    pub const fn major(self) -> u32 {
        self.0 >> 16
    }

    /// The number after the point.
    #[must_use]
    pub const fn minor(self) -> u32 {
        self.0 & 0xffff
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major(), self.minor())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_the_numbers_of_the_headers_and_in_their_order() {
        assert_eq!(Version::new(1, 17).0, 0x0001_0011);
        assert_eq!(Version(0x0002_0001), LATEST_API);
        assert_eq!(Version::new(2, 1).to_string(), "2.1");
        assert!(Version::new(1, 17) < Version::new(1, 20) && Version::new(1, 22) < LATEST_API);
        let (major, minor) = (
            crate::bindings::FI_MAJOR_VERSION,
            crate::bindings::FI_MINOR_VERSION,
        );
        assert_eq!((LEAST_API.major(), LEAST_API.minor()), (major, minor));
    }
}
