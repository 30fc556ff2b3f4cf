//! Host memory that engines of other processes of this machine and user may map.

// UNSAFETY: functions with C names, and pointers from C.
#![expect(unsafe_code, reason = "the C ABI")]

use std::ffi::c_void;
use std::ptr;
use std::sync::Arc;

use warpverbs::engine::HostMemory;

use crate::engine::wv_engine;
use crate::handle::{Handle, handle};
use crate::status::{guard, put, room, wv_status};

/// Host memory that engines of other processes of this machine and user may map. They copy it at the speed of memory, without a
/// system call.
#[derive(Debug)]
pub struct wv_shared_memory {
    memory: Arc<HostMemory>,
}

handle!(wv_shared_memory);

/// Makes `bytes` bytes of zeros. `address` gets the address of the first. They stay until wv_shared_memory_destroy, and as long as
/// a region of them is registered.
///
/// # Safety
/// `memory` is where the handle goes; `address` is a variable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wv_shared_memory_create(
    bytes: usize,
    memory: *mut *mut wv_shared_memory,
    address: *mut *mut c_void,
) -> wv_status {
    guard(|| {
        room("memory", memory)?;
        room("address", address)?;
        let made = Arc::new(HostMemory::shared(bytes as u64)?);
        let first = usize::try_from(made.address()).unwrap_or_default();
        // SAFETY: checked above.
        unsafe { put("address", address, ptr::with_exposed_provenance_mut(first)) }?;
        let handle = wv_shared_memory { memory: made }.hand_out();
        // SAFETY: checked above.
        unsafe { put("memory", memory, handle) }
    })
}

/// Registers the whole memory, as wv_engine_register does. `region` gets the number of the region.
///
/// # Safety
/// `region` is a variable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wv_engine_register_shared(
    engine: *const wv_engine,
    memory: *const wv_shared_memory,
    region: *mut u64,
) -> wv_status {
    guard(|| {
        let engine = &wv_engine::behind("engine", engine)?.engine;
        let memory = &wv_shared_memory::behind("memory", memory)?.memory;
        room("region", region)?;
        let made = engine.register(memory)?;
        // SAFETY: checked above.
        unsafe { put("region", region, made.number()) }
    })
}

/// Gives the handle back. The memory goes with it, or with the last region of it. NULL is allowed.
#[unsafe(no_mangle)]
pub extern "C" fn wv_shared_memory_destroy(memory: *mut wv_shared_memory) -> wv_status {
    guard(|| wv_shared_memory::take_back("memory", memory))
}
