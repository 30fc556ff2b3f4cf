//! Zero-copy combine: the layer's own memory, into which the experts write.

// UNSAFETY: functions with C names, and pointers from C.
#![expect(unsafe_code, reason = "the C ABI")]

use std::ffi::c_void;

use crate::handle::Handle;
use crate::moe::wv_moe;
use crate::sized::{place, sized};
use crate::status::{guard, wv_status};
use crate::team::pointer;

/// Memory that combine sends from. It has the shape of `y`. Needs WV_INIT first.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct wv_staging {
    /// sizeof: WV_INIT.
    pub size: usize,
    /// Device address.
    pub address: *mut c_void,
    /// Local experts, where rows lie by expert; else ranks.
    pub blocks: u64,
    /// Rows of a block, of which the first `counts[block]` are sent.
    pub rows: u64,
    /// Bytes of a row: `hidden` BF16.
    pub row_bytes: u64,
}

sized!(wv_staging {
    address,
    blocks,
    rows,
    row_bytes
});

/// Gets the memory to which the experts of a call may write what its combine sends with WV_COMBINE_ZERO_COPY. They may write it
/// from the end of the call's dispatch receive to the end of its combine send, and at no other time. `set` is the number of the
/// call modulo 2 (wv_call_report.call). The addresses stay the same while the layer lives. Refused for a layer that adds up itself:
/// by expert, with WV_RETURNS_SUMS.
///
/// # Safety
/// `staging` is a struct.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wv_combine_staging(
    moe: *const wv_moe,
    set: u32,
    staging: *mut wv_staging,
) -> wv_status {
    guard(|| {
        let moe = wv_moe::behind("moe", moe)?;
        // SAFETY: the caller's promise.
        let place = unsafe { place("staging", staging) }?;
        let found = moe.moe.combine_staging(set)?;
        place.fill(wv_staging {
            size: 0,
            address: pointer(found.addr)?,
            blocks: found.blocks,
            rows: found.rows,
            row_bytes: found.row_bytes,
        });
        Ok(())
    })
}
