//! What only a CUDA GPU can show: `cargo test --test gpu -- --ignored` on a machine that has one.
#![cfg(feature = "cuda")]

use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;

use warpverbs::gpu::cuda::CudaGpu;
use warpverbs::gpu::{Gpu, GpuError};

fn gpu() -> Arc<CudaGpu> {
    CudaGpu::open(0).expect("CUDA device 0")
}

#[test]
#[ignore = "needs a GPU"]
fn every_kernel_of_the_checked_in_ptx_loads() {
    let gpu = gpu();
    println!("{}: {:?}", gpu.label(), gpu.kernels().collect::<Vec<_>>());
    assert!(gpu.kernels().count() > 0);
}

#[test]
#[ignore = "needs a GPU"]
fn device_memory_is_zero_aligned_bounded_and_reads_back() {
    let gpu = gpu();
    // Longer than the pinned buffer, and no multiple of it.
    let memory = gpu.alloc((3 << 20) + 7, 2 << 20).unwrap();
    assert!(memory.addr().is_multiple_of(2 << 20));
    let mut out = vec![1; memory.bytes()];
    gpu.read(memory.addr(), &mut out).unwrap();
    assert!(out.iter().all(|byte| *byte == 0));
    let bytes: Vec<u8> = (0..=255).cycle().take(memory.bytes()).collect();
    gpu.write(memory.addr(), &bytes).unwrap();
    gpu.read(memory.addr(), &mut out).unwrap();
    assert!(out == bytes);
    let outside = gpu.write(memory.addr() + 1, &bytes).unwrap_err();
    assert!(matches!(outside, GpuError::BadRange { .. }), "{outside}");
}

#[test]
#[ignore = "needs a GPU"]
fn a_register_page_is_registered_once_for_all_its_users() {
    let gpu = gpu();
    // An ordinary page, like those of the software HCA.
    let page = vec![0u8; 2 * 4096];
    let start = page
        .as_ptr()
        .cast_mut()
        .map_addr(|addr| addr.next_multiple_of(4096));
    let first = gpu.map_mmio(start.wrapping_add(0x800), 8).unwrap();
    let second = gpu.map_mmio(start.wrapping_add(0xa00), 8).unwrap();
    assert_eq!(second.addr() - first.addr(), 0x200);
    drop(first);
    drop(second);
    gpu.map_mmio(start.wrapping_add(0x800), 8).unwrap();
}

#[test]
#[ignore = "needs a GPU"]
fn host_mapped_words_have_an_address_on_the_device() {
    let host = gpu().map_host(4096).unwrap();
    host.u64_at(8).store(7, SeqCst);
    assert_ne!(host.addr(), 0);
    assert_eq!(host.u32_at(8).load(SeqCst), 7);
}
