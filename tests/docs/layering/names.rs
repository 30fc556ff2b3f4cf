//! Names of tests: reports list them one below the other, and each is to be read at a glance.

use super::Source;

/// In characters.
const LONGEST: usize = 70;

/// `#[test]` functions with longer names. Attributes and comments may stand between, over several lines too.
pub(crate) fn check(source: &Source) -> Vec<String> {
    let lines: Vec<&str> = source.text.lines().map(str::trim).collect();
    let tests = (0..lines.len()).filter(|&at| lines[at] == "#[test]");
    tests
        .filter_map(|at| {
            let mut behind = (at + 1..).zip(&lines[at + 1..]);
            behind.find_map(|(at, line)| Some((at + 1, function_of(line)?)))
        })
        .filter(|(_, name)| name.chars().count() > LONGEST)
        .map(|(line, name)| {
            format!(
                "{}:{line}: test name has {} characters; at most {LONGEST} are allowed: {name}",
                source.path,
                name.chars().count()
            )
        })
        .collect()
}

/// `name` of `fn name(`, and of `pub async fn name(` and the like.
fn function_of(line: &str) -> Option<&str> {
    const BEFORE: [&str; 6] = [
        "pub",
        "pub(crate)",
        "pub(super)",
        "async",
        "const",
        "unsafe",
    ];
    let (before, rest) = line.split_once("fn ")?;
    let is_function = before.split_whitespace().all(|word| BEFORE.contains(&word));
    let end = rest.find(|c: char| c != '_' && !c.is_alphanumeric());
    is_function.then(|| &rest[..end.unwrap_or(rest.len())])
}
