//! Which process wrote something, and whether it still runs, as far as /proc of this machine can tell.

use std::fs;

use serde::{Deserialize, Serialize};

/// A process. Its number is used again one day, so the time at which it started belongs to it; and it says something only to
/// processes that see the same numbers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::team) struct Process {
    /// Boot of the machine, and namespace of the number.
    seen_from: String,
    pid: u32,
    /// Clock ticks since the boot, field 22 of /proc/PID/stat.
    started: u64,
}

impl Process {
    /// This process.
    pub(in crate::team) fn this() -> Self {
        Self::of(std::process::id())
    }

    /// A process of this machine.
    pub(in crate::team) fn of(pid: u32) -> Self {
        Self {
            seen_from: seen_from(),
            pid,
            started: started(pid).unwrap_or(0),
        }
    }

    /// Its number, if it is a process of this machine that can be watched: another one than this.
    pub(in crate::team) fn pid_here(&self) -> Option<u32> {
        let other = self.started != 0 && self.pid != std::process::id();
        (other && self.seen_from == seen_from()).then_some(self.pid)
    }

    /// Whether the two see the same numbers: both run on one machine.
    pub(in crate::team) fn is_beside(&self, other: &Self) -> bool {
        self.seen_from == other.seen_from && self.started != 0 && other.started != 0
    }

    /// Whether it is sure that the process has ended, with all its threads. `false` for a process elsewhere: nobody can tell.
    pub(in crate::team) fn has_ended(&self) -> bool {
        self.started != 0
            && self.seen_from == seen_from()
            && started(self.pid) != Some(self.started)
    }
}

fn seen_from() -> String {
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let namespace = fs::read_link("/proc/self/ns/pid").unwrap_or_default();
    format!("{} {}", boot.trim(), namespace.display())
}

impl std::fmt::Display for Process {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.pid)
    }
}

/// When `pid` started; none if there is no such process, or only its exit status is left.
fn started(pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // Field 2 is the program's name in parentheses, which may hold anything.
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    let state = fields.next()?;
    let started = fields.nth(18)?.parse().ok()?;
    // What is said is said of its first thread, behind which others may go on.
    let first_has_ended = matches!(state, "Z" | "X");
    let threads = || fs::read_dir(format!("/proc/{pid}/task")).map_or(0, Iterator::count);
    (!first_has_ended || threads() > 1).then_some(started)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    #[test]
    fn a_process_has_ended_when_it_is_dead_even_if_nobody_has_asked_for_its_status() {
        assert!(!Process::this().has_ended());
        let mut child = Command::new("sleep")
            .arg("60")
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        let process = Process {
            pid: child.id(),
            started: started(child.id()).unwrap(),
            ..Process::this()
        };
        assert!(!process.has_ended());
        child.kill().unwrap();
        let until = std::time::Instant::now() + std::time::Duration::from_secs(10);
        while !process.has_ended() && std::time::Instant::now() < until {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        assert!(process.has_ended(), "a zombie");
        child.wait().unwrap();
        assert!(process.has_ended(), "gone");
    }

    #[test]
    fn another_process_with_the_same_number_and_one_elsewhere_are_told_apart() {
        let this = Process::this();
        let earlier = Process {
            started: this.started + 1,
            ..this.clone()
        };
        assert!(earlier.has_ended());
        let elsewhere = Process {
            seen_from: "another machine".to_owned(),
            ..earlier
        };
        assert!(!elsewhere.has_ended());
    }
}
