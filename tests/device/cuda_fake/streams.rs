//! Launches, streams, events and graphs.

use std::ffi::c_void;
use std::ptr;
use std::time::Duration;

use cudarc::driver::sys;
use test_support::limits::HANG;
use warpverbs::gpu::cuda::CudaGpu;
use warpverbs::gpu::{Dim3, Gpu, GpuError, Launch};

use super::{fake, gpu_with_store, launch, says};

const STORE: &str = "store";

#[test]
fn a_launch_is_waited_for_and_its_event_is_destroyed() {
    fake("").run(|fake| {
        let gpu = gpu_with_store();
        let grid = Dim3 { x: 2, y: 3, z: 4 };
        let event = launch(&gpu, &Launch::new(STORE, grid, 32).with_shared_bytes(16)).unwrap();
        event.wait(HANG).unwrap();
        assert!(event.is_done());
        assert_eq!(fake.calls("cuLaunchKernel"), ["2 3 4 32 1 1 16 (nil)"]);
        drop((event, gpu));
        assert_eq!(fake.calls("cuDevicePrimaryCtxRelease_v2"), ["0 left 0"]);
    });
}

#[test]
fn a_wait_for_a_running_kernel_times_out_and_can_be_repeated() {
    fake("").run(|fake| {
        let gpu = gpu_with_store();
        let event = launch(&gpu, &Launch::new(STORE, 1, 1)).unwrap();
        fake.set("refuse cuEventQuery 600");
        let error = event.wait(Duration::from_millis(1)).unwrap_err();
        assert!(matches!(error, GpuError::Timeout { .. }), "{error:?}");
        says(&error, &["kernel store still runs after 1ms"]);
        assert!(!event.is_done());
        fake.set("");
        event.wait(HANG).unwrap();
    });
}

#[test]
fn a_kernel_that_failed_is_named_with_the_drivers_reason_each_time() {
    fake("").run(|fake| {
        let gpu = gpu_with_store();
        let event = launch(&gpu, &Launch::new(STORE, 1, 1)).unwrap();
        fake.set("refuse cuEventQuery 700");
        for _ in 0..2 {
            let error = event.wait(HANG).unwrap_err();
            assert!(matches!(error, GpuError::Kernel { .. }), "{error:?}");
            says(
                &error,
                &["kernel store failed", "CUDA_ERROR_ILLEGAL_ADDRESS"],
            );
        }
    });
}

#[test]
fn a_gpu_without_cooperative_launches_is_named_with_the_kernel() {
    fake("name an old fake\nattribute 95 0").run(|fake| {
        let gpu = gpu_with_store();
        let together = Launch::new(STORE, 2, 32).with_cooperative(true);
        let error = launch(&gpu, &together).unwrap_err();
        assert!(matches!(error, GpuError::BadLaunch { .. }), "{error:?}");
        says(
            &error,
            &[
                "kernel store",
                "an old fake (sm_90)",
                "no cooperative launches",
            ],
        );
        assert!(fake.calls("cuLaunchCooperativeKernel").is_empty());
        launch(&gpu, &Launch::new(STORE, 2, 32)).unwrap();
    });
}

#[test]
fn a_cooperative_grid_beyond_the_device_is_refused_with_both_numbers() {
    fake("attribute 16 4").run(|fake| {
        let gpu = gpu_with_store();
        let together = |blocks| Launch::new(STORE, blocks, 1024).with_cooperative(true);
        launch(&gpu, &together(8)).unwrap();
        let error = launch(&gpu, &together(9)).unwrap_err();
        says(
            &error,
            &[
                "kernel store",
                "9 blocks of 1024 threads",
                "4 multiprocessors",
                "TOO_LARGE (720)",
            ],
        );
        assert_eq!(fake.calls("cuLaunchCooperativeKernel").len(), 2);
    });
}

#[test]
fn as_many_blocks_are_resident_as_the_driver_says_of_the_kernel() {
    fake("attribute 16 4").run(|fake| {
        let gpu = gpu_with_store();
        let resident = |threads| gpu.resident_blocks(STORE, threads, 0).unwrap();
        assert_eq!(
            [256, 1024, 1025].map(resident),
            [Some(32), Some(8), Some(0)]
        );
        let error = gpu.resident_blocks("nothing", 32, 0).unwrap_err();
        assert!(matches!(error, GpuError::UnknownKernel { .. }), "{error:?}");
        fake.set("refuse cuOccupancyMaxActiveBlocksPerMultiprocessor 700");
        let error = gpu.resident_blocks(STORE, 32, 0).unwrap_err();
        says(&error, &["ILLEGAL_ADDRESS (700)"]);
    });
}

#[test]
fn shared_memory_beyond_the_default_is_requested_and_too_much_is_refused() {
    fake("").run(|fake| {
        let gpu = gpu_with_store();
        let with = |bytes| Launch::new(STORE, 1, 1).with_shared_bytes(bytes);
        launch(&gpu, &with(48 << 10)).unwrap();
        assert!(fake.calls("cuFuncSetAttribute").is_empty());
        launch(&gpu, &with(227 << 10)).unwrap();
        let error = launch(&gpu, &with((227 << 10) + 1)).unwrap_err();
        says(
            &error,
            &["232449 bytes of shared memory", "INVALID_VALUE (1)"],
        );
        let error = launch(&gpu, &with(1 << 32)).unwrap_err();
        says(&error, &["4294967296 bytes of shared memory"]);
    });
}

#[test]
fn a_launch_that_the_driver_refuses_names_kernel_and_code() {
    fake("").run(|fake| {
        let gpu = gpu_with_store();
        fake.set("refuse cuLaunchKernel 701");
        let error = launch(&gpu, &Launch::new(STORE, 1, 1)).unwrap_err();
        says(&error, &["kernel store", "LAUNCH_OUT_OF_RESOURCES (701)"]);
        fake.set("refuse cuEventCreate 2");
        let error = launch(&gpu, &Launch::new(STORE, 1, 1)).unwrap_err();
        says(&error, &["cuEventCreate", "OUT_OF_MEMORY (2)"]);
        fake.set("refuse cuEventRecord 700");
        let error = launch(&gpu, &Launch::new(STORE, 1, 1)).unwrap_err();
        says(&error, &["cuEventRecord", "ILLEGAL_ADDRESS (700)"]);
    });
}

#[test]
fn a_graph_has_what_was_launched_in_all_streams_that_joined() {
    fake("").run(|fake| {
        let gpu = gpu_with_store();
        let (a, b) = (gpu.stream().unwrap(), gpu.stream().unwrap());
        let on =
            |stream| launch(&gpu, &Launch::new(STORE, 1, 1).with_stream(Some(stream))).unwrap();
        a.begin_capture().unwrap();
        let again = a.begin_capture().unwrap_err();
        assert!(matches!(again, GpuError::Capture { .. }), "{again}");
        let first = on(&a);
        let captured = first.wait(HANG).unwrap_err();
        assert!(matches!(captured, GpuError::Captured { .. }), "{captured}");
        b.wait(&first).unwrap();
        a.wait(&on(&b)).unwrap();
        on(&a);
        let graph = a.end_capture().unwrap();
        assert_eq!(graph.len(), 3);
        // SAFETY: no kernel runs.
        #[expect(unsafe_code, reason = "a launch that computes nothing")]
        let event = unsafe { graph.launch(&b) }.unwrap();
        event.wait(HANG).unwrap();
        let none = a.end_capture().unwrap_err();
        says(&none, &["none began in this stream"]);
        drop((first, event, graph, a, b, gpu));
        assert_eq!(fake.calls("cuDevicePrimaryCtxRelease_v2"), ["0 left 0"]);
    });
}

#[test]
fn a_capture_with_an_open_branch_is_refused_and_streams_work_again() {
    fake("").run(|_| {
        let gpu = gpu_with_store();
        let (a, b) = (gpu.stream().unwrap(), gpu.stream().unwrap());
        let on =
            |stream| launch(&gpu, &Launch::new(STORE, 1, 1).with_stream(Some(stream))).unwrap();
        a.begin_capture().unwrap();
        b.wait(&on(&a)).unwrap();
        on(&b);
        let error = a.end_capture().unwrap_err();
        assert!(matches!(error, GpuError::Capture { .. }), "{error}");
        says(&error, &["STREAM_CAPTURE_UNJOINED (904)"]);
        for stream in [&a, &b] {
            on(stream).wait(HANG).unwrap();
        }
    });
}

#[test]
fn a_stream_of_the_caller_is_used_and_not_destroyed() {
    fake("").run(|fake| {
        let gpu = gpu_with_store();
        // SAFETY: null is the default stream of CUDA.
        #[expect(unsafe_code, reason = "a handle that is null")]
        let legacy = unsafe { gpu.wrap_stream(ptr::null_mut()) }.unwrap();
        let event = launch(&gpu, &Launch::new(STORE, 1, 1).with_stream(Some(&legacy)));
        event.unwrap().wait(HANG).unwrap();
        drop(legacy);
        assert!(fake.calls("cuStreamDestroy_v2").is_empty());
    });
}

/// A stream of the program, made while the context of `gpu` is current, or one that it has made itself.
#[expect(unsafe_code, reason = "calls of the fake driver")]
fn stream_of_the_program(gpu: &CudaGpu, own_context: bool) -> *mut c_void {
    // Makes the primary context current.
    gpu.facts().unwrap();
    let (mut context, mut stream) = (ptr::null_mut(), ptr::null_mut());
    // SAFETY: both handles are written during the calls.
    let made = unsafe {
        if own_context {
            let of_device = sys::cuCtxCreate_v4(&raw mut context, ptr::null_mut(), 0, 0);
            assert_eq!(of_device, sys::CUresult::CUDA_SUCCESS);
        }
        sys::cuStreamCreate(&raw mut stream, 0)
    };
    assert_eq!(made, sys::CUresult::CUDA_SUCCESS);
    stream.cast()
}

#[test]
fn a_stream_of_another_context_is_refused_by_its_device() {
    fake("devices 2\nname a fake").run(|fake| {
        let gpus = [0, 1].map(|ordinal| CudaGpu::open(ordinal).unwrap());
        let own = stream_of_the_program(&gpus[0], false);
        let beside = stream_of_the_program(&gpus[0], true);
        let other = stream_of_the_program(&gpus[1], false);
        #[expect(unsafe_code, reason = "streams that are never destroyed")]
        // SAFETY: they are streams, and no code destroys them.
        let wrap = |stream| unsafe { gpus[0].wrap_stream(stream) };
        wrap(own).unwrap();
        for (stream, device) in [(beside, 0), (other, 1)] {
            let error = wrap(stream).unwrap_err();
            assert!(matches!(error, GpuError::BadArgument { .. }), "{error:?}");
            let value = format!("stream is of another context, on CUDA device {device}; ");
            let limit = "one of the primary context of CUDA device 0 (a fake)";
            says(&error, &[&value, limit]);
        }
        // The context is the device's own again.
        wrap(own).unwrap();
        fake.set("devices 2\nrefuse cuStreamGetCtx 400");
        says(&wrap(own).unwrap_err(), &["cuStreamGetCtx", "(400)"]);
    });
}
