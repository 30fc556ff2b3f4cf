//! docs/walks.md: each file of a step has the function that the step names, and a walk is short.

use std::collections::BTreeSet;
use std::path::Path;

const WALKS: &str = include_str!("../../docs/walks.md");
const MOST_FILES: usize = 8;

/// One row of a walk's table.
struct Step<'a> {
    file: &'a str,
    function: &'a str,
}

/// The walks of a text, by heading.
fn walks(text: &str) -> Vec<(&str, Vec<Step<'_>>)> {
    let sections = text.split("\n## ").skip(1);
    sections
        .map(|section| (section.lines().next().unwrap_or(""), steps(section)))
        .collect()
}

fn steps(section: &str) -> Vec<Step<'_>> {
    let rows = section.lines().filter(|line| line.starts_with('|')).skip(2);
    rows.map(|row| {
        let quoted: Vec<&str> = row.split('`').skip(1).step_by(2).collect();
        let [file, function] = quoted[..] else {
            panic!("a row names a file and a function: {row}");
        };
        Step { file, function }
    })
    .collect()
}

/// Returns whether `text` defines `function`: `fn put(` or `fn put<`, or in CUDA C++ ` put(` on a line of a device function.
fn defines(text: &str, function: &str) -> bool {
    text.lines().any(|line| {
        let rust = [format!("fn {function}("), format!("fn {function}<")];
        let cuda = line.contains("WV_DEVICE") && line.contains(&format!(" {function}("));
        cuda || rust.iter().any(|start| line.contains(start))
    })
}

fn faults(text: &str, root: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for (name, steps) in walks(text) {
        let files: BTreeSet<&str> = steps.iter().map(|step| step.file).collect();
        if files.len() > MOST_FILES || steps.is_empty() {
            let count = files.len();
            found.push(format!(
                "{name}: {count} files, 1 to {MOST_FILES} are allowed"
            ));
        }
        for Step { file, function } in &steps {
            match std::fs::read_to_string(root.join(file)) {
                Ok(code) if defines(&code, function) => {}
                Ok(_) => found.push(format!("{name}: {file} has no function {function}")),
                Err(error) => found.push(format!("{name}: {file}: {error}")),
            }
        }
    }
    found
}

#[test]
fn each_step_of_a_walk_is_where_it_says() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let found = faults(WALKS, root);
    assert!(found.is_empty(), "\n{}\n", found.join("\n"));
    let names: Vec<&str> = walks(WALKS).iter().map(|(name, _)| *name).collect();
    let expected = [
        "A put",
        "A dispatch",
        "A rejoin",
        "A WRITE of the host engine",
    ];
    assert_eq!(names, expected);
}

#[test]
fn steps_that_are_elsewhere_and_walks_that_are_long_are_found() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    for (from, to, words) in [
        ("`admit`", "`admits`", "has no function admits"),
        ("sq.cuh", "no.cuh", "no.cuh: No such file"),
        ("| `choose` |", "| `begin` |", "has no function begin"),
    ] {
        assert!(WALKS.contains(from), "{from} is planted nowhere");
        let found = faults(&WALKS.replacen(from, to, 1), root);
        assert!(
            found.len() == 1 && found[0].contains(words),
            "{to}: {found:?}"
        );
    }
    let row = |n: usize| format!("| s | `{n}` | `f` |\n");
    let rows: String = (0..=MOST_FILES).map(row).collect();
    let long = format!("\n## Long\n| a | b | c |\n|---|---|---|\n{rows}");
    assert!(faults(&long, root)[0].contains("9 files"), "{long}");
}
