//! No sentence of a document has more words than a reader takes in at once.

use std::fs;

use super::{documents, root};

#[path = "../../../crates/xtask/src/prose.rs"]
mod prose;

use prose::sentences;

const MOST_WORDS: usize = 25;

/// Sentences with too many words, each with its page and line.
fn long(name: &str, page: &str) -> Vec<String> {
    let found = sentences(page).into_iter();
    let found = found.filter(|sentence| sentence.words > MOST_WORDS);
    found
        .map(|one| format!("{name}:{}: {} words: {}", one.line, one.words, one.text))
        .collect()
}

#[test]
fn no_sentence_of_a_page_has_more_than_25_words() {
    let mut pages = documents();
    // Each of its entries is a name and a sentence in one.
    pages.retain(|path| !path.ends_with("CHANGELOG.md"));
    let found: Vec<String> = pages
        .iter()
        .flat_map(|path| {
            let name = path.strip_prefix(root()).unwrap().display().to_string();
            long(&name, &fs::read_to_string(path).unwrap())
        })
        .collect();
    assert!(
        found.is_empty(),
        "at most {MOST_WORDS} are allowed:\n{}\n",
        found.join("\n")
    );
    assert!(pages.len() >= 50, "only {} pages found", pages.len());
}

#[test]
fn a_sentence_with_26_words_is_found() {
    let of = |words: usize| format!("A line.\n\nSo {}end.\n", "word ".repeat(words - 2));
    assert_eq!(long("a.md", &of(MOST_WORDS)), [""; 0]);
    let found = long("a.md", &of(MOST_WORDS + 1));
    assert!(
        found.len() == 1 && found[0].starts_with("a.md:3: 26 words: So word"),
        "{found:?}"
    );
}
