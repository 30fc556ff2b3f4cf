//! Compiles the kernels for the CPU; `src/gpu/simt.rs` includes the table of their entries.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::{env, fs};

fn main() -> Result<(), Box<dyn Error>> {
    let mut sources = Vec::new();
    collect(Path::new("kernels"), &mut sources)?;
    sources.sort();
    println!("cargo::rerun-if-env-changed=UPDATE");
    if env::var_os("UPDATE").is_some() {
        // Kernels cannot compile while abi.h is stale, and the test that rewrites it needs the library: build it without.
        let table = Path::new(&env::var("OUT_DIR")?).join("simt_kernels.rs");
        fs::write(
            table,
            "/// None: built with UPDATE set.\npub static KERNELS: &[::simt::Kernel] = &[];\n",
        )?;
        return Ok(());
    }
    simt::build::kernels(sources)
        .include("kernels/include")
        .compile();
    Ok(())
}

/// Every `.cu` below `folder`.
fn collect(folder: &Path, sources: &mut Vec<PathBuf>) -> Result<(), Box<dyn Error>> {
    // Also headers and new files: cargo looks at everything below.
    println!("cargo::rerun-if-changed={}", folder.display());
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            collect(&path, sources)?;
        } else if path.extension().is_some_and(|extension| extension == "cu") {
            sources.push(path);
        }
    }
    Ok(())
}
