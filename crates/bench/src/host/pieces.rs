//! The setting of `wv bench p2p --pattern`: which pieces of memory go where, with which bytes, and what is compared.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::memory::{EndMemory, PIECE};
use crate::error::BenchError;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
/// The most peers of one source.
pub(crate) const MOST_PEERS: u32 = 7;
/// The range of bytes of an engine's memory. It has room for the longest tensors, and no more pages than a transfer has operations.
const BYTES: std::ops::RangeInclusive<u64> = 4 * MIB..=8 << 30;

/// The kind of pieces that are moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Shape {
    /// Pages of 16, 32 and 64 KiB, scattered at both ends.
    Kv,
    /// Tensors of 4 KiB to 2 MiB, one after the other at the source and in another order at its peers.
    Weights,
    /// Blocks of one length.
    Fill,
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Kv => "kv",
            Self::Weights => "weights",
            Self::Fill => "fill",
        })
    }
}

/// A piece of memory that is moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    pub(super) from: u64,
    pub(super) to: u64,
    pub(super) bytes: u64,
}

/// Returns pieces that begin at frames of a memory. Half of the frames are used at each end, chosen and ordered at random.
fn frames(
    random: &mut fastrand::Rng,
    (memory, frame): (u64, u64),
    length: impl Fn(&mut fastrand::Rng) -> u64,
) -> Vec<Piece> {
    let mut shuffled = || {
        let mut places: Vec<u64> = (0..memory / frame).map(|nth| nth * frame).collect();
        random.shuffle(&mut places);
        places.truncate(places.len() / 2);
        places
    };
    let (from, to) = (shuffled(), shuffled());
    let places = from.into_iter().zip(to);
    let pieces = places.map(|(from, to)| Piece {
        from,
        to,
        bytes: length(random),
    });
    pieces.collect()
}

/// Returns pieces as the tensors of a model: most of them short, most bytes in long ones.
fn tensors(random: &mut fastrand::Rng, memory: u64) -> Vec<Piece> {
    let mut lengths = Vec::new();
    while lengths.iter().sum::<u64>() < memory / 2 {
        let log = if random.u32(0..4) == 0 {
            21
        } else {
            random.u32(12..18)
        };
        lengths.push(1 << log);
    }
    let (mut from, mut end) = (0, memory);
    let pieces = lengths.into_iter().map(|bytes| {
        let to = end - bytes;
        let piece = Piece { from, to, bytes };
        (from, end) = (from + bytes, to);
        piece
    });
    pieces.collect()
}

/// The setting of a run.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct PatternOptions {
    /// The kind of pieces that are moved.
    pub(crate) pattern: Shape,
    /// True if the pieces are read from the peers. Otherwise they are written to them.
    pub(crate) reads: bool,
    /// The number of peers.
    pub(crate) peers: u32,
    /// The number of bytes of an engine's memory.
    pub(crate) bytes: u64,
    /// The number of bytes of a block of [`Shape::Fill`].
    pub(crate) block: u64,
    /// The number of threads that post.
    pub(crate) workers: u32,
    /// The number of QPs of a connection.
    pub(crate) qps: u32,
    /// The number of bytes of a slice.
    pub(crate) slice: u32,
    /// The number of rounds of the pattern.
    pub(crate) rounds: u32,
    /// The seed of lengths, places and bytes.
    pub(crate) seed: u64,
}

/// What the bytes of a memory are: those of this end at first, those of a peer, or those of the round that is compared.
#[derive(Clone, Copy)]
pub(super) enum Contents {
    AtFirst = 1,
    AtThePeer,
    Compared,
}

impl PatternOptions {
    /// Refuses options out of their ranges.
    ///
    /// # Errors
    /// The option that is out of its range, with what it may be.
    pub(crate) fn check(&self) -> Result<(), BenchError> {
        let most = self.bytes / 2;
        let least = most.div_ceil(warpverbs::engine::MOST_OPERATIONS as u64);
        for (what, value, range) in [
            ("--bytes", self.bytes, BYTES),
            ("--block", self.block, least..=most),
        ] {
            if !range.contains(&value) {
                return Err(BenchError::Option {
                    what,
                    value: value.to_string(),
                    limit: format!("{} to {}", range.start(), range.end()),
                });
            }
        }
        Ok(())
    }

    pub(super) fn pieces(&self) -> Vec<Piece> {
        let random = &mut fastrand::Rng::with_seed(self.seed);
        match self.pattern {
            Shape::Kv => {
                let lengths = [16 * KIB, 32 * KIB, 64 * KIB];
                frames(random, (self.bytes, 64 * KIB), |random| {
                    lengths[random.usize(..3)]
                })
            }
            Shape::Weights => tensors(random, self.bytes),
            Shape::Fill => frames(random, (self.bytes, self.block), |_| self.block),
        }
    }

    fn contents(&self, which: Contents) -> Vec<u8> {
        let mut seeds = fastrand::Rng::with_seed(self.seed ^ (which as u64) << 32);
        let mut bytes = vec![0; range(0, self.bytes).end];
        fastrand::Rng::with_seed(seeds.u64(..)).fill(&mut bytes);
        bytes
    }

    /// Fills the memory of a peer with its bytes.
    pub(super) fn prepare(&self, memory: &EndMemory) -> Result<(), BenchError> {
        self.fill(memory, Contents::AtThePeer)
    }

    pub(super) fn fill(&self, memory: &EndMemory, which: Contents) -> Result<(), BenchError> {
        memory.write(0, &self.contents(which))
    }

    /// Compares all bytes of the end that was written to, after the last round. Returns how many it compared.
    pub(super) fn compare(&self, memory: &EndMemory) -> Result<u64, BenchError> {
        let (had, came) = if self.reads {
            (Contents::Compared, Contents::AtThePeer)
        } else {
            (Contents::AtThePeer, Contents::Compared)
        };
        let (mut wanted, came) = (self.contents(had), self.contents(came));
        for piece in self.pieces() {
            let [from, to] = match self.reads {
                true => [piece.to, piece.from],
                false => [piece.from, piece.to],
            }
            .map(|at| range(at, piece.bytes));
            wanted[to].copy_from_slice(&came[from]);
        }
        let mut found = vec![0; PIECE.min(wanted.len())];
        for (piece, wanted) in (0..).step_by(PIECE).zip(wanted.chunks(PIECE)) {
            let found = &mut found[..wanted.len()];
            memory.read(piece, found)?;
            if let Some(at) = (0..wanted.len()).find(|at| found[*at] != wanted[*at]) {
                let (is, due, seed) = (found[at], wanted[at], self.seed);
                let at = piece + at as u64;
                let detail = format!("byte {at} is {is:#x}; it must be {due:#x} (seed {seed})");
                return Err(self.wrong(detail));
            }
        }
        Ok(self.bytes)
    }

    pub(super) fn wrong(&self, detail: String) -> BenchError {
        let case = self.pattern.to_string();
        BenchError::Wrong { case, detail }
    }
}

fn range(at: u64, bytes: u64) -> std::ops::Range<usize> {
    let [first, end] = [at, at + bytes].map(|it| usize::try_from(it).unwrap_or(usize::MAX));
    first..end
}

#[cfg(test)]
mod tests {
    use super::*;
    #[cfg(feature = "cuda")]
    use crate::host::memory::of_tests::cuda;
    use crate::host::memory::of_tests::{host, simt};
    #[cfg(feature = "cuda")]
    use test_support::fake_cuda::FakeDriver;

    fn options(pattern: Shape, seed: u64) -> PatternOptions {
        PatternOptions {
            pattern,
            reads: false,
            peers: 1,
            bytes: 64 * MIB,
            block: 4 * MIB,
            workers: 1,
            qps: 4,
            slice: 1 << 16,
            rounds: 1,
            seed,
        }
    }

    #[test]
    fn pieces_lie_in_the_memory_and_overlap_at_no_end() {
        for pattern in [Shape::Kv, Shape::Weights, Shape::Fill] {
            for (seed, bytes) in (0..20).zip([*BYTES.start(), 64 * MIB, 100_000_000].iter().cycle())
            {
                let options = PatternOptions {
                    bytes: *bytes,
                    block: MIB + 3,
                    ..options(pattern, seed)
                };
                options.check().unwrap();
                let pieces = options.pieces();
                assert!(!pieces.is_empty());
                for place in [|it: &Piece| it.from, |it: &Piece| it.to] {
                    let mut ranges: Vec<_> =
                        pieces.iter().map(|it| (place(it), it.bytes)).collect();
                    ranges.sort_unstable();
                    let mut end = 0;
                    for (at, bytes) in ranges {
                        assert!(at >= end && bytes > 0, "{pattern} {seed}");
                        end = at + bytes;
                    }
                    assert!(end <= options.bytes, "{pattern} {seed}");
                }
            }
        }
    }

    #[test]
    fn blocks_are_no_more_than_a_transfer_has_operations() {
        let of = |bytes, block| PatternOptions {
            bytes,
            block,
            ..options(Shape::Fill, 1)
        };
        let least = of(8 << 30, 65_536);
        least.check().unwrap();
        assert_eq!(least.pieces().len(), 65_536);
        for (options, reason) in [
            (
                of(64 * MIB, 511),
                "--block is 511; it must be 512 to 33554432",
            ),
            (
                of(4 * MIB, 4 * MIB),
                "--block is 4194304; it must be 32 to 2097152",
            ),
            (
                of(MIB, MIB / 2),
                "--bytes is 1048576; it must be 4194304 to 8589934592",
            ),
        ] {
            assert_eq!(options.check().unwrap_err().to_string(), reason);
        }
    }

    /// Checks that wrong bytes are found in memory that `memory` makes. The memory is longer than one copy.
    fn wrong_bytes_are_found(memory: impl Fn(u64) -> EndMemory) {
        for reads in [false, true] {
            let options = PatternOptions {
                reads,
                bytes: 4 * MIB + 4096,
                block: 2 * MIB,
                ..options(Shape::Fill, 5)
            };
            let [had, came] = if reads {
                [Contents::Compared, Contents::AtThePeer]
            } else {
                [Contents::AtThePeer, Contents::Compared]
            };
            let (mut bytes, came) = (options.contents(had), options.contents(came));
            for piece in options.pieces() {
                let (from, to) = if reads {
                    (piece.to, piece.from)
                } else {
                    (piece.from, piece.to)
                };
                bytes[range(to, piece.bytes)].copy_from_slice(&came[range(from, piece.bytes)]);
            }
            let memory = memory(options.bytes);
            memory.write(0, &bytes).unwrap();
            assert_eq!(options.compare(&memory).unwrap(), options.bytes);
            for at in [0, 2 * MIB, PIECE as u64, options.bytes - 1] {
                let was = bytes[range(at, 1)][0];
                memory.write(at, &[!was]).unwrap();
                let said = options.compare(&memory).unwrap_err().to_string();
                assert!(said.starts_with(&format!("fill: byte {at} is")), "{said}");
                memory.write(at, &[was]).unwrap();
            }
            assert_eq!(options.compare(&memory).unwrap(), options.bytes);
        }
    }

    #[test]
    fn every_byte_that_came_otherwise_is_found() {
        for memory in [host, simt] {
            wrong_bytes_are_found(memory);
        }
    }

    #[cfg(feature = "cuda")]
    #[test]
    fn every_byte_that_came_otherwise_is_found_in_memory_of_a_gpu() {
        FakeDriver::new("").run(|_| wrong_bytes_are_found(cuda));
    }
}
