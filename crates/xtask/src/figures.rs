//! `./x figures [NAME]`: takes the figures that the documents show. It writes them below docs/figures with command, date, commit and
//! machine. `tests/docs/figures` renders the tables of the pages from these files.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::thread::available_parallelism;

use serde_json::{Value, json};

use crate::failure::{At, Failure, Result};
use crate::kernels;
use crate::perftest;
use crate::process::{answer, check_interrupted, command, run, succeeded, text_of};
use crate::python;
use crate::steps::LOGS;
use crate::tree::{build, git, prepare, target};

const FOLDER: &str = "docs/figures";

/// The sources of each file of figures. `python` needs what `./x test python` installs, and `test` needs a run of `./x test` on this
/// commit.
const FIGURES: &[(&str, &[Source])] = &[
    ("moe-step", &[Source::Bench("bench moe")]),
    (
        "group",
        &[
            Source::Bench("bench group --ranks 4,64,512 --deaths 10"),
            Source::Bench("bench group --ranks 1024 --deaths 3 --lease-ms 4000 --crash-loops 0"),
            Source::Bench("bench group --store etcd --ranks 64 --deaths 50"),
        ],
    ),
    (
        "chaos",
        &[
            Source::Chaos("chaos --ranks 8 --kills-only --deeds 50 --seed 8"),
            Source::Chaos("chaos --ranks 6 --minutes 2 --seed 1"),
            Source::Chaos("chaos --ranks 6 --minutes 2 --seed 2 --etcd 1"),
            Source::Chaos("chaos --ranks 6 --minutes 2 --seed 3 --etcd 3 --at-once 3"),
        ],
    ),
    ("demo", &[Source::Lines("target/debug/wv demo")]),
    ("test", &[Source::LastTest]),
    ("put", &[Source::Sass("--arch 90")]),
    ("python", &[Source::Python("warpverbs.bench")]),
    (
        "engine",
        &[
            Source::Bench("bench p2p --device sink"),
            Source::Bench("bench p2p --device softhca"),
            Source::Bench("bench p2p --path local"),
            Source::Bench("bench p2p --pattern kv"),
            Source::Bench("bench p2p --pattern weights"),
            Source::Bench("bench p2p --pattern fill"),
        ],
    ),
    (
        "engine-beside",
        &[
            Source::Bench("bench engine"),
            Source::Bench("bench fill --rails 4 --repeats 400"),
            Source::Bench(
                "bench fill --rails 4 --in-flight 1024 --repeats 200 --fault delay=2ms..2ms@100%",
            ),
        ],
    ),
    ("perftest", &[Source::Perftest]),
    (
        "softhca",
        &[
            Source::Lines("cargo bench -p softhca --bench speed"),
            Source::Lines("cargo bench -p softhca --bench pollers"),
        ],
    ),
];

/// A source of figures.
enum Source {
    /// The words after `wv` of a command that takes `--json FILE`.
    Bench(&'static str),
    /// The words after `wv` of a command that takes `--json` and prints JSON. From each list of times the file gets number, median, 99% and
    /// largest.
    Chaos(&'static str),
    /// A command whose output lines are the figures.
    Lines(&'static str),
    /// A module of the Python package whose output lines are the figures.
    Python(&'static str),
    /// The words after `./x sass`.
    Sass(&'static str),
    /// The last lines of the last `./x test`. A test run takes too long to be started for figures.
    LastTest,
    /// A run of perftest beside the host engine.
    Perftest,
}

/// Takes the figures of this name, or all figures.
pub(crate) fn figures(name: Option<&str>) -> Result {
    let wanted = |figure: &&(&str, &[Source])| name.is_none_or(|name| name == figure.0);
    let all: Vec<_> = FIGURES.iter().filter(wanted).collect();
    if all.is_empty() {
        let names: Vec<&str> = FIGURES.iter().map(|figure| figure.0).collect();
        let names = names.join(", ");
        let name = name.unwrap_or_default();
        return Err(Failure::new(
            2,
            format!("figures '{name}': it must be one of {names}"),
        ));
    }
    let set = origin()?;
    prepare("test")?;
    build()?;
    fs::create_dir_all(FOLDER).at(FOLDER)?;
    for (name, runs) in all {
        take(name, runs, &set)?;
    }
    Ok(())
}

/// Returns commit, date and machine of the figures.
fn origin() -> Result<Value> {
    let date = text_of(command("date", ["-u", "+%Y-%m-%d"]).env("LC_ALL", "C"))?;
    let cores = available_parallelism().at("the number of cores")?;
    Ok(json!({
        "commit": commit_of_main(Path::new("."))?,
        "date": date.trim(),
        "machine": format!("{cores} cores, {} {}", std::env::consts::OS, std::env::consts::ARCH),
    }))
}

/// Returns the commit that is checked out. It must be on main, because commits of a branch vanish when the branch is rebased. The files
/// must be those of that commit, except the files that this command writes: files of figures, and pages.
fn commit_of_main(tree: &Path) -> Result<String> {
    let tree = tree.display().to_string();
    let ask = |words: &[&str]| -> Result<String> {
        let said = git(&[&["-C", &tree], words].concat())?;
        let why = "figures name the commit that they are of, and git does not name one here";
        said.ok_or_else(|| Failure::new(1, why))
    };
    let commit = ask(&["rev-parse", "--short=10", "HEAD"])?.trim().to_owned();
    let files = [":/", ":(top,exclude)docs/figures", ":(exclude,glob)**/*.md"];
    let changed = ask(&[&["status", "--porcelain", "--"], &files[..]].concat())?;
    if !changed.is_empty() {
        return Err(Failure::new(
            1,
            format!(
                "figures of {commit} need its files, and these differ: commit or stash them\n{}",
                changed.trim_end()
            ),
        ));
    }
    let main = ["refs/heads/main", "refs/remotes/origin/main"];
    let of_main = [&["for-each-ref", "--contains", "HEAD"], &main[..]].concat();
    if ask(&of_main)?.is_empty() {
        return Err(Failure::new(
            1,
            format!(
                "{commit} is not on main, so it may vanish: figures are taken at a commit of main"
            ),
        ));
    }
    Ok(commit)
}

fn take(name: &str, sources: &[Source], origin: &Value) -> Result {
    let runs: Result<Vec<Value>> = sources.iter().map(Source::take).collect();
    let mut all = origin.clone();
    all["runs"] = Value::Array(runs?);
    let file = Path::new(FOLDER).join(format!("{name}.json"));
    fs::write(&file, format!("{all:#}\n")).at(&file)?;
    println!(
        "{}: UPDATE=1 cargo test -p warpverbs --test figures renders it",
        file.display()
    );
    Ok(())
}

impl Source {
    fn take(&self) -> Result<Value> {
        match self {
            Self::Bench(words) => {
                let file = target().join("figures.json");
                run(wv(words)?.arg("--json").arg(&file))?;
                let text = fs::read_to_string(&file).at(&file)?;
                Ok(json!({ "command": format!("wv {words}"), "result": parsed(&text)? }))
            }
            Self::Chaos(words) => {
                let text = printed(wv(words)?.arg("--json"))?;
                let result = summary(parsed(&text)?);
                Ok(json!({ "command": format!("wv {words}"), "result": result }))
            }
            Self::Lines(line) => {
                println!("{line}");
                let (program, words) = line.split_once(' ').unwrap_or((line, ""));
                let lines = lines(&mut command(program, words.split(' ')))?;
                let shown = line.trim_start_matches("target/debug/");
                Ok(json!({ "command": shown, "lines": lines }))
            }
            Self::Python(module) => {
                let shown = format!("python -m {module}");
                println!("{shown}");
                let lines = lines(&mut python::module(module)?)?;
                Ok(json!({ "command": shown, "lines": lines }))
            }
            Self::Perftest => {
                println!("{}", perftest::SHOWN);
                Ok(json!({ "command": perftest::SHOWN, "result": perftest::measure()? }))
            }
            Self::Sass(words) => {
                let shown = format!("./x sass {words}");
                println!("{shown}");
                let file = target().join("figures.json");
                let words = words.split(' ').map(str::to_owned);
                let to = ["--json".to_owned(), file.display().to_string()];
                kernels::sass(&words.chain(to).collect::<Vec<_>>())?;
                let text = fs::read_to_string(&file).at(&file)?;
                Ok(json!({ "command": shown, "result": parsed(&text)? }))
            }
            Self::LastTest => {
                let logs = Path::new(LOGS);
                let of_what = fs::read_to_string(logs.join("tests.commit")).unwrap_or_default();
                let head = git(&["rev-parse", "HEAD"])?.unwrap_or_default();
                let command = last_run(of_what.trim(), head.trim())?;
                let file = logs.join("tests.lines");
                let text = fs::read_to_string(&file).at(&file)?;
                let lines: Vec<&str> = text.lines().collect();
                Ok(json!({ "command": command, "lines": lines }))
            }
        }
    }
}

/// Returns the command of the last test run, which must be of this commit, without changes.
fn last_run(of_what: &str, head: &str) -> Result<&'static str> {
    match of_what.split_once(' ') {
        Some(("test", commit)) if commit == head => Ok("./x test"),
        Some(("quick", commit)) if commit == head => Ok("./x test quick"),
        _ => Err(Failure::new(
            1,
            format!(
                "the last run of tests was '{of_what}'; it must be 'test {head}' or 'quick {head}'"
            ),
        )),
    }
}

fn wv(words: &str) -> Result<Command> {
    println!("wv {words}");
    check_interrupted()?;
    Ok(command(target().join("wv"), words.split(' ')))
}

fn lines(command: &mut Command) -> Result<Vec<String>> {
    Ok(printed(command)?.lines().map(str::to_owned).collect())
}

fn printed(command: &mut Command) -> Result<String> {
    let answer = answer(command, None)?;
    succeeded(answer.status)?;
    Ok(answer.text)
}

fn parsed(text: &str) -> Result<Value> {
    serde_json::from_str(text).map_err(|error| Failure::new(1, format!("the figures: {error}")))
}

/// Returns `result` with number, median, 99% and largest in the place of each list of whole numbers.
fn summary(mut result: Value) -> Value {
    for (_, value) in result.as_object_mut().into_iter().flatten() {
        let Some(list) = value.as_array() else {
            continue;
        };
        let mut times: Vec<u64> = list.iter().filter_map(Value::as_u64).collect();
        times.sort_unstable();
        // The index of the smallest time that is at least as long as `percent` percent of all.
        let at = |percent: usize| times.get((times.len() * percent).div_ceil(100).max(1) - 1);
        *value = json!({ "count": times.len(), "p50": at(50), "p99": at(99), "max": times.last() });
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_of_no_figures_is_refused_with_those_there_are() {
        let error = figures(Some("speed")).unwrap_err();
        assert_eq!(error.status, 2);
        let words = error.to_string();
        assert_eq!(
            words,
            "figures 'speed': it must be one of moe-step, group, chaos, demo, test, put, python, engine, engine-beside, perftest, softhca"
        );
    }

    #[test]
    fn figures_are_of_a_commit_of_main_and_of_its_files() {
        let folder = tempfile::tempdir().unwrap();
        let tree = folder.path();
        let git = |words: &str| {
            let own = ["-c", "user.name=n", "-c", "user.email=e", "-C"];
            let mut git = command("git", own);
            run(git.arg(tree).args(words.split(' '))).unwrap();
        };
        let write = |name: &str| {
            let path = tree.join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "text").unwrap();
        };
        let refused = |words: &str| {
            let error = commit_of_main(tree).unwrap_err().to_string();
            assert!(error.contains(words), "{error}");
        };
        refused("git does not name one");
        git("init -q -b main");
        write("a.rs");
        git("add .");
        git("commit -q -m one");
        assert_eq!(commit_of_main(tree).unwrap().len(), 10);
        for written in ["docs/figures/demo.json", "README.md", "docs/cost.md"] {
            write(written);
        }
        assert_eq!(commit_of_main(tree).unwrap().len(), 10);
        write("b.rs");
        refused("b.rs");
        git("checkout -q -b other");
        git("add .");
        git("commit -q -m two");
        refused("not on main");
        git("branch -q -f main");
        commit_of_main(tree).unwrap();
    }

    #[test]
    fn the_last_run_must_be_all_tests_of_the_commit_that_is_named() {
        assert_eq!(last_run("test 1234", "1234").unwrap(), "./x test");
        assert_eq!(last_run("quick 1234", "1234").unwrap(), "./x test quick");
        for other in ["", "full 1234", "test 1235", "quick 1234 changed"] {
            let error = last_run(other, "1234").unwrap_err().to_string();
            let words = format!(
                "the last run of tests was '{other}'; it must be 'test 1234' or 'quick 1234'"
            );
            assert_eq!(error, words);
        }
    }

    #[test]
    fn lists_of_times_become_their_summary() {
        let times: Vec<u64> = (1..=200).rev().collect();
        let found = summary(json!({ "deaths": 3, "detect": times, "one": [7], "none": [] }));
        let of = |count: u64, p50: Option<u64>, p99: Option<u64>, max: Option<u64>| json!({ "count": count, "p50": p50, "p99": p99, "max": max });
        assert_eq!(found["deaths"], 3);
        assert_eq!(found["detect"], of(200, Some(100), Some(198), Some(200)));
        assert_eq!(found["one"], of(1, Some(7), Some(7), Some(7)));
        assert_eq!(found["none"], of(0, None, None, None));
    }
}
