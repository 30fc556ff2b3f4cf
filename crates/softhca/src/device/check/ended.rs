//! Keys that have ended, so that the checker can report a later use of one.

use std::collections::VecDeque;

/// The number of ended keys that are remembered.
const KEPT: usize = 512;

/// A key that has ended.
#[derive(Clone, Copy, Debug)]
pub(super) struct EndedKey {
    pub(super) key: u32,
    pub(super) iova: u64,
    pub(super) bytes: u64,
    pub(super) at_ns: u64,
}

/// The keys that have ended last, the oldest first.
#[derive(Debug, Default)]
pub(super) struct EndedKeys {
    keys: VecDeque<EndedKey>,
}

impl EndedKeys {
    /// Remembers a key, in place of the oldest one if there are [`KEPT`].
    pub(super) fn add(&mut self, ended: EndedKey) {
        if self.keys.len() == KEPT {
            self.keys.pop_front();
        }
        self.keys.push_back(ended);
    }

    /// Returns the key with number `key`; the last one if several had this number.
    pub(super) fn find(&self, key: u32) -> Option<EndedKey> {
        self.keys.iter().rfind(|ended| ended.key == key).copied()
    }
}
