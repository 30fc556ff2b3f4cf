//! A run in parts and steps, with their times, its tests, and its last lines.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use crate::core_times::CoreTimes;
use crate::failure::{At, Failure, Result};
use crate::outcomes::{Outcome, Verdict};
use crate::output::Output;
use crate::parts::{ALL, Parts, budget_of, threads_of};
use crate::process::check_interrupted;
use crate::programs::{Build, Chosen, Test, Tree, not_built, unlisted_sources};
use crate::runners::{self, Manner, Profile};
use crate::skips::{self, Extent};
use crate::summary;
use crate::tree::{fresh_folder, git, is_changed, seconds_since};

/// The folder of what a run leaves: its logs, `tests.txt`, its last lines in `tests.lines`, and in `tests.commit` the kind of run and its
/// commit.
pub(crate) const LOGS: &str = "target/x-logs";

/// A run of `x` in parts and steps.
pub(crate) struct Run {
    name: String,
    part: Option<Part>,
    /// The lines of the report, one for each part.
    report: Vec<String>,
    failed: Vec<String>,
    /// The built test programs, by the name of the build.
    trees: BTreeMap<String, Tree>,
    outcomes: Vec<Outcome>,
}

/// A part that runs.
struct Part {
    name: String,
    start: Instant,
    cores: Option<CoreTimes>,
}

/// The tests of a build that a step runs.
pub(crate) struct Wanted<'a> {
    pub(crate) build: &'a str,
    pub(crate) part: &'a str,
    pub(crate) profile: Profile,
    /// Tests whose names contain one of these words count as skipped, with the reason `why`.
    pub(crate) left_out: &'a [&'a str],
    pub(crate) why: &'a str,
}

impl Run {
    pub(crate) fn start(name: &str) -> Result<Self> {
        fresh_folder(Path::new(LOGS))?;
        Ok(Self {
            name: name.to_owned(),
            part: None,
            report: Vec::new(),
            failed: Vec::new(),
            trees: BTreeMap::new(),
            outcomes: Vec::new(),
        })
    }

    /// Begins a part, and ends the part before it.
    pub(crate) fn part(&mut self, name: &str) {
        self.finish_parts();
        self.part = Some(Part {
            name: name.to_owned(),
            start: Instant::now(),
            cores: CoreTimes::now(),
        });
    }

    /// Ends the running part. Reports its seconds beside its budget, and how busy the cores were.
    pub(crate) fn finish_parts(&mut self) {
        let Some(Part { name, start, cores }) = self.part.take() else {
            return;
        };
        let budget = budget_of(&name).filter(|_| self.name == "test");
        let budget = budget.map_or(String::new(), |seconds| format!(" of {seconds} s"));
        let busy = cores.and_then(|cores| CoreTimes::now()?.since(&cores));
        let busy = busy.map_or(String::new(), |busy| format!("; {busy}"));
        let took = seconds_since(start);
        self.report
            .push(format!("{name:10} {took:4} s{budget}{busy}"));
    }

    /// Runs a step, and goes on after a failure, so that one run shows all failures. Returns whether the step went well. Fails if a signal
    /// has ended the run.
    pub(crate) fn step(
        &mut self,
        name: &str,
        does: impl FnOnce(&mut Self) -> Result,
    ) -> Result<bool> {
        println!("\n== {name}");
        let start = Instant::now();
        let result = does(self);
        check_interrupted()?;
        if let Err(failure) = &result {
            failure.say();
            self.failed.push(name.to_owned());
        }
        let outcome = if result.is_ok() { "ok" } else { "FAILED" };
        println!("== {name}: {outcome}, {} s", seconds_since(start));
        Ok(result.is_ok())
    }

    /// Runs a step that is one command, and keeps its output.
    pub(crate) fn step_of(&mut self, name: &str, log: &str, command: &mut Command) -> Result<bool> {
        self.step(name, |_| kept(log)?.run(command))
    }

    /// Fails if a step has failed.
    pub(crate) fn result(&self) -> Result {
        if self.failed.is_empty() {
            return Ok(());
        }
        Err(Failure::silent(1))
    }

    // ---- tests ----

    /// Builds and lists test programs.
    pub(crate) fn build_tests(&mut self, name: &str, build: Build) -> Result {
        let tree = Tree::made_by(build)?;
        tree.say_size();
        self.trees.insert(name.to_owned(), tree);
        Ok(())
    }

    /// Builds all tests, see [`all_tests`].
    pub(crate) fn build_all_tests(&mut self) -> Result {
        let (tree, is_whole) = all_tests()?;
        self.trees.insert("tests".to_owned(), tree);
        is_whole
    }

    /// Runs the tests of a part.
    pub(crate) fn run_part(&mut self, part: &str) -> Result {
        let profile = if wants_large_counts() {
            Profile::Full
        } else {
            Profile::Default
        };
        self.run_tests(&format!("{part}.log"), &Wanted::of_part(part, profile))
    }

    pub(crate) fn run_tests(&mut self, log: &str, wanted: &Wanted<'_>) -> Result {
        let mut output = kept(log)?;
        let tree = self.trees.get(wanted.build).ok_or_else(not_built)?;
        let mut selection = Parts::of_the_tests().select(tree, wanted.part)?;
        wanted.leave_out(&mut selection);
        let manner = Manner {
            profile: wanted.profile,
            threads: threads_of(wanted.part),
            logs: Path::new(LOGS),
        };
        let mut told = runners::run(tree, &selection, manner, &mut output)?;
        for outcome in &mut told {
            outcome.program = summary::labelled(&tree.build.label, &outcome.program);
        }
        let judged = summary::judge(&summary::expected(tree, &selection), told);
        for failed in judged
            .iter()
            .filter(|outcome| outcome.verdict == Verdict::Failed)
        {
            output.say(&format!(
                "x: {} {}: {}",
                failed.program, failed.test, failed.why
            ))?;
        }
        output.say(&format!("x: {}", summary::totals(&judged)))?;
        let well = runners::all_well(&judged);
        self.outcomes.extend(judged);
        well
    }

    /// Runs the tests in documentation.
    pub(crate) fn run_doctests(&mut self) -> Result {
        let exist = runners::list_doctests()?;
        let (told, status) = runners::doctests(&exist, &log_path("doctests.log"))?;
        let key = |name: &String| ("doc".to_owned(), name.clone());
        let as_test = |name: &String| Test {
            name: name.clone(),
            ignored: None,
        };
        let exist: Vec<_> = exist
            .iter()
            .map(|name| (key(name), as_test(name)))
            .collect();
        let judged = summary::judge(&exist, told);
        let well = judged
            .iter()
            .all(|outcome| outcome.verdict != Verdict::Failed);
        self.outcomes.extend(judged);
        status?;
        well.then_some(()).ok_or_else(|| Failure::silent(1))
    }

    /// Judges tests that another runner than cargo's has listed and run.
    pub(crate) fn judge(&mut self, exist: &[summary::Key], told: Vec<Outcome>) -> Result {
        let as_test = |key: &summary::Key| {
            let name = key.1.clone();
            let ignored = None;
            (key.clone(), Test { name, ignored })
        };
        let exist: Vec<_> = exist.iter().map(as_test).collect();
        let judged = summary::judge(&exist, told);
        println!("x: {}", summary::totals(&judged));
        let well = runners::all_well(&judged);
        self.outcomes.extend(judged);
        well
    }

    /// Compares the skipped tests with the list of this distribution. The run must have installed all that tests need.
    pub(crate) fn compare_skips(&mut self, extent: Extent) -> Result {
        self.step("expected skips", |run| {
            skips::compare(&run.outcomes, extent)
        })?;
        Ok(())
    }

    // ---- the last lines ----

    /// Prints the last line, in the form `x: N passed, N failed, N skipped`. Skipped tests are named above it. `tests.txt` gets the list of
    /// all tests, and `tests.commit` the kind of run and its commit. Fails if a step has failed, or if a test is missing.
    pub(crate) fn print_summary(&mut self) -> Result {
        println!();
        if !self.add_up()? {
            let why = "the tests that ran are not the tests that exist";
            self.failed.push(why.to_owned());
        }
        let of_what = format!("{} {}\n", self.name, commit()?);
        fs::write(log_path("tests.commit"), of_what).at(LOGS)?;
        let last = self.last_lines();
        fs::write(log_path("tests.lines"), &last).at(LOGS)?;
        print!("\n{last}");
        self.result()
    }

    /// Returns the time of each part, the failed steps, and the totals.
    fn last_lines(&self) -> String {
        let mut lines = self.report.clone();
        if !self.failed.is_empty() {
            lines.push(format!("FAILED:\n  {}", self.failed.join("\n  ")));
        }
        lines.push(format!("x: {}\n", summary::totals(&self.outcomes)));
        lines.join("\n")
    }

    /// Adds up the outcomes of all tests. Returns whether each test ran once and at least one has passed.
    fn add_up(&mut self) -> Result<bool> {
        let again = summary::twice(&self.outcomes);
        let lost = summary::not_run(self.trees.values(), &self.outcomes);
        let all_ran = lost.is_empty();
        let lost = lost
            .iter()
            .map(|(program, test)| Outcome::failed(program, test, "did not run"));
        self.outcomes.extend(lost);
        fs::write(log_path("tests.txt"), summary::list(&self.outcomes)).at(LOGS)?;
        println!("{}", summary::told(&self.outcomes));
        for (program, test) in &again {
            println!("x: {program} {test} ran twice");
        }
        let one_passed = self
            .outcomes
            .iter()
            .any(|outcome| outcome.verdict == Verdict::Passed);
        if !one_passed {
            println!("x: no test passed");
        }
        Ok(all_ran && again.is_empty() && one_passed)
    }

    /// Prints the last lines of several runs of a part: how often each test has failed.
    pub(crate) fn print_failures(&self) {
        println!("\n{}", summary::failures(&self.outcomes));
        println!("x: {}", summary::totals(&self.outcomes));
    }
}

impl<'a> Wanted<'a> {
    /// Returns the tests of a part, of the build of all tests.
    pub(crate) fn of_part(part: &'a str, profile: Profile) -> Self {
        Self {
            build: "tests",
            part,
            profile,
            left_out: &[],
            why: "",
        }
    }

    /// Returns all tests of a build.
    pub(crate) fn all_of(build: &'a str, profile: Profile) -> Self {
        Self {
            build,
            ..Self::of_part(ALL, profile)
        }
    }

    /// Treats tests that are left out as ignored, so that they are listed as skipped.
    fn leave_out(&self, selection: &mut [Chosen<'_>]) {
        for test in selection.iter_mut().flat_map(|one| &mut one.tests) {
            let named = self.left_out.iter().any(|word| test.name.contains(word));
            if named && test.ignored.is_none() {
                test.ignored = Some(format!("is left out {}", self.why));
            }
        }
    }
}

/// Builds all tests in one build, with the features that all packages choose together, as `cargo test --workspace` does. The second result
/// says if every source has a program, and every test one part.
pub(crate) fn all_tests() -> Result<(Tree, Result)> {
    let tree = Tree::made_by(workspace(&[]))?;
    tree.say_size();
    let missing = unlisted_sources(&tree.programs, Path::new("."))?.into_iter();
    let missing =
        missing.map(|path| format!("{path} is not among the test programs that cargo builds"));
    let faults: Vec<_> = missing.chain(Parts::of_the_tests().faults(&tree)).collect();
    for fault in &faults {
        println!("x: {fault}");
    }
    let is_whole = faults.is_empty().then_some(());
    Ok((tree, is_whole.ok_or_else(|| Failure::silent(1))))
}

/// Returns the setting of a build of all packages of the workspace.
pub(crate) fn workspace(arguments: &[&str]) -> Build {
    let arguments = ["--workspace"].iter().chain(arguments);
    Build {
        arguments: arguments.map(|&argument| argument.to_owned()).collect(),
        ..Build::default()
    }
}

/// Returns whether tests run with the large counts, which takes hours.
pub(crate) fn wants_large_counts() -> bool {
    std::env::var_os("WV_TEST_FULL").is_some_and(|value| !value.is_empty())
}

pub(crate) fn kept(log: &str) -> Result<Output> {
    Output::kept_in(&log_path(log))
}

fn log_path(name: &str) -> PathBuf {
    Path::new(LOGS).join(name)
}

/// Returns this commit, with a mark if files differ from it.
fn commit() -> Result<String> {
    let head = git(&["rev-parse", "HEAD"])?;
    let head = head.as_deref().map_or("unknown", str::trim);
    let changed = if is_changed()? { " changed" } else { "" };
    Ok(format!("{head}{changed}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_trees::{ignored, program, test};

    #[test]
    fn tests_that_are_left_out_by_name_are_skipped_with_the_reason() {
        let tree = Tree {
            programs: vec![program(
                "p",
                vec![test("a_70_000"), test("b"), ignored("c_70_000", "GPU")],
            )],
            ..Tree::default()
        };
        let mut selection = tree.all();
        let wanted = Wanted {
            left_out: &["70_000"],
            why: "under tsan",
            ..Wanted::all_of("tsan", Profile::Sanitize)
        };
        wanted.leave_out(&mut selection);
        let reasons: Vec<_> = selection[0]
            .tests
            .iter()
            .map(|t| t.ignored.as_deref())
            .collect();
        assert_eq!(reasons, [Some("is left out under tsan"), None, Some("GPU")]);
    }
}
