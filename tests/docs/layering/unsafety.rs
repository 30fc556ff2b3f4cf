//! docs/design/unsafe.md has a row for every module that opens `unsafe`, and for no other. Tests and examples need none.

use std::fs;

use super::scan::{Language, code_of, tokens};
use super::{Source, read_tree, root};

const PAGE: &str = "docs/design/unsafe.md";

/// The paths in the first column of the table.
fn rows(page: &str) -> Vec<String> {
    let cells = page
        .lines()
        .filter_map(|line| line.strip_prefix("| `")?.split(" | ").next());
    let paths = cells.flat_map(|cell| cell.split('`'));
    paths
        .map(|path| path.trim_end_matches('/'))
        .filter(|path| path.contains('/'))
        .map(str::to_owned)
        .collect()
}

/// Returns whether an attribute permits what the workspace denies.
fn opens(text: &str) -> bool {
    let tokens = tokens(&code_of(text, Language::Rust));
    let places = (0..tokens.len()).filter(|&at| tokens[at].text == "unsafe_code");
    places.into_iter().any(|at| {
        let mut before = tokens[..at].iter().rev().take_while(|t| t.text != "#");
        before.all(|t| t.text != "deny" && t.text != "forbid")
    })
}

/// Returns whether programs of users have this file.
fn is_shipped(path: &str) -> bool {
    let words: Vec<&str> = path.split('/').collect();
    match words[..] {
        ["src", ..] => true,
        ["crates", package, "src", ..] => !package.starts_with("test-"),
        _ => false,
    }
}

fn differences(page: &str, sources: &[Source]) -> Vec<String> {
    let rows = rows(page);
    let is_of = |path: &str, row: &str| {
        path.strip_prefix(row)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('/') || rest == ".rs")
    };
    let open: Vec<&str> = sources
        .iter()
        .filter(|source| is_shipped(&source.path) && opens(&source.text))
        .map(|source| source.path.as_str())
        .collect();
    let missing = open
        .iter()
        .filter(|path| !rows.iter().any(|row| is_of(path, row)));
    let missing = missing.map(|path| format!("{PAGE} lacks {path}, which opens unsafe"));
    let idle = rows
        .iter()
        .filter(|row| !open.iter().any(|path| is_of(path, row)));
    let idle = idle.map(|row| format!("{PAGE} has {row}, where nothing opens unsafe"));
    missing.chain(idle).collect()
}

#[test]
fn the_page_has_every_module_that_opens_unsafe_and_no_other() {
    let page = fs::read_to_string(root().join(PAGE)).unwrap();
    let found = differences(&page, &read_tree());
    assert!(found.is_empty(), "{found:#?}");
}

#[test]
fn a_module_that_the_page_lacks_and_one_too_many_are_found() {
    let page = "| module | why |\n|---|---|\n| `src/sys`, `crates/cli/src` | calls |\n| `src/idle` | `Pod` |\n";
    let open = "#![expect(unsafe_code, reason = \"calls\")]";
    let sources = [
        Source::new("src/sys/mod.rs", open),
        Source::new("src/sys.rs", open),
        Source::new("crates/cli/src/sim/child.rs", open),
        Source::new(
            "crates/bench/src/a.rs",
            "#[expect(\n    unsafe_code\n)]\nfn a() {}",
        ),
        Source::new(
            "src/idle/mod.rs",
            "#![forbid(unsafe_code)]\n// #![expect(unsafe_code)]",
        ),
        Source::new("src/system.rs", open),
        Source::new("tests/a.rs", open),
    ];
    assert_eq!(
        differences(page, &sources),
        [
            "docs/design/unsafe.md lacks crates/bench/src/a.rs, which opens unsafe",
            "docs/design/unsafe.md lacks src/system.rs, which opens unsafe",
            "docs/design/unsafe.md has src/idle, where nothing opens unsafe",
        ]
    );
}
