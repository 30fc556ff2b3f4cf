//! `./x wheel`, and the part `python` of `./x test`: the wheel, an environment of its own with torch, and what pytest says.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::failure::{At, Failure, Result};
use crate::install;
use crate::outcomes::{Outcome, Verdict};
use crate::process::{command, run, text_of};
use crate::steps::{LOGS, Run, kept, wants_large_counts};
use crate::summary::Key;
use crate::tree::{files_below, fresh_folder, prepare, wheel_program};

/// Where the wheel, the tests' environment and their report lie.
const FOLDER: &str = "target/python";
const VENV: &str = "target/python/venv";
/// Wheels of engines, of which tests load files.
const ENGINES: &str = "target/python/engines";
/// What the wheel carries beside Python, put there before maturin packs it.
const PREFIX: &str = "python/warpverbs/_prefix";

/// What the tests install. Torch comes without the CUDA libraries that its metadata asks for: `stand_ins.py` makes what it links.
const TORCH: &[&str] = &[
    "torch==2.15.0",
    "nvidia-cuda-runtime==13.2.86",
    "nvidia-cuda-cupti==13.2.86",
];
const PACKAGES: &[&str] = &[
    "abi3audit==0.0.26",
    "auditwheel==6.8.2",
    "filelock==4.2.12",
    "fsspec==2026.9.0",
    "jinja2==3.1.6",
    "mypy==2.4.1",
    "networkx==3.6.1",
    "numpy==2.4.6",
    "pytest==9.2.0",
    "sympy==1.14.0",
    "transformers==5.23.0",
    "typing-extensions==4.16.0",
];

/// With all that it needs 260 MB, for the test of one example: for full runs.
const RAY: &str = "ray==2.60.0";

/// Builds the wheel, and says its file and the glibc that it needs.
pub(crate) fn wheel() -> Result {
    prepare("wheel")?;
    let [wheel, name] = build_wheels()?;
    let mut objects = files_below(PREFIX, |path| {
        path.ends_with("wv") || path.extension().is_some_and(|ending| ending == "so")
    })?;
    objects.push(crate::tree::target().join("lib_native.so"));
    let symbols = text_of(Command::new("objdump").arg("-T").args(&objects))?;
    let glibc = install::newest_glibc(&symbols)
        .ok_or_else(|| Failure::new(1, "the programs name no version of glibc"))?;
    let bytes = fs::metadata(&wheel).at(&wheel)?.len();
    println!(
        "{} ({} MiB) needs Python 3.10 and glibc {glibc}, or newer",
        wheel.display(),
        bytes.div_ceil(1 << 20)
    );
    println!("{} gives it the name deep_ep", name.display());
    Ok(())
}

/// Programs, library and headers into the package, then all of it into one file; and the wheel that has DeepEP's name.
fn build_wheels() -> Result<[PathBuf; 2]> {
    install::build()?;
    fresh_folder(Path::new(PREFIX))?;
    install::install_for_python(Path::new(PREFIX))?;
    let here = std::env::current_dir().at(".")?;
    let wheels = here.join(FOLDER).join("wheels");
    fresh_folder(&wheels)?;
    let mut maturin = command(
        here.join(wheel_program("maturin")),
        ["build", "--quiet", "--profile", "dev", "--out"],
    );
    run(maturin.arg(&wheels).current_dir("python"))?;
    let mut pip = pip(&here.join(wheel_program("python")), "wheel");
    run(pip
        .args(["--no-deps", "--wheel-dir"])
        .arg(&wheels)
        .arg("python/as_deep_ep"))?;
    let built = files_below(&wheels.to_string_lossy(), |path| {
        path.extension().is_some_and(|ending| ending == "whl")
    })?;
    // In the order of their names.
    <[PathBuf; 2]>::try_from(built).map_err(|built| {
        let words = format!(
            "{} wheels lie in {}, not two",
            built.len(),
            wheels.display()
        );
        Failure::new(1, words)
    })
}

fn pip(python: &Path, task: &str) -> Command {
    command(
        python,
        ["-m", "pip", task, "-q", "--disable-pip-version-check"],
    )
}

/// The part `python`.
pub(crate) fn in_tests(test: &mut Run) -> Result {
    test.part("python");
    let mut wheel = None;
    test.step("wheel", |_| {
        let [package, _] = build_wheels()?;
        wheel = Some(package);
        Ok(())
    })?;
    let Some(wheel) = wheel else {
        return Ok(());
    };
    test.step("environment of the Python tests", |_| {
        environment(&wheel)?;
        engines()
    })?;
    let venv = std::env::current_dir().at(".")?.join(VENV);
    test.step("types of the package", |_| types(&venv))?;
    test.step("what the wheel needs", |_| needs(&venv, &wheel))?;
    test.step("Python tests", |test| {
        let (exist, told) = run_pytest(&venv)?;
        test.judge(&exist, told)
    })?;
    Ok(())
}

/// mypy on the package, and stubtest on what it says of itself beside what is there when it runs.
fn types(venv: &Path) -> Result {
    let python = venv.join("bin/python");
    let mut mypy = command(&python, ["-m", "mypy"]);
    kept("mypy.log")?.run(mypy.current_dir("python"))?;
    let mut stubtest = command(&python, ["-m", "mypy.stubtest", "warpverbs"]);
    stubtest
        .args(["--mypy-config-file", "../pyproject.toml"])
        .args(["--allowlist", "stubtest.txt"])
        // As in the tests, where the wheel is found and not its sources.
        .current_dir("python/tests");
    kept("stubtest.log")?.run(with_libraries(&mut stubtest, &python)?)
}

/// abi3audit and auditwheel on the wheel: any Python from 3.10 has what it calls, and the glibc of its name is enough.
fn needs(venv: &Path, wheel: &Path) -> Result {
    let mut abi3audit = command(venv.join("bin/abi3audit"), ["--summary"]);
    kept("abi3audit.log")?.run(abi3audit.arg(wheel))?;
    let mut auditwheel = command(venv.join("bin/auditwheel"), ["show"]);
    let said = text_of(auditwheel.arg(wheel))?;
    let tag = platform_of(wheel);
    // Lines are folded anywhere between words.
    match said.contains(&format!("\"{tag}\"")) {
        true => Ok(()),
        false => {
            let words = format!("{} is not {tag}: {said}", wheel.display());
            Err(Failure::new(1, words))
        }
    }
}

/// The last tag of a wheel's name.
fn platform_of(wheel: &Path) -> String {
    let stem = wheel.file_stem().unwrap_or_default().to_string_lossy();
    stem.rsplit('-').next().unwrap_or_default().to_owned()
}

/// ruff on all that is Python in the package and its tests.
pub(crate) fn lint() -> Result {
    run(command(wheel_program("ruff"), ["check", "python"]).arg("--no-cache"))?;
    run(command(wheel_program("ruff"), ["format", "--check", "python"]).arg("--no-cache"))
}

pub(crate) fn format() -> Result {
    run(command(wheel_program("ruff"), ["check", "--fix", "python"]).arg("--no-cache"))?;
    run(command(wheel_program("ruff"), ["format", "python"]).arg("--no-cache"))
}

/// The wheels of engines, unpacked by the tests and never installed: their requirements are hundreds of packages. That of vLLM has
/// 336 MB, so it is for full runs.
fn engines() -> Result {
    let mut wanted = vec!["sglang==0.5.23"];
    if wants_large_counts() {
        wanted.push("vllm==0.33.0");
    }
    let stamp = Path::new(ENGINES).join("DOWNLOADED");
    let there = fs::read_to_string(&stamp).unwrap_or_default();
    if wanted
        .iter()
        .all(|name| there.lines().any(|line| line == *name))
    {
        return Ok(());
    }
    fresh_folder(Path::new(ENGINES))?;
    // Whatever Python and machine this is: only texts of the wheels are read.
    let mut pip = pip(&Path::new(VENV).join("bin/python"), "download");
    pip.args(["--no-deps", "--only-binary=:all:", "--implementation=cp"])
        .args(["--python-version=3.11", "--platform=manylinux_2_34_x86_64"])
        .args(["--platform=manylinux_2_28_x86_64", "--dest", ENGINES]);
    run(pip.args(&wanted))?;
    fs::write(&stamp, wanted.join("\n")).at(&stamp)
}

/// The environment of the tests, with this wheel in it.
fn environment(wheel: &Path) -> Result {
    let here = std::env::current_dir().at(".")?;
    let venv = here.join(VENV);
    let python = venv.join("bin/python");
    let wanted = [TORCH, PACKAGES].concat().join("\n");
    let stamp = venv.join("INSTALLED");
    if fs::read_to_string(&stamp).ok().as_deref() != Some(wanted.as_str()) {
        run(command("python3", ["-m", "venv", "--clear"]).arg(&venv))?;
        let pip = || pip(&python, "install");
        run(pip().arg("--no-deps").args(TORCH))?;
        run(pip().arg("--no-deps").args(PACKAGES))?;
        // What these need.
        run(pip().args(["abi3audit", "auditwheel", "mypy", "pytest"]))?;
        run(pip().args(["jinja2", "sympy", "transformers"]))?;
        let stand_ins = command(&python, ["python/tests/stand_ins.py"])
            .arg(here.join(STAND_INS))
            .status();
        let imports = imports_torch(&python)?;
        if !stand_ins.is_ok_and(|status| status.success()) || !imports {
            println!(
                "torch does not import with stand-ins for CUDA's libraries; installing all of them, 3 GB"
            );
            run(pip().arg(TORCH[0]))?;
            fresh_folder(&here.join(STAND_INS))?;
        }
        fs::write(&stamp, &wanted).at(&stamp)?;
    }
    if wants_large_counts() {
        // It may change none of the packages above.
        let pinned = venv.join("PINNED");
        fs::write(&pinned, PACKAGES.join("\n")).at(&pinned)?;
        run(pip(&python, "install").arg("-c").arg(&pinned).arg(RAY))?;
    }
    run(pip(&python, "install")
        .args(["--force-reinstall", "--no-deps"])
        .arg(wheel))
}

const STAND_INS: &str = "target/python/stand-ins";

fn imports_torch(python: &Path) -> Result<bool> {
    let mut import = command(python, ["-c", "import torch"]);
    let status = with_libraries(&mut import, python)?.status();
    Ok(status.at(python)?.success())
}

/// The same command, which finds the stand-ins and the two libraries of CUDA that torch calls when it is loaded.
fn with_libraries<'a>(of: &'a mut Command, python: &Path) -> Result<&'a mut Command> {
    let here = std::env::current_dir().at(".")?;
    let place = "import sysconfig; print(sysconfig.get_path('purelib'))";
    let site = text_of(&mut command(python, ["-c", place]))?;
    let wheels = Path::new(site.trim()).join("nvidia/cu13/lib");
    let path = format!("{}:{}", here.join(STAND_INS).display(), wheels.display());
    Ok(of.env("LD_LIBRARY_PATH", path))
}

/// Every test that pytest collects has one outcome.
fn run_pytest(venv: &Path) -> Result<(Vec<Key>, Vec<Outcome>)> {
    let python = venv.join("bin/python");
    let report = std::env::current_dir()
        .at(".")?
        .join(LOGS)
        .join("pytest.xml");
    let pytest = || {
        let mut pytest = command(&python, ["-m", "pytest", "-p", "no:cacheprovider", "-q"]);
        // Not in `python`, whose folder `warpverbs` would be imported in place of the wheel.
        pytest.current_dir("python/tests");
        pytest
    };
    let listed = text_of(with_libraries(pytest().arg("--collect-only"), &python)?)?;
    let exist = listed.lines().filter_map(|line| line.split_once("::"));
    let exist = exist.map(|(file, test)| (program(file), test.to_owned()));
    let mut tests = pytest();
    tests
        .args(["-o", "junit_family=xunit1", "--junit-xml"])
        .arg(&report);
    // A bad status is that of tests that have failed, which the report has by name.
    let status = kept("python.log")?.status(with_libraries(&mut tests, &python)?)?;
    let log = Path::new(LOGS).join("python.log");
    for line in figures(&fs::read_to_string(&log).at(&log)?) {
        println!("{line}");
    }
    let text = fs::read_to_string(&report).map_err(|error| {
        Failure::new(
            1,
            format!("pytest ended with {status} and wrote no report: {error}"),
        )
    })?;
    Ok((exist.collect(), from_pytest(&text)?))
}

/// What the tests measured, from what pytest printed.
fn figures(log: &str) -> impl Iterator<Item = &str> {
    let is_title = |line: &&str| line.starts_with("==");
    let behind = log
        .lines()
        .skip_while(move |line| !(is_title(line) && line.contains(" figures ")));
    behind.skip(1).take_while(move |line| !is_title(line))
}

/// `tests/test_x.py` as a program among those of cargo.
fn program(file: &str) -> String {
    format!("python::{file}")
}

/// Of pytest's report in the form xunit1.
fn from_pytest(text: &str) -> Result<Vec<Outcome>> {
    let unreadable = |error| Failure::new(1, format!("pytest's report is unreadable: {error}"));
    let report = roxmltree::Document::parse(text).map_err(unreadable)?;
    let cases = report
        .descendants()
        .filter(|node| node.has_tag_name("testcase"));
    let outcome = |case: roxmltree::Node<'_, '_>| {
        let program = program(case.attribute("file").unwrap_or(""));
        let test = case.attribute("name").unwrap_or("").to_owned();
        let child = |name| case.children().find(|node| node.has_tag_name(name));
        let why =
            |node: roxmltree::Node<'_, '_>| node.attribute("message").unwrap_or("").to_owned();
        if let Some(wrong) = child("failure").or_else(|| child("error")) {
            return Outcome::failed(&program, &test, &why(wrong));
        }
        match child("skipped") {
            Some(skipped) => Outcome::new(&program, &test, Verdict::Skipped, &why(skipped)),
            None => Outcome::new(&program, &test, Verdict::Passed, ""),
        }
    };
    Ok(cases.map(outcome).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    const REPORT: &str = r#"<testsuites><testsuite name="pytest">
<testcase classname="tests.test_a" name="test_good[1]" file="tests/test_a.py"/>
<testcase classname="tests.test_a" name="test_bad" file="tests/test_a.py"><failure message="m">t</failure></testcase>
<testcase classname="tests.test_a" name="test_away" file="tests/test_a.py"><skipped message="no GPU"/></testcase>
<testcase classname="tests.test_a" name="test_broken" file="tests/test_a.py"><error message="e"/></testcase>
</testsuite></testsuites>"#;

    #[test]
    fn the_platform_of_a_wheel_is_the_last_part_of_its_name() {
        let wheel = "wheels/warpverbs-0.1.0-cp310-abi3-manylinux_2_34_x86_64.whl";
        assert_eq!(platform_of(Path::new(wheel)), "manylinux_2_34_x86_64");
        assert_eq!(platform_of(Path::new("")), "");
    }

    #[test]
    fn figures_stand_between_their_title_and_the_next() {
        let log =
            "2 passed\n==== figures ====\n1 of 2\n3 us\n=== short test summary info ===\nFAILED x";
        assert_eq!(figures(log).collect::<Vec<_>>(), ["1 of 2", "3 us"]);
        assert_eq!(figures("no figures here\n== warnings ==").count(), 0);
    }

    #[test]
    fn what_pytest_writes() {
        let found = from_pytest(REPORT).unwrap();
        let told: Vec<_> = found
            .iter()
            .map(|outcome| (outcome.test.as_str(), outcome.verdict, outcome.why.as_str()))
            .collect();
        assert_eq!(
            told,
            [
                ("test_good[1]", Verdict::Passed, ""),
                ("test_bad", Verdict::Failed, "m"),
                ("test_away", Verdict::Skipped, "no GPU"),
                ("test_broken", Verdict::Failed, "e"),
            ]
        );
        assert!(
            found
                .iter()
                .all(|outcome| outcome.program == "python::tests/test_a.py")
        );
        assert!(from_pytest("<testsuites>").is_err());
    }
}
