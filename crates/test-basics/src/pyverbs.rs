//! pyverbs of Debian's python3-pyverbs, a program on libibverbs that nobody here wrote.

use std::process::{Command, Stdio};

/// Where Debian has it; another Python on the PATH does not see its pyverbs.
pub const PYTHON: &str = "/usr/bin/python3";

/// Whether it is there; if not, `test` is told to be skipped.
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
