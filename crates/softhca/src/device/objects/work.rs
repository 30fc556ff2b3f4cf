//! The record that the device keeps of a send WQE between fetch and completion.

use crate::transport::Operation;
use mlx5_prm::wqe::WqeOpcode;

/// A piece of local memory that a WQE names. Its key is looked up anew at each use, since the key may end meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Segment {
    pub(crate) lkey: u32,
    pub(crate) address: u64,
    pub(crate) bytes: u64,
}

/// The local data of a WQE.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Local {
    /// No data: a message of 0 bytes.
    Nothing,
    /// One segment, the usual case.
    One(Segment),
    /// Several segments, in order.
    Many(Box<[Segment]>),
    /// Bytes that were in the WQE itself.
    Inline(InlineBytes),
    /// Inline bytes and segments, in order. Two inline pieces are never neighbours.
    Mixed(Box<[Piece]>),
}

/// A part of the local data of a WQE: one memory segment, or inline bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Piece {
    Memory(Segment),
    Inline(InlineBytes),
}

impl Piece {
    /// Returns the length of the piece.
    pub(crate) fn bytes(&self) -> u64 {
        match self {
            Self::Memory(segment) => segment.bytes,
            Self::Inline(data) => data.bytes().len() as u64,
        }
    }
}

impl From<Piece> for Local {
    fn from(piece: Piece) -> Self {
        match piece {
            Piece::Memory(segment) => Self::One(segment),
            Piece::Inline(data) => Self::Inline(data),
        }
    }
}

impl Local {
    /// Returns the data that consists of `pieces`, one after the other.
    pub(crate) fn of(pieces: impl IntoIterator<Item = Piece>) -> Self {
        let mut all: Vec<Piece> = Vec::new();
        for piece in pieces {
            match (all.last_mut(), piece) {
                (Some(Piece::Inline(before)), Piece::Inline(more)) => {
                    *before = before.followed_by(more.bytes());
                }
                (_, piece) => all.push(piece),
            }
        }
        if all.len() < 2 {
            return all.pop().map_or(Self::Nothing, Self::from);
        }
        let segments: Option<Box<[Segment]>> = all
            .iter()
            .map(|piece| match piece {
                Piece::Memory(segment) => Some(*segment),
                Piece::Inline(_) => None,
            })
            .collect();
        segments.map_or_else(|| Self::Mixed(all.into()), Self::Many)
    }

    /// Returns the segments of data that lies in memory as a whole; no segments if some of the data is inline.
    pub(crate) fn segments(&self) -> &[Segment] {
        match self {
            Self::Nothing | Self::Inline(_) | Self::Mixed(_) => &[],
            Self::One(segment) => std::slice::from_ref(segment),
            Self::Many(segments) => segments,
        }
    }
}

/// The bytes of inline data. Up to 32 bytes need no allocation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum InlineBytes {
    Short([u8; 32], u8),
    Long(Box<[u8]>),
}

impl InlineBytes {
    pub(crate) fn new(data: &[u8]) -> Self {
        match u8::try_from(data.len()) {
            Ok(length) if length <= 32 => {
                let mut bytes = [0; 32];
                bytes[..data.len()].copy_from_slice(data);
                Self::Short(bytes, length)
            }
            _ => Self::Long(data.into()),
        }
    }

    /// Returns these bytes followed by `more`.
    pub(crate) fn followed_by(&self, more: &[u8]) -> Self {
        Self::new(&[self.bytes(), more].concat())
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        match self {
            Self::Short(bytes, length) => &bytes[..usize::from(*length)],
            Self::Long(bytes) => bytes,
        }
    }
}

/// A send WQE that has been fetched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Work {
    /// Index of the first WQEBB of the WQE.
    pub(crate) index: u16,
    /// Number of WQEBBs of the WQE.
    pub(crate) blocks: u16,
    pub(crate) opcode: WqeOpcode,
    /// True if software wants a completion also on success.
    pub(crate) signalled: bool,
    /// Bytes that the completion reports.
    pub(crate) bytes: u32,
    pub(crate) local: Local,
    /// Entry of the GID table from which a datagram comes.
    pub(crate) source_gid: u8,
    /// The port of the QP.
    pub(crate) port: u8,
}

/// An operation between QPs of this process that is in progress.
#[derive(Clone, Debug)]
pub(crate) struct Current {
    pub(crate) work: Work,
    pub(crate) operation: Operation,
    /// Number of bytes moved so far.
    pub(crate) done: u64,
    /// The time at which the peer was first found not to answer.
    pub(crate) silent_since_ns: Option<u64>,
    /// The number of times that the peer had no receive WQE.
    pub(crate) rnr_count: u32,
    /// Time before which the operation is not tried again.
    pub(crate) not_before_ns: u64,
    /// True if the operation has been carried out. Software then gets the completion at `not_before_ns`.
    pub(crate) carried_out: bool,
}

impl Current {
    pub(crate) fn new(work: Work, operation: Operation) -> Self {
        Self {
            work,
            operation,
            done: 0,
            silent_since_ns: None,
            rnr_count: 0,
            not_before_ns: 0,
            carried_out: false,
        }
    }
}
