//! Enough of a reader of Rust and C++ for `main.rs`: comments and strings out, tokens, and the paths that code names.

/// What comments and literals look like.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Language {
    Rust,
    Cpp,
}

/// The code alone: comments and the contents of literals become spaces, lines stay where they were.
pub(crate) fn code_of(text: &str, language: Language) -> String {
    let chars: Vec<char> = text.chars().collect();
    let mut out = String::with_capacity(text.len());
    let mut at = 0;
    while at < chars.len() {
        let end = match (chars[at], chars.get(at + 1)) {
            ('/', Some('/')) => line_end(&chars, at),
            ('/', Some('*')) => comment_end(&chars, at, language),
            ('"', _) => quoted_end(&chars, at),
            ('r', Some('"' | '#')) if language == Language::Rust && starts_word(&chars, at) => {
                raw_end(&chars, at)
            }
            ('\'', _) if is_char_literal(&chars, at, language) => quoted_end(&chars, at),
            _ => at,
        };
        if end == at {
            out.push(chars[at]);
            at += 1;
        } else {
            out.extend(
                chars[at..end]
                    .iter()
                    .map(|&c| if c == '\n' { '\n' } else { ' ' }),
            );
            at = end;
        }
    }
    out
}

fn line_end(chars: &[char], at: usize) -> usize {
    chars[at..]
        .iter()
        .position(|&c| c == '\n')
        .map_or(chars.len(), |n| at + n)
}

fn comment_end(chars: &[char], at: usize, language: Language) -> usize {
    let mut depth = 0;
    let mut at = at;
    while at + 1 < chars.len() {
        match (chars[at], chars[at + 1]) {
            ('/', '*') if depth == 0 || language == Language::Rust => {
                (depth, at) = (depth + 1, at + 2)
            }
            ('*', '/') => (depth, at) = (depth - 1, at + 2),
            _ => at += 1,
        }
        if depth == 0 {
            return at;
        }
    }
    chars.len()
}

fn quoted_end(chars: &[char], at: usize) -> usize {
    let quote = chars[at];
    let mut end = at + 1;
    while end < chars.len() && chars[end] != quote {
        end += if chars[end] == '\\' { 2 } else { 1 };
    }
    (end + 1).min(chars.len())
}

/// `r"..."`, `r#"..."#`; `at` itself where it is neither (`r#type`).
fn raw_end(chars: &[char], at: usize) -> usize {
    let hashes = chars[at + 1..].iter().take_while(|&&c| c == '#').count();
    if chars.get(at + 1 + hashes) != Some(&'"') {
        return at;
    }
    let closes = |n: &usize| {
        chars[*n] == '"'
            && chars[n + 1..]
                .iter()
                .take(hashes)
                .filter(|&&c| c == '#')
                .count()
                == hashes
    };
    (at + 2 + hashes..chars.len())
        .find(closes)
        .map_or(chars.len(), |n| n + 1 + hashes)
}

fn starts_word(chars: &[char], at: usize) -> bool {
    at == 0 || !(chars[at - 1].is_alphanumeric() || chars[at - 1] == '_') || chars[at - 1] == 'b'
}

/// Neither a lifetime (Rust) nor a digit separator (C++).
fn is_char_literal(chars: &[char], at: usize, language: Language) -> bool {
    match language {
        Language::Rust => chars.get(at + 1) == Some(&'\\') || chars.get(at + 2) == Some(&'\''),
        Language::Cpp => at == 0 || !chars[at - 1].is_ascii_hexdigit(),
    }
}

/// A word, a lifetime, one of `::`, `->`, `=>`, `..`, or one other character.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Token {
    pub(crate) line: usize,
    pub(crate) text: String,
}

/// Signs of two characters that are one token.
const PAIRS: [&str; 4] = ["::", "->", "=>", ".."];

/// The bytes of the word or of the lifetime (`'a`) at the start of `rest`.
fn word_length(rest: &str) -> Option<usize> {
    let name = rest.strip_prefix('\'');
    let name = name.filter(|name| name.starts_with(|c: char| c.is_alphabetic() || c == '_'));
    let word = name.unwrap_or(rest);
    let end = word.find(|c: char| !(c.is_alphanumeric() || c == '_'));
    let length = end.unwrap_or(word.len());
    (length > 0).then_some(rest.len() - word.len() + length)
}

/// The tokens of `code_of` output.
pub(crate) fn tokens(code: &str) -> Vec<Token> {
    let mut found = Vec::new();
    for (index, line) in code.lines().enumerate() {
        let mut rest = line.trim_start();
        while let Some(first) = rest.chars().next() {
            let length = if PAIRS.iter().any(|pair| rest.starts_with(pair)) {
                2
            } else {
                word_length(rest).unwrap_or(first.len_utf8())
            };
            found.push(Token {
                line: index + 1,
                text: rest[..length].to_owned(),
            });
            rest = rest[length..].trim_start();
        }
    }
    found
}

/// A name directly below the crate root that code refers to: `team` in `crate::team::Team`.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct RootName {
    pub(crate) line: usize,
    pub(crate) name: String,
    /// Followed by `!`: a macro, which lives at the root wherever it is defined.
    pub(crate) is_macro: bool,
}

/// All names of the crate root in a file that is `depth` modules below it, by `crate::` and by `super::`.
pub(crate) fn root_names(tokens: &[Token], depth: usize) -> Vec<RootName> {
    let text = |at: usize| tokens.get(at).map_or("", |t| t.text.as_str());
    let mut found = Vec::new();
    let (mut braces, mut inline_modules) = (0, Vec::new());
    let mut at = 0;
    while at < tokens.len() {
        match text(at) {
            "mod" if text(at + 2) == "{" => inline_modules.push(braces),
            "{" => braces += 1,
            "}" => {
                braces -= 1;
                if inline_modules.last() == Some(&braces) {
                    inline_modules.pop();
                }
            }
            "crate" if text(at + 1) == "::" => heads(tokens, at + 2, &mut found),
            "super" if at == 0 || text(at - 1) != "::" => {
                let mut supers = 1;
                while text(at + 2 * supers - 1) == "::" && text(at + 2 * supers) == "super" {
                    supers += 1;
                }
                if supers == depth + inline_modules.len() && text(at + 2 * supers - 1) == "::" {
                    heads(tokens, at + 2 * supers, &mut found);
                }
            }
            _ => {}
        }
        at += 1;
    }
    found
}

/// The first words of the path or of each path of the `{group}` at `at`.
fn heads(tokens: &[Token], at: usize, found: &mut Vec<RootName>) {
    let text = |at: usize| tokens.get(at).map_or("", |t| t.text.as_str());
    let mut push = |at: usize| {
        if text(at) != "self" {
            let is_macro = text(at + 1) == "!";
            found.push(RootName {
                line: tokens[at].line,
                name: text(at).to_owned(),
                is_macro,
            });
        }
    };
    if text(at) != "{" {
        if at < tokens.len() {
            push(at);
        }
        return;
    }
    let (mut depth, mut at) = (1, at + 1);
    let mut first = true;
    while at < tokens.len() && depth > 0 {
        match text(at) {
            "{" => depth += 1,
            "}" => depth -= 1,
            "," if depth == 1 => first = true,
            _ if depth == 1 && first => {
                push(at);
                first = false;
            }
            _ => {}
        }
        at += 1;
    }
}
