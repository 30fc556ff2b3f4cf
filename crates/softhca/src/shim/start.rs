//! What happens at load time, and what waits until the program looks for RDMA devices.
//!
//! At load time (before main) it chooses a path for this process's sysfs tree and puts it into `SYSFS_PATH`. The library
//! libibverbs reads that variable once, at its first call. Nothing is created: a preloaded library is loaded into every shell and
//! helper process, and those must cost nothing. Linked into a program, the tree comes with the first `Hca::new()`. Preloaded, it
//! comes with the first call that looks at `/dev/infiniband`, `/sys/class/infiniband*`, the netlink family of RDMA, or the tree
//! itself ([`wake`]).

// UNSAFETY: a function that the loader calls, putenv, pthread_atfork and dladdr.
#![expect(unsafe_code, reason = "load-time work through libc")]

use std::ffi::OsStr;
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt;
use std::panic::catch_unwind;
use std::path::{Path, PathBuf};
use std::sync::Once;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::time::{Duration, Instant};

use libc::{c_char, c_int, c_void};

use super::path::TREE;
use super::{environment, raw};
use crate::sysfs;

#[used]
// Miri would run it as well, and knows none of its system calls.
#[cfg_attr(not(miri), unsafe(link_section = ".init_array"))]
static AT_LOAD: extern "C" fn() = at_load;

/// Runs before main, or earlier for a call that needs the tree's path before that.
extern "C" fn at_load() {
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
        environment::complain(&format!(
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

/// Whether a path for the tree could be chosen.
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

/// Whether this is a forked child of a process that has devices. Says so once, where it matters.
pub(crate) fn is_forked_child() -> bool {
    let inherited = INHERITED.load(Ordering::Relaxed);
    if inherited {
        static ONCE: Once = Once::new();
        ONCE.call_once(|| {
            environment::complain(
                "this process was forked from one that had opened the software HCA, and can not use \
                 it: fork before the first verbs call, or exec",
            );
        });
    }
    inherited
}

const UNTOUCHED: c_int = 0;
const READY: c_int = -1;
/// `UNTOUCHED`, `READY`, or the id of the thread that is making the devices.
static STATE: AtomicI32 = AtomicI32::new(UNTOUCHED);

/// Makes the devices of a preloaded library if no call has yet. After the first time: one load.
///
/// A failure is printed on stderr, and the process then sees no device.
pub(super) fn wake() {
    let state = STATE.load(Ordering::Acquire);
    if state == READY || is_linked_in() {
        return;
    }
    let me = raw::thread_id();
    if state == me {
        return; // the tree is being written by this very call chain
    }
    // Acquire/Release: a thread that sees READY sees the devices.
    match STATE.compare_exchange(UNTOUCHED, me, Ordering::Acquire, Ordering::Acquire) {
        Ok(_) => {
            let _ = catch_unwind(environment::make_devices);
            STATE.store(READY, Ordering::Release);
        }
        Err(_) => wait_until_ready(),
    }
}

/// Another thread makes the devices: that takes milliseconds, and is not waited for longer than this.
fn wait_until_ready() {
    let deadline = Instant::now() + Duration::from_secs(10);
    while STATE.load(Ordering::Acquire) != READY && Instant::now() < deadline {
        std::thread::sleep(Duration::from_micros(100));
    }
}

/// Whether this code is part of the main program, which then makes devices by `Hca::new`, and not of a
/// preloaded library.
fn is_linked_in() -> bool {
    static LINKED_IN: AtomicI32 = AtomicI32::new(-1);
    let known = LINKED_IN.load(Ordering::Relaxed);
    if known >= 0 {
        return known == 1;
    }
    let mut here = MaybeUninit::<libc::Dl_info>::zeroed();
    let address: *const c_void = (at_load as extern "C" fn() as *const ()).cast();
    // SAFETY: `here` is writable for one `Dl_info`, which is plain pointers, valid as zeros.
    let here = unsafe {
        libc::dladdr(address, here.as_mut_ptr());
        here.assume_init()
    };
    // SAFETY: getauxval has no preconditions.
    let headers = unsafe { libc::getauxval(libc::AT_PHDR) };
    // The main program's headers lie in its first page, right behind the address it was loaded at.
    let base = here.dli_fbase.addr() as u64;
    let linked_in = headers.wrapping_sub(base) < 4096;
    LINKED_IN.store(c_int::from(linked_in), Ordering::Relaxed);
    linked_in
}

/// Runs `body` when the process exits in an orderly way.
pub(crate) fn at_exit(body: extern "C" fn()) {
    // SAFETY: `body` is a function of this library, which is never unloaded.
    unsafe { libc::atexit(body) };
}

/// The name of this process for messages, from the kernel.
pub(super) fn stderr(text: &str) {
    // One write, so that lines of several processes do not mix; a closed stderr is no reason to fail.
    // SAFETY: pointer and length of `text`.
    let _ = unsafe {
        libc::write(
            libc::STDERR_FILENO,
            text.as_ptr().cast::<c_char>().cast(),
            text.len(),
        )
    };
}
