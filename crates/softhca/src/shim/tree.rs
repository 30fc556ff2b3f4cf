//! What happens at load time: this process gets the path of its sysfs tree.
//!
//! At load time (before main) it chooses the path and puts it into `SYSFS_PATH`. The library libibverbs reads that variable once, at
//! its first call. Nothing is created: a preloaded library is loaded into every shell and helper process, and those must cost
//! nothing. Linked into a program, the tree comes with the first `Hca::new()`; preloaded, with the first call that looks for
//! devices ([`start`](super::start)).

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
// Miri would run it as well, and knows none of its system calls.
#[cfg_attr(not(miri), unsafe(link_section = ".init_array"))]
static AT_LOAD: extern "C" fn() = at_load;

/// Runs before main, or earlier for a call that needs the tree's path before that.
pub(super) extern "C" fn at_load() {
    static ONCE: Once = Once::new();
    // A panic here would abort every program that the library is preloaded into.
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
    // SAFETY: called once, before other threads use the path.
    if !unsafe { TREE.set(tree.as_os_str().as_bytes()) } {
        complain(&format!(
            "the path for the sysfs tree, {}, is longer than libibverbs can use; set SOFTHCA_DIR or \
             XDG_RUNTIME_DIR to a shorter one",
            tree.display()
        ));
        return;
    }
    // SAFETY: a C string in a static buffer of this library, which is never unloaded. Before main no other thread reads the
    // environment.
    unsafe { libc::putenv(TREE.variable()) };
}

/// Where the sysfs tree of this process is or will be.
pub(crate) fn tree_path() -> PathBuf {
    at_load();
    Path::new(OsStr::from_bytes(TREE.get())).to_path_buf()
}

/// Returns whether a path for the tree could be chosen.
pub(super) fn has_tree() -> bool {
    !TREE.get().is_empty()
}

/// The child of a fork. If its parent has devices, the child has none: their engine thread stayed behind.
/// Else it gets a tree of its own, so that several children may each have their devices.
///
/// A thread of the parent, which the child lacks, may have held any lock of libc at the fork. So this takes none.
extern "C" fn in_forked_child() {
    if STATE.load(Ordering::Relaxed) == UNTOUCHED && !sysfs::tree_exists() {
        // SAFETY: the child of a fork, which begins with one thread.
        unsafe { TREE.set_for_child(raw::process_id().unsigned_abs()) };
    } else {
        INHERITED.store(true, Ordering::Relaxed);
    }
}

static INHERITED: AtomicBool = AtomicBool::new(false);

/// Returns whether this is a forked child of a process that has devices. Says so once, where it matters.
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
/// `UNTOUCHED`, `READY`, or the id of the thread that is making the devices.
pub(super) static STATE: AtomicI32 = AtomicI32::new(UNTOUCHED);

/// Runs `body` when the process exits in an orderly way.
pub(crate) fn at_exit(body: extern "C" fn()) {
    // SAFETY: `body` is a function of this library, which is never unloaded.
    unsafe { libc::atexit(body) };
}
