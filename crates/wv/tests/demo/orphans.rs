//! Children of `wv` end with it, also when both the end is a SIGKILL and they are stopped.

// UNSAFETY: signals, and descriptors of processes.
#![expect(unsafe_code, reason = "kill(2), pidfd_open(2), poll(2)")]

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};
use std::{fs, io, thread};

use crate::Demo;

/// How long something may take that takes milliseconds.
const LONG: Duration = Duration::from_secs(120);

/// Processes whose parent is `parent`, whose command line holds `word`, and which run another command than `parent`. Between fork and
/// exec a child has the command line of its parent, and has not asked yet to end with it.
fn children(parent: u32, word: &str) -> Vec<u32> {
    let line = |pid: u32| fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let own = line(parent);
    let is_child = |pid: &u32| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let fields = stat.rsplit_once(')').map_or("", |(_, fields)| fields);
        let of = fields
            .split_whitespace()
            .nth(1)
            .and_then(|of| of.parse().ok());
        let line = line(*pid);
        of == Some(parent) && line != own && String::from_utf8_lossy(&line).contains(word)
    };
    let entries = fs::read_dir("/proc").unwrap();
    let pids = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    pids.filter(is_child).collect()
}

fn signal(pid: u32, signal: i32) {
    let pid = i32::try_from(pid).unwrap();
    // SAFETY: no memory is passed; the process is of this test, and has not been waited for.
    let sent = unsafe { libc::kill(pid, signal) };
    assert_eq!(sent, 0, "{}", io::Error::last_os_error());
}

fn pidfd(pid: u32) -> OwnedFd {
    // SAFETY: a number and no flags.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, i64::from(pid), 0) };
    let fd = i32::try_from(fd).unwrap();
    assert!(fd >= 0, "{}", io::Error::last_os_error());
    // SAFETY: the call has just made it, and no other value owns it.
    unsafe { OwnedFd::from_raw_fd(fd) }
}

/// Returns whether the process has ended, at latest after [`LONG`].
fn has_ended(process: &OwnedFd) -> bool {
    let mut poll = libc::pollfd {
        fd: process.as_raw_fd(),
        events: libc::POLLIN,
        revents: 0,
    };
    let time = i32::try_from(LONG.as_millis()).unwrap();
    // SAFETY: one descriptor, which lives for the call.
    unsafe { libc::poll(&raw mut poll, 1, time) == 1 }
}

/// Kills `parent` while its `count` children whose command lines hold `word` are stopped; they end.
fn dies_with_its_children(mut parent: Child, count: usize, word: &str) {
    let until = Instant::now() + LONG;
    let mut found = children(parent.id(), word);
    while found.len() < count {
        let ended = parent.try_wait().unwrap();
        assert!(
            ended.is_none() && Instant::now() < until,
            "{found:?}, {ended:?}"
        );
        thread::sleep(Duration::from_millis(5));
        found = children(parent.id(), word);
    }
    let ends: Vec<OwnedFd> = found.iter().map(|pid| pidfd(*pid)).collect();
    for pid in &found {
        signal(*pid, libc::SIGSTOP);
    }
    parent.kill().unwrap();
    parent.wait().unwrap();
    let left: Vec<u32> = found
        .iter()
        .zip(&ends)
        .filter_map(|(pid, end)| (!has_ended(end)).then_some(*pid))
        .collect();
    for pid in &left {
        signal(*pid, libc::SIGKILL);
    }
    assert!(
        left.is_empty(),
        "{word}: {left:?} of {found:?} outlive their parent"
    );
}

fn start(demo: &mut Demo) -> Child {
    let quiet = demo.command.stdout(Stdio::null()).stderr(Stdio::null());
    quiet.spawn().unwrap()
}

#[test]
fn stopped_ranks_of_a_demo_that_is_killed_end() {
    let mut demo = Demo::new(&["--ranks", "2", "--steps", "1000000"]);
    dies_with_its_children(start(&mut demo), 2, "demo-rank");
}

#[test]
fn stopped_ranks_of_a_chaos_run_that_is_killed_end() {
    let mut chaos = Demo::of(
        "chaos",
        &["--ranks", "3", "--only", "kills", "--minutes", "60"],
    );
    dies_with_its_children(start(&mut chaos), 3, "demo-rank");
}

#[test]
fn a_stopped_program_of_a_sim_that_is_killed_ends() {
    let mut sim = Demo::of("sim", &["--", "sleep", "98765"]);
    dies_with_its_children(start(&mut sim), 1, "98765");
}
