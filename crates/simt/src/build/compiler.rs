//! The C++ compiler of kernels and the flags that it gets.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::error::BuildError;

/// Returns the directory of `simt.cuh`.
#[must_use]
pub fn include_dir() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("include")
}

/// Returns a build with the flags that all kernels have.
pub(super) fn for_kernels() -> cc::Build {
    let mut build = cc::Build::new();
    build
        .cpp(true)
        .std("c++20")
        .opt_level(2)
        .debug(false)
        .warnings(false);
    // gcc does not know the suffix, clang would take it for CUDA.
    for flag in [
        "-g1",
        "-x",
        "c++",
        "-fno-strict-aliasing",
        "-fexceptions",
        "-ffp-contract=off",
        "-Wall",
        "-Wextra",
    ] {
        build.flag(flag);
    }
    build.include(include_dir());
    build
}

/// Returns an error if the compiler does not run. The `cc` crate would report that per file, and not say how to get a compiler.
pub(super) fn require(build: &cc::Build) -> Result<(), BuildError> {
    let tool = build
        .try_get_compiler()
        .map_err(|error| BuildError::Compile(error.to_string()))?;
    match Command::new(tool.path()).arg("--version").output() {
        Ok(_) => Ok(()),
        Err(source) => Err(BuildError::NoCompiler {
            compiler: tool.path().display().to_string(),
            source,
        }),
    }
}

/// Adds the flags for the features `tsan` and `asan` of this crate to a build of kernels.
pub(super) fn sanitize(build: &mut cc::Build) -> Result<(), BuildError> {
    if cfg!(feature = "tsan") {
        // The headers call the checker where the compiler does not.
        build.flag("-fsanitize=thread").define("SIMT_TSAN", None);
    }
    if cfg!(feature = "asan") {
        build.flag("-fsanitize=address");
        // rustc links without gcc's own libraries, so the archive of the runtime is named. A shared library would have to come first.
        let file = |name: &str| {
            let tool = build
                .try_get_compiler()
                .map_err(|error| BuildError::Compile(error.to_string()))?;
            let output = tool
                .to_command()
                .arg(format!("-print-file-name={name}"))
                .output();
            let output = output.map_err(|source| BuildError::NoCompiler {
                compiler: tool.path().display().to_string(),
                source,
            })?;
            let path = String::from_utf8_lossy(&output.stdout).trim().to_owned();
            if Path::new(&path).is_absolute() {
                Ok(path)
            } else {
                Err(BuildError::Compile(format!(
                    "{} has no {name}: install the AddressSanitizer of the compiler",
                    tool.path().display()
                )))
            }
        };
        let (preinit, archive) = (file("libasan_preinit.o")?, file("libasan.a")?);
        println!("cargo::rustc-link-arg={preinit}");
        println!("cargo::rustc-link-arg=-Wl,--whole-archive,{archive},--no-whole-archive");
        println!("cargo::rustc-link-arg=-lstdc++");
        println!("cargo::rustc-link-arg=-lm");
    }
    Ok(())
}
