//! Runs tests with cargo-nextest if it is installed. Otherwise it runs the test programs one after another.

use std::collections::HashSet;
use std::fs::{self, File};
use std::io::ErrorKind;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::time::{Duration, Instant};

use crate::failure::{At, Failure, Result};
use crate::outcomes::{Outcome, Verdict, from_junit, from_libtest, of_doctest};
use crate::output::Output;
use crate::parts::cores;
use crate::process::{self, Ending, Running, command};
use crate::programs::{Build, Chosen, Program, Test, Tree, names};

/// A profile of .config/nextest.toml, which bounds each test.
#[derive(Clone, Copy)]
pub(crate) enum Profile {
    Default,
    Load,
    Sanitize,
    Full,
}

impl Profile {
    fn name(self) -> &'static str {
        match self {
            Self::Default => "default",
            Self::Load => "load",
            Self::Sanitize => "sanitize",
            Self::Full => "full",
        }
    }

    /// Returns how long one program may take without nextest.
    fn limit(self) -> Duration {
        Duration::from_secs(match self {
            Self::Default => 1200,
            Self::Load => 7200,
            Self::Sanitize => 3600,
            Self::Full => 12 * 3600,
        })
    }
}

/// How tests are run.
#[derive(Clone, Copy)]
pub(crate) struct Manner<'a> {
    pub(crate) profile: Profile,
    /// The number of tests that run at the same time; None: the runner chooses.
    pub(crate) threads: Option<u32>,
    /// The folder for the output of each program.
    pub(crate) logs: &'a Path,
}

/// Returns whether cargo-nextest is installed. With WV_RUNNER=libtest each test program runs by itself, as without cargo-nextest.
fn has_nextest() -> Result<bool> {
    if std::env::var_os("WV_RUNNER").is_some_and(|runner| runner == "libtest") {
        return Ok(false);
    }
    let mut asked = command("cargo", ["nextest", "--version"]);
    Ok(process::ask(asked.stderr(Stdio::null()))?.status.success())
}

/// Runs the tests of `selection` that are not ignored. Returns their outcomes, as far as the runner reports them.
pub(crate) fn run(
    tree: &Tree,
    selection: &[Chosen<'_>],
    manner: Manner<'_>,
    output: &mut Output,
) -> Result<Vec<Outcome>> {
    let mut selection: Vec<_> = selection.iter().map(Chosen::less_ignored).collect();
    selection.retain(|one| !one.tests.is_empty());
    if has_nextest()? {
        return with_nextest(tree, &selection, manner, output);
    }
    output.say("x: cargo-nextest is not installed; each test program runs by itself")?;
    let mut outcomes = Vec::new();
    for one in &selection {
        let limit = manner.profile.limit();
        outcomes.extend(by_itself(&tree.build, one, manner, limit, output)?);
    }
    Ok(outcomes)
}

fn not_ignored(tests: &[Test]) -> impl Iterator<Item = &Test> {
    tests.iter().filter(|test| test.ignored.is_none())
}

// ---- nextest ----

fn with_nextest(
    tree: &Tree,
    selection: &[Chosen<'_>],
    manner: Manner<'_>,
    output: &mut Output,
) -> Result<Vec<Outcome>> {
    let profile = manner.profile.name();
    let report = format!("target/nextest/{profile}/junit.xml"); // whatever CARGO_TARGET_DIR says
    match fs::remove_file(&report) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error).at(&report)?,
        _ => {}
    }
    let mut nextest = tree.build.cargo();
    nextest
        .args(["nextest", "run", "--locked"])
        .args(&tree.build.arguments)
        .args(["--profile", profile, "-E", &filter_of(selection)]);
    if let Some(threads) = manner.threads {
        nextest.arg(format!("--test-threads={threads}"));
    }
    let status = output.status(&mut nextest)?;
    if !Path::new(&report).exists() {
        let ended = number_of(status);
        output.say(&format!(
            "x: cargo nextest ended with status {ended} and wrote no {report}"
        ))?;
        return Ok(Vec::new());
    }
    let outcomes = from_junit(&fs::read_to_string(&report).at(&report)?)?;
    let has_failed = outcomes
        .iter()
        .any(|outcome| outcome.verdict == Verdict::Failed);
    if status.success() == has_failed {
        let ended = number_of(status);
        output.say(&format!(
            "x: cargo nextest ended with status {ended}, and {report} does not say so: none of it counts"
        ))?;
        return Ok(Vec::new());
    }
    Ok(outcomes)
}

/// Returns the tests of `selection` in nextest's filter language. Single tests are named if the program has other tests as well.
pub(crate) fn filter_of(selection: &[Chosen<'_>]) -> String {
    let programs: Vec<_> = selection.iter().map(filter_of_program).collect();
    programs.join(" or ")
}

fn filter_of_program(one: &Chosen<'_>) -> String {
    let chosen = format!("binary_id(={})", one.program.id);
    if one.is_whole() {
        return chosen;
    }
    let tests = one.tests.iter().map(|test| format!("test(={})", test.name));
    let tests: Vec<_> = tests.collect();
    format!("({chosen} and ({}))", tests.join(" or "))
}

impl Chosen<'_> {
    /// Returns this choice without tests that do not run by themselves.
    fn less_ignored(&self) -> Self {
        Self {
            program: self.program,
            tests: not_ignored(&self.tests).cloned().collect(),
        }
    }

    /// Returns whether the choice has all tests of the program that run by themselves.
    fn is_whole(&self) -> bool {
        self.tests.len() == not_ignored(&self.program.tests).count()
    }
}

// ---- without ----

/// The most threads of one program on a machine with fewer cores. Each test may start rank processes, and only nextest limits the number of
/// these.
const MOST_THREADS: u32 = 6;

fn by_itself(
    build: &Build,
    one: &Chosen<'_>,
    manner: Manner<'_>,
    limit: Duration,
    output: &mut Output,
) -> Result<Vec<Outcome>> {
    let Chosen { program, tests } = one;
    let mut arguments = vec!["--show-output".to_owned()];
    if !one.is_whole() {
        arguments.push("--exact".to_owned());
        arguments.extend(tests.iter().map(|test| test.name.clone()));
    }
    let threads = manner
        .threads
        .map(|threads| threads.min(MOST_THREADS.max(cores())));
    arguments.extend(threads.map(|threads| format!("--test-threads={threads}")));
    let name = program.id.replace("::", "-").replace('/', "-");
    let log = manner.logs.join(format!("{name}.out"));
    let start = Instant::now();
    let end = run_bounded(build, program, &arguments, limit, &log)?;
    let said = fs::read(&log).at(&log)?;
    let said = String::from_utf8_lossy(&said);
    let mut outcomes = from_libtest(&program.id, &said, end.is_none());
    if let Some(end) = &end {
        let told: HashSet<_> = outcomes
            .iter()
            .map(|outcome| outcome.test.clone())
            .collect();
        let lost = tests.iter().filter(|test| !told.contains(&test.name));
        let why = format!("had no result when its program {end}");
        outcomes.extend(lost.map(|test| Outcome::failed(&program.id, &test.name, &why)));
    }
    let is_bad = |outcome: &&Outcome| outcome.verdict == Verdict::Failed;
    let bad = outcomes.iter().filter(is_bad).count();
    let failed = bad > 0 || end.is_some();
    if failed {
        output.say(last_of(&said, 20_000))?;
    }
    output.say(&format!(
        "{:4} {}: {} of {} tests, {:.1} s{}",
        if failed { "FAIL" } else { "ok" },
        program.id,
        tests.len().saturating_sub(bad),
        tests.len(),
        start.elapsed().as_secs_f64(),
        end.map_or(String::new(), |end| format!(" ({end})")),
    ))?;
    Ok(outcomes)
}

/// Returns the end of a text, of at most `bytes` bytes.
fn last_of(text: &str, bytes: usize) -> &str {
    let mut start = text.len().saturating_sub(bytes);
    while !text.is_char_boundary(start) {
        start += 1;
    }
    &text[start..]
}

/// Runs a test program. Returns how it ended, unless it ended by itself with status 0 or with the status of failed tests.
fn run_bounded(
    build: &Build,
    program: &Program,
    arguments: &[String],
    limit: Duration,
    log: &Path,
) -> Result<Option<String>> {
    let file = File::create(log).at(log)?;
    let mut command = build.program(program);
    command
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(file.try_clone().at(log)?)
        .stderr(file);
    // If the program is too slow, or this process is interrupted, the programs that it has started end with it.
    let mut running = Running::start(&mut command, Ending::WithItsSession)?;
    let Some(status) = running.wait(Some(limit))? else {
        return Ok(Some(format!("was ended after {} s", limit.as_secs())));
    };
    Ok(match number_of(status) {
        0 | 101 => None,
        signal if signal < 0 => Some(format!("was ended by signal {}", -signal)),
        number => Some(format!("ended with status {number}")),
    })
}

/// Returns the status of a process, or the negative number of the signal that ended it.
fn number_of(status: ExitStatus) -> i32 {
    let signal = || -status.signal().unwrap_or(0);
    status.code().unwrap_or_else(signal)
}

// ---- documentation ----

const DOCTESTS: [&str; 6] = [
    "test",
    "--locked",
    "--workspace",
    "--doc",
    "--no-fail-fast",
    "--",
];

/// Returns the names of the tests in documentation.
pub(crate) fn list_doctests() -> Result<Vec<String>> {
    let mut asked = command("cargo", DOCTESTS);
    let answer = process::answer(asked.args(["--list", "--format=terse"]), None)?;
    process::succeeded(answer.status)?;
    Ok(names(&answer.text))
}

/// Runs the tests in documentation, which only cargo can. Returns their outcomes, and whether cargo found them good.
pub(crate) fn doctests(exist: &[String], log: &Path) -> Result<(Vec<Outcome>, Result)> {
    let status = Output::kept_in(log)?.run(&mut command("cargo", DOCTESTS));
    process::check_interrupted()?;
    let said = fs::read_to_string(log).at(log)?;
    let told = exist.iter().filter_map(|name| of_doctest(name, &said));
    Ok((told.collect(), status))
}

/// Fails if there is no outcome, or a failed one.
pub(crate) fn all_well(judged: &[Outcome]) -> Result {
    if judged.is_empty()
        || judged
            .iter()
            .any(|outcome| outcome.verdict == Verdict::Failed)
    {
        return Err(Failure::silent(1));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::Verdict::{Failed, Passed};
    use super::*;
    use crate::test_trees::{results, test};

    /// Returns the outcomes of the tests `a` and `b` of a script that plays a test program, and what was printed.
    fn run_script(script: &str, limit: Duration) -> (Vec<Outcome>, String) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("program");
        // Another process writes the file. If this process did, a third one that it is starting might hold the file open meanwhile.
        let write = "printf '#!/bin/sh\n%s\n' \"$1\" >\"$2\" && chmod 700 \"$2\"";
        let mut writer = command("sh", ["-c", write, "sh", script]);
        process::run(writer.arg(&path)).unwrap();
        let program = Program {
            id: "p::a".to_owned(),
            executable: path,
            directory: folder.path().to_owned(),
            source: "".into(),
            tests: vec![test("a"), test("b")],
        };
        let chosen = Chosen {
            program: &program,
            tests: program.tests.clone(),
        };
        let log = folder.path().join("step.log");
        let mut output = Output::unseen(&log).unwrap();
        let manner = Manner {
            profile: Profile::Default,
            threads: None,
            logs: folder.path(),
        };
        let found = by_itself(&Build::default(), &chosen, manner, limit, &mut output).unwrap();
        assert!(folder.path().join("p-a.out").exists());
        (found, fs::read_to_string(log).unwrap())
    }

    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn a_program_that_hangs_is_ended_and_its_tests_are_named() {
        let (found, said) = run_script("sleep 1000 & sleep 1000", Duration::from_secs(1));
        assert_eq!(results(&found), [("a", Failed), ("b", Failed)]);
        assert!(found[1].why.contains("ended after 1 s"), "{found:?}");
        assert!(said.starts_with("\nFAIL p::a: 0 of 2 tests, "), "{said}");
        assert!(said.contains(" s (was ended after 1 s)"), "{said}");
    }

    #[test]
    fn a_program_that_dies_fails_the_tests_without_a_result() {
        let (found, said) = run_script("echo 'test a ... ok'; kill -ABRT $$", LONG);
        assert_eq!(results(&found), [("a", Passed), ("b", Failed)]);
        assert!(said.ends_with("(was ended by signal 6)\n"), "{said}");
        let (found, _) = run_script("echo 'test a ... ok'; exit 3", LONG);
        assert_eq!(results(&found), [("a", Passed), ("b", Failed)]);
    }

    #[test]
    fn a_program_whose_tests_pass_is_one_line() {
        let end = "printf 'test a ... ok\ntest b ... ok\n\nsuccesses:\n    a\n    b\n\ntest result: ok.\n'";
        let (found, said) = run_script(end, LONG);
        assert_eq!(results(&found), [("a", Passed), ("b", Passed)]);
        assert!(said.starts_with("ok   p::a: 2 of 2 tests, "), "{said}");
        assert!(said.ends_with(" s\n"), "{said}");
    }

    #[test]
    fn the_end_of_a_text_begins_with_a_whole_character() {
        assert_eq!(last_of("aäb", 2), "b");
        assert_eq!(last_of("ab", 20), "ab");
    }
}
