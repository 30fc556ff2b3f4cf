//! What a thread posts together, in memory that is used again for the next chain.

use std::ops::Range;

/// By which the caller knows a WQE when it is accounted for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tag {
    /// The slot of its transfer.
    pub slot: u32,
    /// Place of the slice in its transfer.
    pub slice: u32,
}

/// What a WQE does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    /// Write to the peer.
    Write,
    /// Write to the peer, and consume one of its receive WQEs with this word as the immediate.
    WriteImmediate(u32),
    /// Read from the peer.
    Read,
}

/// A range of registered memory of this side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LocalRange {
    /// First byte.
    pub address: u64,
    /// Its lkey.
    pub key: u32,
    /// Its length, 1 to 2^30.
    pub bytes: u32,
}

/// One WQE to post.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Work {
    /// What it does.
    pub verb: Verb,
    /// First byte at the peer.
    pub remote: u64,
    /// The rkey of the peer's memory.
    pub key: u32,
    /// By which the caller knows it.
    pub tag: Tag,
    first_range: u32,
    ranges: u32,
    stays_in_place: bool,
    copier: u8,
}

impl Work {
    /// Returns whether this thread does not reach its bytes: the HCA reads them itself.
    #[must_use]
    pub const fn stays_in_place(&self) -> bool {
        self.stays_in_place
    }

    /// Returns the number of the GPU that copies its bytes where no HCA moves them; 0: the thread does.
    #[must_use]
    pub const fn copier(&self) -> u8 {
        self.copier
    }
}

/// WQEs in order.
#[derive(Clone, Debug, Default)]
pub struct Chain {
    works: Vec<Work>,
    ranges: Vec<LocalRange>,
}

impl Chain {
    /// Forgets all of them. Their memory stays for the next.
    pub fn clear(&mut self) {
        self.works.clear();
        self.ranges.clear();
    }

    /// Adds a WQE over these local ranges, which follow each other at the peer.
    pub fn push(
        &mut self,
        verb: Verb,
        tag: Tag,
        remote: u64,
        key: u32,
        ranges: impl IntoIterator<Item = LocalRange>,
    ) {
        let first = self.ranges.len();
        self.ranges.extend(ranges);
        let count = self.ranges.len() - first;
        self.works.push(Work {
            verb,
            remote,
            key,
            tag,
            first_range: index(first),
            ranges: index(count),
            stays_in_place: false,
            copier: 0,
        });
    }

    /// This thread does not reach the bytes of the last WQE, which so does not carry them.
    pub fn keep_in_place(&mut self) {
        if let Some(last) = self.works.last_mut() {
            last.stays_in_place = true;
        }
    }

    /// Where no HCA moves the bytes of the last WQE, the GPU with this number copies them; 0: the thread does.
    pub fn copy_by(&mut self, copier: u8) {
        if let Some(last) = self.works.last_mut() {
            last.copier = copier;
        }
    }

    /// Number of WQEs in the chain.
    #[must_use]
    pub fn len(&self) -> usize {
        self.works.len()
    }

    /// Returns whether the chain is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.works.is_empty()
    }

    /// Those with these numbers, as far as it has them, each with its local ranges.
    pub fn range(&self, which: Range<usize>) -> impl Iterator<Item = (&Work, &[LocalRange])> {
        self.from(which.start).take(which.len())
    }

    /// Those from number `first` on, each with its local ranges.
    pub fn from(&self, first: usize) -> impl Iterator<Item = (&Work, &[LocalRange])> {
        self.works.iter().skip(first).map(|work| {
            let start = work.first_range as usize;
            let range: Range<usize> = start..start + work.ranges as usize;
            (work, &self.ranges[range])
        })
    }
}

/// A chain is short.
fn index(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}
