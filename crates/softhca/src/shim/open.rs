//! `open`, `stat` and `access`: calls that name a path.

// UNSAFETY: exported C symbols with the signatures of libc's.
#![expect(unsafe_code, reason = "exported libc symbols")]

use libc::{c_char, c_int, mode_t, stat as Stat};

use super::path::{Target, classify};
use super::{answer, raw, start};
use crate::errno::Errno;
use crate::{sysfs, uverbs};

/// # Safety
///
/// As `openat(2)`.
unsafe fn open_at(dir: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
    // SAFETY: a C string or null by contract.
    match unsafe { classify(path) } {
        // SAFETY: as our caller's.
        Target::Other => unsafe { raw::openat(dir, path, flags, mode) },
        Target::Node(index) => answer(|| {
            start::wake();
            uverbs::open(index, flags)
        }),
        Target::InTree => {
            // Who writes is `sysfs::refresh` itself.
            if flags & libc::O_ACCMODE == libc::O_RDONLY {
                // SAFETY: a C string: it was classified as one.
                unsafe { about_to_read(path) };
            }
            // SAFETY: as our caller's.
            unsafe { raw::openat(dir, path, flags, mode) }
        }
        Target::Class(inside) => {
            // SAFETY: `Redirected` holds a C string.
            unsafe { about_to_read(inside.as_ptr()) };
            // SAFETY: the same.
            unsafe { raw::openat(dir, inside.as_ptr(), flags, mode) }
        }
    }
}

/// Brings the tree up to date before a file in it is read: the devices exist, the counters are current.
///
/// # Safety
///
/// `path` is a C string.
pub(super) unsafe fn about_to_read(path: *const c_char) {
    // SAFETY: a C string by contract.
    let path = unsafe { std::ffi::CStr::from_ptr(path) };
    // Whatever goes wrong shows in what the caller then finds in the tree.
    let _ = answer(|| {
        start::wake();
        sysfs::refresh(path.to_bytes());
        Ok(0)
    });
}

/// # Safety
///
/// As `stat(2)`.
unsafe fn stat_path(path: *const c_char, out: *mut Stat) -> c_int {
    // SAFETY: a C string or null by contract.
    match unsafe { classify(path) } {
        Target::Node(index) if !out.is_null() => answer(|| {
            start::wake();
            let device = uverbs::character_device(index).ok_or(Errno::ENOENT)?;
            // SAFETY: all-zero bytes are a valid `struct stat`.
            let mut node: Stat = unsafe { std::mem::zeroed() };
            node.st_nlink = 1;
            show_character_device(&mut node, device);
            // SAFETY: not null, and writable for one `struct stat` by contract.
            unsafe { out.write(node) };
            Ok(0)
        }),
        Target::Other | Target::Node(_) => {
            // SAFETY: as our caller's.
            unsafe { raw::stat_path(path, out) }
        }
        Target::InTree => {
            start::wake();
            // SAFETY: as our caller's.
            unsafe { raw::stat_path(path, out) }
        }
        Target::Class(inside) => {
            start::wake();
            // SAFETY: `Redirected` holds a C string, the rest is as our caller's.
            unsafe { raw::stat_path(inside.as_ptr(), out) }
        }
    }
}

/// Makes `out` look like a device node that everybody may use.
pub(super) fn show_character_device(out: &mut Stat, device: u64) {
    out.st_mode = libc::S_IFCHR | 0o666;
    out.st_rdev = device;
}

/// # Safety
///
/// As `access(2)`.
unsafe fn access_path(path: *const c_char, mode: c_int) -> c_int {
    // SAFETY: a C string or null by contract.
    match unsafe { classify(path) } {
        // SAFETY: as our caller's.
        Target::Other => unsafe { raw::access(path, mode) },
        Target::Node(index) => answer(|| {
            start::wake();
            uverbs::character_device(index).ok_or(Errno::ENOENT)?;
            if mode & libc::X_OK != 0 {
                return Err(Errno::EACCES);
            }
            Ok(0)
        }),
        Target::InTree => {
            start::wake();
            // SAFETY: as our caller's.
            unsafe { raw::access(path, mode) }
        }
        Target::Class(inside) => {
            start::wake();
            // SAFETY: `Redirected` holds a C string.
            unsafe { raw::access(inside.as_ptr(), mode) }
        }
    }
}

symbols! {
    [open open64] (path: *const c_char, flags: c_int, mode: mode_t) =>
        open_at(libc::AT_FDCWD, path, flags, mode);
    [openat openat64] (dir: c_int, path: *const c_char, flags: c_int, mode: mode_t) =>
        open_at(dir, path, flags, mode);
    // The `_FORTIFY_SOURCE` forms, called where the compiler saw flags that create nothing.
    [__open_2 __open64_2] (path: *const c_char, flags: c_int) =>
        open_at(libc::AT_FDCWD, path, flags, 0);
    [__openat_2 __openat64_2] (dir: c_int, path: *const c_char, flags: c_int) =>
        open_at(dir, path, flags, 0);
    [stat stat64] (path: *const c_char, out: *mut Stat) => stat_path(path, out);
    // What programs built against glibc before 2.33 call. There is one version of the struct.
    [__xstat __xstat64] (_version: c_int, path: *const c_char, out: *mut Stat) => stat_path(path, out);
    [access] (path: *const c_char, mode: c_int) => access_path(path, mode);
}
