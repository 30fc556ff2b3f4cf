//! The child process: which signals are passed on to it, and how its end becomes the end of `wv`.
//!
//! Signals are blocked and taken one by one. A signal of the terminal has reached the child as well, because it is in the same process
//! group. Any other signal is sent on to the child. When the child is stopped, this process stops too, so that the shell gets the terminal
//! back, and both go on together.

// UNSAFETY: signal masks, sigwaitinfo, waitpid, kill and dlopen.
#![expect(unsafe_code, reason = "signals and child processes through libc")]

use std::ffi::OsStr;
use std::io;
use std::mem::MaybeUninit;
use std::os::unix::process::CommandExt;
use std::process::Command;

use libc::{c_int, pid_t, sigset_t};

use crate::signals::set_of;

/// The signals that the parent passes on.
const FORWARDED: [c_int; 9] = [
    libc::SIGINT,
    libc::SIGTERM,
    libc::SIGHUP,
    libc::SIGQUIT,
    libc::SIGUSR1,
    libc::SIGUSR2,
    libc::SIGWINCH,
    libc::SIGTSTP,
    libc::SIGCONT,
];

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    Exited(u8),
    Signalled(c_int),
}

/// Lets the program see `name` as its own name (`argv[0]`), as it would from the shell.
pub(super) fn set_name(command: &mut Command, name: &OsStr) {
    command.arg0(name);
}

/// Runs the command until it ends.
pub(super) fn run(mut command: Command) -> io::Result<Ending> {
    let signals = set_of(FORWARDED.into_iter().chain([libc::SIGCHLD]));
    let before = block(&signals)?;
    // A parent that ignores SIGCHLD hands that down, and then no process can wait for a child. SAFETY: the default action is
    // always valid.
    let on_child = unsafe { libc::signal(libc::SIGCHLD, libc::SIG_DFL) };
    // SAFETY: both calls are async-signal-safe, and what they get are plain values.
    unsafe {
        command.pre_exec(move || {
            libc::signal(libc::SIGCHLD, on_child);
            set_mask(&before)
        });
    }
    let outcome = match command.spawn() {
        Ok(child) => match pid_t::try_from(child.id()) {
            Ok(pid) => wait(pid, &signals),
            Err(_) => Err(io::Error::from(io::ErrorKind::InvalidData)),
        },
        Err(error) => Err(error),
    };
    set_mask(&before)?;
    outcome
}

fn wait(child: pid_t, signals: &sigset_t) -> io::Result<Ending> {
    loop {
        let mut info = MaybeUninit::<libc::siginfo_t>::zeroed();
        // SAFETY: an initialised set, and room for one `siginfo_t`, valid as zeros.
        let (signal, info) = unsafe {
            let signal = libc::sigwaitinfo(signals, info.as_mut_ptr());
            (signal, info.assume_init())
        };
        match signal {
            libc::SIGCHLD => {
                if let Some(ending) = look_at(child)? {
                    return Ok(ending);
                }
            }
            -1 => {
                let error = io::Error::last_os_error();
                if error.kind() != io::ErrorKind::Interrupted {
                    return Err(error);
                }
            }
            // The terminal sent this signal to the whole process group, the child included.
            _ if info.si_code == libc::SI_KERNEL => {}
            _ => send(child, signal),
        }
    }
}

/// Returns the end of the child, if it has ended. If it was stopped by the terminal, this process stops with it.
fn look_at(child: pid_t) -> io::Result<Option<Ending>> {
    let mut status = 0;
    loop {
        // SAFETY: `status` is writable.
        match unsafe { libc::waitpid(child, &mut status, libc::WNOHANG | libc::WUNTRACED) } {
            0 => return Ok(None),
            -1 => {
                let error = io::Error::last_os_error();
                if error.kind() != io::ErrorKind::Interrupted {
                    return Err(error);
                }
            }
            _ if libc::WIFEXITED(status) => {
                let status = libc::WEXITSTATUS(status);
                return Ok(Some(Ending::Exited(
                    u8::try_from(status).unwrap_or(u8::MAX),
                )));
            }
            _ if libc::WIFSIGNALED(status) => {
                return Ok(Some(Ending::Signalled(libc::WTERMSIG(status))));
            }
            // A signal of another process stopped the child, and that process will continue it.
            _ if libc::WSTOPSIG(status) == libc::SIGSTOP => {}
            // The terminal stopped the child. So this process stops until the shell continues it. Then the child goes on, too.
            _ => {
                if !is_pending(libc::SIGCONT) {
                    // SAFETY: no preconditions.
                    unsafe { libc::raise(libc::SIGSTOP) };
                }
                send(child, libc::SIGCONT);
            }
        }
    }
}

/// Returns whether `signal` is pending. To stop would discard a SIGCONT that has come already.
fn is_pending(signal: c_int) -> bool {
    let mut pending = set_of([]);
    // SAFETY: an initialised set, filled by the first call.
    unsafe { libc::sigpending(&mut pending) == 0 && libc::sigismember(&pending, signal) == 1 }
}

fn send(child: pid_t, signal: c_int) {
    // SAFETY: no preconditions. The child has not been waited for, so the number is still its own. A child that changed its user
    // cannot be signalled, as by a shell.
    let _ = unsafe { libc::kill(child, signal) };
}

/// Checks that the dynamic loader finds and loads `file`.
pub(super) fn can_load(file: &str) -> Result<(), libloading::Error> {
    // SAFETY: the initialisers of the RDMA libraries, the only ones asked for, have no requirements.
    unsafe { libloading::Library::new(file) }.map(drop)
}

/// Returns the message of the dynamic loader. The text of libloading itself says only which call failed.
pub(super) fn loader_message(error: &libloading::Error) -> String {
    let said = std::error::Error::source(error);
    said.map_or_else(|| error.to_string(), ToString::to_string)
}

/// Blocks `signals`. Returns the mask from before.
fn block(signals: &sigset_t) -> io::Result<sigset_t> {
    let mut before = MaybeUninit::<sigset_t>::uninit();
    // SAFETY: an initialised set, and room for another.
    match unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, signals, before.as_mut_ptr()) } {
        // SAFETY: filled by the call that succeeded.
        0 => Ok(unsafe { before.assume_init() }),
        error => Err(io::Error::from_raw_os_error(error)),
    }
}

fn set_mask(mask: &sigset_t) -> io::Result<()> {
    // SAFETY: an initialised set.
    match unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, mask, std::ptr::null_mut()) } {
        0 => Ok(()),
        error => Err(io::Error::from_raw_os_error(error)),
    }
}
