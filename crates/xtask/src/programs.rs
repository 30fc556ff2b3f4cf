//! The test programs that exist, and their tests. cargo builds the programs, and each lists its own tests.
//!
//! A program has the name that cargo-nextest gives it: `softhca` (unit tests of a library), `wv::bin/wv` (unit tests of a program),
//! `softhca::judges` (tests/judges).

use std::collections::HashMap;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::failure::{At, Failure, Result};
use crate::process;

/// The begin of the reason of an ignored test that is none by itself: another test starts it, as a second process.
const CHILD: &str = "is started by";

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Test {
    pub(crate) name: String,
    /// The reason why the test is ignored, if it is.
    pub(crate) ignored: Option<String>,
}

impl Test {
    /// Returns whether another test starts this one, so that it does not count as a test.
    pub(crate) fn is_child(&self) -> bool {
        let reason = self.ignored.as_deref();
        reason.is_some_and(|reason| reason.starts_with(CHILD))
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Program {
    pub(crate) id: String,
    pub(crate) executable: PathBuf,
    /// The directory of the program's package, in which the program runs.
    pub(crate) directory: PathBuf,
    pub(crate) source: PathBuf,
    pub(crate) tests: Vec<Test>,
}

/// The setting of one call of cargo that builds tests.
#[derive(Clone, Debug, Default)]
pub(crate) struct Build {
    pub(crate) arguments: Vec<String>,
    /// The label of a build with other features, such as `tsan`; empty for other builds.
    pub(crate) label: String,
    /// The variables that cargo and the tests get besides those of this process.
    pub(crate) environment: Vec<(String, OsString)>,
}

/// The programs that one call of cargo has built.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tree {
    pub(crate) build: Build,
    pub(crate) programs: Vec<Program>,
}

/// A program with some of its tests.
pub(crate) struct Chosen<'a> {
    pub(crate) program: &'a Program,
    pub(crate) tests: Vec<Test>,
}

impl Tree {
    /// Builds the programs and asks each for its tests. Fails if the build fails, which cargo has then reported.
    pub(crate) fn made_by(build: Build) -> Result<Self> {
        let mut cargo = build.cargo();
        cargo
            .args(["test", "--locked", "--no-run"])
            .arg("--message-format=json-render-diagnostics")
            .args(&build.arguments);
        let built = process::answer(&mut cargo, None)?;
        process::succeeded(built.status)?;
        let mut programs: Vec<_> = messages(&built.text)
            .filter_map(|message| program_of(&message))
            .collect();
        programs.sort_by(|one, other| one.id.cmp(&other.id));
        for program in &mut programs {
            program.tests = list_tests(program, &build)?;
        }
        Ok(Self { build, programs })
    }

    pub(crate) fn say_size(&self) {
        let tests: usize = self.programs.iter().map(|one| one.tests.len()).sum();
        println!("{} test programs, {tests} tests", self.programs.len());
    }

    /// Returns all programs with all their tests.
    pub(crate) fn all(&self) -> Vec<Chosen<'_>> {
        let with_tests = self.programs.iter().filter(|p| !p.tests.is_empty());
        let chosen = with_tests.map(|program| Chosen {
            program,
            tests: program.tests.clone(),
        });
        chosen.collect()
    }
}

impl Build {
    /// Returns a command of cargo, in the environment of this build.
    pub(crate) fn cargo(&self) -> Command {
        let mut cargo = Command::new("cargo");
        cargo.envs(self.environment.iter().map(|(name, value)| (name, value)));
        cargo
    }

    /// Returns a command that runs a test program as cargo does.
    pub(crate) fn program(&self, program: &Program) -> Command {
        let deps = program.executable.parent().unwrap_or(Path::new("/"));
        let mut libraries = vec![deps.to_owned()];
        libraries.extend(deps.parent().map(Path::to_owned));
        let own = self.environment.iter();
        let own = own.filter(|(name, _)| name == "LD_LIBRARY_PATH");
        let own = own.map(|(_, value)| value.clone()).next();
        if let Some(inherited) = own.or_else(|| std::env::var_os("LD_LIBRARY_PATH")) {
            libraries
                .extend(std::env::split_paths(&inherited).filter(|path| path != Path::new("")));
        }
        let mut command = Command::new(&program.executable);
        command
            .envs(self.environment.iter().map(|(name, value)| (name, value)))
            .env("CARGO_MANIFEST_DIR", &program.directory)
            .env(
                "LD_LIBRARY_PATH",
                std::env::join_paths(libraries).unwrap_or_default(),
            )
            .current_dir(&program.directory);
        command
    }
}

/// Returns the messages of cargo among the lines that it prints.
pub(crate) fn messages(printed: &str) -> impl Iterator<Item = Value> {
    let lines = printed.lines().filter(|line| line.starts_with('{'));
    lines.filter_map(|line| serde_json::from_str(line).ok())
}

/// Returns the test program of a message of cargo, or None for libraries, for `wv` itself, and for other messages.
fn program_of(message: &Value) -> Option<Program> {
    let is_test = message["reason"] == "compiler-artifact" && message["profile"]["test"] == true;
    let executable = message["executable"].as_str().filter(|_| is_test)?;
    let (place, version) = message["package_id"].as_str()?.rsplit_once('#')?;
    let folder = place.trim_end_matches('/').rsplit('/').next()?;
    let package = version.split_once('@').map_or(folder, |(name, _)| name);
    let target = message["target"]["name"].as_str()?;
    let id = match message["target"]["kind"][0].as_str()? {
        "test" => format!("{package}::{target}"),
        kind @ ("bin" | "example" | "bench") => format!("{package}::{kind}/{target}"),
        _ => package.to_owned(),
    };
    Some(Program {
        id,
        executable: executable.into(),
        directory: Path::new(message["manifest_path"].as_str()?)
            .parent()?
            .into(),
        source: message["target"]["src_path"].as_str()?.into(),
        tests: Vec::new(),
    })
}

fn list_tests(program: &Program, build: &Build) -> Result<Vec<Test>> {
    let ask = |arguments: &[&str]| process::text_of(build.program(program).args(arguments));
    let every = names(&ask(&["--list", "--format=terse"])?);
    let ignored = names(&ask(&["--list", "--format=terse", "--ignored"])?);
    let mut reasons = HashMap::new();
    if !ignored.is_empty() {
        // If a program is asked to run an ignored test without `--ignored`, it prints why it does not.
        let mut arguments = vec!["--exact"];
        arguments.extend(ignored.iter().map(String::as_str));
        reasons = reasons_of(&ask(&arguments)?, &ignored);
    }
    let tests = every.into_iter().map(|name| Test {
        ignored: reasons.get(&name).cloned(),
        name,
    });
    Ok(tests.collect())
}

/// Returns the names in a terse list of a program.
pub(crate) fn names(listed: &str) -> Vec<String> {
    let named = listed
        .lines()
        .filter_map(|line| line.strip_suffix(": test"));
    named.map(str::to_owned).collect()
}

fn reasons_of(told: &str, ignored: &[String]) -> HashMap<String, String> {
    let unknown = "no reason is given".to_owned();
    let mut reasons: HashMap<_, _> = ignored
        .iter()
        .map(|name| (name.clone(), unknown.clone()))
        .collect();
    for line in told.lines().filter_map(|line| line.strip_prefix("test ")) {
        if let Some((test, reason)) = line.split_once(" ... ignored, ") {
            reasons.insert(test.to_owned(), reason.trim().to_owned());
        }
    }
    reasons
}

/// Returns the files below `root` that cargo takes for test programs by their place, but of which no program was built.
pub(crate) fn unlisted_sources(programs: &[Program], root: &Path) -> Result<Vec<String>> {
    let crates = root.join("crates");
    let mut folders = vec![root.join("tests")];
    if crates.is_dir() {
        let packages = entries(&crates)?;
        folders.extend(packages.into_iter().map(|package| package.join("tests")));
    }
    let mut found = Vec::new();
    for folder in folders.into_iter().filter(|folder| folder.is_dir()) {
        for path in entries(&folder)? {
            let main = path.join("main.rs");
            if crate::tree::ends_in(&path, &["rs"]) {
                found.push(path);
            } else if main.is_file() {
                found.push(main);
            }
        }
    }
    let real = |path: &Path| fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let built: Vec<_> = programs
        .iter()
        .map(|program| real(&program.source))
        .collect();
    found.retain(|path| !built.contains(&real(path)));
    let below_root = |path: &PathBuf| {
        let below = path.strip_prefix(root).unwrap_or(path);
        below.to_string_lossy().into_owned()
    };
    let mut missing: Vec<_> = found.iter().map(below_root).collect();
    missing.sort();
    Ok(missing)
}

fn entries(folder: &Path) -> Result<Vec<PathBuf>> {
    let read = fs::read_dir(folder).at(folder)?;
    read.map(|entry| Ok(entry.at(folder)?.path())).collect()
}

/// Returns the failure that the tests were not built. The build that failed has reported why.
pub(crate) fn not_built() -> Failure {
    Failure::new(1, "the tests are not built")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn id_of(kind: &str, name: &str, package: &str, is_test: bool) -> Option<String> {
        let message = json!({
            "reason": "compiler-artifact", "package_id": package, "manifest_path": "/w/crates/p/Cargo.toml",
            "target": {"kind": [kind], "name": name, "src_path": "/w/x.rs"},
            "profile": {"test": is_test}, "executable": "/w/target/debug/deps/x-1",
        });
        program_of(&message).map(|program| program.id)
    }

    #[test]
    fn programs_have_the_names_of_nextest() {
        let softhca = "path+file:///w/crates/softhca#0.1.0";
        let root = "path+file:///w#warpverbs@0.1.0";
        for (kind, package, expected) in [
            ("lib", softhca, "softhca"),
            ("test", softhca, "softhca::x"),
            (
                "cdylib",
                "path+file:///w/crates/capi#warpverbs-capi@0.1.0",
                "warpverbs-capi",
            ),
            ("bin", root, "warpverbs::bin/x"),
        ] {
            assert_eq!(id_of(kind, "x", package, true).as_deref(), Some(expected));
        }
        assert_eq!(id_of("bin", "wv", root, false), None);
    }

    #[test]
    fn lines_that_are_no_messages_are_passed_over() {
        let printed = "   Compiling x\n{\"reason\":\"build-finished\"}\n{ no json\n";
        assert_eq!(messages(printed).count(), 1);
    }

    #[test]
    fn a_source_without_a_program_is_found() {
        let root = tempfile::tempdir().unwrap();
        for path in [
            "tests/a.rs",
            "tests/b/main.rs",
            "tests/c/part.rs",
            "crates/p/tests/d.rs",
        ] {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "").unwrap();
        }
        let built = Program {
            id: "p::a".to_owned(),
            executable: PathBuf::new(),
            directory: PathBuf::new(),
            source: root.path().join("tests/a.rs"),
            tests: Vec::new(),
        };
        let missing = unlisted_sources(&[built], root.path()).unwrap();
        assert_eq!(missing, ["crates/p/tests/d.rs", "tests/b/main.rs"]);
    }

    #[test]
    fn reasons_are_read_from_what_a_program_says() {
        let told = "running 2 tests\ntest a::b ... ignored, needs a GPU\ntest c ... ignored\n\ntest result: ok.";
        let reasons = reasons_of(told, &["a::b".to_owned(), "c".to_owned()]);
        assert_eq!(reasons["a::b"], "needs a GPU");
        assert_eq!(reasons["c"], "no reason is given");
        assert_eq!(reasons.len(), 2);
    }
}
