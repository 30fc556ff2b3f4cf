//! The process and the user at the other end of a Unix socket, as the kernel reports them.

// UNSAFETY: one system call, of which safe wrappers take a process id of 0 for none that can be.
#![expect(unsafe_code, reason = "getsockopt")]

use std::io;
use std::os::fd::{AsFd, AsRawFd};

use rustix::process::geteuid;

/// The process that has connected or listened, as it was at that moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::engine) struct Credentials {
    /// The id of the process. 0: the process is of another PID namespace.
    pub(in crate::engine) process: i32,
    user: u32,
}

impl Credentials {
    /// Returns the credentials of the other end. Source: `SO_PEERCRED` of unix(7).
    pub(in crate::engine) fn of(socket: impl AsFd) -> io::Result<Self> {
        let mut found = libc::ucred {
            pid: 0,
            uid: u32::MAX,
            gid: u32::MAX,
        };
        let mut bytes = libc::socklen_t::try_from(size_of_val(&found)).map_err(io::Error::other)?;
        // SAFETY: the descriptor is open as long as `socket` is borrowed. The kernel writes at most `bytes` bytes to `found`, any of
        // which are a `ucred`, and to `bytes` how many; both live for the call.
        let status = unsafe {
            libc::getsockopt(
                socket.as_fd().as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_PEERCRED,
                (&raw mut found).cast(),
                &raw mut bytes,
            )
        };
        match status {
            0 => Ok(Self {
                process: found.pid,
                user: found.uid,
            }),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Refuses another user, unless it is root.
    pub(in crate::engine) fn check(self) -> io::Result<()> {
        let own = geteuid().as_raw();
        if self.user == own || self.user == 0 {
            return Ok(());
        }
        Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            format!("it is of user {}; this process is of user {own}", self.user),
        ))
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn the_other_end_is_of_a_process_and_a_user() {
        let [one, other] = UnixStream::pair().map(|(one, other)| [one, other]).unwrap();
        let found = Credentials::of(&one).unwrap();
        assert_eq!(found, Credentials::of(&other).unwrap());
        assert_eq!(u32::try_from(found.process).unwrap(), std::process::id());
        found.check().unwrap();
        let user = geteuid().as_raw() + 1;
        let error = Credentials { user, ..found }.check().unwrap_err();
        assert!(
            error.to_string().contains(&format!("of user {user}")),
            "{error}"
        );
        Credentials { user: 0, ..found }.check().unwrap();
    }
}
