//! The lists of indirect keys. A list says which piece of which other key an offset lies in.
//!
//! A list is kept in two forms. The first is its entries of 16 bytes, as UMR WQEs write and partly overwrite them. The second finds the
//! piece of an offset quickly, and has one of three kinds: pieces of any length (KLM), pieces of one length (KSM), or a block of pieces
//! that repeats. From one repetition of a block to the next each piece moves on by its stride.

use mlx5_prm::umr::{Klm, RepeatBlock, RepeatEntry};
use std::fmt;

/// Length in bytes of a KLM or KSM entry in a list.
pub(crate) const ENTRY_BYTES: usize = 16;

/// An entry of a list, as a WQE or command brought it.
pub(crate) type RawEntry = [u8; ENTRY_BYTES];

/// The kind of entries in a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Each entry says the length of its piece.
    Klm,
    /// Each piece has 2 to this power bytes.
    Ksm { log_bytes: u32 },
}

/// The list of an indirect key.
#[derive(Debug)]
pub(crate) struct Translation {
    pub(crate) mode: Mode,
    /// Number of entries that the list has room for.
    limit: usize,
    raw: Vec<RawEntry>,
    shape: Shape,
}

#[derive(Debug)]
enum Shape {
    Pieces(Pieces),
    /// Each start is a key and an address.
    Blocks {
        log_bytes: u32,
        starts: Vec<(u32, u64)>,
    },
    Repeated {
        pieces: Pieces,
        /// The distance that each piece moves from one repetition to the next.
        strides: Vec<u64>,
        repetitions: u64,
    },
}

/// Pieces in order, none of them empty.
#[derive(Debug, Default)]
struct Pieces {
    /// The offset in the list at which each piece ends.
    ends: Vec<u64>,
    pieces: Vec<Piece>,
}

/// A piece of another key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    pub(crate) key: u32,
    pub(crate) va: u64,
    pub(crate) bytes: u64,
}

/// The reason why a list makes no sense.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ListError {
    /// The list has more entries than the key was made for.
    TooLong { entries: usize, limit: usize },
    /// The repeat block announces more entries than it has.
    RepeatEntries { announced: usize, entries: usize },
    /// The repeat block says another length than its entries have.
    RepeatBytes { announced: u64, bytes: u64 },
    /// A block of pieces repeats in a list of pieces of one length, which is not possible.
    RepeatInKsm,
}

impl Translation {
    /// Returns an empty list for up to `limit` entries.
    pub(crate) fn new(mode: Mode, limit: usize) -> Self {
        Self {
            mode,
            limit,
            raw: Vec::new(),
            shape: Shape::Pieces(Pieces::default()),
        }
    }

    /// Returns this list with `entries` in place of its entries from `first` on. Entries after these stay.
    ///
    /// # Errors
    ///
    /// See [`ListError`].
    pub(crate) fn with(&self, first: usize, entries: &[RawEntry]) -> Result<Self, ListError> {
        let end = first.saturating_add(entries.len());
        if end > self.limit {
            return Err(ListError::TooLong {
                entries: end,
                limit: self.limit,
            });
        }
        let mut raw = self.raw.clone();
        if raw.len() < end {
            raw.resize(end, [0; ENTRY_BYTES]);
        }
        raw[first..end].copy_from_slice(entries);
        let shape = Shape::parse(self.mode, &raw)?;
        Ok(Self {
            mode: self.mode,
            limit: self.limit,
            raw,
            shape,
        })
    }

    /// Returns the number of entries that the list has room for.
    pub(crate) fn limit(&self) -> usize {
        self.limit
    }

    /// Returns the rest of the piece that `offset` is in, from `offset` on.
    pub(crate) fn at(&self, offset: u64) -> Option<Piece> {
        match &self.shape {
            Shape::Pieces(pieces) => pieces.at(offset).map(|(_, piece)| piece),
            Shape::Blocks { log_bytes, starts } => {
                let (key, va) = *starts.get(usize::try_from(offset >> log_bytes).ok()?)?;
                let block = 1u64 << log_bytes;
                let skip = offset & (block - 1);
                Some(Piece {
                    key,
                    va: va.checked_add(skip)?,
                    bytes: block - skip,
                })
            }
            Shape::Repeated {
                pieces,
                strides,
                repetitions,
            } => {
                let block = pieces.bytes();
                let repetition = offset.checked_div(block)?;
                if repetition >= *repetitions {
                    return None;
                }
                let (index, piece) = pieces.at(offset % block)?;
                let moved = strides.get(index)?.checked_mul(repetition)?;
                Some(Piece {
                    va: piece.va.checked_add(moved)?,
                    ..piece
                })
            }
        }
    }

    /// Returns all pieces of one repetition.
    pub(crate) fn pieces(&self) -> impl Iterator<Item = Piece> {
        let mut offset = 0;
        std::iter::from_fn(move || {
            let piece = self.at(offset)?;
            offset = offset.checked_add(piece.bytes)?;
            Some(piece)
        })
        .take(self.raw.len())
    }
}

impl Shape {
    fn parse(mode: Mode, raw: &[RawEntry]) -> Result<Self, ListError> {
        let klms = raw
            .iter()
            .map(|entry| bytemuck::cast::<RawEntry, Klm>(*entry));
        let repeats = raw
            .first()
            .map(|entry| bytemuck::cast::<RawEntry, RepeatBlock>(*entry))
            .filter(|block| block.op.get() == RepeatBlock::OP);
        match (mode, repeats) {
            (Mode::Klm, None) => Ok(Self::Pieces(Pieces::new(klms.map(|klm| Piece {
                key: klm.mkey.get(),
                va: klm.address.get(),
                bytes: klm.byte_count.get().into(),
            })))),
            (Mode::Klm, Some(block)) => Self::repeated(block, &raw[1..]),
            (Mode::Ksm { log_bytes }, None) => Ok(Self::Blocks {
                log_bytes,
                starts: klms
                    .map(|klm| (klm.mkey.get(), klm.address.get()))
                    .collect(),
            }),
            (Mode::Ksm { .. }, Some(_)) => Err(ListError::RepeatInKsm),
        }
    }

    fn repeated(block: RepeatBlock, rest: &[RawEntry]) -> Result<Self, ListError> {
        let announced = usize::from(block.num_ent.get());
        let entries = rest.get(..announced).ok_or(ListError::RepeatEntries {
            announced,
            entries: rest.len(),
        })?;
        let entries = || {
            let all = entries.iter();
            let all = all.map(|entry| bytemuck::cast::<RawEntry, RepeatEntry>(*entry));
            all.filter(|entry| entry.byte_count.get() != 0)
        };
        let pieces = Pieces::new(entries().map(|entry| Piece {
            key: entry.memkey.get(),
            va: entry.va.get(),
            bytes: entry.byte_count.get().into(),
        }));
        let announced = block.byte_count.get().into();
        if pieces.bytes() != announced {
            return Err(ListError::RepeatBytes {
                announced,
                bytes: pieces.bytes(),
            });
        }
        Ok(Self::Repeated {
            pieces,
            strides: entries().map(|entry| entry.stride.get().into()).collect(),
            repetitions: block.repeat_count.get().into(),
        })
    }
}

impl Pieces {
    fn new(all: impl Iterator<Item = Piece>) -> Self {
        let pieces: Vec<Piece> = all.filter(|piece| piece.bytes != 0).collect();
        let ends = pieces.iter().scan(0u64, |end, piece| {
            // The sum does not overflow: each piece has less than 2^32 bytes, and there are fewer than 2^32 pieces.
            *end += piece.bytes;
            Some(*end)
        });
        Self {
            ends: ends.collect(),
            pieces,
        }
    }

    fn bytes(&self) -> u64 {
        self.ends.last().copied().unwrap_or(0)
    }

    /// Returns the rest of the piece that `offset` is in, and the index of that piece.
    fn at(&self, offset: u64) -> Option<(usize, Piece)> {
        let index = self.ends.partition_point(|end| *end <= offset);
        let (piece, end) = (self.pieces.get(index)?, self.ends.get(index)?);
        let left = end - offset;
        let skip = piece.bytes - left;
        let rest = Piece {
            key: piece.key,
            va: piece.va.checked_add(skip)?,
            bytes: left,
        };
        Some((index, rest))
    }
}

impl fmt::Display for ListError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::TooLong { entries, limit } => {
                write!(
                    f,
                    "a list of {entries} entries, the key has room for {limit}"
                )
            }
            Self::RepeatEntries { announced, entries } => write!(
                f,
                "a block of {announced} repeated entries where {entries} follow"
            ),
            Self::RepeatBytes { announced, bytes } => write!(
                f,
                "a repeated block of {announced} bytes whose entries have {bytes}"
            ),
            Self::RepeatInKsm => write!(f, "a repeated block among entries of one length"),
        }
    }
}

#[cfg(test)]
pub(crate) mod tests;
