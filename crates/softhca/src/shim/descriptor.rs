//! `ioctl`, `close`, `dup`, `fcntl` and `socket`: calls on descriptors.

// UNSAFETY: exported C symbols with the signatures of libc's.
#![expect(unsafe_code, reason = "exported libc symbols")]

use libc::{c_int, c_ulong, c_void};

use super::{fds, raw, start};
use crate::shim::symbols::answer;
use crate::uverbs;

/// # Safety
///
/// As `ioctl(2)`.
unsafe fn control_device(fd: c_int, request: c_ulong, argument: *mut c_void) -> c_int {
    // A verbs command on a descriptor without a mark: perhaps a duplicate that was made past this library.
    if (fds::marked(fd) || request == uverbs::RDMA_VERBS_IOCTL)
        && let Some(file) = fds::find(fd)
    {
        return answer(|| file.ioctl(request, argument.expose_provenance() as u64));
    }
    // SAFETY: as our caller's.
    unsafe { raw::ioctl(fd, request, argument) }
}

fn close_descriptor(fd: c_int) -> c_int {
    if fds::marked(fd) {
        let _ = answer(|| {
            fds::closing(fd);
            Ok(0)
        });
    }
    raw::close(fd)
}

/// Enters a duplicate into the table.
fn duplicated(original: c_int, copy: c_int) -> c_int {
    if copy >= 0 && (fds::marked(original) || fds::marked(copy)) {
        return answer(|| {
            fds::duplicated(original, copy);
            Ok(copy)
        });
    }
    copy
}

/// `dup2` by `dup3`, which all architectures have, and which refuses one case.
fn duplicate_to(old: c_int, new: c_int) -> c_int {
    if old == new {
        // SAFETY: F_GETFD takes no argument.
        let flags = unsafe { raw::fcntl(old, libc::F_GETFD, std::ptr::null_mut()) };
        return if flags < 0 { flags } else { new };
    }
    duplicated(old, raw::dup3(old, new, 0))
}

/// # Safety
///
/// As `fcntl(2)`.
unsafe fn control(fd: c_int, command: c_int, argument: *mut c_void) -> c_int {
    if command == libc::F_GETOWN {
        return owner(fd);
    }
    // SAFETY: as our caller's.
    let value = unsafe { raw::fcntl(fd, command, argument) };
    match command {
        libc::F_DUPFD | libc::F_DUPFD_CLOEXEC => duplicated(fd, value),
        _ => value,
    }
}

/// `F_GETOWN`: a process group is a negative number, which a bare system call cannot tell from an error.
fn owner(fd: c_int) -> c_int {
    #[repr(C)]
    struct Owner {
        kind: c_int,
        id: c_int,
    }
    const F_GETOWN_EX: c_int = 16;
    const F_OWNER_PGRP: c_int = 2;
    let mut out = Owner { kind: 0, id: 0 };
    // SAFETY: the command writes one `struct f_owner_ex`, which `Owner` is.
    let value = unsafe { raw::fcntl(fd, F_GETOWN_EX, (&raw mut out).cast()) };
    match (value, out.kind) {
        (0, F_OWNER_PGRP) => -out.id,
        (0, _) => out.id,
        (error, _) => error,
    }
}

/// The netlink family of RDMA knows real devices only, so it is refused, and libibverbs reads sysfs, as it does
/// on kernels without that family.
fn open_socket(domain: c_int, kind: c_int, protocol: c_int) -> c_int {
    if domain == libc::AF_NETLINK && protocol == libc::NETLINK_RDMA && crate::shim::tree::has_tree()
    {
        start::wake();
        return raw::fail(libc::EPROTONOSUPPORT);
    }
    raw::socket(domain, kind, protocol)
}

symbols! {
    [ioctl] (fd: c_int, request: c_ulong, argument: *mut c_void) -> c_int =>
        control_device(fd, request, argument);
    [fcntl fcntl64] (fd: c_int, command: c_int, argument: *mut c_void) -> c_int =>
        control(fd, command, argument);
}

safe_symbols! {
    [close] (fd: c_int) -> c_int => close_descriptor(fd);
    [dup] (fd: c_int) -> c_int => duplicated(fd, raw::dup(fd));
    [dup2] (old: c_int, new: c_int) -> c_int => duplicate_to(old, new);
    [dup3] (old: c_int, new: c_int, flags: c_int) -> c_int => duplicated(old, raw::dup3(old, new, flags));
    [socket] (domain: c_int, kind: c_int, protocol: c_int) -> c_int => open_socket(domain, kind, protocol);
}
