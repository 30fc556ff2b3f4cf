//! Links between the documents lead somewhere, and the files that they name exist.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// README and ARCHITECTURE, and all documents below these folders.
fn documents() -> Vec<PathBuf> {
    let mut found = vec![root().join("README.md"), root().join("ARCHITECTURE.md")];
    let mut folders: Vec<PathBuf> = ["docs", "kernels", "crates"]
        .map(|name| root().join(name))
        .into();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true => folders.push(path),
                false if path.extension().is_some_and(|ending| ending == "md") => found.push(path),
                false => {}
            }
        }
    }
    found
}

/// Where links of this text lead, outside of code.
fn links(text: &str) -> Vec<&str> {
    let prose = text.split("```").step_by(2);
    let ends = prose.flat_map(|part| part.split("](").skip(1));
    ends.filter_map(|end| end.split_once(')'))
        .map(|(link, _)| link)
        .filter(|link| !link.contains("://") && !link.contains(char::is_whitespace))
        .collect()
}

/// The anchors of the headings, as GitHub makes them.
fn anchors(text: &str) -> BTreeSet<String> {
    let headings = text.lines().filter(|line| line.starts_with('#'));
    let anchor = |line: &str| -> String {
        let words = line.trim_start_matches('#').trim().to_lowercase();
        let kept = words
            .chars()
            .filter(|c| c.is_alphanumeric() || [' ', '-', '_'].contains(c));
        kept.map(|c| if c == ' ' { '-' } else { c }).collect()
    };
    headings.map(anchor).collect()
}

/// What is wrong with a link that stands in the document at `from`.
fn wrong(from: &Path, link: &str) -> Option<String> {
    let (file, anchor) = link.split_once('#').unwrap_or((link, ""));
    let to = match file {
        "" => from.to_owned(),
        file => from.parent().unwrap().join(file),
    };
    if !to.exists() {
        return Some(format!(
            "{} links to {link}, which does not exist",
            from.display()
        ));
    }
    if anchor.is_empty() {
        return None;
    }
    let text = fs::read_to_string(&to).unwrap_or_default();
    match anchors(&text).contains(anchor) {
        true => None,
        false => Some(format!(
            "{} links to {link}: no such heading",
            from.display()
        )),
    }
}

/// Files of the tree that a text names between backticks.
fn named(text: &str) -> Vec<&str> {
    let prose = text.split("```").step_by(2);
    let quoted = prose.flat_map(|part| part.split('`').skip(1).step_by(2));
    quoted
        .filter(|name| !name.contains([' ', '$', '<', '*', '\n', ':', '{', '(']))
        .filter(|name| {
            let tops = ["src/", "kernels/", "crates/", "tests/", "docs/"];
            tops.iter().any(|top| name.starts_with(top))
        })
        .collect()
}

#[test]
fn every_link_between_documents_leads_somewhere() {
    let mut count = 0;
    let mut found = Vec::new();
    for document in documents() {
        let text = fs::read_to_string(&document).unwrap();
        let links = links(&text);
        count += links.len();
        found.extend(links.iter().filter_map(|link| wrong(&document, link)));
    }
    assert!(found.is_empty(), "\n{}\n", found.join("\n"));
    assert!(count >= 20, "only {count} links found");
}

#[test]
fn a_document_of_the_root_or_of_docs_names_only_files_that_exist() {
    let mut count = 0;
    let mut found = Vec::new();
    for document in documents() {
        let is_of_crate = document.starts_with(root().join("crates"));
        let text = fs::read_to_string(&document).unwrap();
        for name in named(&text).into_iter().filter(|_| !is_of_crate) {
            count += 1;
            if !root().join(name).exists() {
                found.push(format!("{} names {name}", document.display()));
            }
        }
    }
    assert!(
        found.is_empty(),
        "these do not exist:\n{}\n",
        found.join("\n")
    );
    assert!(count >= 40, "only {count} names found");
}

#[test]
fn links_that_lead_nowhere_are_found() {
    let from = root().join("docs/walks.md");
    assert_eq!(wrong(&from, "../README.md#two-commands"), None);
    assert!(wrong(&from, "../README.md#no-such-heading").is_some());
    assert!(wrong(&from, "no-such-file.md").is_some());
    assert_eq!(
        links("[a](b.md#c), `[d](e)` and\n```\n[f](g)\n```"),
        ["b.md#c", "e"]
    );
    assert!(anchors("## Bytes of a MoE layer\n").contains("bytes-of-a-moe-layer"));
}
