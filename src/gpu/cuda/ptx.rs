//! The checked-in PTX: its kernels, its architectures, and the lengths of the kernels' parameters.

use std::collections::BTreeMap;

use crate::gpu::KernelSet;

/// One PTX file.
#[derive(Clone, Copy, Debug)]
pub(super) struct Source {
    /// Path below the package's folder of PTX, for messages.
    pub(super) path: &'static str,
    /// The text, without a NUL.
    pub(super) text: &'static str,
}

/// A kernel in a PTX file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Entry<'a> {
    pub(super) name: &'a str,
    /// Bytes of its one parameter struct.
    pub(super) param_bytes: usize,
}

/// Returns the newest PTX of `set` that a device of `arch` (90 for sm_90) can run, and its architecture.
pub(super) fn sources(set: &KernelSet, arch: u32) -> (u32, Vec<Source>) {
    let mut by_arch: BTreeMap<u32, Vec<Source>> = BTreeMap::new();
    for &(for_arch, path, text) in set.ptx() {
        by_arch
            .entry(for_arch)
            .or_default()
            .push(Source { path, text });
    }
    let newest = by_arch.range(..=arch).next_back();
    newest.map_or((0, Vec::new()), |(arch, sources)| (*arch, sources.clone()))
}

/// Returns the version of a PTX text, `.version 9.0`. Zeros if the text has none.
pub(super) fn version(text: &str) -> (u32, u32) {
    let line = text
        .lines()
        .find_map(|line| line.trim().strip_prefix(".version "));
    let numbers = line.and_then(|line| line.trim().split_once('.'));
    let number = |text: &str| text.parse().unwrap_or(0);
    numbers.map_or((0, 0), |(major, minor)| (number(major), number(minor)))
}

/// The versions that can read PTX of some version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Needs {
    /// CUDA version of the driver.
    pub(super) cuda: (u32, u32),
    /// First driver release of that version.
    pub(super) release: u32,
}

impl Needs {
    /// Returns the needs of a PTX version, by the release notes of PTX and of CUDA, from CUDA 11.8 on.
    pub(super) fn of(major: u32, minor: u32) -> Self {
        let (cuda, release) = match (major, minor) {
            (..=7, _) => ((11, 8), 520),
            (8, 0) => ((12, 0), 525),
            (8, 1) => ((12, 1), 530),
            (8, 2) => ((12, 2), 535),
            (8, 3) => ((12, 3), 545),
            (8, 4) => ((12, 4), 550),
            (8, 5) => ((12, 5), 555),
            (8, 6) => ((12, 7), 565),
            (8, 7) => ((12, 8), 570),
            (8, _) => ((12, 9), 575),
            (major, minor) => ((major + 4, minor), 580),
        };
        Self { cuda, release }
    }
}

/// Returns the kernels of a PTX text: the name after `.entry`, and the sum of the sizes of its parameters.
pub(super) fn entries(text: &str) -> Vec<Entry<'_>> {
    text.split(".entry ")
        .skip(1)
        .filter_map(|rest| {
            let (name, rest) = rest.split_once(['(', '\n'])?;
            let (params, _) = rest.split_once(')')?;
            Some(Entry {
                name: name.trim(),
                param_bytes: params.split(',').filter_map(param_bytes).sum(),
            })
        })
        .collect()
}

/// Returns the bytes of a parameter: `.param .align 8 .b8 NAME[112]` or `.param .u64 NAME`.
fn param_bytes(param: &str) -> Option<usize> {
    let mut words = param
        .split_whitespace()
        .skip_while(|word| *word != ".param")
        .skip(1);
    let mut kind = words.next()?;
    if kind == ".align" {
        kind = words.nth(1)?;
    }
    let bits: usize = kind
        .trim_start_matches(|c: char| !c.is_ascii_digit())
        .parse()
        .ok()?;
    let count = match words.next()?.split_once('[') {
        Some((_, length)) => length.trim_end_matches(']').parse().ok()?,
        None => 1,
    };
    Some(bits / 8 * count)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gpu::kernel_set::LIBRARY;

    const TEXT: &str = "
.version 9.0
.target sm_90
.visible .entry wv_put(
\t.param .align 8 .b8 wv_put_param_0[112]
)
.maxntid 1024
{
\tret;
}
.visible .entry two(
\t.param .u64 two_param_0,
\t.param .u32 two_param_1
)
{ ret; }
.visible .entry none()
{ ret; }
";

    #[test]
    fn kernels_and_the_length_of_their_parameters_are_read_from_the_text() {
        let expected = [("wv_put", 112), ("two", 12), ("none", 0)];
        let expected = expected.map(|(name, param_bytes)| Entry { name, param_bytes });
        assert_eq!(entries(TEXT), expected);
    }

    #[test]
    fn the_version_says_which_driver_it_takes() {
        assert_eq!(version(TEXT), (9, 0));
        assert_eq!(version("no PTX"), (0, 0));
        let needs = |(major, minor)| {
            let needs = Needs::of(major, minor);
            (needs.cuda, needs.release)
        };
        assert_eq!(needs((9, 0)), ((13, 0), 580));
        assert_eq!(needs((8, 8)), ((12, 9), 575));
        assert_eq!(needs((8, 4)), ((12, 4), 550));
        assert_eq!(needs((7, 8)), ((11, 8), 520));
    }

    #[test]
    fn every_checked_in_file_holds_kernels_of_one_struct_and_no_nul() {
        for arch in [80, 90] {
            for source in sources(&LIBRARY, arch).1 {
                let entries = entries(source.text);
                assert!(!entries.is_empty(), "{}", source.path);
                assert!(!source.text.contains('\0'), "{}", source.path);
                for entry in entries {
                    assert!(
                        (1..=4096).contains(&entry.param_bytes),
                        "{} in {}",
                        entry.name,
                        source.path
                    );
                }
            }
        }
    }

    #[test]
    fn a_device_gets_the_newest_architecture_that_it_can_run() {
        assert_eq!(sources(&LIBRARY, 75).1.len(), 0);
        let (newest, _) = sources(&LIBRARY, 120);
        assert!(newest <= 120);
    }
}
