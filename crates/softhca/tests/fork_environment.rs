//! A forked child finds its own sysfs tree by its environment, whatever the other threads of its parent did at the fork.
//!
//! The only test of its program, since a fork copies one thread of it.

// UNSAFETY: fork, the environment of C, and what a child may do after a fork.
#![expect(unsafe_code, reason = "fork, and what a child may do after it")]

mod rdma_core;

use rdma_core::Device;
use softhca::Hca;
use std::ffi::{CStr, CString, c_int};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

/// Longest wait for a child that has a few system calls to make.
const PATIENCE_MS: c_int = 30_000;

/// `SYSFS_PATH` of this process. `getenv` takes no lock.
fn sysfs_path() -> &'static CStr {
    // SAFETY: nothing in this program replaces the variable, and libc keeps its string.
    unsafe {
        let value = libc::getenv(c"SYSFS_PATH".as_ptr());
        assert!(!value.is_null(), "no SYSFS_PATH");
        CStr::from_ptr(value)
    }
}

/// Forks, runs `body` in the child, and waits for its exit status, which is what `body` gives. Also the child's process id.
fn in_child(what: &str, body: impl FnOnce() -> c_int) -> (c_int, c_int) {
    // SAFETY: the child runs `body` and ends.
    let child = unsafe { libc::fork() };
    assert!(child >= 0, "{what}");
    if child == 0 {
        let status = body();
        // SAFETY: ends the child, whose tree goes with it.
        unsafe { libc::exit(status) };
    }
    let mut status = 0;
    // SAFETY: a child of this process that has not been waited for, and places for answers.
    unsafe {
        let fd = libc::syscall(libc::SYS_pidfd_open, child, 0);
        let mut polled = libc::pollfd {
            fd: fd.try_into().unwrap(),
            events: libc::POLLIN,
            revents: 0,
        };
        let ended = libc::poll(&mut polled, 1, PATIENCE_MS);
        if ended != 1 {
            libc::kill(child, libc::SIGKILL);
        }
        libc::waitpid(child, &mut status, 0);
        libc::close(polled.fd);
        assert_eq!(
            ended, 1,
            "{what}: the child did not end in {PATIENCE_MS} ms"
        );
    }
    assert!(libc::WIFEXITED(status), "{what}: status {status:#x}");
    (libc::WEXITSTATUS(status), child)
}

#[test]
fn a_child_has_its_own_tree_even_if_a_thread_held_the_environment_lock() {
    let own = sysfs_path().to_owned();
    let is_that_of_the_parent = || c_int::from(sysfs_path() == own.as_c_str());
    // Comparing and copying a value of this size takes libc long, and it has the lock of the environment meanwhile.
    let values = [b'a', b'b'].map(|letter| CString::new(vec![letter; 1 << 20]).unwrap());
    let stop = AtomicBool::new(false);
    let set = |value: &CStr| {
        // SAFETY: C strings; no other thread reads this variable.
        unsafe { libc::setenv(c"WV_TEST_FORK".as_ptr(), value.as_ptr(), 1) };
    };
    set(&values[0]);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                values.iter().for_each(|value| set(value));
            }
        });
        let end = StopOnDrop(&stop);
        for round in 0..200 {
            let what = format!("round {round}");
            // SAFETY: as in `in_child`; this child leaves nothing to be taken down.
            let (status, _) = in_child(&what, || unsafe { libc::_exit(is_that_of_the_parent()) });
            assert_eq!(status, 0, "{what}: the child's tree is the parent's");
        }
        drop(end);
    });

    // With one thread, to the end: libibverbs finds the device in the tree that the environment names.
    let devices = || {
        let hca = Hca::new().unwrap();
        let device = Device::open(hca.name());
        c_int::from(device.is_err()) * 2 + is_that_of_the_parent()
    };
    for what in ["first child", "second child"] {
        let (status, child) = in_child(what, devices);
        assert_eq!(status, 0, "{what}: 1: the parent's tree, 2: no device");
        let tree = format!("{}-{child}", own.to_str().unwrap());
        assert!(!Path::new(&tree).exists(), "{what} has left {tree}");
    }
    // A child of a child, which differs from both.
    let (status, _) = in_child("child", || {
        let parent = sysfs_path().to_owned();
        let (status, _) = in_child("grandchild", || {
            c_int::from(sysfs_path() == parent.as_c_str()) * 2 + devices()
        });
        status
    });
    assert_eq!(status, 0);
    assert_eq!(
        devices(),
        1,
        "the parent itself, which has a device and its own tree"
    );
}

/// Ends the other thread also where an assertion fails.
struct StopOnDrop<'a>(&'a AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
