//! The list in docs/membership.md of which test shows what names tests that exist.

use std::path::Path;

/// All Rust sources below `directory`, as one text.
fn sources(directory: &Path, text: &mut String) {
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => sources(&path, text),
            false if path.extension().is_some_and(|extension| extension == "rs") => {
                text.push_str(&std::fs::read_to_string(&path).unwrap());
            }
            false => {}
        }
    }
}

#[test]
fn every_test_that_the_page_of_membership_names_exists() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut text = String::new();
    for directory in [
        "src",
        "tests",
        "crates/membership-rules",
        "crates/models/tests",
        "crates/rendezvous",
        "crates/demo/src",
        "crates/wv/tests",
    ] {
        sources(&root.join(directory), &mut text);
    }
    let document = std::fs::read_to_string(root.join("docs/membership.md")).unwrap();
    let (_, section) = document.split_once("\n## Which test shows what\n").unwrap();
    let section = section.split("\n## ").next().unwrap();
    let items: Vec<&str> = section.split("\n- ").skip(1).collect();
    assert!(items.len() >= 25, "{} items", items.len());
    for item in items {
        let item = item.split("\n\n").next().unwrap();
        let mut names: Vec<&str> = item.split('`').skip(1).step_by(2).collect();
        names.retain(|name| !name.starts_with("wv "));
        assert!(!names.is_empty() || item.contains("`wv "), "{item}");
        for name in names {
            assert!(
                text.contains(&format!("fn {name}(")),
                "no test {name}: {item}"
            );
        }
    }
}
