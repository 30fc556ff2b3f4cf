//! The end of processes of this machine, told by the kernel.

// UNSAFETY: two system calls that std does not offer.
#![expect(unsafe_code, reason = "pidfd_open and poll")]

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use rendezvous::Process;

/// A process that is watched.
#[derive(Debug)]
pub(super) struct PidFd(OwnedFd);

/// What can be said of a process.
#[derive(Debug)]
pub(super) enum Watched {
    /// It runs; the descriptor tells when it has ended.
    Runs(PidFd),
    /// It has ended.
    Ended,
    /// It is elsewhere, or it is this one, or it cannot be watched: its lease has to tell.
    Unknown,
}

impl PidFd {
    /// Watches `process`.
    pub(super) fn open(process: &Process) -> Watched {
        let Some(pid) = process.pid_here() else {
            return Watched::Unknown;
        };
        let pid = i64::from(pid);
        // SAFETY: pidfd_open takes a number and flags, and touches no memory of the caller.
        let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
        let fd = i32::try_from(fd).ok().filter(|fd| *fd >= 0);
        // The number may have been another process's by then: that is seen afterwards, since the descriptor keeps it.
        if process.has_ended() {
            if let Some(fd) = fd {
                // SAFETY: the call above has just made it, and nobody else has it.
                drop(unsafe { OwnedFd::from_raw_fd(fd) });
            }
            return Watched::Ended;
        }
        match fd {
            // SAFETY: as above.
            Some(fd) => Watched::Runs(Self(unsafe { OwnedFd::from_raw_fd(fd) })),
            None => Watched::Unknown,
        }
    }

    /// Whether it has ended. Does not wait.
    pub(super) fn has_ended(&self) -> bool {
        let mut poll = libc::pollfd {
            fd: self.0.as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        };
        // SAFETY: one descriptor, which lives for the call.
        let ready = unsafe { libc::poll(&raw mut poll, 1, 0) };
        ready == 1 && poll.revents & libc::POLLIN != 0
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn the_end_of_a_process_is_told_and_this_one_is_not_watched() {
        assert!(matches!(PidFd::open(&Process::this()), Watched::Unknown));
        let mut child = Command::new("sleep").arg("600").spawn().unwrap();
        let process = Process::of(child.id());
        let Watched::Runs(watched) = PidFd::open(&process) else {
            panic!("a child of this process can be watched");
        };
        assert!(!watched.has_ended());
        child.kill().unwrap();
        let until = Instant::now() + Duration::from_secs(100);
        while !watched.has_ended() {
            assert!(Instant::now() < until, "not told");
            std::thread::sleep(Duration::from_millis(1));
        }
        child.wait().unwrap();
        assert!(matches!(PidFd::open(&process), Watched::Ended));
    }
}
