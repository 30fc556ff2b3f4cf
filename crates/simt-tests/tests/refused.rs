//! What cannot work on the CPU is refused by the compiler, with a text that says what to write instead.

use std::fs;
use std::path::Path;
use std::process::Command;

/// What the compiler of the build scripts says about a kernel with this line.
fn complaint(line: &str) -> String {
    let directory = tempfile::tempdir().unwrap();
    let source = directory.path().join("kernel.cu");
    let text =
        format!("#include \"simt.cuh\"\n__global__ void kernel(unsigned* out) {{\n  {line}\n}}\n");
    fs::write(&source, text).unwrap();
    let include = Path::new(env!("CARGO_MANIFEST_DIR")).join("../simt/include");
    assert_eq!(
        include.canonicalize().unwrap(),
        simt::build::include_dir().canonicalize().unwrap()
    );
    // Optimised and to an object: the refusal of a function is only seen when a call of it remains.
    let output = Command::new(std::env::var("CXX").unwrap_or_else(|_| "c++".to_owned()))
        .args([
            "-x",
            "c++",
            "-std=c++20",
            "-O2",
            "-fno-strict-aliasing",
            "-c",
            "-o",
            "/dev/null",
            "-I",
        ])
        .args([&include, &source])
        .output()
        .unwrap();
    let complaint = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.success(), complaint.is_empty(), "{complaint}");
    complaint
}

#[test]
fn a_kernel_that_is_fine_compiles_without_a_word() {
    assert_eq!(
        complaint(
            "SIMT_DYN_SHARED(unsigned, s); s[threadIdx.x] = __popc(blockIdx.y); __syncthreads(); *out = s[0];"
        ),
        ""
    );
}

#[test]
fn static_shared_variables_are_refused() {
    let text = complaint("__shared__ unsigned s[32]; s[threadIdx.x] = 1; *out = s[0];");
    assert!(
        text.contains("static __shared__ variables are refused: use SIMT_SHARED(T, name)"),
        "{text}"
    );
}

#[test]
fn the_active_mask_is_refused() {
    let text = complaint("*out = __activemask();");
    assert!(
        text.contains("__activemask is refused: pass the mask that the code means"),
        "{text}"
    );
}

#[test]
fn a_shuffle_of_more_than_8_bytes_is_refused() {
    let text = complaint("uint4 v = {}; v = __shfl_sync(0xffffffffu, v, 0); *out = v.x;");
    assert!(
        text.contains("a shuffle moves plain values of up to 8 bytes"),
        "{text}"
    );
}

#[test]
fn atomics_of_2_bytes_are_refused() {
    let text = complaint("atomicAdd(reinterpret_cast<unsigned short*>(out), 1);");
    assert!(text.contains("atomics exist for 4 and 8 bytes"), "{text}");
}
