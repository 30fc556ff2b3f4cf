//! Kernels by name: those of the library, on a GPU as on the CPU.

// UNSAFETY: functions with C names, and pointers from C.
#![expect(unsafe_code, reason = "the C ABI")]

use std::ffi::{c_char, c_void};

use warpverbs::gpu::{Dim3, Launch};

use crate::handle::Handle;
use crate::sized::{read, sized};
use crate::status::{Failure, array, guard, text, wv_status};
use crate::team::{millis, wv_team};

/// How a kernel is launched. Needs WV_INIT first.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct wv_launch_config {
    /// sizeof: WV_INIT.
    pub size: usize,
    /// Name that the kernel is exported by.
    pub kernel: *const c_char,
    /// Blocks in x, y, z. 0: 1.
    pub grid: [u32; 3],
    /// Threads of a block in x, y, z. 0: 1.
    pub block: [u32; 3],
    /// Dynamic shared memory of a block, bytes.
    pub shared_bytes: u64,
    /// 1: all blocks must be resident at once, so that they may wait for each other.
    pub cooperative: u32,
    /// On the CPU: longest run of the kernel, which then fails. 0: 60 s. A GPU ignores it.
    pub timeout_ms: u32,
}

sized!(wv_launch_config {
    kernel,
    grid,
    block,
    shared_bytes,
    cooperative,
    timeout_ms
});

/// Launches a kernel of the library by its name, with `bytes` bytes of its one parameter struct. Returns at once;
/// wv_stream_synchronize waits until it ends, and returns its failure. On a GPU a program launches its own kernels by the CUDA
/// runtime, in the same streams, and passes them wv_team_info.context and wv_window.kernel.
///
/// # Safety
/// `launch` is a struct whose text ends with a NUL. `params` are the bytes of the struct that the kernel declares, and what they
/// point to stays until the stream is past the kernel. `stream` is a stream of the GPU or null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wv_launch(
    team: *const wv_team,
    launch: *const wv_launch_config,
    params: *const c_void,
    bytes: usize,
    stream: *mut c_void,
) -> wv_status {
    guard(|| {
        let team = wv_team::behind("team", team)?;
        // SAFETY: the caller's promise.
        let given = unsafe { read("launch", launch) }?;
        // SAFETY: the caller's promise.
        let kernel = unsafe { text("launch.kernel", given.kernel) }?;
        let kernel = kernel.ok_or_else(|| Failure::argument("launch.kernel", "null", "a text"))?;
        let shared = usize::try_from(given.shared_bytes);
        // SAFETY: the caller's promise; any byte is a `u8`.
        let params = unsafe { array("params", params.cast::<u8>(), bytes) }?;
        // SAFETY: the caller's promise.
        let stream = unsafe { wv_team::stream(&team.team, stream) }?;
        let extent = |of: [u32; 3]| Dim3 {
            x: of[0].max(1),
            y: of[1].max(1),
            z: of[2].max(1),
        };
        let mut launch = Launch::new(&kernel, extent(given.grid), extent(given.block));
        launch.shared_bytes = shared.map_err(|_| {
            Failure::argument("launch.shared_bytes", given.shared_bytes, "a length")
        })?;
        launch.cooperative = match given.cooperative {
            0 => false,
            1 => true,
            other => return Err(Failure::argument("launch.cooperative", other, "0 or 1")),
        };
        launch.stream = Some(&stream);
        if given.timeout_ms != 0 {
            launch.deadline = millis(given.timeout_ms);
        }
        // SAFETY: the caller's promise.
        unsafe { team.team.gpu().launch(&launch, params) }?;
        Ok(())
    })
}
