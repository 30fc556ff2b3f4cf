//! Words that threads or processes share.

// UNSAFETY: words in a mapping that other processes have, too.
#![expect(unsafe_code, reason = "a mapping")]

use std::io;
use std::ops::Deref;
use std::sync::atomic::{AtomicU32, AtomicU64};

use crate::gpu::{Mapping, SharedFile};

/// Shared words, which are zero at first.
#[derive(Debug)]
pub(super) struct Words(Kept);

#[derive(Debug)]
enum Kept {
    Own(Box<[AtomicU64]>),
    Mapped(Mapping),
}

impl Words {
    /// Returns words of this process alone.
    pub(super) fn own(count: usize) -> Self {
        Self(Kept::Own((0..count).map(|_| AtomicU64::new(0)).collect()))
    }

    /// Returns words in a file that other processes map.
    pub(super) fn shared(file: &SharedFile, count: usize) -> io::Result<Self> {
        Ok(Self(Kept::Mapped(Mapping::new(file.fd(), count * 8)?)))
    }

    /// Returns words in a mapping of another process's file.
    pub(super) fn of(mapping: Mapping) -> Self {
        Self(Kept::Mapped(mapping))
    }
}

impl Words {
    /// Returns the first half of a word. Such a word is used by halves only.
    ///
    /// # Panics
    /// If `at` is not below twice the number of words.
    pub(super) fn half(&self, at: usize) -> &AtomicU32 {
        let first = (&raw const self[at]).cast::<AtomicU32>();
        // SAFETY: the word lives as long as `self`, is aligned for its half, and all access to both halves is atomic. No process
        // uses it as a whole.
        unsafe { &*first }
    }
}

impl Deref for Words {
    type Target = [AtomicU64];

    fn deref(&self) -> &[AtomicU64] {
        match &self.0 {
            Kept::Own(words) => words,
            Kept::Mapped(mapping) => {
                let first = mapping.start().as_ptr().cast();
                // SAFETY: a mapping begins at a page and lives as long as `self`. All access to it is atomic, in every process,
                // and the file never becomes shorter.
                unsafe { std::slice::from_raw_parts(first, mapping.bytes() / 8) }
            }
        }
    }
}
