//! Revisions in a directory: each handle numbers changes in the order in which its looks find them.

use std::collections::BTreeMap;

/// The revisions that one handle has given.
#[derive(Debug, Default)]
pub(super) struct Revisions {
    /// The number of changes that were new to a look.
    newest: u64,
    keys: BTreeMap<String, Noted>,
}

/// A key as a look has found it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Looked {
    /// The number of the key's newest change. 0: the key has no room.
    pub(super) version: u64,
    /// The number of the change that set the key when it was not set.
    pub(super) created: u64,
    /// True if the key is set.
    pub(super) set: bool,
}

/// The revisions of a key. Both are 0 if no look has found the key set.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct KeyRevisions {
    /// The revision of the look that first found the key as it is.
    pub(super) newest: u64,
    /// The revision of the look that first found the change that set the key.
    pub(super) created: u64,
}

/// What the last look found of a key, and the revisions that it got.
#[derive(Debug)]
struct Noted {
    looked: Looked,
    revisions: KeyRevisions,
}

impl Revisions {
    /// Returns the revision of the newest change that a look has found.
    pub(super) fn newest(&self) -> u64 {
        self.newest
    }

    /// Returns the revision of the newest change of `key` that a look has found; 0 if none has found one.
    pub(super) fn of(&self, key: &str) -> u64 {
        self.keys.get(key).map_or(0, |noted| noted.revisions.newest)
    }

    /// Notes what a look has found of `key`, and returns the key's revisions.
    pub(super) fn note(&mut self, key: &str, looked: Looked) -> KeyRevisions {
        let before = self.keys.get(key);
        if before.is_none() && !looked.set {
            return KeyRevisions::default();
        }
        let same = |it: &&Noted| it.looked.version == looked.version && it.looked.set == looked.set;
        if let Some(noted) = before.filter(same) {
            return noted.revisions;
        }
        let created = before
            .filter(|it| it.looked.created == looked.created)
            .map(|it| it.revisions.created);
        self.newest += 1;
        let revisions = KeyRevisions {
            newest: self.newest,
            created: created.unwrap_or(self.newest),
        };
        let noted = Noted { looked, revisions };
        self.keys.insert(key.to_owned(), noted);
        revisions
    }
}
