//! Registrations.

use std::ffi::{c_int, c_void};
use std::ptr::null_mut;
use std::sync::Arc;

use libc::iovec;
use libfabric_abi::Version;
use libfabric_abi::bindings::{
    FI_CLASS_MR, FI_HMEM_DEVICE_ONLY, FI_HMEM_HOST_ALLOC, FI_READ, FI_RECV, FI_REMOTE_READ,
    FI_REMOTE_WRITE, FI_SEND, FI_WRITE, fi_mr_attr as OldAttr, fi_ops, fi_ops_mr, fid, fid_mr,
};
use libfabric_abi::errors::{FI_EINVAL, FI_ENOMEM};
use libfabric_abi::later::{FI_MR_DMABUF, fi_mr_attr, fi_mr_dmabuf};

use crate::guard;
use crate::handles::{self, Object};
use crate::objects::{DmaBuf, Domain, Mapping, Registration, record};
use crate::rules::Rule;

use super::{c_functions, given, hand_over, head, object};

static OPS: fi_ops = object::ops(close);

pub(super) static MR: fi_ops_mr = fi_ops_mr {
    size: size_of::<fi_ops_mr>(),
    reg: Some(reg),
    regv: Some(regv),
    regattr: Some(regattr),
};

/// Uses that memory is registered for.
const ACCESS: u64 = FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE | FI_SEND | FI_RECV;

/// What a call asks for, whichever it is.
struct Wanted {
    domain: Arc<Domain>,
    access: u64,
    context: *mut c_void,
}

impl Wanted {
    /// # Safety
    ///
    /// The place is null or may be written.
    unsafe fn open(
        self,
        place: *mut *mut fid_mr,
        make: impl FnOnce(u32) -> Registration,
    ) -> Result<(), c_int> {
        given(place, "mr")?;
        let access = self.access;
        if access == 0 || access & !ACCESS != 0 {
            return Err(Rule::Access.broken(format_args!("({access:#x})")));
        }
        let registration = self.domain.keys.open(make)?;
        self.domain.users.add();
        let key = u64::from(registration.key);
        let seen = fid_mr {
            fid: head(FI_CLASS_MR, &OPS, self.context),
            mem_desc: null_mut(),
            key,
        };
        let pointer = handles::publish(seen, Object::Registration(registration));
        // SAFETY: published a moment ago, and C does not have it yet. A descriptor is the address of its object.
        unsafe {
            (*pointer).mem_desc = pointer.cast();
            hand_over(place, pointer);
        }
        Ok(())
    }
}

c_functions! {
    /// `fi_close`.
    fn close(object: *mut fid) -> c_int, guard::status {
        let registration = handles::find::<Registration>(object)?;
        registration.close()?;
        handles::retire(object);
        Ok(())
    }

    /// `fi_mr_reg`.
    fn reg(
        domain: *mut fid, buf: *const c_void, len: usize, access: u64, _offset: u64, _key: u64, flags: u64,
        place: *mut *mut fid_mr, context: *mut c_void,
    ) -> c_int, guard::status {
        let iov = iovec { iov_base: buf.cast_mut(), iov_len: len };
        let attr = fi_mr_attr { access, context, iov_count: 1, ..fi_mr_attr::default() };
        // SAFETY: one range, which lives here; C's place.
        unsafe { register(domain, &attr, &raw const iov, flags, place) }
    }

    /// `fi_mr_regv`.
    fn regv(
        domain: *mut fid, iov: *const iovec, count: usize, access: u64, _offset: u64, _key: u64, flags: u64,
        place: *mut *mut fid_mr, context: *mut c_void,
    ) -> c_int, guard::status {
        let attr = fi_mr_attr { access, context, iov_count: count, ..fi_mr_attr::default() };
        // SAFETY: C's ranges and place.
        unsafe { register(domain, &attr, iov, flags, place) }
    }

    /// `fi_mr_regattr`.
    fn regattr(domain: *mut fid, attr: *const OldAttr, flags: u64, place: *mut *mut fid_mr) -> c_int, guard::status {
        given(attr, "attr")?;
        // SAFETY: C's structure has the fields of its API version; those of 1.17 are read.
        let old = unsafe { &*attr };
        let read = fi_mr_attr {
            access: old.access,
            context: old.context,
            iov_count: old.iov_count,
            iface: old.iface,
            ..fi_mr_attr::default()
        };
        // SAFETY: as above; with FI_MR_DMABUF the first field is a pointer to DMA-BUFs.
        unsafe { register(domain, &read, old.mr_iov, flags, place) }
    }
}

/// # Safety
///
/// `memory` has `iov_count` ranges, or DMA-BUFs with `FI_MR_DMABUF`. The place is null or may be written.
unsafe fn register(
    domain: *mut fid,
    attr: &fi_mr_attr,
    memory: *const iovec,
    flags: u64,
    place: *mut *mut fid_mr,
) -> Result<(), c_int> {
    let domain = handles::find::<Domain>(domain)?;
    let known = FI_MR_DMABUF | FI_HMEM_DEVICE_ONLY | FI_HMEM_HOST_ALLOC;
    if flags & !known != 0 {
        return Err(Rule::Flags.broken(format_args!("(fi_mr_reg: {flags:#x})")));
    }
    if attr.iov_count != 1 {
        let count = attr.iov_count;
        return Err(Rule::TooManyRanges.broken(format_args!("({count} ranges to register, not 1)")));
    }
    given(memory, "mr_iov")?;
    let access = attr.access;
    let is_dmabuf = flags & FI_MR_DMABUF != 0;
    if is_dmabuf && domain.api() < Version::new(1, 20) {
        let api = domain.api();
        return Err(Rule::DmaBufVersion.broken(format_args!("({api})")));
    }
    let wanted = Wanted {
        domain: domain.clone(),
        access,
        context: attr.context,
    };
    if is_dmabuf {
        // SAFETY: by the flag it is one DMA-BUF.
        let dmabuf = unsafe { &*memory.cast::<fi_mr_dmabuf>() };
        let mapping = map(dmabuf, attr)?;
        let base = handles::address(dmabuf.base_addr) as u64;
        let start = base.wrapping_add(dmabuf.offset);
        let make = |key| Registration::of_dmabuf(domain, key, access, start, mapping);
        // SAFETY: the caller's word for the place.
        return unsafe { wanted.open(place, make) };
    }
    // SAFETY: one range, by the caller's word.
    let range = unsafe { &*memory };
    let start = handles::address(range.iov_base);
    if start == 0 || start.checked_add(range.iov_len).is_none() {
        return Err(FI_EINVAL);
    }
    let make = |key| Registration::of_memory(domain, key, access, start, range.iov_len);
    // SAFETY: the caller's word for the place.
    unsafe { wanted.open(place, make) }
}

/// Maps a DMA-BUF, and keeps what was given for tests.
fn map(dmabuf: &fi_mr_dmabuf, attr: &fi_mr_attr) -> Result<Mapping, c_int> {
    let mapping = Mapping::new(dmabuf);
    record(DmaBuf {
        fd: dmabuf.fd,
        offset: dmabuf.offset,
        len: dmabuf.len as u64,
        base: handles::address(dmabuf.base_addr) as u64,
        access: attr.access,
        iface: attr.iface,
        error: mapping.as_ref().err().copied().unwrap_or(0),
    });
    mapping.map_err(|error| if error == 0 { FI_ENOMEM } else { error })
}
