//! One file of Rust as tokens, without what is compiled for tests only, and where its groups and items end.

use super::super::scan::{Language, Token, code_of, tokens};

/// Words that begin an item. What begins otherwise under an attribute is a field, a variant, an arm or a statement.
const ITEMS: [&str; 16] = [
    "fn",
    "struct",
    "enum",
    "union",
    "trait",
    "type",
    "const",
    "static",
    "impl",
    "mod",
    "use",
    "unsafe",
    "async",
    "extern",
    "macro_rules",
    "let",
];

pub(crate) struct Code {
    tokens: Vec<Token>,
    /// Lines of items under `cfg(test)`, which have no tokens here.
    pub(crate) test_lines: usize,
    /// The file opens with `#![cfg(test)]`.
    pub(crate) is_test: bool,
}

impl Code {
    pub(crate) fn of(text: &str) -> Self {
        let all = Self {
            tokens: tokens(&code_of(text, Language::Rust)),
            test_lines: 0,
            is_test: false,
        };
        all.without_tests()
    }

    fn without_tests(self) -> Self {
        let (mut live, mut test_lines, mut is_test) = (vec![true; self.len()], 0, false);
        let (mut at, mut head) = (0, 0);
        while at < self.len() {
            let Some(end) = self.attribute_end(at) else {
                at += 1;
                continue;
            };
            let is_for_tests = self.is_test_attribute(at);
            let is_inner = self.word(at + 1) == "!";
            if is_inner && at == head {
                is_test |= is_for_tests;
                head = end;
            }
            if !is_for_tests || is_inner {
                at = end;
                continue;
            }
            let end = self.item_end(end).max(end);
            test_lines += self.line(end - 1) - self.line(at) + 1;
            live[at..end].fill(false);
            at = end;
        }
        let tokens = self.tokens.into_iter().zip(live);
        Self {
            tokens: tokens
                .filter(|(_, live)| *live)
                .map(|(token, _)| token)
                .collect(),
            test_lines,
            is_test,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.tokens.len()
    }

    /// Empty after the last one.
    pub(crate) fn word(&self, at: usize) -> &str {
        self.tokens.get(at).map_or("", |token| &token.text)
    }

    /// The word before `at`; empty at the start.
    pub(crate) fn before(&self, at: usize) -> &str {
        at.checked_sub(1).map_or("", |at| self.word(at))
    }

    pub(crate) fn line(&self, at: usize) -> usize {
        self.tokens.get(at).map_or(0, |token| token.line)
    }

    pub(crate) fn is_name(&self, at: usize) -> bool {
        self.word(at)
            .starts_with(|c: char| c.is_alphabetic() || c == '_')
    }

    pub(crate) fn opens(&self, at: usize) -> bool {
        matches!(self.word(at), "(" | "[" | "{")
    }

    pub(crate) fn closes(&self, at: usize) -> bool {
        matches!(self.word(at), ")" | "]" | "}")
    }

    /// After the bracket that closes the one at `at`.
    pub(crate) fn group_end(&self, at: usize) -> usize {
        let mut depth = 0;
        for at in at..self.len() {
            if self.opens(at) {
                depth += 1;
            } else if self.closes(at) {
                depth -= 1;
                if depth == 0 {
                    return at + 1;
                }
            }
        }
        self.len()
    }

    /// After `<..>`; `at` itself where there is none.
    pub(crate) fn generics_end(&self, at: usize) -> usize {
        let mut depth = 0;
        let mut end = at;
        while end < self.len() {
            match self.word(end) {
                "<" => depth += 1,
                ">" => depth -= 1,
                _ => {}
            }
            if depth == 0 {
                return if end == at { at } else { end + 1 };
            }
            end += 1;
        }
        end
    }

    /// After `#[..]` or `#![..]`; none where no attribute begins.
    pub(crate) fn attribute_end(&self, at: usize) -> Option<usize> {
        let group = at + 1 + usize::from(self.word(at + 1) == "!");
        (self.word(at) == "#" && self.word(group) == "[").then(|| self.group_end(group))
    }

    /// `cfg(test)`, `cfg(all(test, ..))`, `cfg(any(test, ..))`; nothing with `not`.
    fn is_test_attribute(&self, at: usize) -> bool {
        let start = at + 2 + usize::from(self.word(at + 1) == "!");
        let end = self.group_end(start - 1);
        let words: Vec<&str> = (start..end).map(|at| self.word(at)).collect();
        match words[..] {
            ["cfg", "(", "test", ..] => true,
            ["cfg", "(", "all" | "any", "(", ..] => {
                words.contains(&"test") && !words.contains(&"not")
            }
            _ => false,
        }
    }

    /// After the item, field, arm or statement that begins at `at`, whose attributes may stand before it.
    pub(crate) fn item_end(&self, mut at: usize) -> usize {
        while let Some(end) = self.attribute_end(at) {
            at = end;
        }
        let word = self.visibility_end(at);
        let is_item = ITEMS.contains(&self.word(word));
        let is_field = self.word(word + 1) == ":";
        while at < self.len() {
            match self.word(at) {
                ";" => return at + 1,
                "," if !is_item => return at + 1,
                "{" => {
                    let end = self.group_end(at);
                    // `use a::{..};`, `static X: T = T { .. };`
                    let is_followed = matches!(self.word(end), ";" | ",");
                    return end + usize::from(is_followed);
                }
                "(" | "[" => at = self.group_end(at),
                "<" if is_field => at = self.generics_end(at),
                _ if self.closes(at) => return at,
                _ => at += 1,
            }
        }
        at
    }

    /// After `pub`, `pub(crate)` and the like; `at` itself where there is none.
    pub(crate) fn visibility_end(&self, at: usize) -> usize {
        match (self.word(at), self.word(at + 1)) {
            ("pub", "(") => self.group_end(at + 1),
            ("pub", _) => at + 1,
            _ => at,
        }
    }
}
