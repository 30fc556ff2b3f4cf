//! The results of a look at several keys.

use super::StoreError;

/// A key as a look found it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The whole name of the key.
    pub key: String,
    /// The bytes that it held at the time of the look.
    pub value: Vec<u8>,
    /// The revision of its newest change.
    pub revision: u64,
    /// The revision of the change that set the key when it was not set.
    pub created: u64,
}

/// The keys that have changed, as a look found them.
#[derive(Debug)]
pub struct Changed {
    /// The keys that are set, sorted, each once.
    pub entries: Vec<Entry>,
    /// The errors of the keys whose values cannot be read. Each error names its key, which is not among the entries.
    pub unreadable: Vec<StoreError>,
    /// The store's revision at the look: the next look asks for what has changed since this revision.
    pub revision: u64,
}

/// The number of keys that are set below a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Count {
    /// The number of keys at every depth.
    pub keys: u64,
    /// The greatest [`Entry::created`] of these keys; 0 if no key is set.
    pub newest_created: u64,
    /// The store's revision at the count.
    pub revision: u64,
}
