//! A send WQE in the making: what the device remembers of it between fetch and completion.

use crate::transport::Operation;
use mlx5_prm::wqe::WqeOpcode;

/// A piece of local memory that a WQE names. Looked up anew at each use: the key may go meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Segment {
    pub(crate) lkey: u32,
    pub(crate) address: u64,
    pub(crate) bytes: u64,
}

/// Local data of a WQE.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Local {
    /// None: a message of 0 bytes.
    Nothing,
    /// One segment, the usual case.
    One(Segment),
    /// Several segments, in order.
    Many(Box<[Segment]>),
    /// Bytes that were in the WQE itself.
    Inline(InlineBytes),
    /// Inline bytes and segments, in order. No two inline pieces are neighbours.
    Mixed(Box<[Piece]>),
}

/// A part of the local data of a WQE: what one of its segments says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Piece {
    Memory(Segment),
    Inline(InlineBytes),
}

impl Piece {
    /// Length.
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
    /// The data that `pieces` are, one after the other.
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

    /// Returns the segments of data that lies in memory as a whole; none if some of it is inline.
    pub(crate) fn segments(&self) -> &[Segment] {
        match self {
            Self::Nothing | Self::Inline(_) | Self::Mixed(_) => &[],
            Self::One(segment) => std::slice::from_ref(segment),
            Self::Many(segments) => segments,
        }
    }
}

/// Inline data: short ones without an allocation.
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

    /// These bytes and then `more`.
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
    /// Index of its first WQEBB.
    pub(crate) index: u16,
    /// WQEBBs.
    pub(crate) blocks: u16,
    pub(crate) opcode: WqeOpcode,
    /// A completion is wanted also on success.
    pub(crate) signalled: bool,
    /// Bytes that the completion reports.
    pub(crate) bytes: u32,
    pub(crate) local: Local,
    /// Of a datagram the entry of the GID table that it comes from.
    pub(crate) source_gid: u8,
    /// The port that the QP is for.
    pub(crate) port: u8,
}

/// An operation in progress inside the process.
#[derive(Clone, Debug)]
pub(crate) struct Current {
    pub(crate) work: Work,
    pub(crate) operation: Operation,
    /// Bytes moved so far.
    pub(crate) done: u64,
    /// When the peer was first found not to answer.
    pub(crate) silent_since_ns: Option<u64>,
    /// Times that the peer had no receive WQE.
    pub(crate) rnr_count: u32,
    /// Not to be tried before.
    pub(crate) not_before_ns: u64,
    /// Carried out; software gets the completion at that time.
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
