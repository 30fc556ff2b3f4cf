//! Compiles the kernels for the CPU; `src/gpu/simt.rs` includes the table of their entries.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::{env, fs};

fn main() -> Result<(), Box<dyn Error>> {
    let (mut sources, mut ptx) = (Vec::new(), Vec::new());
    collect(Path::new("kernels"), "cu", &mut sources)?;
    collect(Path::new("kernels"), "ptx", &mut ptx)?;
    sources.sort();
    ptx.sort();
    write_ptx_table(&ptx)?;
    write_source_table(&sources)?;
    println!("cargo::rerun-if-env-changed=UPDATE");
    if env::var_os("UPDATE").is_some() {
        // Kernels cannot compile while abi.h is stale, and the test that rewrites it needs the library: build it without.
        let table = Path::new(&env::var("OUT_DIR")?).join("simt_kernels.rs");
        fs::write(
            table,
            "/// None: built with UPDATE set.\npub(super) static KERNELS: &[::simt::Kernel] = &[];\n",
        )?;
        return Ok(());
    }
    simt::build::kernels(sources)
        .include("kernels/include")
        .quick("kernels/test/conformance_")
        .compile();
    Ok(())
}

/// The checked-in PTX for `src/gpu/cuda/ptx.rs`: architecture, path and text of every `kernels/ptx/sm_NN/**/*.ptx`.
fn write_ptx_table(files: &[PathBuf]) -> Result<(), Box<dyn Error>> {
    let root = PathBuf::from(env::var("CARGO_MANIFEST_DIR")?);
    let mut rows = String::new();
    for file in files {
        let path = file.strip_prefix("kernels/ptx")?;
        let folder = path.iter().next().and_then(|name| name.to_str());
        let arch = folder.and_then(|name| name.strip_prefix("sm_")?.parse::<u32>().ok());
        let arch = arch.ok_or_else(|| format!("{}: not below sm_NN", file.display()))?;
        rows += &format!(
            "    ({arch}, {path:?}, include_str!({:?})),\n",
            root.join(file)
        );
    }
    let table = Path::new(&env::var("OUT_DIR")?).join("ptx.rs");
    fs::write(
        table,
        format!("pub(super) static PTX: &[(u32, &str, &str)] = &[\n{rows}];\n"),
    )?;
    Ok(())
}

/// The text of every kernel and header for `src/gpu/cuda/sources.rs`, which compiles them on the machine with the GPU.
fn write_source_table(kernels: &[PathBuf]) -> Result<(), Box<dyn Error>> {
    let root = PathBuf::from(env::var("CARGO_MANIFEST_DIR")?);
    let mut files = kernels.to_vec();
    collect(Path::new("kernels"), "cuh", &mut files)?;
    collect(Path::new("kernels"), "h", &mut files)?;
    files.sort();
    let rows: String = files
        .iter()
        .map(|file| format!("    ({file:?}, include_str!({:?})),\n", root.join(file)))
        .collect();
    let table = Path::new(&env::var("OUT_DIR")?).join("sources.rs");
    fs::write(
        table,
        format!("pub(super) static SOURCES: &[(&str, &str)] = &[\n{rows}];\n"),
    )?;
    Ok(())
}

/// Every file below `folder` whose name ends in `.suffix`.
fn collect(folder: &Path, suffix: &str, files: &mut Vec<PathBuf>) -> Result<(), Box<dyn Error>> {
    // Also headers and new files: cargo looks at everything below.
    println!("cargo::rerun-if-changed={}", folder.display());
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            collect(&path, suffix, files)?;
        } else if path
            .extension()
            .is_some_and(|extension| extension == suffix)
        {
            files.push(path);
        }
    }
    Ok(())
}
