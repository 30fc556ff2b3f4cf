//! The operations that the checker treats as missing at present, by kernel.

/// The operation that is treated as missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Omission {
    /// Barrier number n of the grid, counted from 0 at the beginning of each launch.
    GridBarrier(u32),
    /// All barriers of blocks.
    BlockBarriers,
    /// The acquire half of all fences and atomics, not of barriers.
    Acquire,
    /// The release half of all fences and atomics, not of barriers.
    Release,
}

/// The present omissions.
#[derive(Debug, Default)]
pub(super) struct Omissions {
    all: Vec<Entry>,
    count: u64,
}

#[derive(Debug)]
struct Entry {
    number: u64,
    kernel: String,
    what: Omission,
    /// True once a launch has had the operation.
    applied: bool,
}

impl Omissions {
    /// Adds an omission. Returns its number.
    pub(super) fn add(&mut self, kernel: &str, what: Omission) -> u64 {
        self.count += 1;
        self.all.push(Entry {
            number: self.count,
            kernel: kernel.to_owned(),
            what,
            applied: false,
        });
        self.count
    }

    pub(super) fn remove(&mut self, number: u64) {
        self.all.retain(|entry| entry.number != number);
    }

    /// Returns whether a launch had the operation of that omission.
    pub(super) fn was_applied(&self, number: u64) -> bool {
        let mut all = self.all.iter();
        all.any(|entry| entry.number == number && entry.applied)
    }

    /// Returns whether `kernel`, which has this operation, is to be treated as if it lacked it.
    pub(super) fn apply(&mut self, kernel: &str, what: Omission) -> bool {
        let mut lacks = false;
        for entry in &mut self.all {
            if entry.what == what && entry.kernel == kernel {
                entry.applied = true;
                lacks = true;
            }
        }
        lacks
    }
}
