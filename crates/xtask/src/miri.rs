//! `./x miri`: runs unit tests of formats, allocator, oracle and wire codec under Miri, the interpreter that finds undefined behaviour.

use std::process::Command;

use crate::failure::{Failure, Result};
use crate::process::{command, run, status};
use crate::tree::prepare;

/// The toolchain of Miri, which exists for nightly only.
const TOOLCHAIN: &str = "+nightly";

/// A package, the unit tests of it that run, and words in the names of tests that are left out.
struct Part {
    package: &'static str,
    tests: &'static [&'static str],
    left_out: &'static [&'static str],
}

const PARTS: &[Part] = &[
    Part {
        package: "mlx5-prm",
        tests: &[],
        left_out: &[],
    },
    Part {
        package: "moe-reference",
        tests: &[],
        left_out: &[],
    },
    Part {
        package: "warpverbs",
        tests: &["memheap::"],
        left_out: &[],
    },
    Part {
        package: "softhca",
        tests: &[
            "wire::headers::",
            "wire::packet::",
            "wire::frame::",
            "wire::icrc::",
            "wire::psn::",
        ],
        left_out: &[],
    },
];

/// Runs all parts, or the part of a package. It goes on after a failure, so that one run shows all failures.
pub(crate) fn miri(package: Option<&str>) -> Result {
    let wanted: Vec<&Part> = chosen(package)?;
    prepare("demo")?;
    need_miri()?;
    let failed: Vec<&str> = wanted
        .into_iter()
        .filter(|part| run(&mut interpreted(part)).is_err())
        .map(|part| part.package)
        .collect();
    if failed.is_empty() {
        return Ok(());
    }
    let names = failed.join(" ");
    Err(Failure::new(
        1,
        format!("Miri or a test failed in: {names}"),
    ))
}

fn chosen(package: Option<&str>) -> Result<Vec<&'static Part>> {
    let wanted: Vec<_> = PARTS
        .iter()
        .filter(|part| package.is_none_or(|name| name == part.package))
        .collect();
    if wanted.is_empty() {
        let known: Vec<_> = PARTS.iter().map(|part| part.package).collect();
        let (name, known) = (package.unwrap_or(""), known.join(" "));
        let told = format!("Miri runs no tests of package {name}. Packages: {known}");
        return Err(Failure::new(2, told));
    }
    Ok(wanted)
}

/// Installs Miri by rustup if that is here. Otherwise the error says what to install.
fn need_miri() -> Result {
    if status(&mut command("cargo", [TOOLCHAIN, "miri", "--version"])).is_ok_and(|it| it.success())
    {
        return Ok(());
    }
    let add = ["toolchain", "install", "nightly", "--profile", "minimal"];
    let components = ["--component", "miri", "--component", "rust-src"];
    run(command("rustup", add).args(components)).map_err(|_said| {
        let told = "there is no Miri, and rustup could not install it. Run:\n  rustup toolchain install nightly --component miri";
        Failure::new(3, told)
    })
}

/// Returns the command that runs a part. Property tests have few cases, because the interpreter is some hundred times slower than the
/// processor.
fn interpreted(part: &Part) -> Command {
    let mut test = command("cargo", [TOOLCHAIN, "miri", "test", "--locked", "--lib"]);
    test.args(["-p", part.package, "--"]).args(part.tests);
    for name in part.left_out {
        test.args(["--skip", name]);
    }
    test.env(
        "MIRIFLAGS",
        "-Zmiri-disable-isolation -Zmiri-strict-provenance",
    )
    .env("PROPTEST_CASES", "4")
    // UPDATE leaves out kernels for the CPU. They are native code, which Miri cannot run, and these tests call none.
    .env("UPDATE", "1");
    test
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_package_without_tests_for_miri_is_refused_by_name() {
        assert_eq!(chosen(None).map(|parts| parts.len()), Ok(PARTS.len()));
        assert_eq!(chosen(Some("softhca")).map(|parts| parts.len()), Ok(1));
        let refused = chosen(Some("wv")).err().unwrap().to_string();
        assert!(refused.contains("package wv") && refused.contains("mlx5-prm"));
    }
}
