//! Watches for the end of processes of this machine, which the kernel reports by a pidfd.

use std::os::fd::OwnedFd;

use rendezvous::{Life, Process};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

/// A process that is watched.
#[derive(Debug)]
pub(super) struct PidFd(OwnedFd);

/// What this process can find out about another.
#[derive(Debug)]
pub(super) enum Watched {
    /// The process runs. The descriptor tells when it has ended.
    Runs(PidFd),
    /// The process has ended.
    Ended,
    /// The end of the process cannot be seen: it is on another machine, is this one, or no descriptor is left. Only its lease shows its
    /// end.
    Unknown,
}

impl PidFd {
    /// Watches `process`.
    pub(super) fn open(process: &Process) -> Watched {
        let Some(pid) = process.pid_here() else {
            return Watched::Unknown;
        };
        let number = i32::try_from(pid).ok().and_then(Pid::from_raw);
        let fd = number.and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
        // Another process may have got the number before the descriptor was opened. `life` finds that out, because an open descriptor keeps
        // its number.
        match (process.life(), fd) {
            (Life::Ended, _) => Watched::Ended,
            (Life::Runs, Some(fd)) => Watched::Runs(Self(fd)),
            (Life::Runs, None) | (Life::Unknown, _) => Watched::Unknown,
        }
    }

    /// Returns whether the process has ended. Does not wait.
    pub(super) fn has_ended(&self) -> bool {
        let mut polled = [PollFd::new(&self.0, PollFlags::IN)];
        let ready = poll(&mut polled, Some(&Timespec::default()));
        ready == Ok(1) && polled[0].revents().contains(PollFlags::IN)
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn the_end_of_a_process_is_reported_and_this_one_is_not_watched() {
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
