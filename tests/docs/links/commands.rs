//! Tests and commands of `./x` that the documents name exist. `crates/wv/tests/documents.rs` asks `wv` for its own.

use std::collections::BTreeSet;
use std::fs;

use super::{documents, root};

/// Test targets that a text asks cargo for, each with its package; none: whatever package has it.
fn targets(text: &str) -> Vec<(Option<&str>, &str)> {
    let commands = text.split("cargo test ").skip(1);
    let commands = commands.filter_map(|rest| rest.split(['`', '\n', '&', ';']).next());
    commands
        .filter_map(|command| {
            let word = |option: &str| {
                let mut words = command.split_whitespace();
                words.find(|word| *word == option)?;
                words.next()
            };
            Some((word("-p"), word("--test")?))
        })
        .collect()
}

/// Returns whether the package has a target of that name: in its manifest, or in a file where cargo finds it.
fn has_target(package: Option<&str>, name: &str) -> bool {
    let directory = match package {
        None | Some("warpverbs") => root().to_owned(),
        Some("warpverbs-capi") => root().join("crates/capi"),
        Some(package) => root().join("crates").join(package),
    };
    let manifest = fs::read_to_string(directory.join("Cargo.toml")).unwrap_or_default();
    let tests = directory.join("tests");
    manifest.contains(&format!("[[test]]\nname = \"{name}\""))
        || tests.join(format!("{name}.rs")).exists()
        || tests.join(name).join("main.rs").exists()
}

/// Commands of `./x` that a text names.
fn commands_of_x(text: &str) -> Vec<&str> {
    let named = text.split("./x ").skip(1);
    let words = named.filter_map(|rest| rest.split(|c: char| !c.is_ascii_lowercase()).next());
    words.filter(|word| !word.is_empty()).collect()
}

#[test]
fn every_command_that_documents_name_exists() {
    let help = fs::read_to_string(root().join("crates/xtask/src/help.txt")).unwrap();
    let known: BTreeSet<&str> = commands_of_x(&help).into_iter().collect();
    let mut found = Vec::new();
    let mut count = 0;
    for document in documents() {
        let text = fs::read_to_string(&document).unwrap();
        let (targets, commands) = (targets(&text), commands_of_x(&text));
        count += targets.len() + commands.len();
        let targets = targets
            .iter()
            .filter(|(package, name)| !has_target(*package, name));
        found.extend(targets.map(|target| format!("{}: no test {target:?}", document.display())));
        let commands = commands.iter().filter(|name| !known.contains(*name));
        found.extend(commands.map(|name| format!("{}: no ./x {name}", document.display())));
    }
    assert!(found.is_empty(), "\n{}\n", found.join("\n"));
    assert!(count >= 40, "only {count} commands found");
}

#[test]
fn commands_that_do_not_exist_are_found() {
    let text = "`cargo test -p wv --test nothing`, cargo test --test links\n`./x tset` and `./x demo --ranks 2`";
    assert_eq!(targets(text), [(Some("wv"), "nothing"), (None, "links")]);
    assert!(!has_target(Some("wv"), "nothing") && !has_target(Some("nothing"), "links"));
    assert!(has_target(None, "links") && has_target(Some("wv"), "demo"));
    assert_eq!(commands_of_x(text), ["tset", "demo"]);
}
