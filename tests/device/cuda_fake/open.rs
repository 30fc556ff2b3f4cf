//! Opening devices.

use warpverbs::gpu::cuda::CudaGpu;
use warpverbs::gpu::{self, Gpu, GpuError, GpuSelector};

use super::{fake, gpu, says};

#[test]
fn a_device_opens_with_all_kernels_of_the_crate_and_closes_without_leaks() {
    fake("name a fake\nattribute 16 7").run(|fake| {
        let gpu = gpu();
        assert_eq!(gpu.label(), "a fake");
        assert_eq!((gpu.arch(), gpu.driver_version()), (90, 13_000));
        assert_eq!(gpu.multiprocessors(), 7);
        let kernels: Vec<_> = gpu.kernels().collect();
        assert!(
            kernels.iter().any(|name| name == "wv_moe_dispatch"),
            "{kernels:?}"
        );
        drop(gpu);
        assert_eq!(fake.calls("cuDevicePrimaryCtxRelease_v2"), ["0 left 0"]);
    });
}

/// `auto` then takes the CPU, as without a driver.
fn refuses_the_library_for(function: &str) {
    let error = CudaGpu::open(0).unwrap_err();
    assert!(matches!(error, GpuError::NoDriver { .. }), "{error:?}");
    says(&error, &[function, "install a newer one"]);
    assert_eq!(gpu::open(GpuSelector::Auto).unwrap().label(), "simt");
}

#[test]
fn a_library_that_is_no_driver_is_refused() {
    fake("")
        .lacking("cuInit")
        .run(|_| refuses_the_library_for("cuInit"));
}

#[test]
fn a_driver_that_lacks_one_function_is_refused_by_its_name() {
    fake("")
        .lacking("cuMemGetHandleForAddressRange")
        .run(|_| refuses_the_library_for("cuMemGetHandleForAddressRange"));
}

#[test]
fn a_device_tells_its_attributes_and_what_became_of_each_kernel() {
    fake("attribute 13 1980000\nattribute 86 1").run(|_| {
        let gpu = gpu();
        let facts = gpu.facts().unwrap();
        let value = |wanted| facts.attribute(wanted);
        assert_eq!(value("clock_khz"), Some(1_980_000));
        assert_eq!(value("host_native_atomics"), Some(1));
        assert_eq!(
            (value("arch"), value("pageable_access")),
            (Some(90), Some(0))
        );
        assert!(value("memory_bytes") >= value("memory_free_bytes"));
        assert_eq!(facts.kernels.len(), gpu.kernels().count());
        for kernel in &facts.kernels {
            let made = (kernel.registers, kernel.local_bytes, kernel.max_threads);
            assert_eq!(made, (40, 1408, 1024), "{}", kernel.name);
        }
    });
}

#[test]
fn a_kernel_of_which_the_driver_says_nothing_is_an_error() {
    fake("refuse cuFuncGetAttribute 400").run(|_| {
        let error = gpu().facts().unwrap_err();
        says(&error, &["cuFuncGetAttribute", "(400)"]);
    });
}

#[test]
fn a_device_that_is_opened_twice_is_one_to_the_driver() {
    fake("devices 2").run(|fake| {
        let (first, again) = (gpu(), gpu());
        let other = CudaGpu::open(1).unwrap();
        assert_eq!(first.device_id(), again.device_id());
        assert_ne!(first.device_id(), other.device_id());
        assert_eq!(fake.calls("cuDevicePrimaryCtxRetain"), ["0", "1"]);
        drop(first);
        assert!(fake.calls("cuDevicePrimaryCtxRelease_v2").is_empty());
        again.alloc(64, 64).unwrap();
        drop((again, other));
        let released = fake.calls("cuDevicePrimaryCtxRelease_v2");
        assert_eq!(released, ["0 left 0", "1 left 0"]);
        // It can be opened anew.
        drop(gpu());
        assert_eq!(fake.calls("cuDevicePrimaryCtxRetain").len(), 3);
    });
}

#[test]
fn threads_that_open_a_device_at_once_share_it() {
    fake("").run(|fake| {
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(gpu)).collect();
            let gpus: Vec<_> = threads.into_iter().map(|one| one.join().unwrap()).collect();
            assert_eq!(fake.calls("cuDevicePrimaryCtxRetain"), ["0"]);
            drop(gpus);
        });
        assert_eq!(fake.calls("cuDevicePrimaryCtxRelease_v2"), ["0 left 0"]);
    });
}

/// A slice of a GPU has its own name and fewer multiprocessors; what it does not do is refused, and is no reason to fail.
#[test]
fn a_slice_of_a_gpu_is_a_device_of_its_own() {
    let slice = "name NVIDIA H200 MIG 1g.18gb\nattribute 16 16\nrefuse cuIpcGetMemHandle 801";
    fake(slice).run(|_| {
        let gpu = gpu();
        assert_eq!(gpu.label(), "NVIDIA H200 MIG 1g.18gb");
        assert_eq!(gpu.multiprocessors(), 16);
        let memory = gpu.alloc_shared(4096, 128).unwrap();
        let error = memory.handle().unwrap_err();
        says(&error, &["cuIpcGetMemHandle", "NOT_SUPPORTED (801)"]);
    });
}

#[test]
fn without_a_device_the_error_says_so_and_auto_takes_the_cpu() {
    fake("").run(|fake| {
        for settings in ["devices 0", "refuse cuInit 100"] {
            fake.set(settings);
            let error = CudaGpu::open(0).unwrap_err();
            says(&error, &["no CUDA device 0: the driver knows 0"]);
            assert_eq!(gpu::open(GpuSelector::Auto).unwrap().label(), "simt");
        }
    });
}

#[test]
fn a_number_beyond_the_devices_names_how_many_there_are() {
    fake("devices 2").run(|_| {
        for ordinal in [2, u32::MAX] {
            let error = CudaGpu::open(ordinal).unwrap_err();
            let told = format!("no CUDA device {ordinal}: the driver knows 2");
            says(&error, &[&told]);
        }
    });
}

#[test]
fn a_driver_that_does_not_start_is_not_a_machine_without_one() {
    fake("").run(|fake| {
        for (code, name, advice) in [
            (803, "SYSTEM_DRIVER_MISMATCH", "different releases"),
            (
                804,
                "COMPAT_NOT_SUPPORTED_ON_DEVICE",
                "compatibility package",
            ),
            (802, "SYSTEM_NOT_READY", "nvidia-fabricmanager"),
            (999, "UNKNOWN", "nvidia-smi"),
        ] {
            fake.set(&format!("refuse cuInit {code}"));
            for selector in [GpuSelector::Cuda(0), GpuSelector::Auto] {
                let error = gpu::open(selector).unwrap_err();
                assert!(!matches!(error, GpuError::NoDriver { .. }), "{error:?}");
                let code = format!("CUDA_ERROR_{name} ({code})");
                let ways = ["cuInit", &code, "does not start", advice];
                says(&error, &ways);
                says(&error, &["WARPVERBS_GPU=simt"]);
            }
        }
    });
}

#[test]
fn the_stub_of_a_toolkit_is_no_driver() {
    fake("refuse cuInit 34").run(|_| {
        let error = CudaGpu::open(0).unwrap_err();
        assert!(matches!(error, GpuError::NoDriver { .. }), "{error:?}");
        says(&error, &["no CUDA driver", "stub", "(34)"]);
        assert_eq!(gpu::open(GpuSelector::Auto).unwrap().label(), "simt");
    });
}

/// Whatever call of opening is refused, the error has its name and the driver's code, and nothing is left behind.
#[test]
fn a_refusal_while_a_device_is_opened_names_the_call_and_leaves_nothing() {
    fake("").run(|fake| {
        for call in [
            "cuDeviceGetCount",
            "cuDeviceGet",
            "cuDevicePrimaryCtxRetain",
            "cuDeviceGetName",
            "cuDeviceGetAttribute",
            "cuDriverGetVersion",
            "cuCtxSetCurrent",
            "cuStreamCreate",
            "cuMemHostAlloc",
            "cuMemHostGetDevicePointer_v2",
            "cuModuleGetFunction",
        ] {
            fake.set(&format!("refuse {call} 46"));
            let error = CudaGpu::open(0).unwrap_err();
            let call = call.trim_end_matches("_v2");
            says(&error, &[call, "CUDA_ERROR_DEVICE_UNAVAILABLE (46)"]);
            fake.set("");
        }
        let before = fake.calls("cuDevicePrimaryCtxRelease_v2").len();
        drop(gpu());
        let released = fake.calls("cuDevicePrimaryCtxRelease_v2");
        assert_eq!(released[before..], ["0 left 0"], "{released:?}");
    });
}
