//! `wv` on a CUDA driver without a GPU. The tests check the kernels that `wv bench others` and `wv bench registers` load and
//! launch, and how they register pages. They check how memory of a GPU is filled, moved and compared, and the messages after a
//! refusal. No kernel runs, so nothing here is a figure.

#![cfg(feature = "cuda")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
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

/// Returns a folder with this text as the adapter to UCX.
fn folder(fake: &Fake, text: &str) -> PathBuf {
    let folder = fake.file("adapters");
    fs::create_dir_all(folder.join("sm_80")).unwrap();
    fs::write(folder.join("sm_80/ucx.ptx"), text).unwrap();
    folder
}

/// Returns whether `wv bench` succeeds, and what it prints, with the driver of this process.
fn bench(arguments: &[&str]) -> (bool, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_wv"))
        .arg("bench")
        .args(arguments)
        .args(["--gpu", "0"])
        .output()
        .unwrap();
    let text =
        [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
    (output.status.success(), text.concat())
}

/// Whether this `wv` is one that cargo has built of a fresh clone, without PTX of the kernels that measure. It refuses to measure, and
/// says what to do: there is no NVRTC beside the driver.
fn is_without_ptx(fake: &Fake) -> bool {
    let Some(why) = warpverbs_bench::KERNELS.no_ptx() else {
        return false;
    };
    let (done, text) = bench(&["registers"]);
    assert!(!done, "{text}");
    let refused = "the kernels of warpverbs-bench have no PTX in this program";
    for part in [refused, why, "`./x kernels` writes it", "WARPVERBS_NVRTC="] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert_eq!(fake.calls("cuLaunchKernel").len(), 0);
    true
}

fn bench_others(kernels: &Path) -> (bool, String) {
    bench(&["others", "--kernels", kernels.to_str().unwrap()])
}

#[test]
fn a_demo_on_an_absent_gpu_tells_its_number_and_how_many_there_are() {
    FakeDriver::new("devices 4").run(|_| {
        let runtime = tempfile::tempdir().unwrap();
        for gpu in ["7", "0,7", "4"] {
            let output = Command::new(env!("CARGO_BIN_EXE_wv"))
                .args(["demo", "--ranks", "2", "--steps", "1", "--device", "sim"])
                .args(["--gpu", gpu])
                .env("XDG_RUNTIME_DIR", runtime.path())
                .output()
                .unwrap();
            let text = String::from_utf8_lossy(&output.stderr);
            assert_eq!(output.status.code(), Some(1), "{gpu}: {text}");
            let number = gpu.rsplit(',').next().unwrap();
            let told = format!("no CUDA device {number}: the driver knows 4, numbered from 0");
            assert!(text.contains(&told), "{gpu}: {text}");
        }
    });
}

#[test]
fn structs_are_made_before_posters_run_and_missing_puts_give_no_figure() {
    FakeDriver::new("").run(|fake| {
        if is_without_ptx(fake) {
            return;
        }
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
        assert_eq!(
            fake.calls("cuLaunchCooperativeKernel"),
            ["2 1 1 32 1 1 0"; 3]
        );
        assert_eq!(fake.calls("cuDevicePrimaryCtxRelease_v2"), ["0 left 0"]);
    });
}

#[test]
fn an_adapter_that_the_driver_cannot_read_is_reported_with_its_log() {
    FakeDriver::new("").run(|fake| {
        if is_without_ptx(fake) {
            return;
        }
        let (_, text) = bench_others(&folder(fake, "ret;"));
        assert!(text.contains("ucx: "), "{text}");
        assert!(text.contains("Missing .version directive"), "{text}");
    });
}

#[test]
fn an_adapter_without_the_kernels_of_its_project_is_refused_by_name() {
    let other = ADAPTER.replace("ucx_open", "ucx_begin");
    FakeDriver::new("").run(|fake| {
        if is_without_ptx(fake) {
            return;
        }
        let (_, text) = bench_others(&folder(fake, &other));
        assert!(
            text.contains("ucx: ") && text.contains("wv_other_ucx_open"),
            "{text}"
        );
    });
}

/// Flags with which pages were registered, in turn.
fn flags(fake: &Fake) -> Vec<String> {
    let registered = fake.calls("cuMemHostRegister_v2");
    let flags = registered.iter().filter_map(|call| call.rsplit(' ').next());
    flags.map(str::to_owned).collect()
}

/// Portable and mapped for devices, and as I/O memory besides.
const AS_MEMORY: &str = "3";
const AS_IO: &str = "7";

#[test]
fn a_register_is_tried_in_each_way_and_missing_doorbells_are_reported() {
    FakeDriver::new("").run(|fake| {
        if is_without_ptx(fake) {
            return;
        }
        let (done, text) = bench(&["registers"]);
        assert!(done, "{text}");
        assert_eq!(flags(fake), [AS_MEMORY, AS_IO]);
        assert!(text.contains("1000000 doorbells"), "{text}");
        for way in ["memory", "io", "host"] {
            let told = format!("{way}: of 1000000 doorbells the CPU took 0");
            assert!(text.contains(&told), "{text}");
        }
        assert_eq!(fake.calls("cuLaunchKernel").len(), 3);
        assert_eq!(fake.calls("cuMemHostUnregister").len(), 2);
    });
}

#[test]
fn a_way_that_the_driver_refuses_is_named_and_the_others_are_measured() {
    // The second registration is that as I/O memory.
    FakeDriver::new("refuse cuMemHostRegister_v2 800 2").run(|fake| {
        if is_without_ptx(fake) {
            return;
        }
        let (done, text) = bench(&["registers", "--doorbells", "9"]);
        assert!(done, "{text}");
        assert_eq!(flags(fake), [AS_MEMORY, AS_IO]);
        assert!(text.contains("NOT_PERMITTED (800)"), "{text}");
        assert!(!text.contains("io: of 9 doorbells"), "{text}");
        assert!(text.contains("host: of 9 doorbells"), "{text}");
        assert_eq!(fake.calls("cuLaunchKernel").len(), 2);
        fake.set("refuse cuMemHostRegister_v2 800");
        let (done, text) = bench(&["registers", "--doorbells", "9"]);
        assert!(done && !text.contains("memory: of"), "{text}");
        assert_eq!(fake.calls("cuLaunchKernel").len(), 3, "{text}");
    });
}

/// `wv bench` with these words on GPU 0, on software HCAs. What it prints, and its report.
fn moved(fake: &Fake, words: &str) -> (String, Value) {
    let json = fake.file("report");
    let mut arguments: Vec<&str> = words.split(' ').collect();
    arguments.extend(["--json", json.to_str().unwrap()]);
    let (done, text) = bench(&arguments);
    assert!(done, "{words}: {text}");
    (
        text,
        serde_json::from_slice(&fs::read(json).unwrap()).unwrap(),
    )
}

#[test]
fn patterns_move_memory_of_a_gpu_which_its_copies_fill_and_compare() {
    FakeDriver::new("name NVIDIA H200 (fake)").run(|fake| {
        for (words, peers) in [
            ("p2p --pattern kv", 1),
            ("p2p --pattern weights --peers 2 --read", 2),
            ("p2p --pattern fill --peer-gpu none", 1),
        ] {
            fake.forget_calls();
            let words = format!("{words} --rounds 1 --bytes 8388608");
            let (text, report) = moved(fake, &words);
            let label = "softhca+NVIDIA H200 (fake) (no speed of a NIC)";
            assert_eq!(report["ran_on"], label);
            let told = "memory here: NVIDIA H200 (fake), registered by dmabuf (PCIe)";
            assert!(text.contains(told) && !text.contains("no GPU"), "{text}");
            assert_eq!(report["memory"]["here"]["in_process"], false);
            assert_eq!(report["compared"], peers << 23);
            // Each end is filled before the rounds and this one after them for each READ of a peer; what has come is read once.
            let copied: u64 = fake
                .calls("cuMemcpyAsync")
                .iter()
                .map(|call| call.rsplit(' ').next().unwrap().parse::<u64>().unwrap())
                .sum();
            let times = match words.contains("none") {
                // The source twice, and its peer is the host's.
                true => 2,
                false if peers == 1 => 4,
                false => 1 + 2 + 2 + 2,
            };
            assert_eq!(copied, times << 23, "{words}");
        }
    });
}

#[test]
fn registering_memory_of_a_gpu_is_measured_by_the_dmabufs_of_its_driver() {
    FakeDriver::new("dmabuf 1 801").run(|fake| {
        let words = "regions --regions 20 --rounds 1 --buffer 1048576";
        let (text, report) = moved(fake, words);
        let way = report["memory"]["registered"][0].as_str().unwrap();
        assert_eq!(way, "dmabuf", "{text}");
        // In each the driver exports the memory.
        let registrations: u64 = report["rows"]
            .as_array()
            .unwrap()
            .iter()
            .map(|row| row["registrations"].as_u64().unwrap())
            .sum();
        let exports = fake.calls("cuMemGetHandleForAddressRange").len() as u64;
        assert!(exports >= registrations, "{exports} of {registrations}");
    });
}

#[test]
fn memory_that_the_gpu_or_its_driver_does_not_give_is_refused_in_words() {
    FakeDriver::new("devices 1").run(|fake| {
        for (settings, words, reasons) in [
            (
                "attribute 124 0\nattribute 116 0",
                "p2p --pattern kv",
                &["have neither a DMA-BUF, nor does the driver register GPU memory"][..],
            ),
            (
                "dmabuf 0 801\ndmabuf 1 304\nattribute 116 0",
                "fill --pages 10",
                &["cuMemGetHandleForAddressRange", "NOT_SUPPORTED (801)"],
            ),
            (
                "attribute 118 0\nattribute 117 0",
                "regions --regions 5",
                &["in no order", "the host cannot flush them"],
            ),
            (
                "memory 1048576",
                "p2p --pattern kv",
                &[
                    "has no memory for 67108864 bytes",
                    "it must be no more than the GPU has free",
                ],
            ),
            (
                "devices 0",
                "fill --peer-gpu none",
                &["no CUDA device 0: the driver knows 0"],
            ),
            (
                "devices 0",
                "regions",
                &["no CUDA device 0: the driver knows 0"],
            ),
        ] {
            fake.set(settings);
            let words: Vec<&str> = words.split(' ').collect();
            let (done, text) = bench(&words);
            assert!(!done, "{words:?}: {text}");
            for reason in reasons {
                assert!(text.contains(reason), "{words:?}: {text}");
            }
        }
    });
}
