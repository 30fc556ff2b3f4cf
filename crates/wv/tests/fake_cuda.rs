//! `wv bench others` on a CUDA driver without a GPU: which kernels of an adapter it loads and launches, and what it says when one is
//! refused. No kernel runs, so nothing here is a figure.

#![cfg(feature = "cuda")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use test_support::fake_cuda::{Fake, FakeDriver};

/// As an adapter is, with kernels that do nothing.
const ADAPTER: &str = "
.version 8.0
.target sm_80
.address_size 64
.visible .entry wv_other_ucx_open(.param .align 8 .b8 p[88]) { ret; }
.visible .entry wv_other_ucx_shared(.param .align 8 .b8 p[88]) { ret; }
.visible .entry wv_other_ucx_exclusive(.param .align 8 .b8 p[88]) { ret; }
";

/// A folder with this text as the adapter to UCX.
fn folder(fake: &Fake, text: &str) -> PathBuf {
    let folder = fake.file("adapters");
    fs::create_dir_all(folder.join("sm_80")).unwrap();
    fs::write(folder.join("sm_80/ucx.ptx"), text).unwrap();
    folder
}

/// What the command prints, with the driver of this process.
fn bench_others(kernels: &Path) -> (bool, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_wv"))
        .args(["bench", "others", "--gpu", "0", "--kernels"])
        .arg(kernels)
        .output()
        .unwrap();
    let text =
        [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
    (output.status.success(), text.concat())
}

#[test]
fn the_structs_of_a_project_are_made_before_its_posters_run_and_puts_that_were_not_made_are_no_figure()
 {
    FakeDriver::new("").run(|fake| {
        let (done, text) = bench_others(&folder(fake, ADAPTER));
        assert!(!done, "{text}");
        for said in [
            "warpverbs: wv_bench_post_exclusive_thread with 1 blocks, 8 bytes: poster 0 ended ok after 0 calls",
            "ucx: wv_other_ucx_exclusive with 1 blocks, 8 bytes: poster 0 ended ok after 0 calls",
        ] {
            assert!(text.contains(said), "{text}");
        }
        let opens = fake.calls("cuLaunchKernel");
        assert_eq!(opens.len(), 1, "{opens:?}");
        assert!(opens[0].starts_with("1 1 1 32 1 1 0"), "{opens:?}");
        // Of this project in both ways, then of the other one: the sink and a poster.
        assert_eq!(fake.calls("cuLaunchCooperativeKernel"), ["2 1 1 32 1 1 0"; 3]);
        assert_eq!(fake.calls("cuDevicePrimaryCtxRelease_v2"), ["0 left 0"]);
    });
}

#[test]
fn an_adapter_that_the_driver_cannot_read_is_told_with_its_log() {
    FakeDriver::new("").run(|fake| {
        let (_, text) = bench_others(&folder(fake, "ret;"));
        assert!(text.contains("ucx: "), "{text}");
        assert!(text.contains("Missing .version directive"), "{text}");
    });
}

#[test]
fn an_adapter_without_the_kernels_of_its_project_is_told_by_their_name() {
    let other = ADAPTER.replace("ucx_open", "ucx_begin");
    FakeDriver::new("").run(|fake| {
        let (_, text) = bench_others(&folder(fake, &other));
        assert!(
            text.contains("ucx: ") && text.contains("wv_other_ucx_open"),
            "{text}"
        );
    });
}
