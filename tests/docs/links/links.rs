//! Links between the documents lead somewhere, and the files that they name exist.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use super::{documents, root};

/// Where links of this text lead, outside of code.
fn links(text: &str) -> Vec<&str> {
    let prose = text.split("```").step_by(2);
    let ends = prose.flat_map(|part| part.split("](").skip(1));
    ends.filter_map(|end| end.split_once(')'))
        .map(|(link, _)| link)
        .filter(|link| !link.contains("://") && !link.contains(char::is_whitespace))
        .collect()
}

/// Addresses of the web that the text names outside of code, up to the end of the word or link.
fn addresses(text: &str) -> Vec<&str> {
    let prose = text.split("```").step_by(2);
    let starts = prose.flat_map(|part| part.match_indices("](http").map(|(at, _)| &part[at + 2..]));
    starts
        .filter_map(|rest| rest.split([')', ' ', '\n']).next())
        .collect()
}

/// Returns whether an address has the form of one: by TLS, a host with a dot, nothing that a browser would escape.
fn is_well_formed(address: &str) -> bool {
    let host = address
        .strip_prefix("https://")
        .and_then(|rest| rest.split('/').next());
    let plain = |c: char| c.is_ascii_alphanumeric() || "-._~:/?#[]@!$&'*+,;=%".contains(c);
    host.is_some_and(|host| host.contains('.') && !host.starts_with('.') && !host.ends_with('.'))
        && address.chars().all(plain)
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

/// The defect of a link that stands in the document at `from`.
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
    if anchors(&text).contains(anchor) {
        None
    } else {
        Some(format!(
            "{} links to {link}: no such heading",
            from.display()
        ))
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
fn every_address_of_the_web_has_its_form() {
    let mut count = 0;
    for document in documents() {
        let text = fs::read_to_string(&document).unwrap();
        for address in addresses(&text) {
            count += 1;
            let name = document.display();
            assert!(is_well_formed(address), "{name} links to {address}");
        }
    }
    assert!(count >= 3, "only {count} addresses found");
}

#[test]
fn addresses_without_their_form_are_found() {
    let text = "[a](https://etcd.io/docs) `[b](http://c.d)`\n```\n[e](https://f.g)\n```";
    assert_eq!(addresses(text), ["https://etcd.io/docs", "http://c.d"]);
    for wrong in [
        "http://etcd.io",
        "https://etcd",
        "https://.io/a",
        "https://a.b/c\"d",
    ] {
        assert!(!is_well_formed(wrong), "{wrong}");
    }
    assert!(is_well_formed("https://etcd.io/docs/v3.4/#a"));
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
            // From the root of the tree, or as the page of an example: from its own folder.
            let folders = [Some(root()), document.parent()];
            if !folders
                .into_iter()
                .flatten()
                .any(|at| at.join(name).exists())
            {
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
    assert!(wrong(&from, "pictures/no-such-picture.svg").is_some());
    let readme = fs::read_to_string(root().join("README.md")).unwrap();
    let planted = readme.replacen("](docs/", "](doc/", 1);
    let found = links(&planted)
        .into_iter()
        .filter_map(|link| wrong(&root().join("README.md"), link));
    assert_eq!(found.count(), 1, "the planted link, and no other");
    assert_eq!(
        links("[a](b.md#c), `[d](e)` and\n```\n[f](g)\n```"),
        ["b.md#c", "e"]
    );
    assert!(anchors("## Bytes of a MoE layer\n").contains("bytes-of-a-moe-layer"));
}
