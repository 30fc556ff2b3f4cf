//! Keys that have ended. The checker reports each later use of such a key.

use super::{Checker, Finding};
use std::collections::VecDeque;

/// The number of ended keys that are remembered.
const KEPT: usize = 512;

/// A key that has ended.
#[derive(Clone, Copy, Debug)]
struct Ended {
    key: u32,
    iova: u64,
    bytes: u64,
    at_ns: u64,
}

/// The keys that have ended last, the oldest first.
#[derive(Debug, Default)]
pub(super) struct EndedKeys {
    keys: VecDeque<Ended>,
}

impl Checker {
    /// Notes that a key ends, which covered `bytes` bytes at `iova`.
    pub(crate) fn key_ended(&mut self, key: u32, iova: u64, bytes: u64, now_ns: u64) {
        let ended = &mut self.ended.keys;
        if ended.len() == KEPT {
            ended.pop_front();
        }
        ended.push_back(Ended {
            key,
            iova,
            bytes,
            at_ns: now_ns,
        });
    }

    /// Handles that QP `qpn` used `key`, which does not exist. Returns whether the key has existed: then a finding is noted, in words that
    /// begin with `what`.
    pub(crate) fn note_if_ended(&mut self, qpn: u32, key: u32, now_ns: u64, what: &str) -> bool {
        // Of several ended keys with this number the last one is meant.
        let Some(ended) = self.ended.keys.iter().rfind(|ended| ended.key == key) else {
            return false;
        };
        let Ended {
            iova, bytes, at_ns, ..
        } = *ended;
        self.note(Finding::KeyEnded, qpn, || {
            let ago_us = now_ns.saturating_sub(at_ns) / 1000;
            format!(
                "QP {qpn:#x}: {what} key {key:#x}, which was ended {ago_us} us before; it covered {bytes:#x} bytes at {iova:#x}"
            )
        });
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_that_has_ended_is_remembered_for_a_while() {
        let mut checker = Checker::default();
        checker.key_ended(0x1011, 0x7000, 0x40, 1_000_000);
        assert!(!checker.note_if_ended(5, 0x1012, 2_000_000, "a WQE uses"));
        assert!(checker.note_if_ended(5, 0x1011, 3_000_000, "a WQE uses"));
        assert_eq!(
            checker.texts(),
            [
                "QP 0x5: a WQE uses key 0x1011, which was ended 2000 us before; it covered 0x40 bytes at 0x7000"
            ]
        );
        for key in 0..600 {
            checker.key_ended(key, 0, 0, 0);
        }
        assert!(!checker.note_if_ended(6, 0x1011, 0, ""));
        assert_eq!(checker.ended.keys.len(), KEPT);
    }
}
