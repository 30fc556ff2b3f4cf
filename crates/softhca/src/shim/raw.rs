//! The system calls that the exported symbols make, without libc's own wrappers.
//!
//! `libc::syscall` is the one libc function used here: this library does not replace it, it allocates nothing, and it sets `errno`. One
//! thing is lost against libc's wrappers: these calls are no cancellation points.
//!
//! The crate rustix makes system calls without libc too, but it cannot make these calls. rustix takes descriptors that are open and paths
//! that it may read, and it sets no `errno`. Here the kernel judges whatever another program passed.

// UNSAFETY: system calls with pointers that the caller of a libc function gave.
#![expect(unsafe_code, reason = "raw system calls")]

use libc::{c_char, c_int, c_long, c_uint, c_ulong, c_void, mode_t, size_t, ssize_t, stat};

/// Returns the result of a call as the C `int` that libc's wrapper returns.
#[expect(
    clippy::cast_possible_truncation,
    reason = "libc's wrappers return int as well"
)]
fn int(value: c_long) -> c_int {
    value as c_int
}

/// # Safety
///
/// The contract of `openat(2)`: `path` is a C string, or the kernel answers `EFAULT`.
pub(super) unsafe fn openat(dir: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
    // SAFETY: the kernel checks `path`; the other arguments are plain numbers.
    int(unsafe { libc::syscall(libc::SYS_openat, dir, path, flags, mode) })
}

/// # Safety
///
/// `out` is writable for one `struct stat`, or the kernel answers `EFAULT`.
pub(super) unsafe fn stat_at(
    dir: c_int,
    path: *const c_char,
    out: *mut stat,
    flags: c_int,
) -> c_int {
    // SAFETY: the kernel checks both pointers. The kernel's `struct stat` is libc's on 64-bit Linux.
    int(unsafe { libc::syscall(libc::SYS_newfstatat, dir, path, out, flags) })
}

/// # Safety
///
/// `out` is writable for one `struct statx`, or the kernel answers `EFAULT`.
pub(super) unsafe fn statx(
    dir: c_int,
    path: *const c_char,
    flags: c_int,
    mask: c_uint,
    out: *mut libc::statx,
) -> c_int {
    // SAFETY: the kernel checks both pointers.
    int(unsafe { libc::syscall(libc::SYS_statx, dir, path, flags, mask, out) })
}

/// # Safety
///
/// `out` is writable for `capacity` bytes, or the kernel answers `EFAULT`.
pub(super) unsafe fn readlinkat(
    dir: c_int,
    path: *const c_char,
    out: *mut c_char,
    capacity: size_t,
) -> ssize_t {
    // SAFETY: the kernel checks both pointers.
    let length = unsafe { libc::syscall(libc::SYS_readlinkat, dir, path, out, capacity) };
    ssize_t::try_from(length).unwrap_or(-1)
}

/// Returns the path of the directory `dir`, a descriptor or `AT_FDCWD`; `None` if there is no path or if it does not fit. `errno` stays as
/// it was.
pub(super) fn directory(dir: c_int, out: &mut [u8]) -> Option<&[u8]> {
    // SAFETY: `__errno_location` returns the address of this thread's errno, which is always valid.
    let before = unsafe { *libc::__errno_location() };
    let length = match dir {
        // SAFETY: `out` is writable for its length.
        libc::AT_FDCWD => unsafe { libc::syscall(libc::SYS_getcwd, out.as_mut_ptr(), out.len()) }
            // The length that `getcwd` returns counts the zero at the end.
            .saturating_sub(1),
        _ => {
            let mut link = [0; 32];
            let written = std::io::Write::write_fmt(
                &mut &mut link[..31],
                format_args!("/proc/self/fd/{dir}"),
            );
            match written {
                // SAFETY: `link` ends with a zero, and `out` is writable for its length.
                Ok(()) => unsafe {
                    readlinkat(
                        libc::AT_FDCWD,
                        link.as_ptr().cast(),
                        out.as_mut_ptr().cast(),
                        out.len(),
                    ) as c_long
                },
                Err(_) => -1,
            }
        }
    };
    fail(before);
    let length = usize::try_from(length).ok().filter(|&length| length > 0)?;
    out.get(..length)
}

/// Calls `getxattr`, or `lgetxattr` if `follow` is false.
///
/// # Safety
///
/// `out` is writable for `capacity` bytes, or the kernel answers `EFAULT`.
pub(super) unsafe fn getxattr(
    path: *const c_char,
    name: *const c_char,
    out: *mut c_void,
    capacity: size_t,
    follow: bool,
) -> ssize_t {
    let number = if follow {
        libc::SYS_getxattr
    } else {
        libc::SYS_lgetxattr
    };
    // SAFETY: the kernel checks the pointers.
    let length = unsafe { libc::syscall(number, path, name, out, capacity) };
    ssize_t::try_from(length).unwrap_or(-1)
}

/// # Safety
///
/// The contract of [`stat_at`] for `out`.
pub(super) unsafe fn stat_fd(fd: c_int, out: *mut stat) -> c_int {
    // SAFETY: the kernel checks `out`.
    int(unsafe { libc::syscall(libc::SYS_fstat, fd, out) })
}

/// # Safety
///
/// The caller keeps the contract of `access(2)`.
pub(super) unsafe fn access(path: *const c_char, mode: c_int) -> c_int {
    // SAFETY: the kernel checks `path`.
    int(unsafe { libc::syscall(libc::SYS_faccessat, libc::AT_FDCWD, path, mode) })
}

/// # Safety
///
/// `path` is a C string, or the kernel answers `EFAULT`.
pub(super) unsafe fn chdir(path: *const c_char) -> c_int {
    // SAFETY: the kernel checks `path`.
    int(unsafe { libc::syscall(libc::SYS_chdir, path) })
}

/// # Safety
///
/// The caller passes the `argument` of its own caller, unchanged. What it must point to depends on `request`.
pub(super) unsafe fn ioctl(fd: c_int, request: c_ulong, argument: *mut c_void) -> c_int {
    // SAFETY: the argument is handed through as the caller gave it.
    int(unsafe { libc::syscall(libc::SYS_ioctl, fd, request, argument) })
}

pub(super) fn close(fd: c_int) -> c_int {
    // SAFETY: the call takes no pointers. The caller answers for the owner of `fd`, as with libc's `close`.
    int(unsafe { libc::syscall(libc::SYS_close, fd) })
}

pub(super) fn dup(fd: c_int) -> c_int {
    // SAFETY: the call takes no pointers.
    int(unsafe { libc::syscall(libc::SYS_dup, fd) })
}

pub(super) fn dup3(old: c_int, new: c_int, flags: c_int) -> c_int {
    // SAFETY: the call takes no pointers.
    int(unsafe { libc::syscall(libc::SYS_dup3, old, new, flags) })
}

/// # Safety
///
/// The caller passes the `argument` of its own caller, unchanged. What it must be depends on `command`.
pub(super) unsafe fn fcntl(fd: c_int, command: c_int, argument: *mut c_void) -> c_int {
    // SAFETY: the argument is handed through as the caller gave it.
    int(unsafe { libc::syscall(libc::SYS_fcntl, fd, command, argument) })
}

pub(super) fn socket(domain: c_int, kind: c_int, protocol: c_int) -> c_int {
    // SAFETY: the call takes no pointers.
    int(unsafe { libc::syscall(libc::SYS_socket, domain, kind, protocol) })
}

/// Returns the process id, by a system call. That is right even in a `vfork` child, which shares all memory with its parent.
pub(crate) fn process_id() -> c_int {
    // SAFETY: the call takes no arguments and cannot fail.
    int(unsafe { libc::syscall(libc::SYS_getpid) })
}

/// Returns the id of the calling thread.
pub(crate) fn thread_id() -> c_int {
    // SAFETY: the call takes no arguments and cannot fail.
    int(unsafe { libc::syscall(libc::SYS_gettid) })
}

/// Sets `errno` to `value` and returns -1, as a libc function does that fails.
pub(super) fn fail(value: c_int) -> c_int {
    // SAFETY: `__errno_location` returns the address of this thread's errno, which is always valid.
    unsafe { *libc::__errno_location() = value };
    -1
}
