//! What a look at several keys finds.

use super::StoreError;

/// Most keys that one look names beside its prefix.
pub const MAX_LOOK: usize = 64;

/// One key as a look found it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The name of the key, whole.
    pub key: String,
    /// The bytes that it held at the time of the look.
    pub value: Vec<u8>,
    /// Revision of its newest change.
    pub revision: u64,
    /// Revision of the change that set it when it was not set.
    pub created: u64,
}

/// The keys that have changed.
#[derive(Debug)]
pub struct Changed {
    /// Those that are set, by key, each once.
    pub entries: Vec<Entry>,
    /// One error for each key whose value cannot be read. The error names the key, which is not among the entries.
    pub unreadable: Vec<StoreError>,
    /// The store's revision when it was read: the next look asks for what has changed since this one.
    pub revision: u64,
}

/// How many keys are set below a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Count {
    /// Keys at every depth.
    pub keys: u64,
    /// The greatest [`Entry::created`] of them; 0 if no key is set.
    pub newest_created: u64,
    /// The store's revision when they were counted.
    pub revision: u64,
}
