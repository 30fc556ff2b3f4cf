//! docs/test-map.md: every test program of the workspace with what its first sentence says, rendered and compared.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

const HEAD: &str = "# Map of the tests

Made from the first sentence of each test program; a test compares. Rewrite: `UPDATE=1 cargo test -p warpverbs --test test_map`.

`cargo test` runs a program with `-p` and the package of the heading, and `--test` and the program. A part of a test's name behind that chooses
tests. Unit tests stand at the end of the file that they test, or beside it in `tests.rs`; `--lib` and the module choose them.
";

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Folders of packages, the root first.
fn packages() -> Vec<PathBuf> {
    let mut folders = vec![root().to_owned()];
    for below in ["crates", "docs/examples"] {
        let entries = fs::read_dir(root().join(below)).unwrap();
        let entries = entries.map(|entry| entry.unwrap().path());
        let mut found: Vec<_> = entries
            .filter(|folder| folder.join("Cargo.toml").is_file())
            .collect();
        found.sort();
        folders.extend(found);
    }
    folders
}

/// The value of a key: `name = "value"`.
fn value<'a>(table: &'a str, key: &str) -> Option<&'a str> {
    let start = format!("{key} = \"");
    let line = table.lines().find_map(|line| line.strip_prefix(&start))?;
    line.split('"').next()
}

/// Test programs of a package, by name: those of its manifest, and those that cargo finds by itself.
fn programs(folder: &Path, manifest: &str) -> BTreeMap<String, PathBuf> {
    let mut found = BTreeMap::new();
    for table in manifest.split("\n[[test]]\n").skip(1) {
        let table = table.split("\n[").next().unwrap_or(table);
        if let (Some(name), Some(path)) = (value(table, "name"), value(table, "path")) {
            found.insert(name.to_owned(), folder.join(path));
        }
    }
    let tests = folder.join("tests");
    if manifest.contains("autotests = false") || !tests.is_dir() {
        return found;
    }
    for entry in fs::read_dir(tests).unwrap() {
        let path = entry.unwrap().path();
        let main = path.join("main.rs");
        let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
        if main.is_file() {
            found.insert(name, main);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.insert(name, path);
        }
    }
    found
}

/// The first sentence of a program's documentation, on one line; none if it has no documentation.
fn first_sentence(source: &str) -> Option<String> {
    let lines = source.lines().map_while(|line| line.strip_prefix("//!"));
    let lines = lines.map(str::trim).take_while(|line| !line.is_empty());
    let text: Vec<&str> = lines.collect();
    let text = text.join(" ");
    let sentence = text
        .split_once(". ")
        .map_or(text.as_str(), |(first, _)| first);
    let sentence = sentence.trim_end_matches('.').replace('|', "\\|");
    (!sentence.is_empty()).then_some(sentence)
}

/// The page; or the programs that do not say what they check.
fn rendered() -> Result<String, Vec<String>> {
    let mut page = HEAD.to_owned();
    let mut silent = Vec::new();
    for folder in packages() {
        let manifest = fs::read_to_string(folder.join("Cargo.toml")).unwrap();
        let package = manifest.split("\n[package]\n").last().unwrap_or("");
        let package = value(package.trim_start_matches("[package]\n"), "name").unwrap();
        let programs = programs(&folder, &manifest);
        if programs.is_empty() {
            continue;
        }
        page += &format!("\n## {package}\n\n| program | checks |\n|---|---|\n");
        for (name, path) in programs {
            match first_sentence(&fs::read_to_string(&path).unwrap()) {
                Some(sentence) => page += &format!("| `{name}` | {sentence} |\n"),
                None => silent.push(path.display().to_string()),
            }
        }
    }
    if silent.is_empty() {
        Ok(page)
    } else {
        Err(silent)
    }
}

/// Rewrites the page if UPDATE is set.
#[test]
fn the_map_of_the_tests_is_that_of_the_code() {
    let page = rendered().unwrap_or_else(|silent| panic!("without documentation: {silent:#?}"));
    let path = root().join("docs/test-map.md");
    let found = fs::read_to_string(&path).unwrap_or_default();
    if found != page && std::env::var_os("UPDATE").is_some() {
        fs::write(&path, &page).unwrap();
        return;
    }
    assert!(
        found == page,
        "docs/test-map.md is not what the test programs say: rewrite it with UPDATE=1 cargo test -p warpverbs --test test_map"
    );
}

#[test]
fn programs_of_a_manifest_and_of_a_folder_are_found_and_silent_ones_too() {
    let folder = tempfile::tempdir().unwrap();
    let tests = folder.path().join("tests");
    fs::create_dir_all(tests.join("deep")).unwrap();
    fs::write(tests.join("one.rs"), "//! One checks a | b. More.\n").unwrap();
    fs::write(tests.join("deep/main.rs"), "fn main() {}\n").unwrap();
    let manifest = "[package]\nname = \"p\"\n\n[[test]]\nname = \"two\"\npath = \"tests/x/two.rs\"\n\n[lints]\n";
    let names: Vec<String> = programs(folder.path(), manifest).into_keys().collect();
    assert_eq!(names, ["deep", "one", "two"]);
    let off = manifest.replace("name = \"p\"", "name = \"p\"\nautotests = false");
    assert_eq!(programs(folder.path(), &off).len(), 1);
    let one = fs::read_to_string(tests.join("one.rs")).unwrap();
    assert_eq!(first_sentence(&one).as_deref(), Some("One checks a \\| b"));
    assert_eq!(first_sentence("fn main() {}\n"), None);
}
