//! `ioctl`, `close`, `dup`, `fcntl` and `socket`: the libc calls on descriptors.

// UNSAFETY: exported C symbols with the signatures of libc's.
#![expect(unsafe_code, reason = "exported libc symbols")]

use libc::{c_int, c_ulong, c_void};

use super::{fds, raw, start};
use crate::shim::symbols::answer;
use crate::uverbs;

/// # Safety
///
/// The caller keeps the contract of `ioctl(2)`.
unsafe fn control_device(fd: c_int, request: c_ulong, argument: *mut c_void) -> c_int {
    // A verbs command may come on a descriptor without a mark. Such a descriptor may be a duplicate that was made without this library.
    if (fds::marked(fd) || request == uverbs::RDMA_VERBS_IOCTL)
        && let Some(file) = fds::find(fd)
    {
        return answer(|| file.ioctl(request, argument.expose_provenance() as u64));
    }
    // SAFETY: the caller of this function keeps the same contract.
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

/// Enters the duplicate `copy` of `original` into the table of descriptors, if one of them is marked.
fn duplicated(original: c_int, copy: c_int) -> c_int {
    if copy >= 0 && (fds::marked(original) || fds::marked(copy)) {
        return answer(|| {
            fds::duplicated(original, copy);
            Ok(copy)
        });
    }
    copy
}

/// Implements `dup2` by `dup3`, which all architectures have. `dup3` refuses equal descriptors, so that case is answered here.
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
/// The caller keeps the contract of `fcntl(2)`.
unsafe fn control(fd: c_int, command: c_int, argument: *mut c_void) -> c_int {
    if command == libc::F_GETOWN {
        return owner(fd);
    }
    // SAFETY: the caller of this function keeps the same contract.
    let value = unsafe { raw::fcntl(fd, command, argument) };
    match command {
        libc::F_DUPFD | libc::F_DUPFD_CLOEXEC => duplicated(fd, value),
        _ => value,
    }
}

/// Answers `F_GETOWN`. The kernel returns a process group as a negative number, which a bare system call cannot tell from an error.
fn owner(fd: c_int) -> c_int {
    #[repr(C)]
    struct Owner {
        kind: c_int,
        id: c_int,
    }
    const F_GETOWN_EX: c_int = 16;
    const F_OWNER_PGRP: c_int = 2;
    let mut out = Owner { kind: 0, id: 0 };
    // SAFETY: the command writes one `struct f_owner_ex`, and `Owner` has its layout.
    let value = unsafe { raw::fcntl(fd, F_GETOWN_EX, (&raw mut out).cast()) };
    match (value, out.kind) {
        (0, F_OWNER_PGRP) => -out.id,
        (0, _) => out.id,
        (error, _) => error,
    }
}

/// Refuses the netlink family of RDMA, which knows real devices only. libibverbs then reads sysfs, as it does on kernels without that
/// family.
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
