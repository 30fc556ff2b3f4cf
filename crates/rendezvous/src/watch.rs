//! A watch of one key.

use std::fmt;
#[cfg(feature = "etcd")]
use std::io;

use super::Entry;

/// What a watch has found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeyChange {
    /// The key has not changed.
    Nothing,
    /// The key was set to this, and may have changed again since.
    Set(Entry),
    /// The key has changed or was removed, or may have: look.
    Unknown,
}

/// What the thread that waits for one key keeps from one [`next_change`](super::Store::next_change) to the next.
pub struct KeyWatch {
    key: String,
    requests: u64,
    /// Lines of an answer of an etcd that goes on.
    #[cfg(feature = "etcd")]
    pub(crate) lines: Option<Box<dyn Iterator<Item = io::Result<String>> + Send>>,
    /// The watch stands, where a store has nothing else to keep.
    pub(crate) stands: bool,
}

impl KeyWatch {
    /// A watch of `key` that asks when it is waited for.
    #[must_use]
    pub fn new(key: &str) -> Self {
        Self {
            key: key.to_owned(),
            requests: 0,
            #[cfg(feature = "etcd")]
            lines: None,
            stands: false,
        }
    }

    /// Returns the key that the thread watches.
    #[must_use]
    pub fn key(&self) -> &str {
        &self.key
    }

    /// Returns how often it has asked its store. A standing watch gets changes without asking.
    #[must_use]
    pub fn requests(&self) -> u64 {
        self.requests
    }

    /// The store is asked once.
    pub(crate) fn asks(&mut self) {
        self.requests += 1;
    }
}

impl fmt::Debug for KeyWatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { key, requests, .. } = self;
        write!(f, "KeyWatch({key}, {requests} requests)")
    }
}
