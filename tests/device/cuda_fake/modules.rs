//! Loading kernels.

use warpverbs::gpu::cuda::{Compile, CudaGpu, CudaOptions, CudaSource};
use warpverbs::gpu::{Gpu, GpuError, KernelSet};

use super::{STORE, fake, says};

#[test]
fn a_driver_too_old_for_the_ptx_names_both_versions_and_the_ways_out() {
    fake("driver 12040").run(|_| {
        let error = CudaGpu::open(0).unwrap_err();
        assert!(matches!(error, GpuError::OldDriver(_)), "{error:?}");
        says(
            &error,
            &[
                "too old",
                "runs CUDA 12.4",
                "PTX 9.0 needs CUDA 13.0",
                "UNSUPPORTED_PTX_VERSION (222)",
                "release 580",
                "WARPVERBS_NVRTC=/path/to/libnvrtc.so",
            ],
        );
    });
}

/// Old ones report it by the code of wrong PTX; the words of their compiler distinguish it.
#[test]
fn an_old_driver_that_calls_new_ptx_invalid_is_an_old_driver() {
    let log = "jit-log ptxas fatal   : Unsupported .version 9.0; current version is '7.0'";
    let refused = format!("driver 11000\nrefuse cuModuleLoadDataEx 218\n{log}");
    fake(&refused).run(|_| {
        let error = CudaGpu::open(0).unwrap_err();
        assert!(matches!(error, GpuError::OldDriver(_)), "{error:?}");
        says(&error, &["runs CUDA 11.0", "INVALID_PTX (218)"]);
    });
}

#[test]
fn a_ptx_error_reports_the_words_of_the_compiler_and_no_old_driver() {
    let log = "jit-log ptxas application ptx input, line 7; error   : Unknown symbol 'where'";
    fake(log).run(|fake| {
        // The library's own.
        fake.set(&format!("{log}\nrefuse cuModuleLoadDataEx 218"));
        let error = CudaGpu::open(0).unwrap_err();
        assert!(!matches!(error, GpuError::OldDriver(_)), "{error:?}");
        let heard = [
            "INVALID_PTX (218)",
            "line 7; error   : Unknown symbol 'where'",
        ];
        says(&error, &heard);
        says(&error, &[".ptx does not compile"]);
        // That of a user.
        fake.set("");
        let mine = CudaSource {
            name: "mine.ptx",
            text: "ret;",
        };
        let error = CudaGpu::with_ptx(0, &[mine]).unwrap_err();
        assert!(!matches!(error, GpuError::OldDriver(_)), "{error:?}");
        let heard = "Missing .version directive at start of file";
        says(&error, &["mine.ptx", "INVALID_PTX (218)", heard]);
    });
}

#[test]
fn a_long_compiler_log_is_reported_and_an_empty_log_is_named_empty() {
    fake("").run(|fake| {
        let long = "x".repeat(1000);
        fake.set(&format!("refuse cuModuleLoadDataEx 218\njit-log {long}"));
        let error = CudaGpu::open(0).unwrap_err();
        says(&error, &[&long]);
        fake.set("refuse cuModuleLoadDataEx 218");
        let error = CudaGpu::open(0).unwrap_err();
        says(&error, &["INVALID_PTX (218)", "its compiler says nothing"]);
    });
}

#[test]
fn a_driver_without_a_compiler_is_reported_by_its_code() {
    fake("refuse cuModuleLoadDataEx 221").run(|_| {
        let error = CudaGpu::open(0).unwrap_err();
        says(&error, &["JIT_COMPILER_NOT_FOUND (221)", "WARPVERBS_NVRTC"]);
    });
}

#[test]
fn a_device_older_than_all_ptx_names_both_architectures() {
    fake("attribute 75 7\nattribute 76 5").run(|_| {
        let error = CudaGpu::open(0).unwrap_err();
        says(&error, &["the device is sm_75", "they need sm_80 or later"]);
    });
}

#[test]
fn ptx_of_a_user_for_a_later_device_is_refused_with_the_code() {
    fake("attribute 75 8\nattribute 76 0").run(|_| {
        let later = CudaSource {
            name: "later.ptx",
            text: ".version 8.0\n.target sm_90\n.visible .entry later(\n)\n{ ret; }",
        };
        let error = CudaGpu::with_ptx(0, &[later]).unwrap_err();
        says(&error, &["NO_BINARY_FOR_GPU (209)"]);
    });
}

#[test]
fn nvrtc_that_is_not_there_is_named_by_its_path() {
    fake("").run(|_| {
        let options = CudaOptions::default().with_compile(Compile::Nvrtc);
        let error = CudaGpu::with_options(0, &options).unwrap_err();
        says(&error, &["/nowhere/libnvrtc.so", "WARPVERBS_NVRTC="]);
    });
}

#[test]
fn a_set_without_ptx_and_nvrtc_is_refused_with_what_writes_the_ptx() {
    static SOURCES: KernelSet = KernelSet::new("mine", &[], &[], &[("kernels/mine.cu", "")])
        .with_no_ptx("there is no PTX in kernels/ptx; `make ptx` writes it, before the build");
    fake("").run(|fake| {
        let gpu = CudaGpu::open(0).unwrap();
        fake.forget_calls();
        let error = gpu.add_kernels(&SOURCES).unwrap_err();
        assert!(matches!(error, GpuError::NoPtx { .. }), "{error:?}");
        says(
            &error,
            &[
                "the kernels of mine have no PTX in this program",
                "`make ptx` writes it",
                "/nowhere/libnvrtc.so",
                "WARPVERBS_NVRTC=",
            ],
        );
        assert!(fake.calls("cuModuleLoadDataEx").is_empty());
    });
}

#[test]
fn what_was_loaded_before_a_refusal_is_unloaded() {
    fake("").run(|fake| {
        fake.set("refuse cuModuleLoadDataEx 2 2 1");
        let options = CudaOptions::default().with_ptx(&[STORE]);
        let error = CudaGpu::with_options(0, &options).unwrap_err();
        says(&error, &["cuModuleLoadDataEx", "OUT_OF_MEMORY (2)"]);
        assert_eq!(fake.calls("cuDevicePrimaryCtxRelease_v2"), ["0 left 0"]);
    });
}
