//! Memory of a GPU that host engines register.

// UNSAFETY: functions with C names, and texts and addresses from C.
#![expect(unsafe_code, reason = "the C ABI")]

use std::ffi::c_char;
use std::sync::Arc;

use warpverbs::config::GpuSelector;
use warpverbs::engine::{GpuMemory, HostError, ProviderError};
use warpverbs::gpu::Gpu;

use crate::engine::wv_engine;
use crate::handle::Handle;
use crate::status::{Failure, array, guard, put, room, text, wv_status};

/// Memory of the program on a GPU, in a list. It stays so, and has no size.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct wv_gpu_range {
    /// First byte, as kernels address it.
    pub address: u64,
    /// Number of bytes.
    pub bytes: u64,
}

/// The GPU that a text names.
///
/// # Safety
/// `gpu` is null or ends with a NUL.
unsafe fn gpu_of(engine: &wv_engine, gpu: *const c_char) -> Result<Arc<dyn Gpu>, Failure> {
    // SAFETY: the caller's promise.
    let selector = match unsafe { text("gpu", gpu) }? {
        Some(name) => name.parse()?,
        None => GpuSelector::Auto,
    };
    Ok(engine.engine.gpu(selector)?)
}

/// Registers `bytes` bytes of device memory at `address`, which the program has allocated on `gpu`, as wv_engine_register does with host
/// memory: by its DMA-BUF on each NIC, else by its address. `gpu` is the number of a CUDA device, or "auto" or NULL for the first;
/// "simt" stands for a GPU where there is none. The NIC moves such memory, or a GPU copies it to peers of this machine.
///
/// # Safety
/// The memory stays allocated until wv_engine_deregister has taken this region and all regions inside it away, or wv_engine_close has
/// returned. `gpu` is null or ends with a NUL; `region` is where the number goes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wv_engine_register_gpu(
    engine: *const wv_engine,
    gpu: *const c_char,
    address: u64,
    bytes: u64,
    region: *mut u64,
) -> wv_status {
    guard(|| {
        let engine = wv_engine::behind("engine", engine)?;
        room("region", region)?;
        // SAFETY: the caller's promise.
        let gpu = unsafe { gpu_of(&engine, gpu) }?;
        // SAFETY: the caller's promise: a region that is gone has no user, and neither has any of an engine that is closed.
        let memory = unsafe { GpuMemory::over(&gpu, address, bytes, None) };
        let made = engine.engine.register(&Arc::new(memory?))?;
        // SAFETY: checked above.
        unsafe { put("region", region, made.number()) }
    })
}

/// Registers `count` ranges of one GPU, as wv_engine_register_gpu does, or none of them: the error says which one cannot be, from 0 on,
/// and why. Ranges inside a region, or inside another of the list, share its registration. `regions` gets the number of each.
///
/// # Safety
/// `ranges` holds `count` of them, and the memory of each stays as for wv_engine_register_gpu; `regions` has room for `count` numbers;
/// `gpu` is null or ends with a NUL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wv_engine_register_gpu_list(
    engine: *const wv_engine,
    gpu: *const c_char,
    ranges: *const wv_gpu_range,
    count: usize,
    regions: *mut u64,
) -> wv_status {
    guard(|| {
        let engine = wv_engine::behind("engine", engine)?;
        // SAFETY: the caller's promise.
        let ranges = unsafe { array("ranges", ranges, count) }?;
        if count > 0 {
            room("regions", regions)?;
        }
        // SAFETY: the caller's promise.
        let gpu = unsafe { gpu_of(&engine, gpu) }?;
        let memory = |(element, range): (usize, &wv_gpu_range)| {
            // SAFETY: as in wv_engine_register_gpu.
            let memory = unsafe { GpuMemory::over(&gpu, range.address, range.bytes, None) };
            let listed = |error: ProviderError| HostError::Listed {
                element,
                error: Box::new(error.into()),
            };
            memory.map(Arc::new).map_err(listed)
        };
        let memories = ranges.iter().enumerate().map(memory);
        let memories = memories.collect::<Result<Vec<_>, _>>()?;
        let made = engine.engine.register_all(&memories)?;
        for (nth, region) in made.into_iter().enumerate() {
            // SAFETY: the caller's promise: room for as many as there are ranges.
            unsafe { regions.add(nth).write(region.number()) };
        }
        Ok(())
    })
}
