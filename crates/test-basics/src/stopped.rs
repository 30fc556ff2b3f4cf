//! Processes that a test stops for a time. When `kill` returns, the signal may still be on its way.

use std::fs;
use std::process::Command;

use crate::limits::until;

/// Stops a process (SIGSTOP), and waits until each of its threads has stopped. Until then the process may still answer.
pub fn stop(process: u32) {
    signal(process, "STOP");
    until("the process stands", || {
        let mut threads = fs::read_dir(format!("/proc/{process}/task"))
            .unwrap()
            .flatten();
        threads.all(|thread| {
            let stat = fs::read_to_string(thread.path().join("stat"));
            stat.is_ok_and(|stat| stat.rsplit_once(") ").unwrap().1.starts_with('T'))
        })
    });
}

/// Resumes a process (SIGCONT).
pub fn resume(process: u32) {
    signal(process, "CONT");
}

fn signal(process: u32, name: &str) {
    let sent = Command::new("kill")
        .args(["-s", name, &process.to_string()])
        .status();
    assert!(sent.unwrap().success());
}
