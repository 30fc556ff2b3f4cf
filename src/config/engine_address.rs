//! The addresses at which host engines listen, and at which others connect to them.

use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use crate::config::address::address;

/// The beginning of the text of a Unix socket's address.
const UNIX: &str = "unix:";

/// The address at which a host engine listens: `IP:PORT`, or `unix:PATH`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum EngineAddress {
    /// TCP.
    Tcp(SocketAddr),
    /// A Unix socket, which processes of one user reach.
    Unix(SocketPath),
}

/// The path of a Unix socket.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SocketPath(String);

/// A text that is no address of an engine.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BadAddress {
    /// The text has neither form of an address.
    #[error("'{text}' is no address: it must be an IP address and a port, or unix:PATH")]
    Form {
        /// The text.
        text: String,
    },
    /// The system takes no socket with a path of this length.
    #[error(
        "the path of a Unix socket has {bytes} bytes; it must have 1 to {} of them",
        SocketPath::MOST
    )]
    Length {
        /// Length of the path.
        bytes: usize,
    },
    /// The path is no text, or has a control character. Paths stand in messages and in stores.
    #[error("the path '{}' of a Unix socket must be plain text in UTF-8", path.escape_debug())]
    Letters {
        /// The path, with signs in place of bytes that are no UTF-8.
        path: String,
    },
}

impl SocketPath {
    /// Most bytes of a path: `sun_path` of unix(7) without its NUL.
    pub const MOST: usize = 107;

    /// Returns the path of the socket at `path`.
    ///
    /// # Errors
    /// [`BadAddress::Length`], [`BadAddress::Letters`].
    pub fn new(path: impl AsRef<Path>) -> Result<Self, BadAddress> {
        let path = path.as_ref();
        let bytes = path.as_os_str().len();
        if !(1..=Self::MOST).contains(&bytes) {
            return Err(BadAddress::Length { bytes });
        }
        match path.to_str() {
            Some(text) if !text.contains(char::is_control) => Ok(Self(text.to_owned())),
            _ => Err(BadAddress::Letters {
                path: path.to_string_lossy().into_owned(),
            }),
        }
    }

    /// Returns the path for system calls.
    #[must_use]
    pub fn as_path(&self) -> &Path {
        Path::new(&self.0)
    }

    /// Returns the path from the root on. A relative path begins at the working directory of this process.
    pub(crate) fn absolute(&self) -> Result<Self, BadAddress> {
        let path: PathBuf = std::path::absolute(&self.0).unwrap_or_else(|_| self.0.clone().into());
        Self::new(path)
    }
}

impl EngineAddress {
    /// Returns the address of a Unix socket at `path`.
    ///
    /// # Errors
    /// As [`SocketPath::new`].
    pub fn unix(path: impl AsRef<Path>) -> Result<Self, BadAddress> {
        SocketPath::new(path).map(Self::Unix)
    }

    /// Returns the path after `unix:` in the text of an address. Returns None if the text does not begin so.
    pub(crate) fn path_of(text: &str) -> Option<Result<SocketPath, BadAddress>> {
        text.strip_prefix(UNIX).map(SocketPath::new)
    }
}

impl From<SocketAddr> for EngineAddress {
    fn from(address: SocketAddr) -> Self {
        Self::Tcp(address)
    }
}

impl FromStr for EngineAddress {
    type Err = BadAddress;

    fn from_str(text: &str) -> Result<Self, BadAddress> {
        match Self::path_of(text) {
            Some(path) => path.map(Self::Unix),
            None => address(text)
                .map(Self::Tcp)
                .ok_or_else(|| BadAddress::Form {
                    text: text.to_owned(),
                }),
        }
    }
}

impl fmt::Display for EngineAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(f),
            Self::Unix(path) => path.fmt(f),
        }
    }
}

impl fmt::Display for SocketPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{UNIX}{}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;

    use super::*;

    #[test]
    fn an_address_is_ip_and_port_or_unix_and_a_path() {
        let longest = format!("unix:/{}", "x".repeat(SocketPath::MOST - 1));
        for text in ["127.0.0.1:7", "[::1]:0", "unix:/run/e", "unix:e", &longest] {
            let address: EngineAddress = text.parse().unwrap();
            assert_eq!(address.to_string(), text);
        }
        for (text, reason) in [
            ("127.0.0.1", "'127.0.0.1' is no address"),
            ("", "'' is no address"),
            ("unix:", "has 0 bytes"),
            (&format!("{longest}x"), "has 108 bytes"),
            ("unix:a\nb", "'a\\nb'"),
            ("unix:a\0b", "'a\\0b'"),
        ] {
            let error = text.parse::<EngineAddress>().unwrap_err().to_string();
            assert!(error.contains(reason), "{text:?}: {error}");
        }
        let path = OsStr::from_bytes(b"/run/\xff");
        assert!(matches!(
            EngineAddress::unix(path),
            Err(BadAddress::Letters { .. })
        ));
    }
}
