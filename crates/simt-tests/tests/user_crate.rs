//! A crate outside the workspace builds a kernel of its own with `simt::build` alone, and runs it.

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

fn cargo(directory: &Path, arguments: &[&str], cxx: Option<&str>) -> Output {
    let mut command = Command::new(env!("CARGO"));
    command
        .args(arguments)
        .args(["--offline", "--quiet"])
        .current_dir(directory)
        .stdin(Stdio::null());
    command
        .env("CARGO_TARGET_DIR", directory.join("target"))
        .env_remove("CXX")
        .env_remove("RUSTFLAGS");
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
