//! Crates outside the workspace build kernels of their own and run them: with `simt::build` alone, and with the library.

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};

const MANIFEST: &str = r#"
[package]
name = "saxpy"
version = "0.1.0"
edition = "2024"

[dependencies]
simt = { path = "SIMT" }

[build-dependencies]
simt = { path = "SIMT" }

[profile.dev]
debug = false

[workspace]
"#;

const BUILD: &str = r#"
fn main() {
    simt::build::kernels(["kernels/saxpy.cu"]).include("kernels/include").define("SCALE", "2").compile();
}
"#;

const HEADER: &str = r"
#pragma once
struct Params { const float* x; float* y; int n; };
";

const KERNEL: &str = r#"
#include "simt.cuh"
#include "params.h"
// SIMT_EXPORT(not_this_one)
extern "C" __global__ void __launch_bounds__(128) saxpy(Params p) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < p.n) p.y[i] += SCALE * p.x[i];
}
SIMT_EXPORT(saxpy)
"#;

const MAIN: &str = r#"
include!(concat!(env!("OUT_DIR"), "/simt_kernels.rs"));

#[repr(C)]
struct Params { x: *const f32, y: *mut f32, n: i32 }

fn main() {
    assert_eq!(KERNELS.iter().map(|kernel| kernel.name).collect::<Vec<_>>(), ["saxpy"]);
    let x: Vec<f32> = (0..1000u16).map(f32::from).collect();
    let mut y = vec![1f32; 1000];
    let mut params = Params { x: x.as_ptr(), y: y.as_mut_ptr(), n: 1000 };
    let config = simt::LaunchConfig { grid: 8.into(), block: 128.into(), ..Default::default() };
    // SAFETY: the kernel takes one `Params` by value, whose arrays have `n` elements and live until the launch has ended.
    let stats = unsafe { simt::launch(KERNELS[0].entry, &mut [(&raw mut params).cast()], &config) }.unwrap();
    assert!(y.iter().zip(&x).all(|(y, x)| *y == 1.0 + 2.0 * x));
    println!("{} threads, y[999] = {}", stats.threads, y[999]);
}
"#;

/// Of a crate with the library: nothing says where its headers are.
const LIBRARY_MANIFEST: &str = r#"
[package]
name = "squares"
version = "0.1.0"
edition = "2024"

[dependencies]
bytemuck = { version = "1.25", features = ["derive"] }
warpverbs = { path = "ROOT", default-features = false }

[build-dependencies]
warpverbs-build = { path = "ROOT/crates/warpverbs-build" }

[profile.dev]
debug = false

[workspace]
"#;

const LIBRARY_BUILD: &str = r#"
fn main() {
    println!("cargo::rustc-env=HEADERS={}", std::env::var("DEP_WARPVERBS_INCLUDE").unwrap());
    warpverbs_build::kernels("kernels").compile();
}
"#;

const LIBRARY_KERNEL: &str = r#"
#include <warpverbs/wait.cuh>

#include "params.h"

extern "C" __global__ void squares(mine::SquaresParams p) {
  const uint64_t at = uint64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (at < p.count) p.words[at] = at * at;
}
WV_EXPORT(squares)
"#;

/// As `header::file` renders it.
const LIBRARY_HEADER: &str = "// Rendered from src/main.rs.
#pragma once

#include <warpverbs/abi.h>

namespace mine {

/// What `squares` takes.
struct SquaresParams {
  /// Where the squares go.
  uint64_t *words;
  /// How many.
  uint64_t count;
};
static_assert(sizeof(SquaresParams) == 16 && alignof(SquaresParams) == 8);
static_assert(offsetof(SquaresParams, words) == 0);
static_assert(offsetof(SquaresParams, count) == 8);

}  // namespace mine
";

const LIBRARY_MAIN: &str = r#"
#![deny(unsafe_code, warnings)]

use std::time::Duration;

use warpverbs::abi::{DevicePtr, header};
use warpverbs::gpu::{GpuSelector, Launch, open};

warpverbs::kernels! { static KERNELS }

warpverbs::abi_struct! {
    /// What `squares` takes.
    pub struct SquaresParams {
        /// Where the squares go.
        pub words: DevicePtr<u64>,
        /// How many.
        pub count: u64,
    }
}

#[expect(unsafe_code, reason = "launches a kernel")]
fn main() {
    let items = vec![header::struct_item::<SquaresParams>()];
    let text = header::file("Rendered from src/main.rs.", "mine", &["<warpverbs/abi.h>"], items);
    header::check("kernels/params.h".as_ref(), &text).unwrap();

    let gpu = open(GpuSelector::Simt).unwrap();
    gpu.add_kernels(&KERNELS).unwrap();
    let words = gpu.alloc(100 * 8, 8).unwrap();
    let params = SquaresParams { words: words.addr().into(), count: 100 };
    // SAFETY: the parameters are the kernel's; the words live until it has ended.
    let event = unsafe { gpu.launch(&Launch::new("squares", 2, 64), bytemuck::bytes_of(&params)) };
    gpu.wait(&event.unwrap(), Duration::from_secs(20)).unwrap();
    let mut out = vec![0u64; 100];
    gpu.read(words.addr(), bytemuck::cast_slice_mut(&mut out)).unwrap();
    assert!(out.iter().zip(0..).all(|(word, at)| *word == at * at));
    println!("{} of {}: {}", KERNELS.cpu()[0].name, KERNELS.package(), out[99]);
    println!("{}", env!("HEADERS"));
}
"#;

fn command(directory: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO"));
    command
        .args(arguments)
        .args(["--offline", "--quiet"])
        .current_dir(directory)
        .stdin(Stdio::null());
    command
        .env("CARGO_TARGET_DIR", directory.join("target"))
        .env_remove("CXX")
        .env_remove("UPDATE")
        .env_remove("RUSTFLAGS");
    command
}

fn cargo(directory: &Path, arguments: &[&str], cxx: Option<&str>) -> Output {
    let mut command = command(directory, arguments);
    if let Some(cxx) = cxx {
        command.env("CXX", cxx);
    }
    command.output().unwrap()
}

/// A package of these files, which depends on what the workspace does.
fn write_package(root: &Path, files: &[(&str, &str)]) {
    for (path, text) in files {
        let path = root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    // The versions of this workspace are those that an offline registry is sure to have.
    let lock = concat!(env!("CARGO_MANIFEST_DIR"), "/../../Cargo.lock");
    fs::copy(lock, root.join("Cargo.lock")).unwrap();
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

#[test]
fn a_crate_outside_the_workspace_builds_and_runs_its_own_kernel() {
    let simt = concat!(env!("CARGO_MANIFEST_DIR"), "/../simt");
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path();
    let files = [
        ("Cargo.toml", &*MANIFEST.replace("SIMT", simt)),
        ("build.rs", BUILD),
        ("src/main.rs", MAIN),
        ("kernels/saxpy.cu", KERNEL),
        ("kernels/include/params.h", HEADER),
    ];
    write_package(root, &files);

    let output = cargo(root, &["run"], None);
    assert!(output.status.success(), "{}", text(&output));
    assert_eq!(
        String::from_utf8_lossy(&output.stdout),
        "1024 threads, y[999] = 1999\n"
    );

    // A changed header is seen.
    fs::write(
        root.join("kernels/include/params.h"),
        HEADER.replace("int n;", "int n = 0; static_assert(sizeof(int) == 5);"),
    )
    .unwrap();
    let output = cargo(root, &["build"], None);
    assert!(
        !output.status.success() && text(&output).contains("the kernels do not compile"),
        "{}",
        text(&output)
    );
    fs::write(root.join("kernels/include/params.h"), HEADER).unwrap();

    let output = cargo(root, &["build"], Some("/nonexistent/g++"));
    assert!(!output.status.success());
    assert!(
        text(&output).contains("`/nonexistent/g++` does not run"),
        "{}",
        text(&output)
    );
    assert!(
        text(&output).contains("apt-get install g++"),
        "{}",
        text(&output)
    );
}

#[test]
fn a_crate_with_the_library_finds_its_headers_and_adds_a_kernel_to_a_device() {
    let library = fs::canonicalize(concat!(env!("CARGO_MANIFEST_DIR"), "/../..")).unwrap();
    let library = library.to_str().unwrap();
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path();
    let files = [
        ("Cargo.toml", &*LIBRARY_MANIFEST.replace("ROOT", library)),
        ("build.rs", LIBRARY_BUILD),
        ("src/main.rs", LIBRARY_MAIN),
        ("kernels/squares.cu", LIBRARY_KERNEL),
        ("kernels/params.h", LIBRARY_HEADER),
    ];
    write_package(root, &files);
    // The library leaves its own kernels out, which take long to compile and are not launched here.
    let output = command(root, &["build"]).env("UPDATE", "1").output();
    let output = output.unwrap();
    assert!(output.status.success(), "{}", text(&output));
    let ran = Command::new(root.join("target/debug/squares"))
        .current_dir(root)
        .env_remove("UPDATE")
        .output()
        .unwrap();
    assert!(ran.status.success(), "{}", text(&ran));
    let expected = format!("squares of squares: 9801\n{library}/kernels/include\n");
    assert_eq!(text(&ran), expected);
}
