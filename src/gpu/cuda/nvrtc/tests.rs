//! NVRTC needs no GPU: with its library, the embedded sources are compiled here as on a machine with an old driver.

use std::collections::BTreeSet;

use super::super::ptx;
use super::super::sources::{as_source, kernel_files, kernels_of, test_kernels};
use super::*;
use crate::gpu::kernel_set::LIBRARY;

/// Runs `test` if NVRTC is installed, and prints that loudly if it is not.
fn with_nvrtc(test: impl FnOnce(&Nvrtc)) {
    match Nvrtc::for_tests() {
        Ok(nvrtc) => test(&nvrtc),
        Err(error) => println!("skipped: kernels through NVRTC: no libnvrtc ({error})"),
    }
}

fn names(text: &str) -> BTreeSet<String> {
    ptx::entries(text)
        .iter()
        .map(|entry| entry.name.to_owned())
        .collect()
}

#[test]
fn the_embedded_sources_compile_with_all_kernels_for_every_architecture() {
    with_nvrtc(|nvrtc| {
        println!("{nvrtc}: {:?}", nvrtc.architectures);
        for arch in [80, 90, 100] {
            for source in kernel_files(&LIBRARY) {
                // Machine code takes seconds.
                let code = arch == 100 && source.name.ends_with("demo_expert.cu");
                let compiled = nvrtc.compile_for(source, &[], arch, code).unwrap();
                let exported = source.text.lines().filter_map(|line| {
                    line.strip_prefix("WV_EXPORT(")?
                        .strip_suffix(')')
                        .map(str::to_owned)
                });
                assert_eq!(names(&compiled.ptx), exported.collect(), "{}", source.name);
                assert!(
                    compiled.ptx.contains(&format!(".target sm_{arch}")),
                    "{}",
                    source.name
                );
                if arch == 90 && source.name == "kernels/moe/moe.cu" {
                    assert_launched_like_the_checked_in(&compiled.ptx);
                }
                let is_code = |code: &Vec<u8>| code.starts_with(b"\x7fELF");
                assert_eq!(compiled.cubin.as_ref().is_some_and(is_code), code);
            }
        }
    });
}

/// Parameters, and the barrier of a cooperative grid, for which NVRTC gets a header of ours.
#[track_caller]
fn assert_launched_like_the_checked_in(moe: &str) {
    let (_, checked_in) = ptx::sources(&LIBRARY, 90);
    let is_moe = |file: &&ptx::Source| file.path.ends_with("moe/moe.ptx");
    let checked_in = checked_in.iter().find(is_moe).unwrap();
    let fresh = ptx::entries(moe);
    for entry in ptx::entries(checked_in.text) {
        let same_name = |other: &&ptx::Entry<'_>| other.name == entry.name;
        let bytes = fresh.iter().find(same_name).map(|found| found.param_bytes);
        assert_eq!(bytes, Some(entry.param_bytes), "{}", entry.name);
    }
    for barrier in [
        "%envreg1",
        "%envreg2",
        "atom.add.release.gpu.u32",
        "ld.acquire.gpu.u32",
    ] {
        assert!(
            checked_in.text.contains(barrier) && moe.contains(barrier),
            "{barrier}"
        );
    }
}

/// Test kernels use more of the library than what is shipped: every operation, guards, every kind of wait. The others use
/// the same in more modes, which takes minutes.
#[test]
fn test_kernels_of_every_header_compile_too() {
    let chosen = [
        "put_words",
        "put_list",
        "exchange",
        "guard",
        "ops_thread",
        "ops_several",
    ];
    with_nvrtc(|nvrtc| {
        let wanted = chosen.map(|name| format!("kernels/{name}.cu"));
        let files = test_kernels();
        let files: Vec<_> = files.iter().map(as_source).collect();
        let is_wanted = |source: &&CudaSource<'_>| wanted.iter().any(|name| name == source.name);
        let sources: Vec<_> = files.iter().filter(is_wanted).collect();
        assert_eq!(sources.len(), chosen.len());
        for source in sources {
            let compiled = nvrtc.compile_for(*source, &files, 90, false).unwrap();
            assert!(!names(&compiled.ptx).is_empty(), "{}", source.name);
        }
    });
}

/// A program that was built from git alone has no PTX of most of these.
#[test]
fn kernels_of_the_command_line_and_of_gpuhca_compile_too() {
    with_nvrtc(|nvrtc| {
        for (package, folder, kernel) in [
            ("gpuhca", "kernels/gpuhca", "gpuhca_serve"),
            ("bench", "kernels", "wv_bench_post_shared_thread"),
            ("cli", "kernels", "wv_doctor_put"),
        ] {
            let files = kernels_of(package, folder);
            let files: Vec<_> = files.iter().map(as_source).collect();
            let kernels = files.iter().filter(|file| file.name.ends_with(".cu"));
            let compiled = kernels.map(|source| nvrtc.compile_for(*source, &files, 90, false));
            let made: BTreeSet<_> = compiled.flat_map(|one| names(&one.unwrap().ptx)).collect();
            assert!(made.contains(kernel), "{package}: {made:?}");
        }
    });
}

#[test]
fn a_kernel_of_a_user_sees_the_device_library_and_his_own_headers() {
    with_nvrtc(|nvrtc| {
        let extra = [CudaSource {
            name: "mine.cuh",
            text: "#pragma once\nstruct Mine { wv::Window window; };",
        }];
        let main = CudaSource {
            name: "mine.cu",
            text: "#include <warpverbs/wait.cuh>\n#include \"mine.cuh\"\n\
                extern \"C\" __global__ void mine(Mine p) {}",
        };
        let compiled = nvrtc.compile(main, &extra, 80).unwrap();
        let entries = ptx::entries(&compiled.ptx);
        assert_eq!((entries[0].name, entries[0].param_bytes), ("mine", 24));
    });
}

#[test]
fn an_error_in_a_header_is_reported_with_the_headers_own_line() {
    with_nvrtc(|nvrtc| {
        let extra = [CudaSource {
            name: "mine.cuh",
            text: "#pragma once\n\nint wrong = ;",
        }];
        let main = CudaSource {
            name: "mine.cu",
            text: "#include \"mine.cuh\"\n",
        };
        let error = nvrtc.compile(main, &extra, 90).err().unwrap().to_string();
        assert!(error.contains("mine.cuh(3)"), "{error}");
    });
}

#[test]
fn a_device_newer_than_the_library_gets_ptx_and_an_older_one_a_refusal() {
    with_nvrtc(|nvrtc| {
        let source = CudaSource {
            name: "k.cu",
            text: "extern \"C\" __global__ void k(int) {}",
        };
        let newest = *nvrtc.architectures.last().unwrap();
        let compiled = nvrtc.compile(source, &[], newest + 1).unwrap();
        assert!(compiled.cubin.is_none() && names(&compiled.ptx).contains("k"));
        let refusal = nvrtc.compile(source, &[], 20).err().unwrap().to_string();
        assert!(refusal.contains("sm_20"), "{refusal}");
    });
}

#[test]
fn a_library_that_is_not_there_is_an_answer_and_no_panic() {
    let error = Nvrtc::open(Path::new("/nonexistent/libnvrtc.so")).unwrap_err();
    assert!(error.contains("/nonexistent/libnvrtc.so"), "{error}");
    let folder = tempfile::tempdir().unwrap();
    let error = Nvrtc::open(folder.path()).unwrap_err();
    assert!(error.contains("no libnvrtc.so in"), "{error}");
    // A library, but another one.
    let error = Nvrtc::open(Path::new("libc.so.6")).unwrap_err();
    assert!(error.contains("nvrtcVersion"), "{error}");
}
