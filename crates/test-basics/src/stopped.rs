//! Processes that a test stops for a time. When `kill` returns, the signal may still be on its way.

use std::fs;
use std::process::Command;

use crate::limits::until;

/// Stops a process (SIGSTOP), and waits until each of its threads has stopped. Until then the process may still answer.
pub fn stop(process: u32) {
    assert!(stop_living(process), "process {process} has ended");
}

/// Stops a process as [`stop`] does, unless it has ended. Returns whether it stands.
#[must_use]
pub fn stop_living(process: u32) -> bool {
    if !signal(process, "STOP") {
        return false;
    }
    let mut has_ended = false;
    until("the process stands or has ended", || {
        let Ok(threads) = fs::read_dir(format!("/proc/{process}/task")) else {
            has_ended = true;
            return true;
        };
        let states = threads.flatten().map(|thread| {
            let stat = fs::read_to_string(thread.path().join("stat")).ok()?;
            stat.rsplit_once(") ").unwrap().1.chars().next()
        });
        let states: Vec<Option<char>> = states.collect();
        has_ended = states.iter().all(|state| *state == Some('Z'));
        has_ended || states.iter().all(|state| *state == Some('T'))
    });
    !has_ended
}

/// Resumes a process (SIGCONT).
pub fn resume(process: u32) {
    assert!(signal(process, "CONT"), "process {process} has ended");
}

/// Returns whether there was such a process.
fn signal(process: u32, name: &str) -> bool {
    let sent = Command::new("kill")
        .args(["-s", name, &process.to_string()])
        .status();
    sent.unwrap().success()
}
