//! Test programs of `tests/` and their entries in Cargo.toml, which does not look for them itself.

use super::root;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// The programs below a folder, by path. If the folder has a `main.rs`, that is the only program, and the other files are its
/// modules. Otherwise every file is a program, and so are those of the folders below.
fn programs_in(folder: &Path) -> Vec<String> {
    let name = |path: &Path| path.strip_prefix(root()).unwrap().display().to_string();
    if folder.join("main.rs").exists() {
        return vec![name(&folder.join("main.rs"))];
    }
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(programs_in(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(name(&path));
        }
    }
    found
}

/// The paths of the `[[test]]` entries of a manifest.
fn entries(manifest: &str) -> Vec<String> {
    let tables = manifest.split("\n[[test]]\n").skip(1);
    let path = |table: &str| {
        let lines = table.lines().take_while(|line| !line.starts_with('['));
        let path = lines.filter_map(|line| line.strip_prefix("path = ")).next();
        path.expect("an entry has a path")
            .trim_matches('"')
            .to_owned()
    };
    tables.map(path).collect()
}

/// Programs without an entry: their tests would never run.
fn missing(manifest: &str) -> Vec<String> {
    let named: BTreeSet<String> = entries(manifest).into_iter().collect();
    let mut programs = programs_in(&root().join("tests"));
    programs.sort();
    programs.retain(|program| !named.contains(program));
    programs
}

fn manifest() -> String {
    fs::read_to_string(root().join("Cargo.toml")).unwrap()
}

#[test]
fn every_test_program_has_its_entry() {
    assert_eq!(missing(&manifest()), Vec::<String>::new());
}

#[test]
fn a_program_without_an_entry_is_found() {
    let planted = manifest().replace("path = \"tests/verbs/put.rs\"", "path = \"tests/none.rs\"");
    assert_eq!(missing(&planted), ["tests/verbs/put.rs"]);
}
