//! Beside a kernel that does not end by itself: calls that wait for all kernels of a device are put off, and nothing is loaded.

use warpverbs::gpu::Gpu;
use warpverbs::gpu::cuda::{CudaGpu, CudaOptions, MemoryLocation};

use super::{STORE, fake, gpu, says};

/// Calls that wait for all kernels, by what the runtime has made of them so far.
const WAITING: [&str; 4] = [
    "cuMemFree_v2",
    "cuMemFreeHost",
    "cuMemHostUnregister",
    "cuModuleUnload",
];

#[test]
fn what_would_wait_for_a_persistent_kernel_is_put_off_until_its_end() {
    fake("").run(|fake| {
        let (kept, ends) = (gpu(), gpu());
        let on_host = CudaOptions::default().with_location(MemoryLocation::Host);
        let on_host = CudaGpu::with_options(0, &on_host).unwrap();
        let [one, two] = [(); 2].map(|()| kept.persistent().unwrap());
        drop((ends.alloc(64, 64).unwrap(), ends.map_host(64).unwrap()));
        drop((ends, on_host.alloc_shared(64, 64).unwrap(), on_host));
        // Memory that is free by then is none to copy to, although the driver still has it.
        let freed = kept.alloc(64, 64).unwrap();
        let addr = freed.addr();
        drop(freed);
        kept.write(addr, &[1]).unwrap_err();
        let calls = || WAITING.map(|call| fake.calls(call).len());
        assert_eq!(calls(), [0; 4]);
        drop(one);
        assert_eq!(calls(), [0; 4], "another persistent kernel runs");
        drop(two);
        let [freed, of_host, unregistered, unloaded] = calls();
        // Each device has a pinned buffer for copies.
        assert_eq!((freed, of_host, unregistered), (2, 3, 1));
        assert!(unloaded > 0, "kernels over host memory");
        drop(kept.alloc(64, 64).unwrap());
        assert_eq!(fake.calls("cuMemFree_v2").len(), 3, "at once again");
        drop(kept);
        let loaded = fake.calls("cuModuleLoadDataEx").len();
        assert_eq!(fake.calls("cuModuleUnload").len(), loaded);
        assert_eq!(fake.calls("cuDevicePrimaryCtxRelease_v2"), ["0 left 0"]);
    });
}

#[test]
fn kernels_are_loaded_before_a_persistent_kernel_or_refused_by_name() {
    fake("").run(|fake| {
        let first = gpu();
        let loaded = fake.calls("cuModuleLoadDataEx").len();
        let persistent = first.persistent().unwrap();
        // Another device of the same GPU has what is loaded.
        drop(gpu());
        assert_eq!(fake.calls("cuModuleLoadDataEx").len(), loaded);
        let with_store = || CudaGpu::with_options(0, &CudaOptions::default().with_ptx(&[STORE]));
        let limit = "loaded before the persistent kernel that runs (Gpu::persistent)";
        says(&with_store().unwrap_err(), &["store.ptx", limit]);
        assert_eq!(fake.calls("cuModuleLoadDataEx").len(), loaded);
        drop(persistent);
        drop(with_store().unwrap());
        assert_eq!(fake.calls("cuModuleLoadDataEx").len(), loaded + 1);
    });
}

#[test]
fn a_device_that_only_a_persistent_kernel_has_is_found_open_with_it() {
    fake("").run(|fake| {
        let first = gpu();
        let loaded = fake.calls("cuModuleLoadDataEx").len();
        let persistent = first.persistent().unwrap();
        drop(first);
        let again = gpu();
        assert_eq!(fake.calls("cuModuleLoadDataEx").len(), loaded);
        drop(again.alloc(64, 64).unwrap());
        assert_eq!(fake.calls("cuMemFree_v2").len(), 0, "put off");
        drop(persistent);
        assert_eq!(fake.calls("cuMemFree_v2").len(), 1);
    });
}

#[test]
fn the_stack_of_each_kernel_has_its_room_before_a_persistent_kernel() {
    fake("").run(|fake| {
        let gpu = gpu();
        let kernels = gpu.facts().unwrap().kernels;
        let most = kernels.iter().map(|kernel| kernel.local_bytes).max();
        // More than the 1,024 that a context has.
        assert_eq!(most, Some(1408));
        for _ in 0..2 {
            drop(gpu.persistent().unwrap());
            assert_eq!(fake.calls("cuCtxSetLimit"), ["0 1408"]);
        }
        fake.set("refuse cuCtxGetLimit 2");
        let refused = gpu.persistent().unwrap_err();
        says(&refused, &["cuCtxGetLimit", "OUT_OF_MEMORY (2)"]);
        // Then none runs, and nothing is put off.
        drop(gpu.alloc(64, 64).unwrap());
        assert_eq!(fake.calls("cuMemFree_v2").len(), 1);
    });
}
