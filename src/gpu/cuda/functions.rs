//! The functions of the driver that this module calls. cudarc looks up a function at its first call, and panics if the library lacks it. So
//! this module looks up all of them before the first call of any.

// UNSAFETY: looks up names in a shared library.
#![expect(unsafe_code, reason = "symbols of the CUDA driver")]

use std::ffi::c_void;

use cudarc::driver::sys;

use crate::gpu::GpuError;

/// The functions by the names that the library exports.
const CALLED: [&str; 59] = [
    "cuCtxGetDevice",
    "cuCtxGetLimit",
    "cuCtxSetCurrent",
    "cuCtxSetLimit",
    "cuDeviceGet",
    "cuDeviceGetAttribute",
    "cuDeviceGetCount",
    "cuDeviceGetName",
    "cuDevicePrimaryCtxRelease_v2",
    "cuDevicePrimaryCtxRetain",
    "cuDeviceTotalMem_v2",
    "cuDriverGetVersion",
    "cuEventCreate",
    "cuEventDestroy_v2",
    "cuEventQuery",
    "cuEventRecord",
    "cuFlushGPUDirectRDMAWrites",
    "cuFuncGetAttribute",
    "cuFuncSetAttribute",
    "cuGetErrorName",
    "cuGraphDestroy",
    "cuGraphExecDestroy",
    "cuGraphGetNodes",
    "cuGraphInstantiateWithFlags",
    "cuGraphLaunch",
    "cuInit",
    "cuIpcCloseMemHandle",
    "cuIpcGetMemHandle",
    "cuIpcOpenMemHandle_v2",
    "cuLaunchCooperativeKernel",
    "cuLaunchKernel",
    "cuMemAlloc_v2",
    "cuMemFreeHost",
    "cuMemFree_v2",
    "cuMemGetAddressRange_v2",
    "cuMemGetHandleForAddressRange",
    "cuMemGetInfo_v2",
    "cuMemHostAlloc",
    "cuMemHostGetDevicePointer_v2",
    "cuMemHostRegister_v2",
    "cuMemHostUnregister",
    "cuMemcpyAsync",
    "cuMemsetD8Async",
    "cuModuleGetFunction",
    "cuModuleLoadDataEx",
    "cuModuleUnload",
    "cuOccupancyMaxActiveBlocksPerMultiprocessor",
    "cuPointerGetAttribute",
    "cuPointerSetAttribute",
    "cuStreamBeginCapture_v2",
    "cuStreamCreate",
    "cuStreamDestroy_v2",
    "cuStreamEndCapture",
    "cuStreamGetCtx",
    "cuStreamIsCapturing",
    "cuStreamQuery",
    "cuStreamSynchronize",
    "cuStreamWaitEvent",
    "cuThreadExchangeStreamCaptureMode",
];

/// Returns an error if this machine lacks the driver's library, or the library lacks a function.
pub(super) fn check() -> Result<(), GpuError> {
    // SAFETY: only opens and closes the library.
    if !unsafe { sys::is_culib_present() } {
        return Err(GpuError::NoDriver {
            detail: "libcuda.so.1 is not found; it comes with NVIDIA's kernel driver".to_owned(),
        });
    }
    // SAFETY: the library was found and is loaded.
    let library = unsafe { sys::culib() };
    // SAFETY: the symbols are looked up and not called.
    let lacks = |name: &&&str| unsafe { library.get::<*const c_void>(name.as_bytes()) }.is_err();
    match CALLED.iter().find(lacks) {
        None => Ok(()),
        Some(name) => Err(GpuError::NoDriver {
            detail: format!(
                "libcuda.so.1 has no function {name}; it is no driver of NVIDIA, or one older than CUDA 12.0: install a newer one"
            ),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use std::path::Path;

    #[test]
    fn every_function_that_is_called_is_looked_up_before() {
        let module = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/gpu/cuda.rs");
        let entries = std::fs::read_dir(module.with_extension("")).unwrap();
        let paths = entries.map(|entry| entry.unwrap().path());
        let sources = paths.filter(|path| path.extension().is_some_and(|end| end == "rs"));
        let mut called = BTreeSet::new();
        for path in sources.chain([module]) {
            let text = std::fs::read_to_string(path).unwrap();
            // The pattern is in two parts, so that this line does not match it.
            for rest in text.split(concat!("sys::", "cu")).skip(1) {
                let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_');
                let name = &rest[..end.unwrap_or(rest.len())];
                if name.starts_with(|c: char| c.is_ascii_uppercase()) {
                    called.insert(format!("cu{name}"));
                }
            }
        }
        let listed: BTreeSet<String> = CALLED.iter().map(|&name| name.to_owned()).collect();
        assert_eq!(listed, called);
    }
}
