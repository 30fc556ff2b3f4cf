//! Finds the kernels that a source exports.

/// Returns the names in `SIMT_EXPORT(name)` and `WV_EXPORT(name)`, outside comments and macro definitions, in order.
pub(super) fn exported_kernels(source: &str) -> Vec<String> {
    let code = without_comments(source);
    let code: String = code
        .lines()
        .filter(|line| !line.trim_start().starts_with('#'))
        .flat_map(|line| [line, "\n"])
        .collect();
    let mut names = Vec::new();
    let mut rest = code.as_str();
    while let Some(at) = rest.find("_EXPORT(") {
        let before = rest[..at]
            .rsplit(|c: char| !is_name(c))
            .next()
            .unwrap_or("");
        let name = rest[at + "_EXPORT(".len()..]
            .split(')')
            .next()
            .unwrap_or("")
            .trim();
        if matches!(before, "SIMT" | "WV") && !name.is_empty() && name.chars().all(is_name) {
            names.push(name.to_owned());
        }
        rest = &rest[at + "_EXPORT(".len()..];
    }
    names
}

fn is_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

/// Returns the source with each comment replaced by a space. String literals are kept whole: `"//"` starts no comment.
fn without_comments(source: &str) -> String {
    let mut out = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(c) = rest.chars().next() {
        let skip = if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if let Some(comment) = rest.strip_prefix("/*") {
            comment.find("*/").map_or(rest.len(), |end| end + 4)
        } else if c == '"' {
            let literal = literal_length(rest);
            out.push_str(&rest[..literal]);
            rest = &rest[literal..];
            continue;
        } else {
            out.push(c);
            rest = &rest[c.len_utf8()..];
            continue;
        };
        out.push(' ');
        rest = &rest[skip..];
    }
    out
}

/// Returns the bytes of the string literal that `text` starts with. If it is never closed, it ends at the end of the line.
fn literal_length(text: &str) -> usize {
    let mut escaped = false;
    for (i, c) in text.char_indices().skip(1) {
        match c {
            '\n' => return i,
            '"' if !escaped => return i + 1,
            _ => escaped = c == '\\' && !escaped,
        }
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exports_are_found_in_order_and_with_spaces() {
        let source = "SIMT_EXPORT(b)\nint x; WV_EXPORT( a )\nSIMT_EXPORT(c_1);";
        assert_eq!(exported_kernels(source), ["b", "a", "c_1"]);
    }

    #[test]
    fn comments_definitions_and_other_macros_export_nothing() {
        let source = "// SIMT_EXPORT(a)\n/* SIMT_EXPORT(b)\n */ #define X\n#define WV_EXPORT(name) SIMT_EXPORT(name)\n\
                      MY_SIMT_EXPORT(c)\nNO_EXPORT(d)\nconst char* url = \"http://x\\\"//\"; SIMT_EXPORT(e)";
        assert_eq!(exported_kernels(source), ["e"]);
    }
}
