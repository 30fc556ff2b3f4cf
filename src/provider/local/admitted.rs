//! Which process may read and write the memory of this one, where Yama asks for that (`ptrace_scope` 1).
//!
//! Yama lets one process at a time. The first living peer has the permission for as long as it has a connection. Then the engine
//! takes it back, and the next peer that connects may have it.

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

/// Who may.
#[derive(Debug)]
struct Tracer {
    process: Option<Process>,
    /// Its connections that stand on that.
    connections: u32,
}

/// A connection of the process that may. With the last one that ends.
#[derive(Debug)]
pub(crate) struct Admitted(Process);

/// Lets the process of a peer, which is to have a connection. None: it need not be let, or another one may.
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
    /// One more connection of `peer`, which `set` lets if it may. Whether it may.
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

    /// A connection of `peer` has ended. With the last one `set` takes it back, unless another process has it by now.
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

/// Lets process `pid`, 0 for none. Whether the system has done it.
fn set(pid: u32) -> bool {
    // SAFETY: it takes numbers only.
    let set = unsafe { libc::prctl(libc::PR_SET_PTRACER, libc::c_ulong::from(pid), 0, 0, 0) };
    if set != 0 {
        tracing::debug!("PR_SET_PTRACER: {}", io::Error::last_os_error());
    }
    set == 0
}

fn tracer() -> MutexGuard<'static, Tracer> {
    // Each change is whole.
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
        // One that has ended need not give it back.
        end(other);
        assert!(tracer.enter(&first, || true));
        tracer.leave(&second, none);
        assert!(tracer.enter(&first, none));
        end(one);
    }
}
