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
    /// The key was set to this entry, and may have changed again since.
    Set(Entry),
    /// The key may have changed or been removed: read it.
    Unknown,
}

/// The lines of an answer of an etcd that goes on.
#[cfg(feature = "etcd")]
pub(crate) type Lines = Box<dyn Iterator<Item = io::Result<String>> + Send>;

/// What a thread that waits for one key keeps from one [`next_change`](super::Store::next_change) to the next.
pub struct KeyWatch {
    key: String,
    requests: u64,
    /// Lines that the next wait reads on.
    #[cfg(feature = "etcd")]
    lines: Option<Lines>,
    stands: bool,
}

impl KeyWatch {
    /// Returns a watch of `key`. It asks the store at the first wait.
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

    /// Returns how often the watch has asked its store. A standing watch gets changes without asking.
    #[must_use]
    pub fn requests(&self) -> u64 {
        self.requests
    }

    /// Counts one request to the store.
    pub(crate) fn asks(&mut self) {
        self.requests += 1;
    }

    /// Returns whether the watch stands: its store tells it of changes without being asked again.
    pub(crate) fn stands(&self) -> bool {
        self.stands
    }

    /// Notes whether the watch stands.
    pub(crate) fn set_stands(&mut self, stands: bool) {
        self.stands = stands;
    }

    /// Takes the lines that the last wait has kept.
    #[cfg(feature = "etcd")]
    pub(crate) fn take_lines(&mut self) -> Option<Lines> {
        self.lines.take()
    }

    /// Keeps `lines` for the next wait.
    #[cfg(feature = "etcd")]
    pub(crate) fn keep_lines(&mut self, lines: Lines) {
        self.lines = Some(lines);
    }
}

impl fmt::Debug for KeyWatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { key, requests, .. } = self;
        write!(f, "KeyWatch({key}, {requests} requests)")
    }
}
