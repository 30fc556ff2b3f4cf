//! `stat` in all its forms, `readlink` and `getxattr`: the calls that look at a path without opening it.

// UNSAFETY: exported C symbols with the signatures of libc's.
#![expect(unsafe_code, reason = "exported libc symbols")]

use libc::{c_char, c_int, c_uint, c_void, size_t, ssize_t, stat as Stat, statx as Statx};

use super::path::{Target, classify_at};
use super::{fds, raw, start};
use crate::errno::Errno;
use crate::shim::symbols::answer;
use crate::uverbs;

/// The file type and the rights that a device node of this library shows: all users may read and write.
const MODE: u32 = libc::S_IFCHR | 0o666;

#[expect(clippy::large_enum_variant, reason = "a box would be an allocation")]
/// The outcome of a look at a path: a path that stands for it, the device number of the node that it names, or nothing.
enum Found {
    Place(Target),
    Node(u64),
    Nothing,
}

/// # Safety
///
/// `path` is null or a C string.
unsafe fn find(dir: c_int, path: *const c_char) -> Found {
    // SAFETY: this is the contract of this function.
    let target = unsafe { classify_at(dir, path) };
    match target {
        Target::Node(index) => {
            start::wake();
            uverbs::character_device(index).map_or(Found::Nothing, Found::Node)
        }
        Target::InTree | Target::Beside(_) | Target::Class(_) => {
            start::wake();
            Found::Place(target)
        }
        Target::Other => Found::Place(target),
    }
}

/// # Safety
///
/// The caller keeps the contract of `fstatat(2)`.
unsafe fn stat_at(dir: c_int, path: *const c_char, out: *mut Stat, flags: c_int) -> c_int {
    // SAFETY: `path` is a C string or null by contract.
    match unsafe { find(dir, path) } {
        // SAFETY: the caller of this function keeps the same contract.
        Found::Place(target) => unsafe { raw::stat_at(dir, target.place(path), out, flags) },
        Found::Node(device) => answer(|| {
            // SAFETY: all-zero bytes are a valid `struct stat`.
            let mut node: Stat = unsafe { std::mem::zeroed() };
            node.st_nlink = 1;
            show_character_device(&mut node, device);
            // SAFETY: `out` is writable for one `struct stat` by contract.
            unsafe { out.write(node) };
            Ok(0)
        }),
        Found::Nothing => answer(|| Err(Errno::ENOENT)),
    }
}

fn show_character_device(out: &mut Stat, device: u64) {
    out.st_mode = MODE;
    out.st_rdev = device;
}

/// # Safety
///
/// The caller keeps the contract of `statx(2)`.
unsafe fn statx_at(
    dir: c_int,
    path: *const c_char,
    flags: c_int,
    mask: c_uint,
    out: *mut Statx,
) -> c_int {
    // SAFETY: `path` is a C string or null by contract.
    match unsafe { find(dir, path) } {
        // SAFETY: the caller of this function keeps the same contract.
        Found::Place(target) => unsafe { raw::statx(dir, target.place(path), flags, mask, out) },
        Found::Node(device) => answer(|| {
            // SAFETY: all-zero bytes are a valid `struct statx`.
            let mut node: Statx = unsafe { std::mem::zeroed() };
            node.stx_mask = libc::STATX_TYPE | libc::STATX_MODE | libc::STATX_NLINK;
            node.stx_nlink = 1;
            node.stx_mode = u16::try_from(MODE).map_err(|_| Errno::EIO)?;
            node.stx_rdev_major = libc::major(device);
            node.stx_rdev_minor = libc::minor(device);
            // SAFETY: `out` is writable for one `struct statx` by contract.
            unsafe { out.write(node) };
            Ok(0)
        }),
        Found::Nothing => answer(|| Err(Errno::ENOENT)),
    }
}

/// # Safety
///
/// The caller keeps the contract of `readlinkat(2)`.
unsafe fn read_link(
    dir: c_int,
    path: *const c_char,
    out: *mut c_char,
    capacity: size_t,
) -> ssize_t {
    // SAFETY: `path` is a C string or null by contract.
    match unsafe { find(dir, path) } {
        // SAFETY: the caller of this function keeps the same contract.
        Found::Place(target) => unsafe { raw::readlinkat(dir, target.place(path), out, capacity) },
        Found::Node(_) => answer(|| Err(Errno::EINVAL)) as ssize_t, // a node is no link
        Found::Nothing => answer(|| Err(Errno::ENOENT)) as ssize_t,
    }
}

/// Reads an extended attribute, which `ls -l` asks for. Device nodes of this library have none.
///
/// # Safety
///
/// The caller keeps the contract of `getxattr(2)`.
unsafe fn get_attribute(
    path: *const c_char,
    name: *const c_char,
    out: *mut c_void,
    capacity: size_t,
    follow: bool,
) -> ssize_t {
    // SAFETY: `path` is a C string or null by contract.
    match unsafe { find(libc::AT_FDCWD, path) } {
        // SAFETY: the caller of this function keeps the same contract.
        Found::Place(target) => unsafe {
            raw::getxattr(target.place(path), name, out, capacity, follow)
        },
        Found::Node(_) => answer(|| Err(Errno::ENODATA)) as ssize_t,
        Found::Nothing => answer(|| Err(Errno::ENOENT)) as ssize_t,
    }
}

/// # Safety
///
/// The caller keeps the contract of `fstat(2)`.
unsafe fn stat_descriptor(fd: c_int, out: *mut Stat) -> c_int {
    // SAFETY: the caller of this function keeps the same contract.
    let value = unsafe { raw::stat_fd(fd, out) };
    if value == 0
        && fds::marked(fd)
        && let Some(device) = fds::find(fd).and_then(|file| file.character_device())
    {
        // SAFETY: the kernel has just written one `struct stat` to `out`.
        show_character_device(unsafe { &mut *out }, device);
    }
    value
}

/// Returns `capacity`, which must fit in the `room` of the buffer. If it does not fit, the program ends, as in libc.
fn checked(capacity: size_t, room: size_t) -> size_t {
    if capacity > room {
        // SAFETY: the call has no preconditions; it ends the program.
        unsafe { libc::abort() };
    }
    capacity
}

const FOLLOW: c_int = 0;
const NO_FOLLOW: c_int = libc::AT_SYMLINK_NOFOLLOW;

symbols! {
    [stat stat64] (path: *const c_char, out: *mut Stat) -> c_int =>
        stat_at(libc::AT_FDCWD, path, out, FOLLOW);
    [lstat lstat64] (path: *const c_char, out: *mut Stat) -> c_int =>
        stat_at(libc::AT_FDCWD, path, out, NO_FOLLOW);
    [fstatat fstatat64] (dir: c_int, path: *const c_char, out: *mut Stat, flags: c_int) -> c_int =>
        stat_at(dir, path, out, flags);
    [fstat fstat64] (fd: c_int, out: *mut Stat) -> c_int => stat_descriptor(fd, out);
    // Programs that were built against glibc before 2.33 call these functions. The struct has one version.
    [__xstat __xstat64] (_version: c_int, path: *const c_char, out: *mut Stat) -> c_int =>
        stat_at(libc::AT_FDCWD, path, out, FOLLOW);
    [__lxstat __lxstat64] (_version: c_int, path: *const c_char, out: *mut Stat) -> c_int =>
        stat_at(libc::AT_FDCWD, path, out, NO_FOLLOW);
    [__fxstat __fxstat64] (_version: c_int, fd: c_int, out: *mut Stat) -> c_int =>
        stat_descriptor(fd, out);
    [statx] (dir: c_int, path: *const c_char, flags: c_int, mask: c_uint, out: *mut Statx) -> c_int =>
        statx_at(dir, path, flags, mask, out);
    [__fxstatat __fxstatat64]
    (_version: c_int, dir: c_int, path: *const c_char, out: *mut Stat, flags: c_int) -> c_int =>
        stat_at(dir, path, out, flags);
    [readlink] (path: *const c_char, out: *mut c_char, capacity: size_t) -> ssize_t =>
        read_link(libc::AT_FDCWD, path, out, capacity);
    [readlinkat]
    (dir: c_int, path: *const c_char, out: *mut c_char, capacity: size_t) -> ssize_t =>
        read_link(dir, path, out, capacity);
    // The `_FORTIFY_SOURCE` forms. The compiler calls them where it knows the size of the buffer, but not the capacity.
    [__readlink_chk]
    (path: *const c_char, out: *mut c_char, capacity: size_t, room: size_t) -> ssize_t =>
        read_link(libc::AT_FDCWD, path, out, checked(capacity, room));
    [__readlinkat_chk]
    (dir: c_int, path: *const c_char, out: *mut c_char, capacity: size_t, room: size_t) -> ssize_t =>
        read_link(dir, path, out, checked(capacity, room));
    [getxattr]
    (path: *const c_char, name: *const c_char, out: *mut c_void, capacity: size_t) -> ssize_t =>
        get_attribute(path, name, out, capacity, true);
    [lgetxattr]
    (path: *const c_char, name: *const c_char, out: *mut c_void, capacity: size_t) -> ssize_t =>
        get_attribute(path, name, out, capacity, false);
}
