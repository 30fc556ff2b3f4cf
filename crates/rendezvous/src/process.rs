//! The process that wrote a record, and whether it still runs, as far as this machine can tell.
//!
//! /proc may hide a process from this one (mount option hidepid), or refuse to be read. A process has ended if /proc says so, or if the
//! kernel says that no process has its number. In all other cases its state is unknown, and it counts as a process that lives.

use std::fs;
use std::io;

use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process};
use serde::{Deserialize, Serialize};

/// What is known of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Life {
    /// The process exists and has not exited.
    Runs,
    /// The process has ended, with all its threads.
    Ended,
    /// The state is not known. The process runs on another machine, /proc hides it or cannot be read, or this process has no
    /// descriptor left. A later look may find it.
    Unknown,
}

/// A process, by its number and the time of its start, since the number is used again one day. Both mean something only to processes that
/// see the same numbers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Process {
    /// The boot of the machine and the namespace of the number. Empty if either could not be read.
    seen_from: String,
    pid: u32,
    /// The time of its start in clock ticks since the boot: field 22 of /proc/PID/stat.
    started: u64,
}

impl Process {
    /// Returns this process.
    pub fn this() -> Self {
        Self::of(std::process::id())
    }

    /// Returns the process with this number on this machine.
    pub fn of(pid: u32) -> Self {
        Self {
            seen_from: seen_from(),
            pid,
            started: match look(pid) {
                Seen::Runs { started } => started,
                Seen::Ended | Seen::Unknown => 0,
            },
        }
    }

    /// Returns the tag of the process in names of files: number, start, and a digest of `seen_from`.
    pub(crate) fn tag(&self) -> String {
        let seen_from = digest(&self.seen_from);
        format!("{}-{}-{seen_from:016x}", self.pid, self.started)
    }

    /// Returns the process whose tag `name` begins with, if this process sees the same numbers.
    pub(crate) fn of_tag(name: &str) -> Option<Self> {
        let mut parts = name.split('-');
        let (pid, started) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
        let seen_from = seen_from();
        let is_here = u64::from_str_radix(parts.next()?, 16) == Ok(digest(&seen_from));
        is_here.then_some(Self {
            seen_from,
            pid,
            started,
        })
    }

    /// Returns its number, if it is a process of this machine that can be watched, and not this process.
    pub fn pid_here(&self) -> Option<u32> {
        let other = self.pid != std::process::id();
        (other && self.is_known_here() == Some(true)).then_some(self.pid)
    }

    /// Returns whether the two processes see the same numbers: both run on one machine, in one namespace.
    pub fn is_beside(&self, other: &Self) -> bool {
        let known = |process: &Self| !process.seen_from.is_empty() && process.started != 0;
        self.seen_from == other.seen_from && known(self) && known(other)
    }

    /// Returns whether it is sure that the process has ended, with all its threads. `false` where [`Process::life`] says anything else.
    pub fn has_ended(&self) -> bool {
        self.life() == Life::Ended
    }

    /// Looks at the process. Only an exit, another start time, or the kernel's word that no process has the number ends it; an
    /// error of the look says nothing.
    pub fn life(&self) -> Life {
        match self.is_known_here() {
            Some(true) => self.judge(look(self.pid)),
            Some(false) | None => Life::Unknown,
        }
    }

    /// Returns whether this process sees the same numbers. Returns None if it cannot tell.
    fn is_known_here(&self) -> Option<bool> {
        let here = seen_from();
        let told = self.started != 0 && !self.seen_from.is_empty() && !here.is_empty();
        told.then(|| self.seen_from == here)
    }

    /// Returns the state of the process by a look at its number.
    fn judge(&self, seen: Seen) -> Life {
        match seen {
            Seen::Runs { started } if started == self.started => Life::Runs,
            Seen::Runs { .. } | Seen::Ended => Life::Ended,
            Seen::Unknown => Life::Unknown,
        }
    }
}

/// Returns the digest FNV-1a, which is the same in every build.
fn digest(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |digest, byte| {
        (digest ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
    })
}

/// Returns boot and namespace. Returns an empty text if either cannot be read: half of it could be the same on several machines.
fn seen_from() -> String {
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id");
    let namespace = fs::read_link("/proc/self/ns/pid");
    match (boot, namespace) {
        (Ok(boot), Ok(namespace)) => format!("{} {}", boot.trim(), namespace.display()),
        _ => String::new(),
    }
}

impl std::fmt::Display for Process {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.pid)
    }
}

/// The result of a look at a process number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Seen {
    /// A process has the number, and started at that time.
    Runs {
        /// The time of its start in clock ticks since the boot.
        started: u64,
    },
    /// No process has the number, or only the exit status of a process is left.
    Ended,
    /// The system gives no answer.
    Unknown,
}

/// Looks at `pid`.
fn look(pid: u32) -> Seen {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"));
    let threads = || fs::read_dir(format!("/proc/{pid}/task")).map(Iterator::count);
    judge(stat, threads, || is_used(pid))
}

/// Returns what `stat`, the number of threads, and the kernel's answer whether a process has the number say together.
fn judge(
    stat: io::Result<String>,
    threads: impl FnOnce() -> io::Result<usize>,
    is_used: impl FnOnce() -> bool,
) -> Seen {
    let gone = |error: &io::Error| {
        matches!(
            error.raw_os_error(),
            Some(libc::ENOENT | libc::ESRCH | libc::ENOTDIR)
        )
    };
    // A missing file may belong to a hidden process.
    let missing = |is_used: bool| {
        if is_used { Seen::Unknown } else { Seen::Ended }
    };
    let stat = match stat {
        Ok(stat) => stat,
        Err(error) if gone(&error) => return missing(is_used()),
        Err(_) => return Seen::Unknown,
    };
    let Some((state, started)) = state_and_start(&stat) else {
        return Seen::Unknown;
    };
    // The file describes the first thread of the process. Other threads may go on after it.
    if !matches!(state, "Z" | "X") {
        return Seen::Runs { started };
    }
    match threads() {
        Ok(0 | 1) => Seen::Ended,
        Ok(_) => Seen::Runs { started },
        Err(error) if gone(&error) => missing(is_used()),
        Err(_) => Seen::Unknown,
    }
}

/// Returns fields 3 and 22 of a `stat` file.
fn state_and_start(stat: &str) -> Option<(&str, u64)> {
    // Field 2 is the program's name in parentheses, which may hold anything.
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    Some((fields.next()?, fields.nth(18)?.parse().ok()?))
}

/// Returns whether a process has the number, even if this process may not see or signal it, or no process has waited for it.
fn is_used(pid: u32) -> bool {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    pid.is_some_and(|pid| test_kill_process(pid) != Err(Errno::SRCH))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};
    use test_basics::limits::until;

    #[test]
    fn a_killed_process_has_ended_even_before_its_parent_waits_for_it() {
        assert!(!Process::this().has_ended());
        let mut child = Command::new("sleep")
            .arg("600")
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        let process = Process::of(child.id());
        assert!(!process.has_ended());
        child.kill().unwrap();
        until("the zombie has ended", || process.has_ended());
        child.wait().unwrap();
        assert!(process.has_ended(), "gone");
    }

    #[test]
    fn what_cannot_be_read_is_unknown_and_unknown_is_no_end() {
        const STAT: &str = "7 (a) b) S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 4711 20";
        let zombie = STAT.replace(") S", ") Z");
        let runs = Seen::Runs { started: 4711 };
        let stat = |code: i32| -> io::Result<String> { Err(io::Error::from_raw_os_error(code)) };
        let never = || -> io::Result<usize> { panic!("no caller asks") };
        for code in [libc::ENOENT, libc::ESRCH, libc::ENOTDIR] {
            assert_eq!(judge(stat(code), never, || false), Seen::Ended, "{code}");
            // The process is hidden, as by hidepid=2.
            assert_eq!(judge(stat(code), never, || true), Seen::Unknown, "{code}");
        }
        for code in [libc::EACCES, libc::EPERM, libc::EIO, libc::EMFILE] {
            assert_eq!(judge(stat(code), never, || false), Seen::Unknown, "{code}");
        }
        assert_eq!(judge(Ok(STAT.to_owned()), never, || true), runs);
        for broken in [
            "",
            "7",
            "7 (a) S",
            "7 (a) S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 x",
        ] {
            let seen = judge(Ok(broken.to_owned()), never, || true);
            assert_eq!(seen, Seen::Unknown, "{broken:?}");
        }
        let left = |threads: io::Result<usize>| judge(Ok(zombie.clone()), || threads, || true);
        assert_eq!(left(Ok(1)), Seen::Ended);
        assert_eq!(left(Ok(2)), runs, "its first thread has ended");
        let error = |code: i32| Err(io::Error::from_raw_os_error(code));
        assert_eq!(left(error(libc::EPERM)), Seen::Unknown);
        assert_eq!(
            judge(Ok(zombie.clone()), || error(libc::ENOENT), || false),
            Seen::Ended
        );

        let process = Process {
            started: 4711,
            ..Process::this()
        };
        let over = [Seen::Ended, Seen::Runs { started: 4712 }];
        assert!(over.iter().all(|seen| process.judge(*seen) == Life::Ended));
        assert_eq!(process.judge(Seen::Unknown), Life::Unknown);
        assert_eq!(process.judge(runs), Life::Runs);
    }

    #[test]
    fn a_number_is_used_while_its_process_was_not_waited_for() {
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let pid = child.id();
        assert!(is_used(pid) && is_used(1) && is_used(std::process::id()));
        child.kill().unwrap();
        assert!(is_used(pid), "a zombie");
        child.wait().unwrap();
        assert!(!is_used(pid));
        assert!(!is_used(u32::MAX), "no number of a process");
        assert_eq!(look(pid), Seen::Ended);
    }

    #[test]
    fn another_process_with_the_same_number_and_one_elsewhere_differ() {
        let this = Process::this();
        let earlier = Process {
            started: this.started + 1,
            ..this.clone()
        };
        assert!(earlier.has_ended());
        let elsewhere = Process {
            seen_from: "another machine".to_owned(),
            ..earlier.clone()
        };
        assert_eq!(elsewhere.life(), Life::Unknown);
        // The record was written by a process that could not read where it is, perhaps on another machine.
        let nowhere = Process {
            seen_from: String::new(),
            ..earlier
        };
        assert_eq!(nowhere.life(), Life::Unknown);
        assert!(!nowhere.is_beside(&nowhere.clone()));
    }
}
