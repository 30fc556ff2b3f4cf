//! The sentences of a Markdown page and their numbers of words. `./x texts` counts them, and `tests/docs/links` bounds them.

/// A sentence of a paragraph or a list item, or a phrase in a cell of a table.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Sentence {
    /// The line of the page, from 1 on, where the sentence's paragraph begins.
    pub(crate) line: usize,
    /// The number of words. A span of code counts as one word.
    pub(crate) words: usize,
    /// The text without marks of Markdown.
    pub(crate) text: String,
}

/// Returns the sentences of a page, without its headings, its blocks of code and its comments.
pub(crate) fn sentences(page: &str) -> Vec<Sentence> {
    let sentences = |part: Part| {
        let texts = split(&plain(&part.text), part.ends).into_iter();
        texts.map(move |text| Sentence {
            line: part.line,
            words: words(&text),
            text,
        })
    };
    parts(page).into_iter().flat_map(sentences).collect()
}

struct Part {
    line: usize,
    text: String,
    /// The characters that end a sentence of the part.
    ends: &'static [char],
}

const ENDS: &[char] = &['.', '?', '!'];
/// The characters that end a phrase of a cell, which lists phrases.
const ENDS_OF_CELLS: &[char] = &['.', '?', '!', ';', '\u{b7}'];

/// Returns the paragraphs, list items and cells of a page.
fn parts(page: &str) -> Vec<Part> {
    let mut found: Vec<Part> = Vec::new();
    let part = |at: usize, text: &str, ends| Part {
        line: at + 1,
        text: text.to_owned(),
        ends,
    };
    let mut is_code = false;
    let mut goes_on = false;
    for (at, line) in page.lines().enumerate() {
        let text = line.trim().trim_start_matches("> ");
        if text.starts_with("```") {
            is_code = !is_code;
            goes_on = false;
        } else if is_code || text.is_empty() || text.starts_with(['#', '<']) {
            goes_on = false;
        } else if let Some(row) = text.strip_prefix('|') {
            found.extend(cells(row).map(|cell| part(at, cell, ENDS_OF_CELLS)));
            goes_on = false;
        } else if let Some(item) = item(text) {
            found.push(part(at, item, ENDS));
            goes_on = true;
        } else if let Some(paragraph) = found.last_mut().filter(|_| goes_on) {
            paragraph.text += " ";
            paragraph.text += text;
        } else {
            found.push(part(at, text, ENDS));
            goes_on = true;
        }
    }
    found
}

fn cells(row: &str) -> impl Iterator<Item = &str> {
    row.split('|').map(str::trim).filter(|cell| words(cell) > 0)
}

/// Returns the text after the mark of a list item.
fn item(line: &str) -> Option<&str> {
    let (mark, rest) = line.split_once(' ')?;
    let number = mark.strip_suffix('.').unwrap_or_default();
    let is_number = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
    (is_number || mark == "-").then_some(rest)
}

/// Returns the text without marks of emphasis. A link becomes its words, and a span of code becomes one word.
fn plain(paragraph: &str) -> String {
    let mut text = String::new();
    for (at, part) in paragraph.split('`').enumerate() {
        let is_code = at % 2 == 1;
        if is_code {
            text += &code(part);
        } else {
            text += &without_targets(part);
        }
    }
    text.replace("**", "").replace(['[', ']'], "")
}

/// Returns a span of code as one word that ends no sentence.
fn code(span: &str) -> String {
    let span = span.replace(char::is_whitespace, "\u{a0}");
    span.replace('.', "\u{2024}")
}

/// Returns the text without the targets of links.
fn without_targets(text: &str) -> String {
    let mut parts = text.split("](");
    let mut kept = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        kept += part.split_once(')').map_or(part, |(_, behind)| behind);
    }
    kept
}

/// Returns the sentences of a text. Two dots mark an omission, and do not end a sentence.
fn split(text: &str, ends: &[char]) -> Vec<String> {
    let mut found = Vec::new();
    let mut sentence: Vec<&str> = Vec::new();
    for word in text.split(' ').filter(|word| !word.is_empty()) {
        sentence.push(word);
        let end = word.trim_matches(['(', ')', '"', '*']);
        let is_short = ["e.g.", "i.e."].contains(&end) || end.ends_with("..");
        if end.ends_with(ends) && !is_short {
            found.push(sentence.join(" "));
            sentence.clear();
        }
    }
    if !sentence.is_empty() {
        found.push(sentence.join(" "));
    }
    found
}

/// Returns the number of words. A word has a letter or a digit.
fn words(text: &str) -> usize {
    let words = text.split(' ');
    words
        .filter(|word| word.contains(char::is_alphanumeric))
        .count()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counted(page: &str) -> Vec<(usize, usize)> {
        let found = sentences(page);
        found.iter().map(|one| (one.line, one.words)).collect()
    }

    #[test]
    fn sentences_of_paragraphs_items_and_cells_are_counted_with_their_lines() {
        let page = "# Title of four words\n\nOne two. Three\nfour five!\n\n- Six\n  seven.\n1. Eight.\n\n```\nno prose\n```\n\
                    <!-- none -->\n| a b; c | - |\n|---|--:|\n";
        assert_eq!(
            counted(page),
            [(3, 2), (3, 3), (6, 2), (8, 1), (14, 2), (14, 1)]
        );
    }

    #[test]
    fn a_span_of_code_is_one_word_and_the_target_of_a_link_is_none() {
        assert_eq!(
            counted("Run `./x test all. now` by [the two](a/b.md#c d)."),
            [(1, 5)]
        );
        assert_eq!(
            counted("A **bold** word (e.g. `a | b`), 0.5 s, x .. y; z."),
            [(1, 10)]
        );
    }
}
