//! The calls of the runtime to a CUDA driver, on a driver that has no GPU (`test_support::fake_cuda`), and the error when the
//! driver refuses one. Kernels compute nothing here, so a pass does not show that a GPU works.
#![cfg(feature = "cuda")]

mod devices;
mod engines;
mod ladders;
mod link_layers;
mod memory;
mod modules;
mod open;
mod persistent;
mod refused;
mod registers;
mod streams;
mod teams;

use std::sync::Arc;

use test_support::fake_cuda::FakeDriver;
use warpverbs::gpu::cuda::{CudaGpu, CudaOptions, CudaSource};
use warpverbs::gpu::{Event, Gpu, GpuError, Launch};

/// A kernel of these tests, in PTX that old drivers read.
const STORE: CudaSource<'_> = CudaSource {
    name: "store.ptx",
    text: ".version 7.0\n.target sm_80\n.address_size 64\n\
        .visible .entry store(\n.param .u64 where\n)\n{\nret;\n}\n",
};

fn fake(settings: &str) -> FakeDriver {
    FakeDriver::new(settings)
}

fn gpu() -> Arc<CudaGpu> {
    CudaGpu::open(0).expect("the fake's device 0")
}

/// A device with the kernel `store`.
fn gpu_with_store() -> Arc<CudaGpu> {
    CudaGpu::with_options(0, &CudaOptions::default().with_ptx(&[STORE])).unwrap()
}

// UNSAFETY: the kernel never runs.
#[expect(unsafe_code, reason = "a launch that computes nothing")]
fn launch(gpu: &CudaGpu, launch: &Launch<'_>) -> Result<Event, GpuError> {
    // SAFETY: the driver of these tests runs no kernel, so nothing is read or written where the address points.
    unsafe { gpu.launch(launch, &[0; 8]) }
}

/// Each of `parts` stands in what a person sees.
#[track_caller]
fn says(error: &GpuError, parts: &[&str]) {
    let text = error.to_string();
    for part in parts {
        assert!(text.contains(part), "{part:?} is not in: {text}");
    }
}
