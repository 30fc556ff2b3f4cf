//! `./x texts`: writes every help page into one file and every error text into another, to be read side by side. A third file has the
//! lengths of sentences of pages.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use crate::HELP;
use crate::failure::{At, Failure, Result};
use crate::process::{command, text_of};
use crate::prose::{Sentence, sentences};
use crate::tree::{build_programs, ends_in, files_below, git, prepare, target};

const FOLDER: &str = "target/texts";
const SOURCES: [&str; 2] = ["src", "crates"];
/// The most levels of commands, more than `wv` has. The limit ends the search if the help of a program names itself.
const MOST_LEVELS: usize = 4;

/// Writes help.txt, errors.txt and sentences.txt below target/texts.
pub(crate) fn texts() -> Result {
    prepare("demo")?;
    build_programs()?;
    fs::create_dir_all(FOLDER).at(FOLDER)?;
    let mut help = format!("==== ./x help\n\n{HELP}\n");
    pages(&target().join("wv"), &mut Vec::new(), &mut help)?;
    write("help.txt", &help)?;
    let mut errors = String::new();
    for (place, text) in error_texts()? {
        errors += &format!("{place}: {text}\n");
    }
    if errors.is_empty() {
        return Err(Failure::new(
            1,
            "no error text was found: is this the root of the tree?",
        ));
    }
    write("errors.txt", &errors)?;
    let lengths = lengths()?;
    print!("{lengths}");
    write("sentences.txt", &lengths)
}

/// Returns a line for each page that git has: the number of its sentences, their mean length, and the longest.
fn lengths() -> Result<String> {
    let pages = git(&["ls-files", "--", "*.md"])?.unwrap_or_default();
    let mut lines = String::new();
    for page in pages.lines() {
        let text = fs::read_to_string(page).at(page)?;
        lines += &line_of(page, &sentences(&text));
    }
    Ok(lines)
}

fn line_of(page: &str, sentences: &[Sentence]) -> String {
    let words = sentences.iter().map(|sentence| sentence.words);
    let (count, all) = (sentences.len(), words.clone().sum::<usize>());
    // The mean is in tenths, rounded.
    let mean = (10 * all + count / 2) / count.max(1);
    let longest = words.max().unwrap_or_default();
    format!(
        "{page}: {count} sentences, {}.{} words on average, {longest} in the longest\n",
        mean / 10,
        mean % 10
    )
}

fn write(name: &str, text: &str) -> Result {
    let file = Path::new(FOLDER).join(name);
    fs::write(&file, text).at(&file)?;
    println!("{}: {} lines", file.display(), text.lines().count());
    Ok(())
}

/// Adds the help page of a command, and the pages of the commands below it.
fn pages(wv: &Path, words: &mut Vec<String>, into: &mut String) -> Result {
    let page = text_of(command(wv, words.iter()).arg("--help"))?;
    *into += &format!("==== wv {}\n\n{page}\n", words.join(" "));
    if words.len() == MOST_LEVELS {
        return Ok(());
    }
    for name in commands_of(&page) {
        words.push(name);
        pages(wv, words, into)?;
        words.pop();
    }
    Ok(())
}

/// Returns the commands that a help page lists, without `help`, which only repeats the others.
fn commands_of(page: &str) -> Vec<String> {
    let lines = page.lines().skip_while(|line| *line != "Commands:").skip(1);
    let lines = lines.take_while(|line| !line.is_empty());
    let names = lines.filter_map(|line| {
        let name = line.strip_prefix("  ")?;
        let is_name = !name.starts_with(' ') && !name.starts_with("help ");
        name.split_whitespace().next().filter(|_| is_name)
    });
    names.map(str::to_owned).collect()
}

/// Returns the texts of `#[error("..")]`, by file and line.
fn error_texts() -> Result<BTreeMap<String, String>> {
    let mut found = BTreeMap::new();
    for folder in SOURCES {
        for file in files_below(folder, |path: &Path| ends_in(path, &["rs"]))? {
            found.extend(texts_of(&file, &fs::read_to_string(&file).at(&file)?));
        }
    }
    Ok(found)
}

fn texts_of(file: &Path, source: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    for (at, _) in source.match_indices("#[error(") {
        let Some(text) = literal(&source[at..]) else {
            continue; // transparent, or a function has the text
        };
        let line = source[..at].matches('\n').count() + 1;
        found.push((format!("{}:{line:04}", file.display()), text));
    }
    found
}

/// Returns the first string of an attribute, without its quotes. A backslash at the end of a line joins lines.
fn literal(attribute: &str) -> Option<String> {
    let inside = attribute
        .strip_prefix("#[error(")?
        .trim_start()
        .strip_prefix('"')?;
    let mut text = String::new();
    let mut rest = inside.chars();
    while let Some(c) = rest.next() {
        match c {
            '"' => return Some(text),
            '\\' => match rest.next()? {
                '\n' => {
                    let kept = rest.as_str().trim_start();
                    rest = kept.chars();
                }
                other => text.extend(['\\', other]),
            },
            other => text.push(other),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_of_errors_are_found_with_their_lines() {
        let source = "enum E {\n    #[error(\"no {a} \\\"b\\\"\")]\n    A,\n    #[error(transparent)]\n    #[error(\n        \"one \\\n         line\", x)]\n    B,\n}\n";
        let found = texts_of(Path::new("a.rs"), source);
        let expected = [("a.rs:0002", "no {a} \\\"b\\\""), ("a.rs:0005", "one line")];
        assert_eq!(
            found,
            expected.map(|(place, text)| (place.to_owned(), text.to_owned()))
        );
    }

    #[test]
    fn a_page_has_the_mean_and_the_longest_of_its_sentences() {
        let page = "One two three. Four.\n\n- Five six.\n- Seven.\n";
        let line = "a.md: 4 sentences, 1.8 words on average, 3 in the longest\n";
        assert_eq!(line_of("a.md", &sentences(page)), line);
        let line = "b.md: 0 sentences, 0.0 words on average, 0 in the longest\n";
        assert_eq!(line_of("b.md", &[]), line);
    }

    #[test]
    fn the_commands_of_a_page_are_those_below_their_heading() {
        let page = "Usage: wv\n\nCommands:\n  demo   moves tokens\n  sim    runs\n         more\n  help   this\n\nOptions:\n  -h\n";
        assert_eq!(commands_of(page), ["demo", "sim"]);
        assert!(commands_of("Usage: wv\n").is_empty());
    }
}
