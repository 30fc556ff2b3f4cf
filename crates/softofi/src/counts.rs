//! What softofi has done in this process, as numbers that tests read ([`watch`](crate::watch)).

use std::sync::atomic::{AtomicU64, Ordering};

macro_rules! counts {
    ($($(#[doc = $doc:literal])* $name:ident,)*) => {
        /// What is counted, from the start of the process on.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u32)]
        pub enum Count {
            $($(#[doc = $doc])* $name,)*
        }

        impl Count {
            /// All of them, in the order of their numbers.
            pub const ALL: &[Self] = &[$(Self::$name),*];
        }
    };
}

counts! {
    /// Operations that were taken.
    Posts,
    /// Posts refused at random, or since the peer was new.
    Refused,
    /// Posts refused since as many operations were under way as the endpoint holds.
    Full,
    /// Completions without an error, queued.
    Completions,
    /// Completions with one.
    Errors,
    /// Completions of writes of peers that had data.
    RemoteData,
    /// Faults: completions that were kept back for ever.
    Lost,
    /// Faults: completions that were given twice.
    Doubled,
    /// Faults: completions before the last byte had landed.
    Early,
    /// Operations that a close dropped without a word.
    DroppedOperations,
    /// Completions that a close took out of a queue, or kept from it.
    DroppedCompletions,
    /// Parts that had arrived at an endpoint and had not landed when it was closed.
    DroppedPieces,
    /// Parts of operations that landed.
    Pieces,
    /// Parts that landed after their initiator was gone.
    Orphans,
    /// Calls that broke a rule.
    Rules,
    /// Registrations whose key had an earlier life.
    KeysAgain,
}

static COUNTS: [AtomicU64; Count::ALL.len()] = [const { AtomicU64::new(0) }; Count::ALL.len()];

impl Count {
    /// One more.
    pub(crate) fn add(self) {
        self.add_many(1);
    }

    pub(crate) fn add_many(self, more: usize) {
        COUNTS[self as usize].fetch_add(more as u64, Ordering::Relaxed);
    }

    /// Of this copy of the library. A test that loads libsoftofi.so has another copy: [`crate::watch::Watch`].
    pub(crate) fn value(self) -> u64 {
        COUNTS[self as usize].load(Ordering::Relaxed)
    }
}
