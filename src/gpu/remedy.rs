//! What to do when the CUDA driver refuses a call, by call and code.
//!
//! Sources: "Error Handling" and "Device Memory" of the CUDA driver API; "GPUDirect RDMA" and "Multi-Process Service" of the CUDA
//! documentation; "Container Toolkit", driver capabilities.

use std::fmt;

/// A line of the table: the beginning of the function's name, its codes, and what to do.
type Row = (&'static str, &'static [u32], &'static str);

const INVALID_VALUE: u32 = 1;
const OUT_OF_MEMORY: u32 = 2;
const NOT_INITIALIZED: u32 = 3;
const DEVICE_UNAVAILABLE: u32 = 46;
const INVALID_DEVICE: u32 = 101;
const NO_BINARY_FOR_GPU: u32 = 209;
const ECC_UNCORRECTABLE: u32 = 214;
const JIT_COMPILER_NOT_FOUND: u32 = 221;
const JIT_COMPILATION_DISABLED: u32 = 223;
const OPERATING_SYSTEM: u32 = 304;
const ILLEGAL_ADDRESS: u32 = 700;
const LAUNCH_FAILED: u32 = 719;
const NOT_PERMITTED: u32 = 800;
const NOT_SUPPORTED: u32 = 801;
const SYSTEM_NOT_READY: u32 = 802;

const OPEN: &str = "cuDevicePrimaryCtxRetain";
const EXPORT: &str = "cuMemGetHandleForAddressRange";
const LOAD: &str = "cuModuleLoadData";

const TABLE: &[Row] = &[
    (
        OPEN,
        &[DEVICE_UNAVAILABLE],
        "another process has the GPU for itself, or none may (its compute mode is exclusive or prohibited): give each rank a GPU of its \
         own, or allow several with nvidia-smi -c DEFAULT or by MPS",
    ),
    (
        OPEN,
        &[OUT_OF_MEMORY],
        "the GPU has no memory left for a context: nvidia-smi shows which processes have it",
    ),
    (
        OPEN,
        &[INVALID_DEVICE],
        "of a GPU in MIG mode a process sees instances only: name one with CUDA_VISIBLE_DEVICES=MIG-UUID (nvidia-smi -L lists them)",
    ),
    (
        OPEN,
        &[SYSTEM_NOT_READY],
        "on a machine with NVSwitch the GPU waits for the service nvidia-fabricmanager, which must run in the driver's release",
    ),
    (
        "cu",
        &[ECC_UNCORRECTABLE],
        "the GPU's memory has errors that ECC does not correct: end its processes and reset it with nvidia-smi -r; nvidia-smi -q -d ECC \
         counts them",
    ),
    (
        EXPORT,
        &[INVALID_VALUE, NOT_SUPPORTED, NOT_PERMITTED],
        "the driver exports no such DMA-BUF: it takes the open kernel modules (nvidia-open) of CUDA 11.7 or later, and of CUDA 12.8 or \
         later where it is made for PCIe",
    ),
    (
        EXPORT,
        &[OUT_OF_MEMORY, OPERATING_SYSTEM],
        "this process may have no descriptor left (ulimit -n)",
    ),
    (
        "cuMemHostAlloc",
        &[OUT_OF_MEMORY, OPERATING_SYSTEM],
        "pinned memory counts against the memory of the machine and of the container (docker run --memory, limits of the pod)",
    ),
    (
        LOAD,
        &[JIT_COMPILER_NOT_FOUND],
        "the driver's compiler of PTX, libnvidia-ptxjitcompiler.so.1, is not found: a container needs \
         NVIDIA_DRIVER_CAPABILITIES=compute,utility",
    ),
    (
        LOAD,
        &[JIT_COMPILATION_DISABLED],
        "CUDA_DISABLE_PTX_JIT turns the compilation of PTX off: unset it",
    ),
    (
        LOAD,
        &[NO_BINARY_FOR_GPU],
        "the GPU is older than every architecture that the kernels were made for: it takes one of compute capability 8.0 or later",
    ),
    (
        "cu",
        &[NOT_INITIALIZED],
        "a process that was forked cannot use the CUDA of the one that forked it: start ranks as programs of their own, or by spawn",
    ),
    (
        "cu",
        &[ILLEGAL_ADDRESS, LAUNCH_FAILED],
        "a kernel of this process has failed, and with it everything that it has on the GPU: compute-sanitizer shows which one and where",
    ),
];

/// What to do when `call` was refused with `code`, if that is known; printed behind the reason, with a semicolon before it.
pub(super) struct Remedy {
    pub(super) call: &'static str,
    pub(super) code: u32,
}

impl fmt::Display for Remedy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fits = |row: &&Row| self.call.starts_with(row.0) && row.1.contains(&self.code);
        match TABLE.iter().find(fits) {
            // What is wrong with the start is told by `GpuError::NoStart`.
            Some((_, _, advice)) if self.call != "cuInit" => write!(f, "; {advice}"),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn advice(call: &'static str, code: u32) -> String {
        Remedy { call, code }.to_string()
    }

    #[test]
    fn each_row_is_found_by_its_call_and_code() {
        for (call, codes, text) in TABLE {
            for &code in *codes {
                assert_eq!(advice(call, code), format!("; {text}"), "{call} {code}");
            }
        }
    }

    #[test]
    fn what_is_refused_names_what_to_change() {
        for (call, code, words) in [
            (OPEN, 46, "nvidia-smi -c DEFAULT"),
            (OPEN, 2, "nvidia-smi shows"),
            (OPEN, 101, "CUDA_VISIBLE_DEVICES=MIG-"),
            (OPEN, 802, "nvidia-fabricmanager"),
            (OPEN, 214, "nvidia-smi -r"),
            (EXPORT, 1, "CUDA 12.8"),
            (EXPORT, 801, "nvidia-open"),
            (EXPORT, 304, "ulimit -n"),
            ("cuMemHostAlloc", 2, "container"),
            ("cuModuleLoadDataEx", 221, "NVIDIA_DRIVER_CAPABILITIES"),
            ("cuModuleLoadDataEx", 223, "CUDA_DISABLE_PTX_JIT"),
            ("cuModuleLoadDataEx", 209, "8.0"),
            ("cuCtxSetCurrent", 3, "forked"),
            ("cuStreamQuery", 700, "compute-sanitizer"),
        ] {
            let text = advice(call, code);
            assert!(
                text.starts_with("; ") && text.contains(words),
                "{call}: {text}"
            );
        }
        for (call, code) in [("cuInit", 3), ("cuMemFree", 1), (OPEN, 999), (EXPORT, 0)] {
            assert_eq!(advice(call, code), "", "{call} {code}");
        }
    }
}
