//! What releases after 1.17 added and the project uses, by hand, up to API version 2.1.
//!
//! Compared field by field with the headers of 2.7.0a1 (`include/rdma/fi_domain.h`, `fi_eq.h`, `fi_endpoint.h`, `fabric.h`):
//! structures have only grown at their ends, unions stand where a single field stood, and constants have kept their values. So a structure of
//! this module is right for all releases from 1.17 on, which read it up to the API version that the program asked for. `tests/bindings.rs`
//! compares with headers of a later release where `LIBFABRIC_INCLUDE` names some.

// UNSAFETY: a union is made, and functions of tables are called.
#![expect(unsafe_code, reason = "calls through C tables")]

use std::ffi::{c_int, c_void};

use libc::iovec;

use crate::bindings::{
    FI_OPT_FI_HMEM_P2P, fi_cq_format, fi_cq_wait_cond, fi_hmem_iface, fi_mr_attr__bindgen_ty_1,
    fi_wait_obj, fid_cq, fid_domain, fid_mr, fid_wait,
};
use crate::{FI_ADDR_NOTAVAIL, calls};

/// Flag of `fi_mr_regattr`: the memory is that of a DMA-BUF. Since 1.20 (`fabric.h`; from 2.0 in `fi_domain.h`).
pub const FI_MR_DMABUF: u64 = 1 << 40;

/// `FI_PROGRESS_CONTROL_UNIFIED` of `enum fi_progress`. Since 1.21.
pub const FI_PROGRESS_CONTROL_UNIFIED: u32 = 3;

/// No more registrations are to be had. Since 1.20 (`fi_errno.h`).
pub const FI_ENOMR: c_int = 270;

/// Option of an endpoint, `bool`: whether the provider may call CUDA. Since 1.18 (`fi_endpoint.h`).
pub const FI_OPT_CUDA_API_PERMITTED: c_int = FI_OPT_FI_HMEM_P2P as c_int + 2;

/// Option of an endpoint, `bool`: whether the provider may go by shared memory within a machine. Since 1.21.
pub const FI_OPT_SHARED_MEMORY_PERMITTED: c_int = FI_OPT_CUDA_API_PERMITTED + 1;

/// Option of an endpoint, `size_t`: longest RMA. Since 2.0. `max_msg_size` is the largest of all kinds of operations.
pub const FI_OPT_MAX_RMA_SIZE: c_int = FI_OPT_SHARED_MEMORY_PERMITTED + 3;

/// Option of an endpoint, `size_t`: longest inline RMA. Since 2.0.
pub const FI_OPT_INJECT_RMA_SIZE: c_int = FI_OPT_MAX_RMA_SIZE + 4;

/// Memory of a device as a file: what `FI_MR_DMABUF` registers. Since 1.20.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct fi_mr_dmabuf {
    /// Descriptor of the DMA-BUF.
    pub fd: c_int,
    /// Where the memory begins in it, in bytes.
    pub offset: u64,
    /// In bytes.
    pub len: usize,
    /// Address of the DMA-BUF's first byte; peers name `base_addr + offset` where `FI_MR_VIRT_ADDR` holds. Null: none.
    pub base_addr: *mut c_void,
}

/// The memory of a registration.
#[derive(Clone, Copy)]
#[repr(C)]
pub union fi_mr_memory {
    /// Ranges of memory, `iov_count` of them.
    pub mr_iov: *const iovec,
    /// With the flag `FI_MR_DMABUF`. Since 1.20.
    pub dmabuf: *const fi_mr_dmabuf,
}

/// What is registered, and how: `fi_mr_attr` of API version 2.0. Up to `device` it is that of 1.17.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct fi_mr_attr {
    /// A nameless union in C.
    pub memory: fi_mr_memory,
    /// Ranges of memory, or DMA-BUFs.
    pub iov_count: usize,
    /// `FI_READ` and others: what the memory is used for.
    pub access: u64,
    /// Must be 0 in all known providers.
    pub offset: u64,
    /// Unless the provider chooses keys.
    pub requested_key: u64,
    /// Context of the registration, if it has one.
    pub context: *mut c_void,
    /// In bytes.
    pub auth_key_size: usize,
    /// Null: that of the domain.
    pub auth_key: *mut u8,
    /// Whose memory it is, read with `FI_HMEM` only.
    pub iface: fi_hmem_iface,
    /// Of `iface`.
    pub device: fi_mr_attr__bindgen_ty_1,
    /// Since 1.19.
    pub hmem_data: *mut c_void,
    /// 0: the provider chooses. Since 1.22.
    pub page_size: usize,
    /// The registration of which this is a part. Since 2.0.
    pub base_mr: *const fid_mr,
    /// How many parts there will be. Since 2.0.
    pub sub_mr_cnt: usize,
}

impl Default for fi_mr_attr {
    /// All fields are zero: memory of the host, none of it.
    fn default() -> Self {
        Self {
            memory: fi_mr_memory {
                mr_iov: std::ptr::null(),
            },
            iov_count: 0,
            access: 0,
            offset: 0,
            requested_key: 0,
            context: std::ptr::null_mut(),
            auth_key_size: 0,
            auth_key: std::ptr::null_mut(),
            iface: 0,
            device: fi_mr_attr__bindgen_ty_1 { reserved: 0 },
            hmem_data: std::ptr::null_mut(),
            page_size: 0,
            base_mr: std::ptr::null(),
            sub_mr_cnt: 0,
        }
    }
}

/// An operation that failed: `fi_cq_err_entry` of API version 1.20. A library writes `src_addr` where that or a later one was asked for.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct fi_cq_err_entry {
    /// Of the operation; not valid for one that a peer began.
    pub op_context: *mut c_void,
    /// `FI_RMA`, `FI_WRITE` and others: the kind of operation.
    pub flags: u64,
    /// In bytes.
    pub len: usize,
    /// Of a received message.
    pub buf: *mut c_void,
    /// CQ data of the peer.
    pub data: u64,
    /// Of a tagged message.
    pub tag: u64,
    /// By how much a message was too long.
    pub olen: usize,
    /// `FI_E*`, positive.
    pub err: c_int,
    /// The provider's own number.
    pub prov_errno: c_int,
    /// Given with room for `err_data_size` bytes, or null.
    pub err_data: *mut c_void,
    /// In bytes.
    pub err_data_size: usize,
    /// Since 1.20.
    pub src_addr: u64,
}

impl Default for fi_cq_err_entry {
    /// No room for data of the provider, no source.
    fn default() -> Self {
        Self {
            op_context: std::ptr::null_mut(),
            flags: 0,
            len: 0,
            buf: std::ptr::null_mut(),
            data: 0,
            tag: 0,
            olen: 0,
            err: 0,
            prov_errno: 0,
            err_data: std::ptr::null_mut(),
            err_data_size: 0,
            src_addr: FI_ADDR_NOTAVAIL,
        }
    }
}

/// How a completion queue is opened: `fi_cq_attr` of 2.7, whose last field earlier releases lack and do not read.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct fi_cq_attr {
    /// Least number of entries. 0: the provider chooses.
    pub size: usize,
    /// `FI_AFFINITY` or 0.
    pub flags: u64,
    /// Which structure `fi_cq_read` fills.
    pub format: fi_cq_format,
    /// How a thread sleeps.
    pub wait_obj: fi_wait_obj,
    /// A core, with `FI_AFFINITY`.
    pub signaling_vector: c_int,
    /// `FI_CQ_COND_NONE` or a threshold.
    pub wait_cond: fi_cq_wait_cond,
    /// Of `FI_WAIT_SET`.
    pub wait_set: *mut fid_wait,
    /// Null. Since 2.7.
    pub xpu_ctx: *mut c_void,
}

impl Default for fi_cq_attr {
    /// The provider's choice of everything, and no wait object.
    fn default() -> Self {
        Self {
            size: 0,
            flags: 0,
            format: 0,
            wait_obj: 0,
            signaling_vector: 0,
            wait_cond: 0,
            wait_set: std::ptr::null_mut(),
            xpu_ctx: std::ptr::null_mut(),
        }
    }
}

/// Registers memory, with the structure of this module.
///
/// # Safety
///
/// As for [`calls::fi_mr_regattr`]. With `FI_MR_DMABUF` the attribute names DMA-BUFs, and the API version asked for is 1.20 or later.
pub unsafe fn fi_mr_regattr(
    domain: *mut fid_domain,
    attr: &fi_mr_attr,
    flags: u64,
    mr: *mut *mut fid_mr,
) -> c_int {
    // SAFETY: the caller's word; this structure begins with the older one.
    unsafe { calls::fi_mr_regattr(domain, std::ptr::from_ref(attr).cast(), flags, mr) }
}

/// Opens a completion queue, with the structure of this module.
///
/// # Safety
///
/// As for [`calls::fi_cq_open`].
pub unsafe fn fi_cq_open(
    domain: *mut fid_domain,
    attr: &mut fi_cq_attr,
    cq: *mut *mut fid_cq,
    context: *mut c_void,
) -> c_int {
    // SAFETY: the caller's word; this structure begins with the older one.
    unsafe { calls::fi_cq_open(domain, std::ptr::from_mut(attr).cast(), cq, context) }
}

/// Takes the error at the head of a completion queue. `src_addr` is `FI_ADDR_NOTAVAIL` where the library does not know it.
///
/// # Safety
///
/// As for [`calls::fi_cq_readerr`].
pub unsafe fn fi_cq_readerr(cq: *mut fid_cq, entry: &mut fi_cq_err_entry, flags: u64) -> isize {
    entry.src_addr = FI_ADDR_NOTAVAIL;
    // SAFETY: the caller's word; this structure begins with the older one.
    unsafe { calls::fi_cq_readerr(cq, std::ptr::from_mut(entry).cast(), flags) }
}

#[cfg(test)]
mod tests {
    use std::mem::offset_of;

    use super::*;
    use crate::bindings;

    #[test]
    fn what_has_grown_begins_with_the_older_structure() {
        assert_eq!(
            offset_of!(fi_mr_attr, hmem_data),
            size_of::<bindings::fi_mr_attr>()
        );
        assert_eq!(
            offset_of!(fi_mr_attr, iface),
            offset_of!(bindings::fi_mr_attr, iface)
        );
        assert_eq!(
            offset_of!(fi_cq_err_entry, src_addr),
            size_of::<bindings::fi_cq_err_entry>()
        );
        assert_eq!(
            offset_of!(fi_cq_err_entry, prov_errno),
            offset_of!(bindings::fi_cq_err_entry, prov_errno)
        );
        assert_eq!(
            offset_of!(fi_cq_attr, xpu_ctx),
            size_of::<bindings::fi_cq_attr>()
        );
        assert_eq!(
            offset_of!(fi_cq_attr, wait_cond),
            offset_of!(bindings::fi_cq_attr, wait_cond)
        );
    }

    #[test]
    fn sizes_and_numbers_are_those_of_the_headers_of_2_1() {
        assert_eq!(size_of::<fi_mr_attr>(), 112);
        assert_eq!(size_of::<fi_mr_dmabuf>(), 32);
        assert_eq!(size_of::<fi_cq_err_entry>(), 88);
        assert_eq!(FI_OPT_CUDA_API_PERMITTED, 10);
        assert_eq!(FI_OPT_SHARED_MEMORY_PERMITTED, 11);
        assert_eq!(FI_OPT_MAX_RMA_SIZE, 14);
        assert_eq!(FI_OPT_INJECT_RMA_SIZE, 18);
    }
}
