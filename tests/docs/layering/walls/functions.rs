//! Functions that are hard to call or to read. Of `src` without its tests and without src/sys/bindings.rs, which bindgen writes,
//! each `fn` with a name counts: free ones, methods, those of traits with and without a body, and those in other functions.
//! Closures and types of functions (`fn(u32)`) do not.
//!
//! - A tuple as a parameter: its type is a tuple, or a reference to one. `()` and a list of tuples are none.
//! - More than six arguments: what a caller writes between the parentheses, so without `self`.
//! - Over 60 lines: from `fn` to the closing brace, with comments and empty lines inside.

use super::code::Code;
use super::compare::Count;
use super::modules::Crate;
use std::collections::BTreeMap;
use std::ops::Range;

const MOST_ARGUMENTS: usize = 6;
const MOST_LINES: usize = 60;

pub(crate) struct Function {
    name: String,
    line: usize,
    lines: usize,
    arguments: usize,
    takes_tuple: bool,
}

/// Returns how many functions of each module have a tuple as a parameter.
pub(crate) fn with_tuples(of: &Crate) -> BTreeMap<String, Count> {
    counted(of, |function| function.takes_tuple.then(String::new))
}

/// Returns how many functions of each module have more than `MOST_ARGUMENTS`.
pub(crate) fn with_many_arguments(of: &Crate) -> BTreeMap<String, Count> {
    counted(of, |function| {
        let arguments = function.arguments;
        (arguments > MOST_ARGUMENTS).then(|| format!(" has {arguments} arguments"))
    })
}

/// Returns how many functions of each module have over `MOST_LINES`.
pub(crate) fn long(of: &Crate) -> BTreeMap<String, Count> {
    counted(of, |function| {
        let lines = function.lines;
        (lines > MOST_LINES).then(|| format!(" has {lines} lines"))
    })
}

/// `judge` returns what a reader hears of a function that counts.
fn counted(of: &Crate, judge: impl Fn(&Function) -> Option<String>) -> BTreeMap<String, Count> {
    let mut counts: BTreeMap<String, Count> = BTreeMap::new();
    for (at, file) in of.files.iter().enumerate() {
        if super::super::GENERATED.contains(&file.path) {
            continue;
        }
        for function in functions(&file.code) {
            let Some(words) = judge(&function) else {
                continue;
            };
            let place = format!("{}/{}", of.folder, of.module_of(at));
            let count = counts.entry(place).or_default();
            count.number += 1;
            count.detail.push(format!(
                "{}:{} {}{words}",
                file.path, function.line, function.name
            ));
        }
    }
    counts
}

fn functions(code: &Code) -> Vec<Function> {
    let heads = (0..code.len()).filter(|&at| code.word(at) == "fn" && code.is_name(at + 1));
    heads.filter_map(|at| function(code, at)).collect()
}

/// The one whose `fn` is at `at`.
fn function(code: &Code, at: usize) -> Option<Function> {
    let open = code.generics_end(at + 2);
    if code.word(open) != "(" {
        return None;
    }
    let close = code.group_end(open);
    let parameters = parameters(code, open + 1..close - 1);
    let types = parameters
        .iter()
        .filter_map(|parameter| type_of(code, parameter.clone()));
    let is_receiver = |parameter: &Range<usize>| {
        let mut names = parameter
            .clone()
            .filter(|&at| code.is_name(at) && code.word(at) != "mut");
        names.next().is_some_and(|at| code.word(at) == "self")
    };
    let receivers = parameters
        .first()
        .map_or(0, |first| usize::from(is_receiver(first)));
    Some(Function {
        name: code.word(at + 1).to_owned(),
        line: code.line(at),
        lines: code.line(body_end(code, close) - 1) - code.line(at) + 1,
        arguments: parameters.len() - receivers,
        takes_tuple: types.into_iter().any(|at| is_tuple(code, at)),
    })
}

/// Between the commas that no bracket holds.
fn parameters(code: &Code, range: Range<usize>) -> Vec<Range<usize>> {
    let (mut found, mut start, mut depth) = (Vec::new(), range.start, 0);
    for at in range.clone() {
        match code.word(at) {
            "(" | "[" | "{" | "<" => depth += 1,
            ")" | "]" | "}" | ">" => depth -= 1,
            "," if depth == 0 => {
                found.push(start..at);
                start = at + 1;
            }
            _ => {}
        }
    }
    found.push(start..range.end);
    found.retain(|part| !part.is_empty());
    found
}

/// Where the type of a parameter begins: after the `:` that follows its pattern.
fn type_of(code: &Code, parameter: Range<usize>) -> Option<usize> {
    let mut at = parameter.start;
    while at < parameter.end {
        if code.word(at) == ":" {
            return Some(at + 1);
        }
        at = if code.opens(at) {
            code.group_end(at)
        } else {
            at + 1
        };
    }
    None
}

fn is_tuple(code: &Code, start: usize) -> bool {
    let is_reference = |at: usize| {
        let word = code.word(at);
        word == "&" || word == "mut" || word.starts_with('\'')
    };
    let at = (start..code.len()).find(|&at| !is_reference(at));
    at.is_some_and(|at| code.word(at) == "(" && code.word(at + 1) != ")")
}

/// After the body, or after the `;` of a function that has none.
fn body_end(code: &Code, mut at: usize) -> usize {
    while at < code.len() {
        match code.word(at) {
            ";" => return at + 1,
            "{" => return code.group_end(at),
            "(" | "[" => at = code.group_end(at),
            _ => at += 1,
        }
    }
    at
}
