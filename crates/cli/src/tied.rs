//! Children that are killed when this process ends, however it ends.
//!
//! A child that reads its standard input learns by the end of that input that its parent has ended, but not while the child is stopped. So
//! the kernel kills it.

// UNSAFETY: code between fork and exec.
#![expect(unsafe_code, reason = "pre_exec")]

use std::os::unix::process::CommandExt;
use std::process::Command;

use rustix::io::Errno;
use rustix::process::{Pid, Signal, getpid, getppid, set_parent_process_death_signal};

/// Lets the kernel kill the child of `command` (SIGKILL) when the thread that starts it ends, and so when this process ends.
///
/// The kernel looks at the thread, so `wv` starts children on its main thread, which lives as long as the process. A program that
/// gains rights when it is executed (setuid) is not killed; `wv sim` refuses such programs.
pub fn tie(command: &mut Command) {
    let parent: Pid = getpid();
    // SAFETY: two bare system calls, without libc, memory or locks.
    unsafe {
        command.pre_exec(move || {
            set_parent_process_death_signal(Some(Signal::KILL))?;
            // If the parent ended before the call above, no signal will come.
            if getppid() == Some(parent) {
                Ok(())
            } else {
                Err(Errno::SRCH.into())
            }
        });
    }
}
