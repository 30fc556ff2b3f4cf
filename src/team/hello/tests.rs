//! Records of another rank with any bytes: a typed error or a good record.

use std::ops::Range;

use super::reader::{HELLO, OFFER, RecordReader};
use crate::team::TeamError;

/// Values of a field that no rank writes, or only a rank of another kind.
const VALUES: [&str; 10] = [
    "0",
    "-1",
    "1.5",
    "255",
    "16777216",
    "4294967296",
    "18446744073709551616",
    "1e999",
    "null",
    "\"\"",
];

#[test]
fn mutated_hellos_and_offers_are_good_or_refused_by_rank() {
    let count = match std::env::var_os("WV_TEST_FULL") {
        Some(_) => 1_000_000,
        None => 20_000,
    };
    let reader = RecordReader::new();
    let (mut good, mut refused) = (0, 0);
    for seed in 0..count {
        let mut random = fastrand::Rng::with_seed(seed);
        let read = match seed % 2 {
            0 => reader.hello(&mutated(&mut random, HELLO)),
            _ => reader.offer(&mutated(&mut random, OFFER)),
        };
        match read {
            Ok(()) => good += 1,
            Err(error) => {
                let text = error.to_string();
                let is_typed = matches!(
                    error,
                    TeamError::Record { rank: 1, .. } | TeamError::Mismatch { .. }
                );
                assert!(is_typed && text.contains("rank 1"), "seed {seed}: {text}");
                refused += 1;
            }
        }
    }
    println!("{count} mutated records: {good} good, {refused} refused");
    assert!(good > 0 && refused > good, "{good} good, {refused} refused");
}

#[test]
fn the_records_that_are_mutated_are_good() {
    let reader = RecordReader::new();
    reader.hello(HELLO).unwrap();
    reader.offer(OFFER).unwrap();
}

fn mutated(random: &mut fastrand::Rng, record: &[u8]) -> Vec<u8> {
    let mut bytes = record.to_vec();
    for _ in 0..random.usize(1..=3) {
        if bytes.is_empty() {
            break;
        }
        let at = random.usize(..bytes.len());
        let range = at..bytes.len().min(at + random.usize(1..=40));
        match random.u8(..7) {
            0 => bytes[at] ^= 1 << random.u8(..8),
            1 => bytes[at] = b"{}[],:\"\\0-9e "[random.usize(..13)],
            2 => bytes.truncate(at),
            3 => drop(bytes.drain(range)),
            4 => {
                let again = bytes[range].to_vec();
                bytes.splice(at..at, again);
            }
            5 => {
                if let Some(number) = number_behind(&bytes, at) {
                    let value = VALUES[random.usize(..VALUES.len())];
                    bytes.splice(number, value.bytes());
                }
            }
            _ => drop(bytes.splice(at..at, std::iter::repeat_n(b'[', 200))),
        }
    }
    bytes
}

/// Returns the first digits at or after `at`.
fn number_behind(bytes: &[u8], at: usize) -> Option<Range<usize>> {
    let start = at + bytes[at..].iter().position(u8::is_ascii_digit)?;
    let digits = bytes[start..]
        .iter()
        .take_while(|byte| byte.is_ascii_digit());
    Some(start..start + digits.count())
}
