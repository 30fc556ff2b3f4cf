//! The table of reads and writes.

use std::ffi::c_void;
use std::slice;

use libc::iovec;
use libfabric_abi::bindings::{
    FI_INJECT, FI_REMOTE_CQ_DATA, fi_msg_rma, fi_ops_rma, fi_rma_iov, fid_ep,
};

use crate::engine::Kind;
use crate::guard;
use crate::handles;
use crate::objects::Endpoint;

use super::post::Post;
use super::{c_functions, given};

pub(super) static RMA: fi_ops_rma = fi_ops_rma {
    size: size_of::<fi_ops_rma>(),
    read: Some(read),
    readv: Some(readv),
    readmsg: Some(readmsg),
    write: Some(write),
    writev: Some(writev),
    writemsg: Some(writemsg),
    inject: Some(inject),
    writedata: Some(writedata),
    injectdata: Some(injectdata),
};

/// What functions with one range of the peer's memory have in common.
#[derive(Clone, Copy)]
struct Simple {
    kind: Kind,
    peer: u64,
    address: u64,
    key: u64,
    context: *mut c_void,
    data: u64,
    /// Beside those of the endpoint.
    flags: u64,
}

impl Simple {
    /// Of an operation without flags and data.
    fn new(kind: Kind, peer: u64, address: u64, key: u64, context: *mut c_void) -> Self {
        Self {
            kind,
            peer,
            address,
            key,
            context,
            data: 0,
            flags: 0,
        }
    }

    /// # Safety
    ///
    /// C's arrays: `count` ranges, and as many descriptors unless that is null.
    unsafe fn post(
        self,
        ep: *mut fid_ep,
        near: *const iovec,
        descriptors: *mut *mut c_void,
        count: usize,
    ) -> Result<isize, i32> {
        let endpoint = handles::find::<Endpoint>(ep)?;
        // SAFETY: the caller's word.
        let near = unsafe { ranges(near, count)? };
        let bytes = near.iter().map(|range| range.iov_len);
        let far = fi_rma_iov {
            addr: self.address,
            len: bytes.fold(0, usize::saturating_add),
            key: self.key,
        };
        let is_quiet = self.flags & FI_INJECT != 0;
        let post = Post {
            kind: self.kind,
            near,
            descriptors,
            far: slice::from_ref(&far),
            peer: self.peer,
            context: self.context,
            data: self.data,
            flags: self.flags | endpoint.op_flags & !FI_INJECT,
            is_quiet,
        };
        // SAFETY: the caller's word.
        unsafe { post.hand(&endpoint) }
    }
}

/// # Safety
///
/// There are so many.
unsafe fn ranges<'a, T>(first: *const T, count: usize) -> Result<&'a [T], i32> {
    if count == 0 {
        return Ok(&[]);
    }
    given(first, "ranges")?;
    // SAFETY: not null, and so many by the caller's word.
    Ok(unsafe { slice::from_raw_parts(first, count) })
}

fn one(buf: *const c_void, len: usize) -> iovec {
    iovec {
        iov_base: buf.cast_mut(),
        iov_len: len,
    }
}

/// `fi_readmsg` and `fi_writemsg`, which have flags of their own.
///
/// # Safety
///
/// A message of C.
unsafe fn message(
    kind: Kind,
    ep: *mut fid_ep,
    msg: *const fi_msg_rma,
    flags: u64,
) -> Result<isize, i32> {
    let endpoint = handles::find::<Endpoint>(ep)?;
    given(msg, "msg")?;
    // SAFETY: not null, and valid with its arrays by the caller's word.
    unsafe {
        let msg = &*msg;
        let post = Post {
            kind,
            near: ranges(msg.msg_iov, msg.iov_count)?,
            descriptors: msg.desc,
            far: ranges(msg.rma_iov, msg.rma_iov_count)?,
            peer: msg.addr,
            context: msg.context,
            data: msg.data,
            flags,
            is_quiet: false,
        };
        post.hand(&endpoint)
    }
}

c_functions! {
    /// `fi_read`.
    fn read(
        ep: *mut fid_ep, buf: *mut c_void, len: usize, desc: *mut c_void, peer: u64, address: u64, key: u64, context: *mut c_void,
    ) -> isize, guard::count {
        let (near, mut desc) = (one(buf, len), desc);
        // SAFETY: one range and one descriptor, which live here.
        unsafe { Simple::new(Kind::Read, peer, address, key, context).post(ep, &raw const near, &raw mut desc, 1) }
    }

    /// `fi_readv`.
    fn readv(
        ep: *mut fid_ep, iov: *const iovec, desc: *mut *mut c_void, count: usize, peer: u64, address: u64, key: u64,
        context: *mut c_void,
    ) -> isize, guard::count {
        // SAFETY: C's arrays.
        unsafe { Simple::new(Kind::Read, peer, address, key, context).post(ep, iov, desc, count) }
    }

    /// `fi_readmsg`.
    fn readmsg(ep: *mut fid_ep, msg: *const fi_msg_rma, flags: u64) -> isize, guard::count {
        // SAFETY: C's message.
        unsafe { message(Kind::Read, ep, msg, flags) }
    }

    /// `fi_write`.
    fn write(
        ep: *mut fid_ep, buf: *const c_void, len: usize, desc: *mut c_void, peer: u64, address: u64, key: u64,
        context: *mut c_void,
    ) -> isize, guard::count {
        let (near, mut desc) = (one(buf, len), desc);
        // SAFETY: one range and one descriptor, which live here.
        unsafe { Simple::new(Kind::Write, peer, address, key, context).post(ep, &raw const near, &raw mut desc, 1) }
    }

    /// `fi_writev`.
    fn writev(
        ep: *mut fid_ep, iov: *const iovec, desc: *mut *mut c_void, count: usize, peer: u64, address: u64, key: u64,
        context: *mut c_void,
    ) -> isize, guard::count {
        // SAFETY: C's arrays.
        unsafe { Simple::new(Kind::Write, peer, address, key, context).post(ep, iov, desc, count) }
    }

    /// `fi_writemsg`.
    fn writemsg(ep: *mut fid_ep, msg: *const fi_msg_rma, flags: u64) -> isize, guard::count {
        // SAFETY: C's message.
        unsafe { message(Kind::Write, ep, msg, flags) }
    }

    /// `fi_inject_write`.
    fn inject(ep: *mut fid_ep, buf: *const c_void, len: usize, peer: u64, address: u64, key: u64) -> isize, guard::count {
        let near = one(buf, len);
        let simple = Simple {
            flags: FI_INJECT,
            ..Simple::new(Kind::Write, peer, address, key, std::ptr::null_mut())
        };
        // SAFETY: one range, which lives here, and no descriptor.
        unsafe { simple.post(ep, &raw const near, std::ptr::null_mut(), 1) }
    }

    /// `fi_writedata`.
    fn writedata(
        ep: *mut fid_ep, buf: *const c_void, len: usize, desc: *mut c_void, data: u64, peer: u64, address: u64, key: u64,
        context: *mut c_void,
    ) -> isize, guard::count {
        let (near, mut desc) = (one(buf, len), desc);
        let simple = Simple {
            data,
            flags: FI_REMOTE_CQ_DATA,
            ..Simple::new(Kind::Write, peer, address, key, context)
        };
        // SAFETY: one range and one descriptor, which live here.
        unsafe { simple.post(ep, &raw const near, &raw mut desc, 1) }
    }

    /// `fi_inject_writedata`.
    fn injectdata(ep: *mut fid_ep, buf: *const c_void, len: usize, data: u64, peer: u64, address: u64, key: u64) -> isize,
        guard::count {
        let near = one(buf, len);
        let simple = Simple {
            data,
            flags: FI_INJECT | FI_REMOTE_CQ_DATA,
            ..Simple::new(Kind::Write, peer, address, key, std::ptr::null_mut())
        };
        // SAFETY: one range, which lives here, and no descriptor.
        unsafe { simple.post(ep, &raw const near, std::ptr::null_mut(), 1) }
    }
}
