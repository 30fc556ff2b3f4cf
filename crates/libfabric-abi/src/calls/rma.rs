//! Reads and writes of a peer's memory. Each returns 0 when it is under way, `-FI_EAGAIN` when it is to be tried again, or another error.

use std::ffi::c_void;

use libc::iovec;

use crate::bindings::{fi_msg_rma, fi_ops_atomic, fi_ops_rma, fid_ep};

calls! {
    /// Reads into one range.
    fn fi_read(
        ep: *mut fid_ep, buf: *mut c_void, len: usize, desc: *mut c_void, src_addr: u64, addr: u64, key: u64, context: *mut c_void,
    ) -> isize = fi_ops_rma.read of (*ep).rma;

    /// Reads into several ranges.
    fn fi_readv(
        ep: *mut fid_ep, iov: *const iovec, desc: *mut *mut c_void, count: usize, src_addr: u64, addr: u64, key: u64,
        context: *mut c_void,
    ) -> isize = fi_ops_rma.readv of (*ep).rma;

    /// Reads as a structure says, with flags.
    fn fi_readmsg(ep: *mut fid_ep, msg: *const fi_msg_rma, flags: u64) -> isize = fi_ops_rma.readmsg of (*ep).rma;

    /// Writes one range.
    fn fi_write(
        ep: *mut fid_ep, buf: *const c_void, len: usize, desc: *mut c_void, dest_addr: u64, addr: u64, key: u64,
        context: *mut c_void,
    ) -> isize = fi_ops_rma.write of (*ep).rma;

    /// Writes several ranges.
    fn fi_writev(
        ep: *mut fid_ep, iov: *const iovec, desc: *mut *mut c_void, count: usize, dest_addr: u64, addr: u64, key: u64,
        context: *mut c_void,
    ) -> isize = fi_ops_rma.writev of (*ep).rma;

    /// Writes as a structure says, with flags: `FI_REMOTE_CQ_DATA` for a completion at the peer, `FI_DELIVERY_COMPLETE`, `FI_INJECT`.
    fn fi_writemsg(ep: *mut fid_ep, msg: *const fi_msg_rma, flags: u64) -> isize = fi_ops_rma.writemsg of (*ep).rma;

    /// Writes one range, with data for the peer's completion queue.
    fn fi_writedata(
        ep: *mut fid_ep, buf: *const c_void, len: usize, desc: *mut c_void, data: u64, dest_addr: u64, addr: u64, key: u64,
        context: *mut c_void,
    ) -> isize = fi_ops_rma.writedata of (*ep).rma;

    /// Writes a few bytes that may be used again at once. There is no completion.
    fn fi_inject_write(ep: *mut fid_ep, buf: *const c_void, len: usize, dest_addr: u64, addr: u64, key: u64) -> isize
        = fi_ops_rma.inject of (*ep).rma;

    /// Changes words of a peer; `datatype` and `op` are `FI_UINT64` and `FI_ATOMIC_WRITE`, for example.
    fn fi_atomic(
        ep: *mut fid_ep, buf: *const c_void, count: usize, desc: *mut c_void, dest_addr: u64, addr: u64, key: u64,
        datatype: u32, op: u32, context: *mut c_void,
    ) -> isize = fi_ops_atomic.write of (*ep).atomic;
}
