//! Documentation of public items says more than their names.

use std::collections::BTreeSet;

use super::Source;

/// Words that say nothing beside a name.
const FILLERS: [&str; 10] = [
    "a", "an", "the", "of", "its", "this", "that", "is", "for", "to",
];
/// What stands between `pub` and the name of an item.
const KINDS: [&str; 10] = [
    "async", "const", "enum", "fn", "mod", "static", "struct", "trait", "type", "unsafe",
];

/// Public items whose documentation has no word that their name lacks.
pub(crate) fn check(source: &Source) -> Vec<String> {
    let mut documentation = String::new();
    let mut found = Vec::new();
    for (at, line) in source.text.lines().enumerate() {
        let line = line.trim();
        if let Some(text) = line.strip_prefix("///") {
            documentation += text;
            continue;
        }
        if line.starts_with("#[") {
            continue;
        }
        if let Some(name) = name_of(line).filter(|name| repeats(&documentation, name)) {
            found.push(format!(
                "{}:{}: the documentation of `{name}` only repeats its name: {}",
                source.path,
                at + 1,
                documentation.trim()
            ));
        }
        documentation.clear();
    }
    found
}

/// Of the public item or field that a line begins.
fn name_of(line: &str) -> Option<&str> {
    let words = line.strip_prefix("pub ")?;
    let words = words.split(|c: char| !c.is_alphanumeric() && c != '_');
    words
        .filter(|word| !word.is_empty())
        .find(|word| !KINDS.contains(word))
}

fn repeats(documentation: &str, name: &str) -> bool {
    let said = words(documentation);
    !said.is_empty() && said.is_subset(&words(name))
}

/// Words in small letters, without fillers and the s of a plural; `QpState` and `qp_state` are the same two.
fn words(text: &str) -> BTreeSet<String> {
    let mut apart = String::new();
    let mut was_small = false;
    for c in text.chars() {
        if c.is_uppercase() && was_small {
            apart.push(' ');
        }
        was_small = c.is_lowercase() || c.is_ascii_digit();
        apart.extend(c.to_lowercase());
    }
    let words = apart.split(|c: char| !c.is_alphanumeric());
    let words = words.filter(|word| !word.is_empty() && !FILLERS.contains(word));
    words
        .map(|word| word.trim_end_matches('s').to_owned())
        .collect()
}
