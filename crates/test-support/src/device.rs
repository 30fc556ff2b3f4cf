//! The device of a test: where its kernels run, how they are launched, and how its memory is read and written.

use std::sync::Arc;

use bytemuck::{Pod, cast_slice_mut};
use test_basics::limits::HANG;
use warpverbs::gpu::{DeviceMemory, Gpu, GpuSelector, Launch};

use crate::kernels::open;

/// Returns the device on which kernels of tests run: simt, or the CUDA device with the number in WARPVERBS_TEST_GPU. The "device memory" of
/// that GPU is memory of the host, which the software HCA can reach. On a GPU the test kernels are loaded from WARPVERBS_TEST_PTX
/// (`./x gpu` sets both variables).
pub fn test_gpu() -> Arc<dyn Gpu> {
    match named() {
        #[cfg(feature = "cuda")]
        Named::Gpu(ordinal) => cuda_gpu(ordinal),
        Named::Cpu(selector) => open(selector).expect("simt"),
    }
}

/// The device that WARPVERBS_TEST_GPU names.
enum Named {
    #[cfg(feature = "cuda")]
    Gpu(u32),
    Cpu(GpuSelector),
}

fn named() -> Named {
    match std::env::var("WARPVERBS_TEST_GPU") {
        #[cfg(feature = "cuda")]
        Ok(ordinal) if !ordinal.starts_with("simt") => {
            Named::Gpu(ordinal.parse().expect("a number"))
        }
        Ok(name) if name == "simt-dmabuf" => Named::Cpu(GpuSelector::SimtDmabuf),
        _ => Named::Cpu(GpuSelector::Simt),
    }
}

/// Returns whether kernels of tests run on a GPU.
pub(crate) fn is_a_gpu() -> bool {
    !matches!(named(), Named::Cpu(_))
}

#[cfg(feature = "cuda")]
fn cuda_gpu(ordinal: u32) -> Arc<dyn Gpu> {
    use std::sync::OnceLock;
    use warpverbs::gpu::cuda::{CudaGpu, CudaOptions, CudaSource, MemoryLocation};
    /// A device that keeps the kernels loaded from test to test. All devices of a GPU share what is loaded.
    static FIRST: OnceLock<Arc<CudaGpu>> = OnceLock::new();
    let bare = CudaOptions::default().with_bare(true);
    let bare = CudaGpu::with_options(ordinal, &bare).expect("a CUDA device");
    let arch = bare.arch();
    let folder = std::env::var("WARPVERBS_TEST_PTX").expect("WARPVERBS_TEST_PTX");
    let folder = format!("{folder}/sm_{}", if arch >= 90 { 90 } else { 80 });
    let files: Vec<(String, String)> = std::fs::read_dir(&folder)
        .unwrap_or_else(|error| panic!("{folder}: {error}"))
        .map(|file| file.expect("a file").path())
        .map(|path| {
            let text = std::fs::read_to_string(&path).expect("PTX");
            (path.display().to_string(), text)
        })
        .collect();
    let ptx: Vec<_> = files
        .iter()
        .map(|(name, text)| CudaSource { name, text })
        .collect();
    let options = CudaOptions::default()
        .with_location(MemoryLocation::Host)
        .with_ptx(&ptx);
    let open = || CudaGpu::with_options(ordinal, &options).expect("a CUDA device");
    FIRST.get_or_init(open);
    // A test gets a device of its own, which counts what the test allocates.
    open()
}

/// Returns `count` values at `addr` of device memory.
pub fn read<T: Pod>(gpu: &dyn Gpu, addr: u64, count: usize) -> Vec<T> {
    let mut out = vec![T::zeroed(); count];
    gpu.read(addr, cast_slice_mut(&mut out)).unwrap();
    out
}

/// Returns device memory with the contents `bytes`. Even if `bytes` is empty it has a byte, because kernels are given its address.
pub fn upload(gpu: &dyn Gpu, bytes: &[u8]) -> DeviceMemory {
    let memory = gpu.alloc(bytes.len().max(1), 128).unwrap();
    gpu.write(memory.addr(), bytes).unwrap();
    memory
}

/// Returns a launch of `kernel` with so many blocks and threads, and a deadline that no test reaches.
pub fn launch(kernel: &str, blocks: u32, threads: u32, seed: u64) -> Launch<'_> {
    Launch::new(kernel, blocks, threads)
        .with_seed(seed)
        .with_deadline(HANG)
}
