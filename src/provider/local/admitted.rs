//! Which process may read and write the memory of this one, where Yama wants an explicit permission (`ptrace_scope` 1).
//!
//! Under Yama a process can permit one other process at a time. The engine permits the first peer, for as long as that peer has a
//! connection and lives. Then the engine takes the permission back, and the next peer that connects may have it.

// UNSAFETY: a system call.
#![expect(unsafe_code, reason = "PR_SET_PTRACER")]

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::{fs, io};

use rendezvous::Process;

use super::user::{YAMA, is_of_user};

static TRACER: Mutex<Tracer> = Mutex::new(Tracer {
    process: None,
    connections: 0,
});

/// The process that has the permission.
#[derive(Debug)]
struct Tracer {
    process: Option<Process>,
    /// The number of its connections that need the permission.
    connections: u32,
}

/// A connection of the process that has the permission. The permission ends with the last such connection.
#[derive(Debug)]
pub(crate) struct Admitted(Process);

/// Permits the process of a peer that is to have a connection. Returns None if it needs no permission, or another process has it.
pub(crate) fn admit(peer: &Process) -> Option<Admitted> {
    let is_restricted = fs::read_to_string(YAMA).is_ok_and(|scope| scope.trim() == "1");
    let pid = peer.pid_here().filter(|_| is_restricted)?;
    is_of_user(pid, peer).ok()?;
    let is_let = tracer().enter(peer, || set(pid));
    is_let.then(|| Admitted(peer.clone()))
}

impl Drop for Admitted {
    fn drop(&mut self) {
        tracer().leave(&self.0, || set(0));
    }
}

impl Tracer {
    /// Counts one more connection of `peer`. If no living process has the permission, `set` gives it to `peer`. Returns whether `peer` has
    /// it.
    fn enter(&mut self, peer: &Process, set: impl FnOnce() -> bool) -> bool {
        let known = self.process.as_ref().filter(|it| !it.has_ended());
        match known {
            Some(known) if known != peer => return false,
            Some(_) => {}
            None if set() => {
                self.process = Some(peer.clone());
                self.connections = 0;
            }
            None => return false,
        }
        self.connections += 1;
        true
    }

    /// Notes that a connection of `peer` has ended. With the last one `set` takes the permission back, unless another process has it by
    /// now.
    fn leave(&mut self, peer: &Process, set: impl FnOnce() -> bool) {
        if self.process.as_ref() != Some(peer) {
            return;
        }
        self.connections = self.connections.saturating_sub(1);
        if self.connections == 0 {
            self.process = None;
            set();
        }
    }
}

/// Permits process `pid`, or no process if `pid` is 0. Returns whether the system has done it.
fn set(pid: u32) -> bool {
    // SAFETY: it takes numbers only.
    let set = unsafe { libc::prctl(libc::PR_SET_PTRACER, libc::c_ulong::from(pid), 0, 0, 0) };
    if set != 0 {
        tracing::debug!("PR_SET_PTRACER: {}", io::Error::last_os_error());
    }
    set == 0
}

fn tracer() -> MutexGuard<'static, Tracer> {
    // Each change under the lock is complete, so a poisoned lock does no harm.
    TRACER.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::process::{Child, Command};

    use super::*;

    fn sleeper() -> (Child, Process) {
        let child = Command::new("sleep").arg("60").spawn().unwrap();
        let process = Process::of(child.id());
        (child, process)
    }

    fn end(mut child: Child) {
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn one_process_may_until_its_last_connection_ends_or_it_does() {
        let none = || -> bool { panic!("nothing is asked of the system") };
        let mut tracer = Tracer {
            process: None,
            connections: 0,
        };
        let ((one, first), (other, second)) = (sleeper(), sleeper());
        assert!(!tracer.enter(&first, || false), "the system refuses");
        assert!(tracer.enter(&first, || true));
        assert!(tracer.enter(&first, none));
        assert!(!tracer.enter(&second, none));
        tracer.leave(&first, none);
        assert!(!tracer.enter(&second, none), "it has one more connection");
        let mut is_taken_back = false;
        tracer.leave(&first, || std::mem::replace(&mut is_taken_back, true));
        assert!(is_taken_back);
        assert!(tracer.enter(&second, || true));
        // A process that has ended need not give the permission back.
        end(other);
        assert!(tracer.enter(&first, || true));
        tracer.leave(&second, none);
        assert!(tracer.enter(&first, none));
        end(one);
    }
}
