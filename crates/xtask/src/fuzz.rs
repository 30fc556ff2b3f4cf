//! `./x fuzz`: runs cargo-fuzz without sanitizers, so that a stable toolchain is enough.
//!
//! A run starts from the corpus. Its finds go to target/fuzz/TARGET (`cargo fuzz cmin` picks those that are worth checking in). Inputs that
//! crash go to fuzz/artifacts of the package.

use std::fs;
use std::process::{Command, Stdio};

use crate::failure::{At, Failure, Result};
use crate::numbers::above_0;
use crate::process::{command, run, status};
use crate::tree::prepare;

/// The packages, each with the names of its targets.
const PACKAGES: [(&str, &str); 2] = [
    ("crates/softhca", "ioctls commands wqes packets"),
    ("crates/test-support", "hello memheap"),
];

/// Fuzzes one target, or each of them, for `seconds` seconds.
pub(crate) fn fuzz(target: Option<&str>, seconds: Option<&str>) -> Result {
    let seconds = above_0("SECONDS", seconds.unwrap_or("600"))?;
    prepare("demo")?;
    let mut asked = command("cargo", ["fuzz", "--version"]);
    let asked = status(asked.stdout(Stdio::null()).stderr(Stdio::null()))?;
    if !asked.success() {
        run(&mut command("cargo", ["install", "cargo-fuzz", "--locked"]))
            .map_err(|_said| Failure::new(3, "cargo-fuzz could not be installed"))?;
    }
    let of_package = |(package, names): (&'static str, &'static str)| {
        let names = names.split_whitespace();
        names.map(move |name| (package, name))
    };
    let mut all = PACKAGES.into_iter().flat_map(of_package);
    let Some(target) = target else {
        return all.try_for_each(|(package, name)| fuzz_target(package, name, seconds));
    };
    match all.find(|(_, name)| *name == target) {
        Some((package, name)) => fuzz_target(package, name, seconds),
        None => Err(Failure::new(2, format!("no such fuzz target: {target}"))),
    }
}

fn fuzz_target(package: &str, name: &str, seconds: u32) -> Result {
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
        .current_dir(package);
    run(&mut fuzz).map_err(|_said| Failure::new(1, format!("fuzzing {name} found something")))
}
