//! Children that end with this process, whatever ends it.
//!
//! A child that reads its standard input learns there that its parent has ended, but not while it is stopped. So the kernel
//! kills it.

// UNSAFETY: system calls between fork and exec.
#![expect(unsafe_code, reason = "prctl(2) and getppid(2) in a child")]

use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// The child of `command` is killed (SIGKILL) when the thread that starts it ends, and with it when this process ends.
///
/// The kernel looks at the thread, so `wv` starts children on its main thread, which lives as long as the process. A program that
/// gains rights when it is executed (setuid) is not killed; `wv sim` refuses such programs.
pub(super) fn tie(command: &mut Command) {
    let parent = std::process::id();
    // SAFETY: both calls are async-signal-safe, touch no memory, and get plain values.
    unsafe {
        command.pre_exec(move || {
            if libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) != 0 {
                return Err(io::Error::last_os_error());
            }
            // A parent that ended before the call sends nothing any more.
            match u32::try_from(libc::getppid()) == Ok(parent) {
                true => Ok(()),
                false => Err(io::Error::from_raw_os_error(libc::ESRCH)),
            }
        });
    }
}
