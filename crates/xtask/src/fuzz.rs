//! `./x fuzz`: cargo-fuzz without sanitizers, so that a stable toolchain does.
//!
//! It starts from the corpus; finds go to target/fuzz/TARGET (`cargo fuzz cmin` picks what is worth checking in), inputs that
//! crash to crates/softhca/fuzz/artifacts.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::failure::{At, Failure, Result};
use crate::process::{command, run, status};
use crate::tree::prepare;

const PACKAGE: &str = "crates/softhca";
const TARGETS: &str = "ioctls commands wqes packets";

/// Fuzzes one target, or each, for as many seconds.
pub(crate) fn fuzz(target: Option<&str>, seconds: Option<&str>) -> Result {
    prepare("demo")?;
    let mut asked = command("cargo", ["fuzz", "--version"]);
    let asked = status(asked.stdout(Stdio::null()).stderr(Stdio::null()))?;
    if !asked.success() {
        run(&mut command("cargo", ["install", "cargo-fuzz", "--locked"]))
            .map_err(|_said| Failure::new(3, "cargo-fuzz could not be installed"))?;
    }
    for name in target.unwrap_or(TARGETS).split_whitespace() {
        fuzz_target(name, seconds.unwrap_or("600"))?;
    }
    Ok(())
}

fn fuzz_target(name: &str, seconds: &str) -> Result {
    if !Path::new(&format!("{PACKAGE}/fuzz/fuzz_targets/{name}.rs")).is_file() {
        return Err(Failure::new(2, format!("no such fuzz target: {name}")));
    }
    let finds = std::env::current_dir()
        .at(".")?
        .join("target/fuzz")
        .join(name);
    fs::create_dir_all(&finds).at(&finds)?;
    let mut fuzz = Command::new("cargo");
    fuzz.args(["fuzz", "run", "-s", "none", name])
        .arg(&finds)
        .arg(format!("fuzz/corpus/{name}"))
        .args(["--", &format!("-max_total_time={seconds}")])
        .args(["-max_len=4096", "-timeout=60", "-print_final_stats=1"])
        .current_dir(PACKAGE);
    run(&mut fuzz).map_err(|_said| Failure::new(1, format!("fuzzing {name} found something")))
}
