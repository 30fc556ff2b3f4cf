//! A test that another test starts is no test: it says so, and runners do not run it. Other reasons to ignore a test are few, and
//! `./x test` expects each such test by name (`crates/xtask/skips`).

use super::Source;

/// How the reason of an ignored test begins. crates/xtask counts no test whose reason begins with the first.
const REASONS: [&str; 4] = [
    "is started by",
    "needs a GPU",
    "prints timings",
    "a measurement",
];

/// `#[test]` functions that return at once where a variable is not set, and would pass without a test. With
/// `#[ignore = "is started by .."]` they run when they are asked for only, and count nowhere (crates/xtask).
pub(crate) fn check(source: &Source) -> Vec<String> {
    let lines: Vec<&str> = source.text.lines().map(str::trim).collect();
    let tests = (0..lines.len()).filter(|&at| lines[at] == "#[test]");
    let strange = (0..lines.len()).filter(|&at| is_ignored_otherwise(lines[at]));
    let strange = strange.map(|at| {
        format!(
            "{}:{}: an ignored test says why by one of {REASONS:?}",
            source.path,
            at + 1
        )
    });
    let returning = tests
        .filter(|&at| {
            let attributes = lines[at + 1..].iter().take_while(|l| l.starts_with("#["));
            let ignored = attributes.clone().any(|line| line.starts_with("#[ignore"));
            let function = at + 1 + attributes.count();
            let body: Vec<&str> = lines.iter().skip(function + 1).take(3).copied().collect();
            !ignored && is_early_return(&body)
        })
        .map(|at| {
            format!(
                "{}:{}: a test that returns without its variable: #[ignore = \"is started by ..\"]",
                source.path,
                at + 1
            )
        });
    strange.chain(returning).collect()
}

/// Returns whether this is an attribute that ignores a test for another reason, or for none.
fn is_ignored_otherwise(line: &str) -> bool {
    let Some(rest) = line.strip_prefix("#[ignore") else {
        return false;
    };
    let reason = rest.strip_prefix(" = \"").unwrap_or("");
    !REASONS.iter().any(|known| reason.starts_with(known))
}

/// `let .. = env::var(..) else {`, `return;`, over up to three lines.
fn is_early_return(body: &[&str]) -> bool {
    let text = body.join(" ");
    let Some((head, rest)) = text.split_once(" else {") else {
        return false;
    };
    head.starts_with("let ") && head.contains("env::var") && rest.trim_start().starts_with("return")
}
