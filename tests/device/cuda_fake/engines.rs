//! Host engines on the driver without a GPU, with software HCAs: memory of a CUDA device goes by its DMA-BUF.

// UNSAFETY: takes memory that the test has allocated, and frees it by the driver.
#![expect(unsafe_code, reason = "memory of the program")]

use std::sync::Arc;

use cudarc::driver::sys;
use softhca::{Hca, HcaConfig};
use test_support::hca::hca_with;
use test_support::limits::HANG;
use warpverbs::engine::{
    Engine, EngineConfig, EngineError, EnginePath, GpuMemory, HostError, HostMemory, Outcome, Peer,
    RegionId, Status, TransferId,
};
use warpverbs::gpu::Gpu;
use warpverbs::gpu::cuda::CudaGpu;
use warpverbs::verbs::{Context, DeviceSelector};

use super::fake;
use super::memory::memory_of_the_program;

const BYTES: usize = 8192;

fn engine(name: &str) -> (Engine, Hca) {
    let hca = hca_with(HcaConfig::default());
    let context = Context::open(&DeviceSelector::Name(hca.name().to_owned())).unwrap();
    let config = EngineConfig::new(name).with_engine_path(EnginePath::Auto);
    (Engine::new(&context, config).unwrap(), hca)
}

/// `bytes` bytes at `address`, which the driver has allocated.
fn lent(gpu: &Arc<dyn Gpu>, address: u64, bytes: u64) -> Arc<GpuMemory> {
    // SAFETY: no reference to the memory exists. Where the test frees it, no transfer runs, and the HCA has pages of its own.
    let memory = unsafe { GpuMemory::over(gpu, address, bytes, None) };
    Arc::new(memory.unwrap())
}

#[track_caller]
fn done(engine: &Engine, id: TransferId) {
    let status = engine.wait(id, HANG).unwrap();
    assert_eq!(status, Status::Concluded(Outcome::Done));
    engine.release(id).unwrap();
}

fn import(peer: &Peer, engine: &Engine, region: RegionId) {
    peer.import(&engine.descriptor(region).unwrap()).unwrap();
}

#[test]
fn an_engine_moves_memory_of_a_cuda_device_wherever_it_begins() {
    fake("name a fake").run(|fake| {
        let cuda = CudaGpu::open(0).unwrap();
        let gpu: Arc<dyn Gpu> = Arc::<CudaGpu>::clone(&cuda);
        let ((a, _hca_a), (b, _hca_b)) = (engine("a"), engine("b"));
        let address = b.listen("127.0.0.1:0".parse().unwrap()).unwrap();
        let to_b = a.connect(&address.to_string()).unwrap();
        let own = Arc::new(gpu.alloc(BYTES, 4096).unwrap());
        let back = Arc::new(HostMemory::new(BYTES as u64).unwrap());
        a.register(&Arc::new(GpuMemory::new(&gpu, &own).unwrap()))
            .unwrap();
        a.register(&back).unwrap();
        // Within a page, after memory that is not lent.
        let there = memory_of_the_program(&cuda, BYTES);
        let region = b.register(&lent(&gpu, there + 256, 4096)).unwrap();
        import(&to_b, &b, region);
        let exported = fake.calls("cuMemGetHandleForAddressRange");
        let pages = |addr: u64| format!("{addr:#x} {BYTES} 1 1");
        assert!(exported.contains(&pages(own.addr())) && exported.contains(&pages(there)));

        let bytes: Vec<u8> = (0..=255).cycle().take(4096).collect();
        gpu.write(own.addr(), &bytes).unwrap();
        done(&a, to_b.write(own.addr(), there + 256, 4096).unwrap());
        done(&a, to_b.read(back.address(), there + 256, 4096).unwrap());
        let mut found = vec![0; 4096];
        back.read(0, &mut found).unwrap();
        assert!(found == bytes, "to the GPU and from it");
        done(&a, to_b.read(own.addr() + 4096, there + 256, 4096).unwrap());
        gpu.read(own.addr() + 4096, &mut found).unwrap();
        assert!(found == bytes, "from one GPU to the other");
        // This device shows writes in order: it is never flushed.
        assert!(fake.calls("cuFlushGPUDirectRDMAWrites").is_empty());
    });
}

#[test]
fn a_cuda_address_that_was_freed_and_used_again_is_no_hit() {
    fake("reuse").run(|_| {
        let cuda = CudaGpu::open(0).unwrap();
        let gpu: Arc<dyn Gpu> = Arc::<CudaGpu>::clone(&cuda);
        let (a, hca) = engine("a");
        let before = hca.live_objects().mr;
        let first = memory_of_the_program(&cuda, BYTES);
        let region = a.register(&lent(&gpu, first, 4096)).unwrap();
        let inside = a.register(&lent(&gpu, first + 64, 64)).unwrap();
        assert_eq!(hca.live_objects().mr, before + 1);
        // SAFETY: allocated above, and freed once.
        let freed = unsafe { sys::cuMemFree_v2(first) };
        assert_eq!(freed, sys::CUresult::CUDA_SUCCESS);
        assert_eq!(memory_of_the_program(&cuda, BYTES), first);
        for (address, bytes) in [(first, 4096), (first + 64, 64), (first + 4000, 200)] {
            match a.register(&lent(&gpu, address, bytes)) {
                Err(HostError::Refused(EngineError::Freed { region: found, .. })) => {
                    assert_eq!(found, region.number());
                }
                other => panic!("{other:?}"),
            }
        }
        a.deregister(inside).unwrap();
        a.deregister(region).unwrap();
        a.register(&lent(&gpu, first, 4096)).unwrap();
        assert_eq!(hca.live_objects().mr, before + 1);
    });
}
