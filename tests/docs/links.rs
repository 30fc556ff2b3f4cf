//! Links between the documents lead somewhere, and the files that they name exist.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Whether a file is a document.
fn is_document(path: &Path) -> bool {
    path.extension().is_some_and(|ending| ending == "md")
}

/// All documents of the root, and below these folders.
fn documents() -> Vec<PathBuf> {
    let of_root = fs::read_dir(root()).unwrap();
    let of_root = of_root.map(|entry| entry.unwrap().path());
    let mut found: Vec<PathBuf> = of_root.filter(|path| is_document(path)).collect();
    let mut folders: Vec<PathBuf> = ["docs", "kernels", "crates", "python"]
        .map(|name| root().join(name))
        .into();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true => folders.push(path),
                false if is_document(&path) => found.push(path),
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

/// Addresses of the web that the text names outside of code, up to the end of the word or link.
fn addresses(text: &str) -> Vec<&str> {
    let prose = text.split("```").step_by(2);
    let starts = prose.flat_map(|part| part.match_indices("](http").map(|(at, _)| &part[at + 2..]));
    starts
        .filter_map(|rest| rest.split([')', ' ', '\n']).next())
        .collect()
}

/// Whether an address has the form of one: by TLS, a host with a dot, nothing that a browser would escape.
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
    match anchors(&text).contains(anchor) {
        true => None,
        false => Some(format!(
            "{} links to {link}: no such heading",
            from.display()
        )),
    }
}

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

/// Whether the package has a target of that name: in its manifest, or in a file where cargo finds it.
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
