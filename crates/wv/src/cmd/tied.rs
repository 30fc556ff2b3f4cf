//! Children that end with this process, whatever ends it.
//!
//! A child that reads its standard input learns by its end that the parent has ended, but not while it is stopped. So the kernel
//! kills it.

// UNSAFETY: code between fork and exec.
#![expect(unsafe_code, reason = "pre_exec")]

use std::os::unix::process::CommandExt;
use std::process::Command;

use rustix::io::Errno;
use rustix::process::{Pid, Signal, getpid, getppid, set_parent_process_death_signal};

/// The child of `command` is killed (SIGKILL) when the thread that starts it ends, and with it when this process ends.
///
/// The kernel looks at the thread, so `wv` starts children on its main thread, which lives as long as the process. A program that
/// gains rights when it is executed (setuid) is not killed; `wv sim` refuses such programs.
pub(super) fn tie(command: &mut Command) {
    let parent: Pid = getpid();
    // SAFETY: two bare system calls, without libc, memory or locks.
    unsafe {
        command.pre_exec(move || {
            set_parent_process_death_signal(Some(Signal::KILL))?;
            // A parent that ended before the call sends nothing any more.
            if getppid() == Some(parent) {
                Ok(())
            } else {
                Err(Errno::SRCH.into())
            }
        });
    }
}
