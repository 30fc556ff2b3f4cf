//! What travels between endpoints. Both ends are of this machine, and of one release: there is no byte order and no version.

use bytemuck::{Pod, Zeroable};

/// Bytes of a head.
pub(crate) const HEAD_BYTES: usize = size_of::<Head>();

/// Most bytes of one part.
pub(crate) const MOST_BYTES: usize = 64 << 10;

/// Kinds of frames, in `Head::kind`.
pub(crate) mod kind {
    /// From an initiator, first of all: its address, and `data` is its number.
    pub(crate) const HELLO: u32 = 1;
    /// A part of a write, with its bytes.
    pub(crate) const WRITE: u32 = 2;
    /// A part of a read is wanted, `bytes` long.
    pub(crate) const READ: u32 = 3;
    /// A part has reached the target.
    pub(crate) const ARRIVED: u32 = 4;
    /// A part of a write has landed.
    pub(crate) const LANDED: u32 = 5;
    /// A part of a read, with its bytes.
    pub(crate) const BYTES: u32 = 6;
    /// A part failed; `data` is the failure.
    pub(crate) const FAILED: u32 = 7;
}

/// In `Head::flags`: the operation has data for the target's completion queue.
pub(crate) const HAS_DATA: u32 = 1;

/// What each frame begins with.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub(crate) struct Head {
    pub(crate) kind: u32,
    /// Bytes that follow.
    pub(crate) payload: u32,
    /// The initiator's number of it.
    pub(crate) operation: u64,
    pub(crate) part: u32,
    /// Of the operation.
    pub(crate) parts: u32,
    /// At the target.
    pub(crate) address: u64,
    pub(crate) key: u64,
    /// Of the part.
    pub(crate) bytes: u32,
    pub(crate) flags: u32,
    pub(crate) data: u64,
    /// Bytes of the operation.
    pub(crate) total: u64,
}

impl Head {
    pub(crate) fn new(kind: u32) -> Self {
        Self {
            kind,
            ..Self::zeroed()
        }
    }

    /// An answer about the part that this is.
    pub(crate) fn answer(&self, kind: u32) -> Self {
        Self {
            kind,
            payload: 0,
            ..*self
        }
    }
}

/// Takes a whole frame from the front of what has arrived.
pub(crate) fn split(input: &[u8]) -> Split {
    let Some(head) = input.get(..HEAD_BYTES) else {
        return Split::More;
    };
    let head: Head = bytemuck::pod_read_unaligned(head);
    let payload = head.payload as usize;
    if payload > MOST_BYTES || !(kind::HELLO..=kind::FAILED).contains(&head.kind) {
        return Split::Nonsense;
    }
    if input.len() < HEAD_BYTES + payload {
        return Split::More;
    }
    Split::Frame(head, HEAD_BYTES + payload)
}

/// What stands at the front.
#[derive(Debug)]
pub(crate) enum Split {
    /// A frame, and its length with its head.
    Frame(Head, usize),
    /// Not all of it is there.
    More,
    /// No frame at all.
    Nonsense,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_taken_when_they_are_whole_and_nonsense_is_seen() {
        let mut head = Head::new(kind::WRITE);
        head.payload = 3;
        let mut bytes = bytemuck::bytes_of(&head).to_vec();
        assert_eq!(bytes.len(), 64);
        assert!(matches!(split(&bytes[..63]), Split::More));
        assert!(matches!(split(&bytes), Split::More));
        bytes.extend([1, 2, 3]);
        assert!(matches!(split(&bytes), Split::Frame(_, 67)));
        assert!(matches!(split(&[0xff; 64]), Split::Nonsense));
        let seed = fastrand::u64(..);
        let mut dice = fastrand::Rng::with_seed(seed);
        for _ in 0..20_000 {
            let mut any = [0u8; 80];
            dice.fill(&mut any);
            any[0] %= 9;
            if dice.bool() {
                any[1..8].fill(0);
            }
            let _ = split(&any[..dice.usize(..=80)]);
        }
    }
}
