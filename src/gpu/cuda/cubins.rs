//! Machine code of the kernels beside their PTX: with it the driver's compiler has nothing to do.
//!
//! `./x gpu pack` makes it from the same sources as the PTX, so that a run on a lent GPU spends no time on compiling.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

/// The folder that holds `sm_90/moe/moe.cubin` for the PTX `sm_90/moe/moe.ptx`.
const VARIABLE: &str = "WARPVERBS_CUBINS";

/// The machine code beside the PTX file `path`; none without the variable or the file. Only for a device of the file's architecture.
pub(super) fn beside(path: &str) -> Option<Vec<u8>> {
    let file = file_of(Path::new(&env::var_os(VARIABLE)?), path);
    fs::read(&file)
        .inspect_err(|error| {
            tracing::warn!("no machine code for {path}: {}: {error}", file.display())
        })
        .ok()
}

fn file_of(folder: &Path, path: &str) -> PathBuf {
    folder.join(path).with_extension("cubin")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn machine_code_lies_in_the_same_place_as_its_ptx() {
        let file = file_of(Path::new("/pack/cubins"), "sm_90/moe/moe.ptx");
        assert_eq!(file, Path::new("/pack/cubins/sm_90/moe/moe.cubin"));
    }
}
