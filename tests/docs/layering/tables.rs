//! The tables name what exists, and all of it: those of `main.rs` the modules and headers of the tree, those of
//! ARCHITECTURE.md the same.

use super::{CRATE_USERS, HEADER_LAYERS, HEADERS, MODULES, root};
use std::collections::BTreeSet;

/// What every module may use, so that the table of ARCHITECTURE.md does not say it.
const EVERYWHERE: [&str; 2] = ["error", "config"];

type Names = BTreeSet<String>;

/// One for each name that only one of the two has.
fn differences(what: &str, [one, other]: [&str; 2], names: [&Names; 2]) -> Vec<String> {
    let lacks = |place: &str, all: &Names, some: &Names| -> Vec<String> {
        all.difference(some)
            .map(|name| format!("{place} lacks {what} `{name}`"))
            .collect()
    };
    let mut found = lacks(other, names[0], names[1]);
    found.extend(lacks(one, names[1], names[0]));
    found
}

fn modules_of_table() -> Names {
    MODULES.iter().map(|(name, _)| (*name).to_owned()).collect()
}

fn headers_of_table() -> Names {
    let headers = HEADER_LAYERS.iter().flat_map(|layer| layer.iter());
    headers.map(|name| (*name).to_owned()).collect()
}

/// Headers by their path below HEADERS.
fn headers_of_tree() -> Names {
    let inner = entries(&format!("{HEADERS}detail"));
    let inner = inner.iter().map(|name| format!("detail/{name}"));
    let mut headers = entries(HEADERS);
    headers.remove("detail");
    headers.extend(inner);
    headers
}

/// Names of files and folders, without `.rs`.
fn entries(folder: &str) -> Names {
    let entries = std::fs::read_dir(root().join(folder)).unwrap();
    let name = |entry: std::io::Result<std::fs::DirEntry>| {
        let name = entry.unwrap().file_name().into_string().unwrap();
        name.trim_end_matches(".rs").to_owned()
    };
    entries.map(name).collect()
}

#[test]
fn the_tables_have_a_row_for_every_module_and_header_and_for_nothing_else() {
    let mut modules = entries("src");
    modules.remove("lib");
    let mut found = differences(
        "module",
        ["src", "MODULES"],
        [&modules, &modules_of_table()],
    );
    found.extend(differences(
        "header",
        [HEADERS, "HEADER_LAYERS"],
        [&headers_of_tree(), &headers_of_table()],
    ));
    assert!(found.is_empty(), "\n{}\n", found.join("\n"));
}

/// Rows of the table below `heading` in a text, cell by cell, without the two lines of its head.
fn rows<'a>(text: &'a str, heading: &str) -> Vec<Vec<&'a str>> {
    let below = text.split_once(heading).map_or("", |(_, below)| below);
    below
        .lines()
        .skip_while(|line| !line.starts_with('|'))
        .take_while(|line| line.starts_with('|'))
        .skip(2)
        .map(|line| line.trim_matches('|').split('|').map(str::trim).collect())
        .collect()
}

/// What stands between backticks.
fn quoted(cell: &str) -> impl Iterator<Item = &str> {
    cell.split('`').skip(1).step_by(2)
}

/// A table of modules, `| module | may use | what it is |`, against MODULES and CRATE_USERS.
fn check_modules(text: &str) -> Vec<String> {
    let mut named = Names::new();
    let mut found = Vec::new();
    for row in rows(text, "## 1. Parts and their order") {
        for name in quoted(row[0]) {
            let name = name.split('/').next().unwrap_or(name);
            named.insert(name.to_owned());
            let said: Names = row[1]
                .split(',')
                .map(|word| word.trim().to_owned())
                .filter(|word| word != "-")
                .collect();
            found.extend(differences(
                &format!("what `{name}` may use:"),
                ["ARCHITECTURE.md", "layering.rs"],
                [&said, &used_by(name)],
            ));
        }
    }
    found.extend(differences(
        "module",
        ["ARCHITECTURE.md", "MODULES"],
        [&named, &modules_of_table()],
    ));
    found
}

fn used_by(module: &str) -> Names {
    let modules = MODULES.iter().filter(|(name, _)| *name == module);
    let modules = modules.flat_map(|(_, uses)| uses.iter());
    let crates = CRATE_USERS.iter().filter(|(_, by)| by.contains(&module));
    modules
        .filter(|name| !EVERYWHERE.contains(name))
        .map(|name| (*name).to_owned())
        .chain(crates.map(|(name, _)| name.replace('_', "-")))
        .collect()
}

/// A table of headers, `| layer | headers | |`, against HEADER_LAYERS; the layer of kernels is above all.
fn check_headers(text: &str) -> Vec<String> {
    let mut said = vec![Names::new(); HEADER_LAYERS.len()];
    for row in rows(text, "## 2. Device headers") {
        let layer: usize = row[0].parse().expect("a row begins with its layer");
        if let Some(said) = said.get_mut(layer) {
            said.extend(quoted(row[1]).map(str::to_owned));
        }
    }
    let layers = said.iter().zip(HEADER_LAYERS).enumerate();
    layers
        .flat_map(|(layer, (said, headers))| {
            let headers = headers.iter().map(|name| (*name).to_owned()).collect();
            let what = format!("in layer {layer} the header");
            differences(
                &what,
                ["ARCHITECTURE.md", "HEADER_LAYERS"],
                [said, &headers],
            )
        })
        .collect()
}

fn architecture() -> String {
    std::fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap()
}

#[test]
fn the_tables_of_the_architecture_are_those_that_are_enforced() {
    let text = architecture();
    let mut found = check_modules(&text);
    found.extend(check_headers(&text));
    assert!(found.is_empty(), "\n{}\n", found.join("\n"));
}

#[test]
fn rows_that_lack_or_name_too_much_are_found() {
    let text = architecture();
    for (from, to, words) in [
        ("| `memheap` |", "| `heaps` |", "lacks module `memheap`"),
        ("`spin.cuh`", "", "lacks in layer 3 the header `spin.cuh`"),
        ("`spin.cuh`", "`spin.cuh` `no.cuh`", "header `no.cuh`"),
        ("| fabric, verbs,", "| fabric,", "`verbs`"),
    ] {
        assert!(text.contains(from), "{from} is planted nowhere");
        let planted = text.replacen(from, to, 1);
        let found = [check_modules(&planted), check_headers(&planted)].concat();
        let is_found = found.iter().any(|line| line.contains(words));
        assert!(is_found, "{to}: {found:?}");
    }
    let [one, other] = [["a", "b"], ["b", "c"]].map(|names| names.map(str::to_owned).into());
    let found = differences("header", ["the tree", "the table"], [&one, &other]);
    assert_eq!(
        found,
        ["the table lacks header `a`", "the tree lacks header `c`"]
    );
}
