//! The processors that are near to a device. The device is of no NUMA node, so these are all processors of the machine.

use std::fmt::Write as _;
use std::fs;

/// Returns the numbers of the processors that are online, in order; no numbers if the kernel does not say.
pub(super) fn online() -> Vec<u32> {
    let text = fs::read_to_string("/sys/devices/system/cpu/online").unwrap_or_default();
    parse(text.trim()).unwrap_or_default()
}

/// Reads a list of numbers and ranges with commas; `None` if `text` is no such list.
fn parse(text: &str) -> Option<Vec<u32>> {
    /// The bound of the processor numbers. It is above what any kernel is built for.
    const MOST: u32 = 1 << 16;
    let mut numbers = Vec::new();
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
        if last >= MOST {
            return None;
        }
        numbers.extend(first..=last);
    }
    Some(numbers)
}

/// Returns the CPUs in the format of `local_cpulist`.
pub(super) fn list(numbers: &[u32]) -> String {
    let mut text = String::new();
    for run in numbers.chunk_by(|one, next| one + 1 == *next) {
        let comma = if text.is_empty() { "" } else { "," };
        let (first, last) = (run[0], run[run.len() - 1]);
        // Writing to a string does not fail.
        let _ = if first == last {
            write!(text, "{comma}{first}")
        } else {
            write!(text, "{comma}{first}-{last}")
        };
    }
    text
}

/// Returns the CPUs in the format of `local_cpus`: hexadecimal words of 32 bits with commas, the highest first.
pub(super) fn mask(numbers: &[u32]) -> String {
    let words = numbers.last().map_or(1, |last| last / 32 + 1);
    let word = |place: u32| {
        numbers
            .iter()
            .filter(|number| *number / 32 == place)
            .fold(0u32, |bits, number| bits | 1 << (number % 32))
    };
    let texts: Vec<_> = (0..words)
        .rev()
        .map(|place| format!("{:08x}", word(place)))
        .collect();
    texts.join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_as_the_kernel_writes_them() {
        for (text, expected) in [
            ("0", "00000001"),
            ("0-1", "00000003"),
            ("0-3,8,31-32", "00000001,8000010f"),
            ("64", "00000001,00000000,00000000"),
        ] {
            let numbers = parse(text).unwrap();
            assert_eq!(mask(&numbers), expected);
            assert_eq!(list(&numbers), text);
        }
        assert_eq!((mask(&[]), list(&[])), ("00000000".into(), String::new()));
    }

    #[test]
    fn what_is_no_list_is_none() {
        for text in ["", "x", "1-", "0-99999999", "1 2"] {
            assert_eq!(parse(text), None, "{text}");
        }
        assert!(!online().is_empty());
    }
}
