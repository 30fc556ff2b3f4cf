//! What the checkers of a program's HCAs found, in one line at its end.
//!
//! Each process appends a line per finding to one file: its kind, the process, the device and the words. The words were
//! printed when it happened.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// The line, if the checker has findings.
pub(super) fn summary(file: &Path) -> Option<String> {
    summary_of(&fs::read_to_string(file).ok()?)
}

fn summary_of(lines: &str) -> Option<String> {
    let mut counts: BTreeMap<&str, u64> = BTreeMap::new();
    for kind in lines
        .lines()
        .filter_map(|line| line.split_whitespace().next())
    {
        *counts.entry(kind).or_default() += 1;
    }
    let total: u64 = counts.values().sum();
    let kinds: Vec<String> = counts
        .iter()
        .map(|(kind, count)| format!("{count} {kind}"))
        .collect();
    let findings = if total == 1 { "finding" } else { "findings" };
    (total > 0).then(|| {
        format!(
            "wv sim: {total} {findings} of the checker: {}",
            kinds.join(", ")
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn findings_are_counted_by_kind() {
        assert_eq!(summary_of(""), None);
        assert_eq!(
            summary_of("cq-overrun 7 mlx5_0: CQ 0x400 overran\n").unwrap(),
            "wv sim: 1 finding of the checker: 1 cq-overrun"
        );
        assert_eq!(
            summary_of("wqe-qpn 7 mlx5_0: a\ncq-overrun 7 mlx5_0: b\nwqe-qpn 8 mlx5_1: c\n")
                .unwrap(),
            "wv sim: 3 findings of the checker: 1 cq-overrun, 2 wqe-qpn"
        );
    }
}
