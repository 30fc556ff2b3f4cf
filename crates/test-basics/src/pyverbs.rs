//! The package pyverbs of Debian's python3-pyverbs. It drives libibverbs and comes from outside this project.

use std::process::{Command, Stdio};

/// The Python of Debian, which has the package. Another Python on the PATH does not see it.
pub const PYTHON: &str = "/usr/bin/python3";

/// Returns whether pyverbs is installed. If not, `test` is reported as skipped.
#[must_use]
pub fn is_installed(test: &str) -> bool {
    let imports = Command::new(PYTHON)
        .args(["-c", "import pyverbs.qp"])
        .stderr(Stdio::null())
        .status();
    let found = imports.is_ok_and(|status| status.success());
    if !found {
        println!("skipped: {test}: package python3-pyverbs is not installed");
    }
    found
}
