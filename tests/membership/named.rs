//! The table of docs/membership.md that says which test shows what names tests that exist.

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
fn every_test_that_the_table_of_membership_names_exists() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut text = String::new();
    for directory in ["src", "tests", "crates/rendezvous", "crates/wv/tests"] {
        sources(&root.join(directory), &mut text);
    }
    let document = std::fs::read_to_string(root.join("docs/membership.md")).unwrap();
    let lines = document.lines();
    let table = lines.skip_while(|line| !line.starts_with("| what is to hold |"));
    let rows: Vec<&str> = table
        .skip(2)
        .take_while(|line| line.starts_with('|'))
        .collect();
    assert!(rows.len() >= 25, "{} rows", rows.len());
    for row in rows {
        let cell = row.split('|').nth(2).unwrap();
        let mut names: Vec<&str> = cell.split('`').skip(1).step_by(2).collect();
        names.retain(|name| !name.starts_with("wv "));
        assert!(!names.is_empty() || cell.contains("`wv "), "{row}");
        for name in names {
            assert!(
                text.contains(&format!("fn {name}(")),
                "no test {name}: {row}"
            );
        }
    }
}
