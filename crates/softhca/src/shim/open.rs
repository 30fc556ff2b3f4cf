//! `open` and `access`.

// UNSAFETY: exported C symbols with the signatures of libc's.
#![expect(unsafe_code, reason = "exported libc symbols")]

use libc::{c_char, c_int, mode_t};

use super::path::{Target, classify};
use super::{answer, raw, start};
use crate::errno::Errno;
use crate::{sysfs, uverbs};

/// # Safety
///
/// As `openat(2)`.
unsafe fn open_at(dir: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
    // SAFETY: a C string or null by contract.
    let target = unsafe { classify(path) };
    if let Target::Node(index) = target {
        return answer(|| {
            start::wake();
            uverbs::open(index, flags)
        });
    }
    let path = target.place(path);
    // The writer of such files is `sysfs::refresh` itself.
    if target.is_in_tree() && flags & libc::O_ACCMODE == libc::O_RDONLY {
        // SAFETY: a C string, since it was classified as one.
        unsafe { about_to_read(path) };
    }
    // SAFETY: as our caller's.
    unsafe { raw::openat(dir, path, flags, mode) }
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
/// As `access(2)`.
unsafe fn access_path(path: *const c_char, mode: c_int) -> c_int {
    // SAFETY: a C string or null by contract.
    let target = unsafe { classify(path) };
    if let Target::Node(index) = target {
        return answer(|| {
            start::wake();
            uverbs::character_device(index).ok_or(Errno::ENOENT)?;
            if mode & libc::X_OK != 0 {
                return Err(Errno::EACCES);
            }
            Ok(0)
        });
    }
    if target.is_in_tree() {
        start::wake();
    }
    // SAFETY: as our caller's.
    unsafe { raw::access(target.place(path), mode) }
}

symbols! {
    [open open64] (path: *const c_char, flags: c_int, mode: mode_t) -> c_int =>
        open_at(libc::AT_FDCWD, path, flags, mode);
    [openat openat64] (dir: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int =>
        open_at(dir, path, flags, mode);
    // The `_FORTIFY_SOURCE` forms, called where the compiler saw flags that create nothing.
    [__open_2 __open64_2] (path: *const c_char, flags: c_int) -> c_int =>
        open_at(libc::AT_FDCWD, path, flags, 0);
    [__openat_2 __openat64_2] (dir: c_int, path: *const c_char, flags: c_int) -> c_int =>
        open_at(dir, path, flags, 0);
    [access] (path: *const c_char, mode: c_int) -> c_int => access_path(path, mode);
}
