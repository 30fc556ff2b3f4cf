//! pyverbs of Debian's python3-pyverbs, a program on libibverbs from outside this project.

use std::process::{Command, Stdio};

/// Where Debian has it; another Python on the PATH does not see its pyverbs.
pub const PYTHON: &str = "/usr/bin/python3";

/// Returns whether it is installed; if not, `test` is reported as skipped.
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
