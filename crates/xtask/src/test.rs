//! `./x test` runs all tests, and `./x test quick` runs what every commit needs.

use std::os::unix::process::CommandExt;
use std::process::Command;

use crate::checks::{clippy, deny, format_steps, packages};
use crate::failure::{At, Failure, Result};
use crate::process::{command, run};
use crate::programs::Build;
use crate::skips::Extent;
use crate::steps::{Run, kept, workspace};
use crate::tree::{build, build_release, prepare, target};
use crate::{gpu, interop, kernels, python, sanitize};

pub(crate) fn quick() -> Result {
    prepare("quick")?;
    let mut test = Run::start("quick")?;
    test.part("lint");
    format_steps(&mut test)?;
    test.step("clippy", |_| clippy(&["--workspace", "--all-targets"]))?;
    test.part("tests");
    test.step("compile the unit tests", |test| {
        test.build_tests("tests", workspace(&["--lib", "--bins"]))
    })?;
    test.step("unit tests", |test| test.run_part("all"))?;
    test.step("demo, 2 ranks", |_| {
        demo(&["--ranks", "2", "--steps", "2", "--tokens", "32"])
    })?;
    test.finish_parts();
    test.print_summary()
}

/// Runs all tests with the large counts. Everything below learns that by this variable.
pub(crate) fn full() -> Result {
    if std::env::var_os("WV_TEST_FULL").is_some_and(|value| value == "1") {
        return all("full");
    }
    let this = std::env::current_exe().at("/proc/self/exe")?;
    let error = command(this, ["test", "full"])
        .env("WV_TEST_FULL", "1")
        .exec();
    Err(Failure::new(1, format!("cannot start again: {error}")))
}

pub(crate) fn all(name: &str) -> Result {
    prepare("test")?;
    let mut test = Run::start(name)?;
    test.part("lint");
    format_steps(&mut test)?;
    test.step("PTX of the kernels is current", |_| kernels::check_ptx())?;
    test.step("clippy", |_| clippy(&["--workspace", "--all-targets"]))?;
    test.step("clippy without cuda and etcd", |_| {
        // Clippy looks at the libraries of `wv` as well.
        clippy(&["-p", "warpverbs", "-p", "wv", "--no-default-features"])
    })?;
    test.step("packages", |_| packages())?;
    test.step("cargo-deny", |_| deny())?;
    test.part("builds");
    test.step("build", |_| build())?;
    test.step("compile the tests", Run::build_all_tests)?;
    // This comes before the tests, because one of them runs `./x dist`, and the Python tests run the wheel of this build.
    test.step("release build of what others get", |_| build_release())?;
    test.part("tests");
    test.step("tests", |test| test.run_part("tests"))?;
    test.step("rustdoc", |_| rustdoc())?;
    test.step("doctests", Run::run_doctests)?;
    test.step("demo", |_| demo(&[]))?;
    test.part("sanitizers");
    sanitize::sample(&mut test)?;
    test.part("judges");
    test.step("judges", |test| test.run_part("judges"))?;
    test.part("sass");
    let counts = &mut kernels::test_sass();
    test.step_of("tests of the SASS counts", "sass-tests.log", counts)?;
    let sass = &mut kernels::count_sass(&[]);
    test.step_of("SASS of the device library", "sass.log", sass)?;
    test.part("control");
    test.step("control path", |test| test.run_part("control"))?;
    test.part("device");
    test.step("device tests", |test| test.run_part("device"))?;
    test.step("GPU pack, run on simt in an empty environment", |_| {
        gpu::in_tests()
    })?;
    test.part("engine");
    test.step("host engine", |test| test.run_part("engine"))?;
    test.part("membership");
    test.step("ranks that die and come back", |test| {
        test.run_part("membership")
    })?;
    test.part("moe");
    test.step("dispatch and combine", |test| test.run_part("moe"))?;
    interop::in_tests(&mut test)?;
    python::in_tests(&mut test)?;
    test.finish_parts();
    test.compare_skips(Extent::All)?;
    test.print_summary()
}

/// The parts that a release build runs. The other parts test programs of other projects (judges), or wait more than they work.
const OF_RELEASE: [&str; 4] = ["tests", "device", "engine", "moe"];

/// Runs tests without debug assertions and overflow checks, as users build their programs. A job of CI does this.
pub(crate) fn release() -> Result {
    prepare("test")?;
    let mut test = Run::start("release")?;
    test.part("builds");
    test.step("compile the tests for a release", |test| {
        let build = workspace(&["--release"]);
        test.build_tests(
            "tests",
            Build {
                label: "release".to_owned(),
                ..build
            },
        )
    })?;
    for part in OF_RELEASE {
        test.part(part);
        test.step(part, |test| test.run_part(part))?;
    }
    test.finish_parts();
    test.compare_skips(Extent::Some)?;
    test.print_summary()
}

/// Runs only the part for Python: its wheel, its types and its tests.
pub(crate) fn python() -> Result {
    prepare("test")?;
    let mut test = Run::start("python")?;
    python::in_tests(&mut test)?;
    test.finish_parts();
    test.compare_skips(Extent::Some)?;
    test.print_summary()
}

fn rustdoc() -> Result {
    let mut cargo = command("cargo", ["doc", "--locked", "--workspace", "--no-deps"]);
    // These features are those of the tests. With others the kernels of test-support would be compiled once more.
    cargo.args(["--features", "test-support/cuda"]);
    run(cargo.env("RUSTDOCFLAGS", "-Dwarnings"))
}

fn demo(arguments: &[&str]) -> Result {
    build()?;
    kept("demo.log")?.run(
        Command::new(target().join("wv"))
            .arg("demo")
            .args(arguments),
    )
}
