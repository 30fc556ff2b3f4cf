//! Machine code of kernels in the place of their PTX: with it the driver's compiler has nothing to do.
//!
//! `./x gpu pack` makes it of the same PTX, as it is and as kernels over host memory get it (`widen.rs`). So a run on a lent GPU
//! spends no time on compiling.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

use super::widen::code_of;

/// The folder that holds `sm_90/NAME` with the NAME that a text of PTX has.
const VARIABLE: &str = "WARPVERBS_CUBINS";

/// Returns the machine code of the text `ptx` for devices of `arch` (90 for sm_90); none without the variable or the file.
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
