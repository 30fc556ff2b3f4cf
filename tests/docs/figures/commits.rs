//! Figures name a commit of this repository, of whose files they are. `./x figures` takes them at a commit of main from files without
//! changes. Older ones say what is not so: `changed`, and `gone` of a commit that this repository does not have.

use std::fs;
use std::process::Command;

use serde_json::Value;

use super::{GPU, figures, file, hardware, root, text};

/// Files of figures of which something is not so. None is to be added.
const GONE: &[&str] = &["demo", "moe-step", "put", "python", "softhca"];
const CHANGED: &[&str] = &["engine", "perftest", "put", "softhca"];

/// Names the commit of a file in a sentence.
pub(super) fn named(file: &Value) -> String {
    let commit = text(&file["commit"]);
    let changed = if is(file, "changed") {
        " with changes"
    } else {
        ""
    };
    let gone = if is(file, "gone") {
        " (which this repository no longer has)"
    } else {
        ""
    };
    format!("commit {commit}{changed}{gone}")
}

fn is(file: &Value, what: &str) -> bool {
    file[what].as_bool().unwrap_or(false)
}

/// Returns what git answers about this repository; `None` where it fails.
fn git(words: &[&str]) -> Option<String> {
    let asked = Command::new("git").current_dir(root()).args(words).output();
    let answer = asked.ok().filter(|answer| answer.status.success())?;
    Some(String::from_utf8_lossy(&answer.stdout).trim().to_owned())
}

/// Every file with a commit, by name.
fn files() -> Vec<(String, Value)> {
    let mut files = vec![(GPU.to_owned(), hardware::results(GPU))];
    for entry in fs::read_dir(figures()).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap().to_string_lossy().into_owned();
        let of_name = file(&name);
        if !of_name["commit"].is_null() {
            files.push((name, of_name));
        }
    }
    files
}

#[test]
fn figures_name_a_commit_that_this_one_comes_from() {
    match git(&["rev-parse", "--is-shallow-repository"]).as_deref() {
        Some("false") => {}
        Some(_) => return println!("skipped: commits of figures: this clone of git is shallow"),
        None => return println!("skipped: commits of figures: git has no repository here"),
    }
    let mut wrong = Vec::new();
    for (name, file) in files() {
        let commit = text(&file["commit"]);
        let is_ancestor = git(&["merge-base", "--is-ancestor", commit, "HEAD"]).is_some();
        match (is_ancestor, is(&file, "gone")) {
            (true, true) => wrong.push(format!("{name}: {commit} is there, and not gone")),
            (false, false) => wrong.push(format!("{name}: HEAD does not come from {commit}")),
            _ => {}
        }
    }
    assert!(
        wrong.is_empty(),
        "{wrong:#?}\nfigures are taken at a commit of main: ./x figures NAME"
    );
}

#[test]
fn no_more_figures_are_of_changed_files_or_of_a_commit_that_is_gone() {
    for (what, known) in [("changed", CHANGED), ("gone", GONE)] {
        let mut found: Vec<String> = files()
            .into_iter()
            .filter(|(_, file)| is(file, what))
            .map(|(name, _)| name)
            .collect();
        found.sort();
        assert_eq!(found, known, "{what}");
    }
}

#[test]
fn a_commit_is_named_with_what_is_not_so_of_it() {
    let of = |more: &str| {
        named(&serde_json::from_str(&format!("{{\"commit\": \"1a\"{more}}}")).unwrap())
    };
    assert_eq!(of(""), "commit 1a");
    assert_eq!(of(", \"changed\": true"), "commit 1a with changes");
    assert_eq!(
        of(", \"changed\": true, \"gone\": true"),
        "commit 1a with changes (which this repository no longer has)"
    );
}
