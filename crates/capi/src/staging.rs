//! Zero-copy combine: the layer's own memory, into which the experts write.

// UNSAFETY: functions with C names, and pointers from C.
#![expect(unsafe_code, reason = "the C ABI")]

use std::ffi::c_void;
use std::ptr;

use crate::moe::wv_moe;
use crate::status::{Failure, given, guard, put, wv_status};

/// Memory that combine sends from. It has the shape of `y`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct wv_staging {
    /// Device address.
    pub address: *mut c_void,
    /// Local experts, where rows lie by expert; else ranks.
    pub blocks: u64,
    /// Rows of a block, of which the first `counts[block]` are sent.
    pub rows: u64,
    /// Bytes of a row: `hidden` BF16.
    pub row_bytes: u64,
}

/// Where the experts of a call may write what its combine sends with WV_COMBINE_ZERO_COPY: from the end of the receive phase of
/// its dispatch to that of the send phase of its combine, and at no other time. `set` is the number of the call modulo 2
/// (wv_call_report.call). The addresses stay the same while the layer lives. Refused for a layer that adds up itself: by expert,
/// with WV_RETURNS_SUMS.
///
/// # Safety
/// `moe` is a live handle, `staging` where the answer goes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wv_combine_staging(
    moe: *const wv_moe,
    set: u32,
    staging: *mut wv_staging,
) -> wv_status {
    guard(|| {
        // SAFETY: the caller's promise.
        let found = unsafe { given("moe", moe) }?.moe.combine_staging(set)?;
        let at = usize::try_from(found.addr);
        let at = at.map_err(|_| Failure::argument("address", found.addr, "a pointer"))?;
        let answer = wv_staging {
            address: ptr::with_exposed_provenance_mut(at),
            blocks: found.blocks,
            rows: found.rows,
            row_bytes: found.row_bytes,
        };
        // SAFETY: the caller's promise.
        unsafe { put("staging", staging, answer) }
    })
}
