//! The number of findings of all checkers of a program's HCAs, as one line at its end.
//!
//! Each process appends a line for each finding to one file: the kind, the process, the device and the words. The words were also printed
//! when the finding was made.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;

/// The extension of the file by which a process says that it could not write a finding.
const LOST: &str = "lost";

/// Why the findings cannot be counted.
#[derive(Debug, Error)]
pub(super) enum Lost {
    #[error("the findings of the checker cannot be kept in {}: {source}", .file.display())]
    File { file: PathBuf, source: io::Error },
    #[error(
        "a process has found something and could not write it to {}: what it found is on its stderr, unless --check quiet was given",
        .file.display()
    )]
    Unwritten { file: PathBuf },
}

/// Makes the file empty. If it is missing at the end, that is an error.
pub(super) fn begin(file: &Path) -> Result<(), Lost> {
    fs::write(file, "").map_err(lost(file))
}

/// Returns the line that sums up the findings, or None if there are no findings.
pub(super) fn summary(file: &Path) -> Result<Option<String>, Lost> {
    if file.with_extension(OsStr::new(LOST)).exists() {
        let file = file.to_owned();
        return Err(Lost::Unwritten { file });
    }
    let lines = fs::read(file).map_err(lost(file))?;
    Ok(summary_of(&String::from_utf8_lossy(&lines)))
}

fn lost(file: &Path) -> impl FnOnce(io::Error) -> Lost {
    let file = file.to_owned();
    move |source| Lost::File { file, source }
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
