//! `./x wheel`, and the part `python` of `./x test`: builds the wheel, runs its tests beside torch, and reads what pytest reports.

mod environments;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use self::environments::{Environment, NEWEST, OLDEST};
use crate::failure::{At, Failure, Result};
use crate::install;
use crate::outcomes::{Outcome, Verdict};
use crate::process::{command, run, text_of};
use crate::steps::{LOGS, Run, kept, wants_large_counts};
use crate::summary::Key;
use crate::tree::{self, files_below, fresh_folder, prepare, wheel_program};
use crate::written_ptx;

/// The folder of the wheels, the tests' environments and their reports.
const FOLDER: &str = "target/python";
/// The folder of the wheels of engines, from which tests load files.
const ENGINES: &str = "target/python/engines";
/// The folder of the files that the wheel carries besides Python. They are copied there before maturin packs them.
const PREFIX: &str = "python/warpverbs/_prefix";

/// The tests that also run beside the oldest torch.
const OF_TORCH: &[&str] = &[
    "test_deep_ep.py",
    "test_layers.py",
    "test_mooncake_ep.py",
    "test_oracle.py",
    "test_single.py",
    "test_teams.py",
    "test_wrong_calls.py",
];

/// Builds the wheel, and prints its path and the glibc that it needs.
pub(crate) fn wheel() -> Result {
    prepare("wheel")?;
    written_ptx::write()?;
    let [wheel, name] = build_wheels()?;
    let mut objects = files_below(PREFIX, |path| {
        path.ends_with("wv") || path.extension().is_some_and(|ending| ending == "so")
    })?;
    objects.push(tree::release().join("lib_native.so"));
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

/// Returns the path of the wheel of the package, which [`wheel`] has made.
pub(crate) fn package() -> Result<PathBuf> {
    let folder = format!("{FOLDER}/wheels");
    let is_package = |path: &Path| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name.starts_with("warpverbs-") && name.ends_with(".whl")
    };
    let found = files_below(&folder, is_package)?.pop();
    found.ok_or_else(|| Failure::new(1, format!("there is no wheel in {folder}: ./x wheel")))
}

/// Puts programs, library and headers into the package and packs it. Returns that wheel, and the wheel that has DeepEP's name.
fn build_wheels() -> Result<[PathBuf; 2]> {
    tree::build_release()?;
    fresh_folder(Path::new(PREFIX))?;
    install::install_for_python(Path::new(PREFIX))?;
    let here = std::env::current_dir().at(".")?;
    let wheels = here.join(FOLDER).join("wheels");
    fresh_folder(&wheels)?;
    let mut maturin = command(
        here.join(wheel_program("maturin")),
        ["build", "--quiet", "--release", "--out"],
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
    // The wheels are in the order of their names.
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

/// Runs the part `python`.
pub(crate) fn in_tests(test: &mut Run) -> Result {
    test.part("python");
    test.step("PTX that the programs carry", |_| written_ptx::write())?;
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
        NEWEST.make(&wheel)?;
        engines()
    })?;
    test.step("types of the package", |_| types())?;
    test.step("what the wheel needs", |_| needs(&wheel))?;
    test.step("Python tests", |test| {
        let (exist, told) = run_pytest(&NEWEST, "python", &[])?;
        test.judge(&exist, told)
    })?;
    if wants_large_counts() {
        test.step("Python tests beside the oldest torch", |test| {
            let (exist, told) = beside_the_oldest_torch(&wheel)?;
            test.judge(&exist, told)
        })?;
    }
    Ok(())
}

/// Runs the tests beside the oldest torch. If this Python is too new for that torch, there is one outcome, which is skipped.
fn beside_the_oldest_torch(wheel: &Path) -> Result<(Vec<Key>, Vec<Outcome>)> {
    let newer = "import sys; print(sys.version_info >= (3, 13))";
    if text_of(&mut command("python3", ["-c", newer]))?.trim() == "True" {
        let (program, name) = ("python-oldest", OLDEST.torch[0]);
        let why = "its wheels are for Python 3.12 and older, and python3 is newer";
        let skipped = Outcome::new(program, name, Verdict::Skipped, why);
        return Ok((vec![(program.to_owned(), name.to_owned())], vec![skipped]));
    }
    OLDEST.make(wheel)?;
    run_pytest(&OLDEST, "python-oldest", OF_TORCH)
}

/// Returns a command that runs a module of the package beside torch, with what `./x test python` has installed.
pub(crate) fn module(name: &str) -> Result<Command> {
    let mut python = command(NEWEST.program("python")?, ["-m", name]);
    NEWEST.with_libraries(&mut python)?;
    Ok(python)
}

/// Runs mypy on the package, and stubtest on its stubs beside the running package.
fn types() -> Result {
    let python = NEWEST.program("python")?;
    let mut mypy = command(&python, ["-m", "mypy"]);
    kept("mypy.log")?.run(mypy.current_dir("python"))?;
    let mut stubtest = command(&python, ["-m", "mypy.stubtest", "warpverbs"]);
    stubtest
        .args(["--mypy-config-file", "../pyproject.toml"])
        .args(["--allowlist", "stubtest.txt"])
        // In this folder, as in the tests, the wheel is found and not its sources.
        .current_dir("python/tests");
    kept("stubtest.log")?.run(NEWEST.with_libraries(&mut stubtest)?)
}

/// Runs abi3audit and auditwheel on the wheel. They check that any Python from 3.10 has what it calls, and that the glibc in its name is
/// enough.
fn needs(wheel: &Path) -> Result {
    let mut abi3audit = command(NEWEST.program("abi3audit")?, ["--summary"]);
    kept("abi3audit.log")?.run(abi3audit.arg(wheel))?;
    let mut auditwheel = command(NEWEST.program("auditwheel")?, ["show"]);
    let said = text_of(auditwheel.arg(wheel))?;
    let tag = platform_of(wheel);
    // auditwheel folds lines anywhere between words.
    if !said.contains(&format!("\"{tag}\"")) {
        let words = format!("{} is not {tag}: {said}", wheel.display());
        return Err(Failure::new(1, words));
    }
    let system = fs::read_to_string("/etc/os-release").unwrap_or_default();
    if needs_newer_glibc(&tag, &system) {
        let words = format!(
            "{} needs a newer glibc than 2.{DEBIAN_12_GLIBC}; built on Debian 12 it must be that or older",
            wheel.display()
        );
        return Err(Failure::new(1, words));
    }
    Ok(())
}

/// The number N of the glibc 2.N that a wheel built on Debian 12 may need.
const DEBIAN_12_GLIBC: u32 = 34;

/// Returns whether a wheel of platform `tag` that this system has built needs a newer glibc than it may. On systems newer than Debian 12
/// nothing is promised.
fn needs_newer_glibc(tag: &str, os_release: &str) -> bool {
    let has = |line: &str| os_release.lines().any(|other| other == line);
    let on_debian_12 = has("ID=debian") && has("VERSION_ID=\"12\"");
    let minor = tag
        .strip_prefix("manylinux_2_")
        .and_then(|rest| rest.split('_').next()?.parse::<u32>().ok());
    on_debian_12 && minor.is_none_or(|minor| minor > DEBIAN_12_GLIBC)
}

/// Returns the platform tag, which is the last tag of a wheel's name.
fn platform_of(wheel: &Path) -> String {
    let stem = wheel.file_stem().unwrap_or_default().to_string_lossy();
    stem.rsplit('-').next().unwrap_or_default().to_owned()
}

/// Runs ruff on all Python files of the package and its tests.
pub(crate) fn lint() -> Result {
    run(command(wheel_program("ruff"), ["check", "python"]).arg("--no-cache"))?;
    run(command(wheel_program("ruff"), ["format", "--check", "python"]).arg("--no-cache"))
}

pub(crate) fn format() -> Result {
    run(command(wheel_program("ruff"), ["check", "--fix", "python"]).arg("--no-cache"))?;
    run(command(wheel_program("ruff"), ["format", "python"]).arg("--no-cache"))
}

/// Downloads the wheels of engines. Tests unpack them and never install them, because they require hundreds of packages. The wheel of vLLM
/// has 336 MB, so only full runs get it.
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
    // The wheels may be for another Python and machine than these, because only their texts are read.
    let mut pip = pip(&NEWEST.program("python")?, "download");
    pip.args(["--no-deps", "--only-binary=:all:", "--implementation=cp"])
        .args(["--python-version=3.11", "--platform=manylinux_2_34_x86_64"])
        .args(["--platform=manylinux_2_28_x86_64", "--dest", ENGINES]);
    run(pip.args(&wanted))?;
    fs::write(&stamp, wanted.join("\n")).at(&stamp)
}

/// Runs pytest on these files, or on all. Each test that pytest collects has one outcome, as a test of the program `of`. Beside the oldest
/// torch the small counts are enough.
fn run_pytest(
    environment: &Environment,
    of: &str,
    files: &[&str],
) -> Result<(Vec<Key>, Vec<Outcome>)> {
    let python = environment.program("python")?;
    let report = std::env::current_dir()
        .at(".")?
        .join(LOGS)
        .join(format!("{of}.xml"));
    let exist = collected(environment, of, files)?;
    let mut tests = pytest(&python, files);
    tests
        .args(["-n", "2", "--dist", "loadfile"])
        .args(["-o", "junit_family=xunit1", "--junit-xml"])
        .arg(&report);
    // A bad status says that tests have failed, and the report has their names.
    let log = format!("{of}.log");
    let status = kept(&log)?.status(environment.with_libraries(&mut tests)?)?;
    let log = Path::new(LOGS).join(log);
    for line in figures(&fs::read_to_string(&log).at(&log)?) {
        println!("{line}");
    }
    let text = fs::read_to_string(&report).map_err(|error| {
        Failure::new(
            1,
            format!("pytest ended with {status} and wrote no report: {error}"),
        )
    })?;
    Ok((exist, from_pytest(of, &text)?))
}

/// Returns the Python tests that exist beside the newest torch. None: no `./x test python` has made their environment.
pub(crate) fn existing() -> Result<Option<Vec<Key>>> {
    if !NEWEST.program("python")?.exists() {
        return Ok(None);
    }
    collected(&NEWEST, "python", &[]).map(Some)
}

/// Returns the tests that pytest finds.
fn collected(environment: &Environment, of: &str, files: &[&str]) -> Result<Vec<Key>> {
    let mut collects = pytest(&environment.program("python")?, files);
    let listed = text_of(environment.with_libraries(collects.arg("--collect-only"))?)?;
    let exist = listed.lines().filter_map(|line| line.split_once("::"));
    let exist = exist.map(|(file, test)| (program(of, file), test.to_owned()));
    Ok(exist.collect())
}

fn pytest(python: &Path, files: &[&str]) -> Command {
    let mut pytest = command(python, ["-m", "pytest", "-p", "no:cacheprovider", "-q"]);
    if !files.is_empty() {
        pytest.env_remove("WV_TEST_FULL");
    }
    // The tests do not run in `python`, because its folder `warpverbs` would be imported instead of the wheel.
    pytest.current_dir("python/tests");
    pytest.args(files);
    pytest
}

/// Returns what the tests measured, from what pytest printed.
fn figures(log: &str) -> impl Iterator<Item = &str> {
    let is_title = |line: &&str| line.starts_with("==");
    let behind = log
        .lines()
        .skip_while(move |line| !(is_title(line) && line.contains(" figures ")));
    behind.skip(1).take_while(move |line| !is_title(line))
}

/// Returns `tests/test_x.py` as the name of a program, in the form that programs of cargo have.
fn program(of: &str, file: &str) -> String {
    format!("{of}::{file}")
}

/// Returns the outcomes in pytest's report, which has the form xunit1.
fn from_pytest(of: &str, text: &str) -> Result<Vec<Outcome>> {
    let unreadable = |error| Failure::new(1, format!("pytest's report is unreadable: {error}"));
    let report = roxmltree::Document::parse(text).map_err(unreadable)?;
    let cases = report
        .descendants()
        .filter(|node| node.has_tag_name("testcase"));
    let outcome = |case: roxmltree::Node<'_, '_>| {
        let program = program(of, case.attribute("file").unwrap_or(""));
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
    fn a_wheel_of_debian_12_needs_no_newer_glibc_than_2_34() {
        let debian = "NAME=\"Debian\"\nVERSION_ID=\"12\"\nID=debian\n";
        let newer = debian.replace("12", "13");
        for (tag, os_release, refused) in [
            ("manylinux_2_34_x86_64", debian, false),
            ("manylinux_2_17_x86_64", debian, false),
            ("manylinux_2_35_x86_64", debian, true),
            ("linux_x86_64", debian, true),
            ("manylinux_2_41_x86_64", newer.as_str(), false),
        ] {
            assert_eq!(needs_newer_glibc(tag, os_release), refused, "{tag}");
        }
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
        let found = from_pytest("python", REPORT).unwrap();
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
        assert!(from_pytest("python", "<testsuites>").is_err());
    }
}
