//! What stands in the body of one module: its items, its imports, and every path that its code names.

use super::code::Code;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// Words before the name of an item.
const KINDS: [&str; 8] = [
    "fn", "struct", "enum", "trait", "type", "const", "static", "union",
];

#[derive(Default)]
pub(crate) struct Body {
    /// Macros too.
    pub(crate) items: BTreeSet<String>,
    /// The name that `use` brings, with its path.
    pub(crate) imports: BTreeMap<String, Path>,
    /// The path before `::*`.
    pub(crate) globs: Vec<Path>,
    pub(crate) named: Vec<Named>,
    /// Of `mod name;`.
    pub(crate) files: Vec<String>,
    /// Of `mod name { .. }`.
    pub(crate) inner: Vec<(String, Body)>,
}

/// The names between `::`.
pub(crate) type Path = Vec<String>;

pub(crate) struct Named {
    pub(crate) path: Path,
    pub(crate) line: usize,
    /// All that the path has: `use path::*`.
    pub(crate) is_glob: bool,
}

impl Body {
    pub(crate) fn of(code: &Code) -> Self {
        Self::within(code, 0..code.len())
    }

    fn within(code: &Code, range: Range<usize>) -> Self {
        let mut body = Self::default();
        // Of each open bracket whether what stands in it is no item of the module. Braces of a macro hide nothing.
        let mut hidden: Vec<bool> = Vec::new();
        let mut at = range.start;
        while at < range.end {
            if let Some(end) = code.attribute_end(at) {
                at = end;
                continue;
            }
            if code.opens(at) {
                let of_macro = code.before(at) == "!" || at >= 2 && code.word(at - 2) == "!";
                hidden.push(code.word(at) == "{" && !of_macro);
            } else if code.closes(at) {
                hidden.pop();
            }
            match code.word(at) {
                "mod" if code.is_name(at + 1) && code.word(at + 2) == ";" => {
                    body.files.push(code.word(at + 1).to_owned());
                    at += 3;
                    continue;
                }
                "mod" if code.is_name(at + 1) && code.word(at + 2) == "{" => {
                    let end = code.group_end(at + 2);
                    let inner = Self::within(code, at + 3..end - 1);
                    body.inner.push((code.word(at + 1).to_owned(), inner));
                    at = end;
                    continue;
                }
                "use" if begins_import(code, at) => {
                    let end = (at..range.end).find(|&at| code.word(at) == ";");
                    let end = end.unwrap_or(range.end);
                    body.import(code, at + 1..end, &[]);
                    at = end + 1;
                    continue;
                }
                "macro_rules" if code.word(at + 1) == "!" => {
                    body.items.insert(code.word(at + 2).to_owned());
                    at = code.group_end(at + 3);
                    continue;
                }
                _ if names_item(code, at) && !hidden.contains(&true) => {
                    body.items.insert(code.word(at + 1).to_owned());
                }
                _ => {}
            }
            at = body.path_at(code, at, range.end);
        }
        body
    }

    /// Notes the path that begins at `at`, if one does; where to go on.
    fn path_at(&mut self, code: &Code, at: usize, end: usize) -> usize {
        if !code.is_name(at) || matches!(code.before(at), "::" | ".") {
            return at + 1;
        }
        let mut path = vec![code.word(at).to_owned()];
        let mut next = at + 1;
        while next + 1 < end && code.word(next) == "::" && code.is_name(next + 1) {
            path.push(code.word(next + 1).to_owned());
            next += 2;
        }
        if path.len() == 1 {
            return at + 1;
        }
        self.named.push(Named {
            path,
            line: code.line(at),
            is_glob: false,
        });
        next
    }

    /// The tree of one `use`, below `prefix`.
    fn import(&mut self, code: &Code, range: Range<usize>, prefix: &[String]) {
        let mut path = prefix.to_vec();
        for at in range.clone() {
            let line = code.line(at);
            match code.word(at) {
                "::" => {}
                "{" => {
                    for part in parts(code, at + 1..code.group_end(at) - 1) {
                        self.import(code, part, &path);
                    }
                    return;
                }
                "*" => {
                    self.globs.push(path.clone());
                    self.named.push(Named {
                        path,
                        line,
                        is_glob: true,
                    });
                    return;
                }
                "as" => return self.bring(code.word(at + 1), path, line),
                "self" if !path.is_empty() => {}
                name => path.push(name.to_owned()),
            }
        }
        if let Some(name) = path.last().cloned().filter(|_| !range.is_empty()) {
            self.bring(&name, path, code.line(range.start));
        }
    }

    fn bring(&mut self, name: &str, path: Path, line: usize) {
        self.named.push(Named {
            path: path.clone(),
            line,
            is_glob: false,
        });
        if name != "_" {
            self.imports.insert(name.to_owned(), path);
        }
    }
}

/// `use` as a statement, and not `use<'a>` of a type.
fn begins_import(code: &Code, at: usize) -> bool {
    matches!(code.before(at), "" | ";" | "}" | "{" | "]" | ")" | "pub")
}

/// `struct Name`, and neither `*const T` nor `<const N: usize>`.
fn names_item(code: &Code, at: usize) -> bool {
    let is_of_a_type = matches!(code.before(at), "*" | "<");
    KINDS.contains(&code.word(at)) && code.is_name(at + 1) && !is_of_a_type
}

/// Returns what the commas of this level separate.
fn parts(code: &Code, range: Range<usize>) -> Vec<Range<usize>> {
    let (mut found, mut start, mut depth) = (Vec::new(), range.start, 0);
    for at in range.clone() {
        if code.opens(at) {
            depth += 1;
        } else if code.closes(at) {
            depth -= 1;
        } else if code.word(at) == "," && depth == 0 {
            found.push(start..at);
            start = at + 1;
        }
    }
    found.push(start..range.end);
    found.retain(|part| !part.is_empty());
    found
}
