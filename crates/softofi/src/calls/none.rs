//! Functions that no profile has: messages and atomics. A table with them beats a null, which a program would jump to.

use std::ffi::{c_int, c_void};

use libc::iovec;
use libfabric_abi::bindings::{fi_msg, fi_msg_atomic, fi_ops_atomic, fi_ops_msg, fid_ep};

use crate::guard;
use crate::rules::Rule;

use super::c_functions;

pub(super) static MSG: fi_ops_msg = fi_ops_msg {
    size: size_of::<fi_ops_msg>(),
    recv: Some(recv),
    recvv: Some(recvv),
    recvmsg: Some(message),
    send: Some(send),
    sendv: Some(recvv),
    sendmsg: Some(message),
    inject: Some(inject),
    senddata: Some(senddata),
    injectdata: Some(injectdata),
};

pub(super) static ATOMIC: fi_ops_atomic = fi_ops_atomic {
    size: size_of::<fi_ops_atomic>(),
    write: Some(atomic_write),
    writev: None,
    writemsg: Some(atomic_message),
    inject: None,
    readwrite: None,
    readwritev: None,
    readwritemsg: None,
    compwrite: None,
    compwritev: None,
    compwritemsg: None,
    writevalid: Some(atomic_valid),
    readwritevalid: Some(atomic_valid),
    compwritevalid: Some(atomic_valid),
};

fn not_served(what: &str) -> Result<isize, c_int> {
    Err(Rule::Capability.broken(format_args!("({what})")))
}

c_functions! {
    /// `fi_recv`.
    fn recv(_ep: *mut fid_ep, _buf: *mut c_void, _len: usize, _desc: *mut c_void, _addr: u64, _context: *mut c_void) -> isize,
        guard::count { not_served("messages") }

    /// `fi_recvv`, `fi_sendv`.
    fn recvv(_ep: *mut fid_ep, _iov: *const iovec, _desc: *mut *mut c_void, _count: usize, _addr: u64, _context: *mut c_void)
        -> isize, guard::count { not_served("messages") }

    /// `fi_recvmsg`, `fi_sendmsg`.
    fn message(_ep: *mut fid_ep, _msg: *const fi_msg, _flags: u64) -> isize, guard::count { not_served("messages") }

    /// `fi_send`.
    fn send(_ep: *mut fid_ep, _buf: *const c_void, _len: usize, _desc: *mut c_void, _addr: u64, _context: *mut c_void)
        -> isize, guard::count { not_served("messages") }

    /// `fi_inject`.
    fn inject(_ep: *mut fid_ep, _buf: *const c_void, _len: usize, _addr: u64) -> isize, guard::count { not_served("messages") }

    /// `fi_senddata`.
    fn senddata(
        _ep: *mut fid_ep, _buf: *const c_void, _len: usize, _desc: *mut c_void, _data: u64, _addr: u64, _context: *mut c_void,
    ) -> isize, guard::count { not_served("messages") }

    /// `fi_injectdata`.
    fn injectdata(_ep: *mut fid_ep, _buf: *const c_void, _len: usize, _data: u64, _addr: u64) -> isize,
        guard::count { not_served("messages") }

    /// `fi_atomic`.
    fn atomic_write(
        _ep: *mut fid_ep, _buf: *const c_void, _count: usize, _desc: *mut c_void, _dest: u64, _addr: u64, _key: u64,
        _datatype: u32, _op: u32, _context: *mut c_void,
    ) -> isize, guard::count { not_served("atomics") }

    /// `fi_atomicmsg`.
    fn atomic_message(_ep: *mut fid_ep, _msg: *const fi_msg_atomic, _flags: u64) -> isize,
        guard::count { not_served("atomics") }

    /// `fi_atomicvalid` and its kin: a question, and no rule is broken by it.
    fn atomic_valid(_ep: *mut fid_ep, _datatype: u32, _op: u32, _count: *mut usize) -> c_int,
        guard::number { Err(libfabric_abi::errors::FI_EOPNOTSUPP) }
}
