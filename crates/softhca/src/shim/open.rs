//! `open`, `access` and `chdir`: the libc calls that open or check a path.

// UNSAFETY: exported C symbols with the signatures of libc's.
#![expect(unsafe_code, reason = "exported libc symbols")]

use libc::{c_char, c_int, mode_t};

use super::next::Next;
use super::path::{Target, classify, classify_at};
use super::{raw, start};
use crate::errno::Errno;
use crate::shim::symbols::answer;
use crate::{sysfs, uverbs};

/// # Safety
///
/// The caller keeps the contract of `openat(2)`.
unsafe fn open_at(dir: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
    // SAFETY: `path` is a C string or null by contract.
    let target = unsafe { classify_at(dir, path) };
    if let Target::Node(index) = target {
        return answer(|| {
            start::wake();
            uverbs::open(index, flags)
        });
    }
    // A caller that writes to such files is `sysfs::refresh` itself.
    if target.is_in_tree() && flags & libc::O_ACCMODE == libc::O_RDONLY {
        // SAFETY: the path is a C string, since it was classified as one.
        unsafe { about_to_read(target.whole(path)) };
    }
    // SAFETY: the caller of this function keeps the same contract.
    unsafe { raw::openat(dir, target.place(path), flags, mode) }
}

/// Brings the tree up to date before a file in the tree is read: makes the devices, and writes the current counters.
///
/// # Safety
///
/// `path` is a C string.
pub(super) unsafe fn about_to_read(path: *const c_char) {
    // SAFETY: `path` is a C string by contract.
    let path = unsafe { std::ffi::CStr::from_ptr(path) };
    // A failure here shows in what the caller then finds in the tree.
    let _ = answer(|| {
        start::wake();
        sysfs::refresh(path.to_bytes());
        Ok(0)
    });
}

/// The outcome of a look at the rights of a path.
#[expect(clippy::large_enum_variant, reason = "a box would be an allocation")]
enum Rights {
    /// The rights are those of the path that stands for the given path.
    Of(Target),
    /// The answer of this library.
    Known(c_int),
}

/// # Safety
///
/// `path` is null or a C string.
unsafe fn rights(dir: c_int, path: *const c_char, mode: c_int) -> Rights {
    // SAFETY: this is the contract of this function.
    let target = unsafe { classify_at(dir, path) };
    if let Target::Node(index) = target {
        return Rights::Known(answer(|| {
            start::wake();
            uverbs::character_device(index).ok_or(Errno::ENOENT)?;
            if mode & libc::X_OK != 0 {
                return Err(Errno::EACCES);
            }
            Ok(0)
        }));
    }
    if target.is_in_tree() {
        start::wake();
    }
    Rights::Of(target)
}

/// # Safety
///
/// The caller keeps the contract of `access(2)`.
unsafe fn access_path(path: *const c_char, mode: c_int) -> c_int {
    // SAFETY: `path` is a C string or null by contract.
    match unsafe { rights(libc::AT_FDCWD, path, mode) } {
        // SAFETY: the caller of this function keeps the same contract.
        Rights::Of(target) => unsafe { raw::access(target.place(path), mode) },
        Rights::Known(answer) => answer,
    }
}

/// Calls libc's own definition, which knows how to answer for the effective user where the kernel does not.
///
/// # Safety
///
/// The caller keeps the contract of `faccessat(2)`.
unsafe fn access_at(dir: c_int, path: *const c_char, mode: c_int, flags: c_int) -> c_int {
    type Function = unsafe extern "C" fn(c_int, *const c_char, c_int, c_int) -> c_int;
    static NEXT: Next = Next::new(c"faccessat");
    // SAFETY: `path` is a C string or null by contract.
    let target = match unsafe { rights(dir, path, mode) } {
        Rights::Of(target) => target,
        Rights::Known(answer) => return answer,
    };
    let next = NEXT.find();
    if next.is_null() {
        return -1;
    }
    // SAFETY: the next definition of this symbol, which has libc's signature.
    let next: Function = unsafe { std::mem::transmute(next) };
    // SAFETY: the caller of this function keeps the same contract; `target` lives until the call returns.
    unsafe { next(dir, target.place(path), mode, flags) }
}

/// # Safety
///
/// The caller keeps the contract of `chdir(2)`.
unsafe fn change_directory(path: *const c_char) -> c_int {
    // SAFETY: `path` is a C string or null by contract.
    let target = unsafe { classify(path) };
    if target.is_in_tree() {
        start::wake();
    }
    // SAFETY: the caller of this function keeps the same contract.
    unsafe { raw::chdir(target.place(path)) }
}

symbols! {
    [open open64] (path: *const c_char, flags: c_int, mode: mode_t) -> c_int =>
        open_at(libc::AT_FDCWD, path, flags, mode);
    [openat openat64] (dir: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int =>
        open_at(dir, path, flags, mode);
    // The `_FORTIFY_SOURCE` forms. The compiler calls them where the flags create nothing.
    [__open_2 __open64_2] (path: *const c_char, flags: c_int) -> c_int =>
        open_at(libc::AT_FDCWD, path, flags, 0);
    [__openat_2 __openat64_2] (dir: c_int, path: *const c_char, flags: c_int) -> c_int =>
        open_at(dir, path, flags, 0);
    [access] (path: *const c_char, mode: c_int) -> c_int => access_path(path, mode);
    [faccessat] (dir: c_int, path: *const c_char, mode: c_int, flags: c_int) -> c_int =>
        access_at(dir, path, mode, flags);
    [euidaccess eaccess] (path: *const c_char, mode: c_int) -> c_int =>
        access_at(libc::AT_FDCWD, path, mode, libc::AT_EACCESS);
    [chdir] (path: *const c_char) -> c_int => change_directory(path);
}
