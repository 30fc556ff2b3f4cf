//! docs/ is a book: SUMMARY.md lists every page once and no other file, and the front pages are short.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// More is no map.
const MOST_BYTES_OF_THE_MAP: usize = 10_000;

fn docs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("docs")
}

/// Pages below docs/, by their path within it; SUMMARY.md does not count.
fn pages() -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut folders = vec![docs()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.strip_prefix(docs()).unwrap().to_str().unwrap();
            if path.is_dir() {
                folders.push(path);
            } else if name.ends_with(".md") && name != "SUMMARY.md" {
                found.insert(name.to_owned());
            }
        }
    }
    found
}

/// The pages that a summary lists, in its order.
fn entries(summary: &str) -> Vec<String> {
    let links = summary.split("](").skip(1);
    let targets = links.filter_map(|rest| rest.split_once(')'));
    targets.map(|(target, _)| target.to_owned()).collect()
}

/// The defects of a summary of these pages.
fn faults(summary: &str, pages: &BTreeSet<String>) -> Vec<String> {
    let mut seen = BTreeSet::new();
    let mut found = Vec::new();
    for entry in entries(summary) {
        if !pages.contains(&entry) {
            found.push(format!(
                "SUMMARY.md lists {entry}, which is no page of docs/"
            ));
        }
        if !seen.insert(entry.clone()) {
            found.push(format!("SUMMARY.md lists {entry} twice"));
        }
    }
    let missing = pages.difference(&seen);
    found.extend(missing.map(|page| format!("docs/{page} is not in SUMMARY.md")));
    found
}

fn summary() -> String {
    fs::read_to_string(docs().join("SUMMARY.md")).unwrap()
}

#[test]
fn the_summary_lists_every_page_once() {
    let found = faults(&summary(), &pages());
    assert!(found.is_empty(), "\n{}\n", found.join("\n"));
    assert!(pages().len() >= 30, "only {} pages found", pages().len());
}

#[test]
fn pages_that_a_summary_lacks_invents_or_repeats_are_found() {
    let pages: BTreeSet<String> = ["a.md", "b/c.md"].map(str::to_owned).into();
    assert_eq!(faults("- [A](a.md)\n    - [C](b/c.md)\n", &pages), [""; 0]);
    for (planted, fault) in [
        ("[A](a.md)", "docs/b/c.md is not in SUMMARY.md"),
        (
            "[A](a.md) [C](b/c.md) [D](d.md)",
            "SUMMARY.md lists d.md, which is no page of docs/",
        ),
        (
            "[A](a.md) [C](b/c.md) [A](a.md)",
            "SUMMARY.md lists a.md twice",
        ),
    ] {
        assert_eq!(faults(planted, &pages), [fault]);
    }
}

/// mdBook makes index.html of it, so the links that a forge follows need a redirection.
#[test]
fn each_readme_below_a_folder_has_its_redirection() {
    let book = fs::read_to_string(docs().join("book.toml")).unwrap();
    let pages = pages();
    let inner = pages.iter().filter(|page| page.ends_with("/README.md"));
    for page in inner {
        let html = page.replace(".md", ".html");
        let line = format!("\"/{html}\" = \"index.html\"");
        assert!(book.contains(&line), "docs/book.toml lacks {line}");
    }
}

#[test]
fn each_page_begins_with_its_title() {
    for page in pages() {
        let text = fs::read_to_string(docs().join(&page)).unwrap();
        assert!(text.starts_with("# "), "docs/{page} has no title");
    }
}

/// The headings of a decision, in this order.
const PARTS_OF_A_DECISION: [&str; 3] = ["## What", "## Why", "## Rejected"];

/// Returns what a page of a decision lacks, or has too much.
fn faults_of_a_decision(page: &str) -> Vec<String> {
    let headings = page.lines().filter(|line| line.starts_with("##"));
    let headings: Vec<&str> = headings.collect();
    if headings != PARTS_OF_A_DECISION {
        return vec![format!(
            "has the headings {headings:?}; they must be {PARTS_OF_A_DECISION:?}"
        )];
    }
    let parts = page.split("\n## ").skip(1);
    let empty = parts.filter_map(|part| {
        let (heading, text) = part.split_once('\n').unwrap_or((part, ""));
        text.trim().is_empty().then_some(heading)
    });
    empty
        .map(|heading| format!("has nothing below {heading}"))
        .collect()
}

#[test]
fn each_decision_has_what_why_and_rejected_and_is_in_the_index() {
    let index = fs::read_to_string(docs().join("design/decisions.md")).unwrap();
    let pages = pages();
    let of_decisions: Vec<&String> = pages
        .iter()
        .filter(|page| page.starts_with("design/decisions/"))
        .collect();
    for page in &of_decisions {
        let text = fs::read_to_string(docs().join(page)).unwrap();
        assert_eq!(faults_of_a_decision(&text), [""; 0], "docs/{page}");
        let link = format!("]({})", page.trim_start_matches("design/"));
        assert!(index.contains(&link), "docs/design/decisions.md: no {link}");
    }
    assert!(of_decisions.len() >= 15, "only {}", of_decisions.len());
}

#[test]
fn decisions_that_lack_a_part_are_found() {
    let whole = "# A\n\n## What\n\nA.\n\n## Why\n\nB.\n\n## Rejected\n\n- C.\n";
    assert_eq!(faults_of_a_decision(whole), [""; 0]);
    for (planted, fault) in [
        (whole.replace("## Rejected\n\n- C.\n", ""), "headings"),
        (whole.replace("## Why", "## More"), "headings"),
        (whole.replace("- C.", ""), "has nothing below Rejected"),
    ] {
        let found = faults_of_a_decision(&planted);
        assert!(found.len() == 1 && found[0].contains(fault), "{found:?}");
    }
}

#[test]
fn the_map_of_the_architecture_is_short() {
    let bytes = include_str!("../../ARCHITECTURE.md").len();
    assert!(
        bytes <= MOST_BYTES_OF_THE_MAP,
        "ARCHITECTURE.md has {bytes} bytes, at most {MOST_BYTES_OF_THE_MAP} are allowed: move a part to docs/design"
    );
}

/// The kinds that the rows of the tables of `page` begin with.
fn kinds_on(page: &str) -> BTreeSet<String> {
    let rows = page.lines().filter_map(|line| line.strip_prefix("| `"));
    let kinds = rows.filter_map(|row| row.split_once("` |"));
    kinds.map(|(kind, _)| kind.to_owned()).collect()
}

#[test]
fn the_page_of_newcomers_has_each_event_of_a_group_with_a_remedy() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let events = fs::read_to_string(root.join("src/membership/event.rs")).unwrap();
    // The compiler sees to it that this function names every kind.
    let names = events.split_once("pub fn name(").expect("it is there").1;
    let names = names.split_once("\n    }\n").expect("it ends").0;
    let arms = names.lines().filter_map(|line| line.split_once("=> \""));
    let kinds: BTreeSet<String> = arms
        .filter_map(|(_, name)| Some(name.split_once('"')?.0.to_owned()))
        .collect();
    assert!(kinds.len() >= 23, "{kinds:?}");
    let page = fs::read_to_string(docs().join("newcomer.md")).unwrap();
    let there = kinds_on(&page);
    let missing: Vec<_> = kinds.difference(&there).collect();
    assert!(
        missing.is_empty(),
        "docs/newcomer.md has no row of {missing:?}"
    );
    for row in page.lines().filter(|line| line.starts_with("| `")) {
        let cells: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
        let is_whole = cells.len() == 3 && cells.iter().all(|cell| !cell.is_empty());
        assert!(is_whole, "a row says kind, meaning and what to do: {row}");
    }
    let planted = kinds_on("| event | it |\n|---|---|\n| `waits` | a | b |\n");
    assert_eq!(planted, ["waits".to_owned()].into());
}
