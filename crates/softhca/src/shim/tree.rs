//! Gives this process the path of its sysfs tree, at load time.
//!
//! At load time (before main) this module chooses the path and puts it into `SYSFS_PATH`. libibverbs reads that variable once, at its first
//! call. Nothing is created at load time: a preloaded library is loaded into every shell and helper process, and those must cost nothing.
//! If this library is linked into a program, the first `Hca::new()` makes the tree. If it is preloaded, the first call that looks for
//! devices makes the tree ([`start`](super::start)).

// UNSAFETY: a function that the loader calls, putenv, pthread_atfork and atexit.
#![expect(unsafe_code, reason = "load-time work through libc")]

use super::complain::complain;
use super::path::TREE;
use super::raw;
use crate::sysfs;
use libc::c_int;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::panic::catch_unwind;
use std::path::{Path, PathBuf};
use std::sync::Once;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};

#[used]
// Miri would run this function as well, and knows none of its system calls.
#[cfg_attr(not(miri), unsafe(link_section = ".init_array"))]
static AT_LOAD: extern "C" fn() = at_load;

/// Chooses the path of the tree. The loader calls this function before main; a call that needs the path earlier calls it too.
pub(super) extern "C" fn at_load() {
    static ONCE: Once = Once::new();
    // A panic here would abort every program that preloads this library.
    let _ = catch_unwind(|| {
        ONCE.call_once(|| {
            choose_tree();
            // SAFETY: the handler is a function of this library, which is never unloaded.
            unsafe { libc::pthread_atfork(None, None, Some(in_forked_child)) };
        });
    });
}

fn choose_tree() {
    let tree = sysfs::new_tree_path();
    // SAFETY: this runs once, before other threads use the path.
    if !unsafe { TREE.set(tree.as_os_str().as_bytes()) } {
        complain(&format!(
            "the path for the sysfs tree, {}, is longer than libibverbs can use; set SOFTHCA_DIR or \
             XDG_RUNTIME_DIR to a shorter one",
            tree.display()
        ));
        return;
    }
    // SAFETY: the variable is a C string in a static buffer of this library, which is never unloaded. Before main no other thread reads the
    // environment.
    unsafe { libc::putenv(TREE.variable()) };
}

/// Returns the path of the sysfs tree of this process. The tree may not exist yet.
pub(crate) fn tree_path() -> PathBuf {
    at_load();
    Path::new(OsStr::from_bytes(TREE.get())).to_path_buf()
}

/// Returns whether a path for the tree could be chosen.
pub(super) fn has_tree() -> bool {
    !TREE.get().is_empty()
}

/// Runs in the child of a fork. If the parent has devices, the child has none: the engine thread of the devices runs in the parent only.
/// Otherwise the child gets the path of a tree of its own, so that each of several children may have its own devices.
///
/// A thread of the parent, which the child lacks, may have held any lock of libc at the fork. So this function takes no lock.
extern "C" fn in_forked_child() {
    if STATE.load(Ordering::Relaxed) == UNTOUCHED && !sysfs::tree_exists() {
        // SAFETY: this is the child of a fork, which begins with one thread.
        unsafe { TREE.set_for_child(raw::process_id().unsigned_abs()) };
    } else {
        INHERITED.store(true, Ordering::Relaxed);
    }
}

static INHERITED: AtomicBool = AtomicBool::new(false);

/// Returns whether this is a forked child of a process that has devices. In such a child the first call says so on stderr.
pub(crate) fn is_forked_child() -> bool {
    let inherited = INHERITED.load(Ordering::Relaxed);
    if inherited {
        static ONCE: Once = Once::new();
        ONCE.call_once(|| {
            complain(
                "this process was forked from one that had opened the software HCA, and can not use \
                 it: fork before the first verbs call, or exec",
            );
        });
    }
    inherited
}

pub(super) const UNTOUCHED: c_int = 0;
pub(super) const READY: c_int = -1;
/// The state of the devices: `UNTOUCHED`, `READY`, or the id of the thread that is making the devices.
pub(super) static STATE: AtomicI32 = AtomicI32::new(UNTOUCHED);

/// Runs `body` when the process exits in an orderly way.
pub(crate) fn at_exit(body: extern "C" fn()) {
    // SAFETY: `body` is a function of this library, which is never unloaded.
    unsafe { libc::atexit(body) };
}
