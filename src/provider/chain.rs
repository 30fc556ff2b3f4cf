//! A chain: the WQEs that a thread posts together. Its memory is used again for the next chain.

use std::ops::Range;

/// The name that the caller gives a WQE, and by which the caller knows the WQE when it is accounted for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tag {
    /// The slot of the WQE's transfer.
    pub slot: u32,
    /// Place of the slice in its transfer.
    pub slice: u32,
}

/// What a WQE does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    /// Writes to the peer.
    Write,
    /// Writes to the peer, and consumes one of the peer's receive WQEs, which takes this word as the immediate.
    WriteImmediate(u32),
    /// Reads from the peer.
    Read,
}

/// A range of registered memory of this side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LocalRange {
    /// The address of the first byte.
    pub address: u64,
    /// The lkey of its region.
    pub key: u32,
    /// The number of bytes, 1 to 2^30.
    pub bytes: u32,
}

/// One WQE to post.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Work {
    /// What the WQE does.
    pub verb: Verb,
    /// The address of the first byte at the peer.
    pub remote: u64,
    /// The rkey of the peer's memory.
    pub key: u32,
    /// The caller's name for the WQE.
    pub tag: Tag,
    first_range: u32,
    ranges: u32,
    stays_in_place: bool,
    copier: u8,
}

impl Work {
    /// Returns whether the posting thread must not read the bytes of this WQE: the HCA reads them itself.
    #[must_use]
    pub const fn stays_in_place(&self) -> bool {
        self.stays_in_place
    }

    /// Returns the number of the GPU that copies the bytes if no HCA moves them. 0: the posting thread copies them.
    #[must_use]
    pub const fn copier(&self) -> u8 {
        self.copier
    }
}

/// A WRITE as a loop without an engine takes it, which knows the keys itself.
#[derive(Clone, Copy, Debug)]
pub struct BareWrite {
    /// Address of the first byte at this end.
    pub local: u64,
    /// Address of the first byte at the other end.
    pub remote: u64,
    /// Number of bytes.
    pub bytes: u32,
}

/// WQEs in order.
#[derive(Clone, Debug, Default)]
pub struct Chain {
    works: Vec<Work>,
    ranges: Vec<LocalRange>,
}

impl Chain {
    /// Removes all WQEs. Their memory stays for the next chain.
    pub fn clear(&mut self) {
        self.works.clear();
        self.ranges.clear();
    }

    /// Adds a WQE over these local ranges, whose bytes are contiguous at the peer.
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

    /// Notes that the posting thread must not read the bytes of the last WQE: so the WQE never carries them inline.
    pub fn keep_in_place(&mut self) {
        if let Some(last) = self.works.last_mut() {
            last.stays_in_place = true;
        }
    }

    /// Notes which GPU copies the bytes of the last WQE if no HCA moves them. 0: the posting thread copies them.
    pub fn copy_by(&mut self, copier: u8) {
        if let Some(last) = self.works.last_mut() {
            last.copier = copier;
        }
    }

    /// Returns the number of WQEs in the chain.
    #[must_use]
    pub fn len(&self) -> usize {
        self.works.len()
    }

    /// Returns whether the chain is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.works.is_empty()
    }

    /// Returns the WQEs with these numbers, as far as the chain has them, each with its local ranges.
    pub fn range(&self, which: Range<usize>) -> impl Iterator<Item = (&Work, &[LocalRange])> {
        self.from(which.start).take(which.len())
    }

    /// Returns the WQEs from number `first` on, each with its local ranges.
    pub fn from(&self, first: usize) -> impl Iterator<Item = (&Work, &[LocalRange])> {
        self.works.iter().skip(first).map(|work| {
            let start = work.first_range as usize;
            let range: Range<usize> = start..start + work.ranges as usize;
            (work, &self.ranges[range])
        })
    }
}

/// Returns `count` in 32 bits. No chain is so long that it does not fit.
fn index(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}
