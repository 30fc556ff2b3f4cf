//! Machine code of kernels in place of their PTX, so that the driver compiles nothing.
//!
//! `./x gpu pack` makes the machine code of the PTX, both unchanged and widened for kernels over host memory (`widen.rs`). So a run on a
//! lent GPU spends no time on compiling.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

use super::widen::code_of;

/// The variable that names a folder with files `sm_90/NAME`, where NAME follows from the text of the PTX.
const VARIABLE: &str = "WARPVERBS_CUBINS";

/// Returns the machine code of the text `ptx` for devices of `arch` (90 for sm_90). None without the variable or the file.
pub(super) fn of(arch: u32, ptx: &str) -> Option<Vec<u8>> {
    let file = file_of(Path::new(&env::var_os(VARIABLE)?), arch, ptx);
    fs::read(&file)
        .inspect_err(|error| tracing::warn!("no machine code: {}: {error}", file.display()))
        .ok()
}

fn file_of(folder: &Path, arch: u32, ptx: &str) -> PathBuf {
    folder.join(format!("sm_{arch}")).join(code_of(ptx))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn machine_code_is_of_one_architecture_and_of_one_text() {
        let file = |arch, text| file_of(Path::new("/pack/cubins"), arch, text);
        assert_eq!(
            file(90, "ret;"),
            Path::new("/pack/cubins/sm_90").join(code_of("ret;"))
        );
        assert_ne!(file(90, "ret;"), file(80, "ret;"));
        assert_ne!(file(90, "ret;"), file(90, "ret; "));
    }
}
