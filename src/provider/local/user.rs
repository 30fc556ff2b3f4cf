//! Which processes may be reached: those of the user that runs this process.

use std::fs;
use std::os::unix::fs::MetadataExt;

use rendezvous::Process;

/// The file with Yama's restriction on reading the memory of another process.
pub(super) const YAMA: &str = "/proc/sys/kernel/yama/ptrace_scope";

/// Returns the user whose rights this process has.
pub(super) fn user() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// Checks that process `pid` is `process` and that this user runs it. The error says why not.
pub(super) fn is_of_user(pid: u32, process: &Process) -> Result<(), String> {
    if Process::of(pid) != *process {
        return Err(format!("process {pid} has not started when it says"));
    }
    let owner = fs::metadata(format!("/proc/{pid}")).map_err(|error| error.to_string())?;
    if owner.uid() == user() {
        Ok(())
    } else {
        Err(format!(
            "another user runs process {pid}, or it lets nobody read its memory"
        ))
    }
}
