//! What a reader of the device headers may rely on. A fence says what it pairs with, and a function that users call says what it
//! does and how it can end.

use super::{HEADERS, Source};

/// Fences as instructions, or by the kind of the QP: the callers of these say why.
const FENCES_THEMSELVES: &[&str] = &["ptx.cuh", "simt_ops.cuh", "order.cuh"];
/// A reason stands at most so many lines above its fence.
const NEAR: usize = 9;
/// What users call.
const FOR_USERS: &[&str] = &[
    "put.cuh",
    "get.cuh",
    "amo.cuh",
    "imm.cuh",
    "wait.cuh",
    "quiet.cuh",
    "post.cuh",
    "guard.cuh",
    "path.cuh",
    "peer.cuh",
];

pub(crate) fn check(source: &Source) -> Vec<String> {
    let lines: Vec<&str> = source.text.lines().collect();
    let mut violations = Vec::new();
    let in_library = source.path.starts_with(HEADERS);
    let in_moe = source.path.starts_with("kernels/moe/");
    if (in_library || in_moe) && !FENCES_THEMSELVES.contains(&source.file_name()) {
        violations.extend(fences(source, &lines));
    }
    if in_library && FOR_USERS.contains(&source.file_name()) {
        violations.extend(functions(source, &lines));
    }
    violations
}

/// Each fence has a comment just above it that names its partner.
fn fences<'a>(source: &'a Source, lines: &'a [&str]) -> impl Iterator<Item = String> + 'a {
    let is_fence = |line: &str| {
        let code = line.split("//").next().unwrap_or("");
        ["platform::fence_", "order::fence_"]
            .iter()
            .any(|name| code.contains(name))
    };
    let is_partner = |line: &&str| {
        let comment = line.trim_start().strip_prefix("//");
        comment.is_some_and(|text| text.contains("pairs") || text.contains("Pairs"))
    };
    let places = lines.iter().enumerate();
    places.filter_map(move |(at, line)| {
        let above = &lines[at.saturating_sub(NEAR)..at];
        (is_fence(line) && !above.iter().any(is_partner)).then(|| {
            format!(
                "{}:{}: a fence without the word what it pairs with",
                source.path,
                at + 1
            )
        })
    })
}

/// Each function outside of `detail` has a description, and `@return` if it may fail.
fn functions(source: &Source, lines: &[&str]) -> Vec<String> {
    let mut violations = Vec::new();
    let mut hidden = false;
    for (at, line) in lines.iter().enumerate() {
        if let Some(name) = line.strip_prefix("namespace ") {
            hidden = name.starts_with("detail") || name.starts_with("imm");
        } else if line.starts_with("}  // namespace") {
            hidden = false;
        }
        if hidden || !line.starts_with("WV_DEVICE") || line.contains("::refresh(") {
            continue;
        }
        let mut above = lines[..at].iter().rev().peekable();
        while above
            .next_if(|line| !line.starts_with("///") && !line.is_empty())
            .is_some()
        {}
        let doc: Vec<&str> = above
            .take_while(|line| line.starts_with("///"))
            .copied()
            .collect();
        let place = format!("{}:{}", source.path, at + 1);
        let can_fail = line.contains(" Status ") || line.contains(" Posted ");
        let says = |words: &str| doc.iter().any(|line| line.contains(words));
        if doc.is_empty() {
            violations.push(format!("{place}: a function for users without description"));
        } else if can_fail && !says("@return") && !says("/// As ") && !says("/// The same") {
            violations.push(format!("{place}: nothing says how it can end"));
        }
    }
    violations
}

#[test]
fn a_fence_without_partner_and_a_function_without_description_are_found() {
    let found = |path: &str, text: &str| check(&Source::new(path, text));
    let fence = "  platform::fence_release();\n";
    let header = "kernels/include/warpverbs/detail/serve.cuh";
    assert_eq!(found(header, fence).len(), 1);
    assert_eq!(found("kernels/moe/send.cuh", fence).len(), 1);
    let named = format!("// Release. Pairs with the NIC.\n{fence}");
    assert_eq!(found(header, &named), [""; 0]);
    assert_eq!(
        found("kernels/include/warpverbs/detail/ptx.cuh", fence),
        [""; 0]
    );
    let put = "kernels/include/warpverbs/put.cuh";
    let function = "template <class Q>\nWV_DEVICE Status put(const Q& qp) {\n";
    for (doc, count) in [
        ("", 1),
        ("/// Puts.\n", 1),
        ("/// Puts. @return `ok`.\n", 0),
        ("/// As put of a QP.\n", 0),
        ("\n/// Puts. @return `ok`.\n\n", 1),
    ] {
        assert_eq!(
            found(put, &format!("{doc}{function}")).len(),
            count,
            "{doc}"
        );
    }
    let detail = format!("namespace detail {{\n{function}}}  // namespace detail\n");
    assert_eq!(found(put, &detail), [""; 0]);
}
