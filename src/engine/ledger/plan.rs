//! A vector of operations as slices, which workers post. No slice is an object of its own.
//!
//! The operations are cut at the borders of local and remote registrations into *pieces*. Each piece lies in one registration at
//! both ends. [`Cut`] cuts a piece that is longer than a slice. Short pieces that follow each other at the peer are gathered into
//! one slice of up to a block, with a few local ranges. So a plan is a list of *runs*, each with the number of its first slice,
//! and a slice is found by its number. A plan grows with the operations and the borders that they cross, not with the bytes.
//!
//! No sum here may wrap: addresses are checked once, when an operation is taken in.

use std::ops::Range;

use crate::engine::error::{EngineError, Side};
use crate::engine::kind::Kind;
use crate::engine::ledger::cut::Cut;
use crate::engine::limits::{MOST_GATHER, MOST_OPERATIONS, MOST_PIECES, MOST_SLICES};

/// One operation of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Operation {
    /// The direction of the bytes.
    pub kind: Kind,
    /// First byte here.
    pub local: u64,
    /// First byte at the peer.
    pub remote: u64,
    /// The number of bytes. An operation without bytes needs no WQE.
    pub bytes: u64,
}

/// A registration that covers some addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Region {
    /// The number that the owner of the region gives it.
    pub number: u32,
    /// The address of its first byte.
    pub address: u64,
    /// The number of its bytes.
    pub bytes: u64,
}

/// The registrations of one side.
pub trait Regions {
    /// Returns the registration that has the byte at `address`.
    fn region_of(&self, address: u64) -> Option<Region>;
}

/// A range of local memory that a slice gathers from or scatters to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Local {
    /// The registration.
    pub region: u32,
    /// The address of the first byte.
    pub address: u64,
    /// The number of bytes.
    pub bytes: u32,
}

/// What one WQE does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slice<'a> {
    /// The direction of the bytes.
    pub kind: Kind,
    /// The registration at the peer.
    pub remote_region: u32,
    /// Address of the first byte at the peer.
    pub remote: u64,
    /// Number of bytes, over all local ranges.
    pub bytes: u32,
    /// The operations of which it carries bytes.
    pub operations: Range<u32>,
    pieces: &'a [Piece],
    /// Bytes of the first piece that belong to earlier slices.
    skipped: u64,
}

/// A local registration that a transfer uses.
#[derive(Clone, Copy, Debug)]
pub(in crate::engine) struct LocalUse {
    /// The first operation that has bytes there.
    pub(in crate::engine) operation: u32,
    /// The address of the first of these bytes.
    pub(in crate::engine) address: u64,
    /// The number of the registration.
    pub(in crate::engine) region: u32,
}

/// A registration of the peer that a run of slices uses.
#[derive(Clone, Copy, Debug)]
pub(in crate::engine) struct RemoteUse {
    /// The first operation of the run.
    pub(in crate::engine) operation: u32,
    pub(in crate::engine) kind: Kind,
    /// The number of the registration.
    pub(in crate::engine) region: u32,
}

/// Part of an operation that lies within one registration at each end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Piece {
    local: u64,
    bytes: u64,
    region: u32,
    operation: u32,
}

/// Slices in a row: any number of slices of one piece, or one slice of pieces that are contiguous at the peer.
#[derive(Clone, Copy, Debug)]
struct Run {
    first_slice: u32,
    first_piece: u32,
    /// The number of local ranges. Pieces that are contiguous here too are one range.
    ranges: u32,
    kind: Kind,
    region: u32,
    remote: u64,
    bytes: u64,
}

/// The slices of a transfer. The plan keeps its memory from one transfer to the next.
#[derive(Debug)]
pub struct Plan {
    cut: Cut,
    gather: u32,
    pieces: Vec<Piece>,
    runs: Vec<Run>,
    slices: u32,
    bytes: u64,
    /// True if each operation is one slice.
    counts: bool,
}

impl Plan {
    /// Returns an empty plan, for slices that `cut` cuts, with at most `gather` local ranges each.
    ///
    /// # Errors
    /// [`EngineError::Gather`]: `gather` is 0 or more than [`MOST_GATHER`].
    pub fn new(cut: Cut, gather: u32) -> Result<Self, EngineError> {
        if !(1..=MOST_GATHER).contains(&gather) {
            return Err(EngineError::Gather { gather });
        }
        Ok(Self {
            cut,
            gather,
            pieces: Vec::new(),
            runs: Vec::new(),
            slices: 0,
            bytes: 0,
            counts: false,
        })
    }

    /// Becomes the plan of `operations`. After an error the plan is empty.
    ///
    /// # Errors
    /// [`EngineError::Operations`], [`EngineError::Slices`], [`EngineError::Pieces`]: there are none, or too many;
    /// [`EngineError::Wraps`], [`EngineError::NotRegistered`]: a range is no memory, or is not registered.
    pub fn set(
        &mut self,
        operations: &[Operation],
        local: &impl Regions,
        remote: &impl Regions,
    ) -> Result<(), EngineError> {
        self.set_as(false, operations, local, remote)
    }

    /// Becomes the plan of `operations` that count at the peer. Each operation is one slice of its own, whatever its length.
    ///
    /// # Errors
    /// [`EngineError::CountedRead`]; [`EngineError::CountedParts`]: no slice carries all of an operation, or it has no bytes;
    /// otherwise as [`Plan::set`].
    pub fn set_counting(
        &mut self,
        operations: &[Operation],
        local: &impl Regions,
        remote: &impl Regions,
    ) -> Result<(), EngineError> {
        self.set_as(true, operations, local, remote)
    }

    fn set_as(
        &mut self,
        counts: bool,
        operations: &[Operation],
        local: &impl Regions,
        remote: &impl Regions,
    ) -> Result<(), EngineError> {
        self.clear();
        self.counts = counts;
        let filled = self.fill(operations, local, remote);
        if filled.is_err() {
            self.clear();
        }
        filled
    }

    /// Returns whether each operation is one slice, which may count at the peer.
    pub(in crate::engine) const fn counts(&self) -> bool {
        self.counts
    }

    /// Returns the number of slices. It is 0 if the transfer has no bytes.
    #[must_use]
    pub const fn slices(&self) -> u32 {
        self.slices
    }

    /// Returns the bytes of all operations.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the numbers of the local registrations, in the order of the operations. No number comes twice in a row.
    pub fn local_regions(&self) -> impl Iterator<Item = u32> {
        self.locals().map(|it| it.region)
    }

    /// Returns the uses of local registrations, in the order of the operations. Uses of one registration in a row count as one.
    pub(in crate::engine) fn locals(&self) -> impl Iterator<Item = LocalUse> {
        let mut last = None;
        self.pieces.iter().filter_map(move |piece| {
            let is_new = last != Some(piece.region);
            last = Some(piece.region);
            is_new.then_some(LocalUse {
                operation: piece.operation,
                address: piece.local,
                region: piece.region,
            })
        })
    }

    /// Returns the uses of registrations of the peer: one for each run of slices.
    pub(in crate::engine) fn remotes(&self) -> impl Iterator<Item = RemoteUse> {
        self.runs.iter().map(|run| {
            let first = self.pieces.get(run.first_piece as usize);
            RemoteUse {
                operation: first.map_or(0, |piece| piece.operation),
                kind: run.kind,
                region: run.region,
            }
        })
    }

    /// Returns whether the whole transfer goes on one QP, since it has less than two blocks.
    #[must_use]
    pub fn is_small(&self) -> bool {
        self.bytes < 2 * u64::from(self.cut.block())
    }

    /// Returns how many bytes of memory the plan has: at most 16 MiB.
    #[must_use]
    pub fn memory(&self) -> usize {
        let pieces = self.pieces.capacity() * size_of::<Piece>();
        pieces + self.runs.capacity() * size_of::<Run>()
    }

    /// Returns the slices with these numbers, in order. Numbers after the last slice are left out.
    pub fn range(&self, numbers: Range<u32>) -> impl Iterator<Item = Slice<'_>> {
        let numbers = numbers.start..numbers.end.min(self.slices);
        let begun = self
            .runs
            .partition_point(|run| run.first_slice <= numbers.start);
        let mut at = begun.saturating_sub(1);
        numbers.map(move |number| {
            if self.end_of(at) <= number {
                at += 1;
            }
            self.slice(at, number)
        })
    }

    fn clear(&mut self) {
        self.pieces.clear();
        self.runs.clear();
        (self.slices, self.bytes, self.counts) = (0, 0, false);
    }

    fn cut(&self) -> Cut {
        if self.counts { Cut::WHOLE } else { self.cut }
    }

    fn fill(
        &mut self,
        operations: &[Operation],
        local: &impl Regions,
        remote: &impl Regions,
    ) -> Result<(), EngineError> {
        let count = operations.len();
        if !(1..=MOST_OPERATIONS).contains(&count) {
            return Err(EngineError::Operations { count });
        }
        for (number, operation) in (0..).zip(operations) {
            check_wrap(number, Side::Local, operation.local, operation.bytes)?;
            check_wrap(number, Side::Remote, operation.remote, operation.bytes)?;
            let slices = self.slices;
            if self.counts && operation.kind == Kind::Read {
                return Err(EngineError::CountedRead { operation: number });
            }
            self.take_in(number, operation, local, remote)?;
            if self.counts && self.slices != slices + 1 {
                return Err(EngineError::CountedParts {
                    operation: number,
                    bytes: operation.bytes,
                    gather: self.gather,
                });
            }
        }
        Ok(())
    }

    /// Cuts an operation at the borders of registrations. Every step takes a byte or more.
    fn take_in(
        &mut self,
        number: u32,
        operation: &Operation,
        local: &impl Regions,
        remote: &impl Regions,
    ) -> Result<(), EngineError> {
        let mut done = 0;
        while done < operation.bytes {
            let here = operation.local + done;
            let there = operation.remote + done;
            let (region, room) = room_at(number, Side::Local, here, local)?;
            let (remote_region, remote_room) = room_at(number, Side::Remote, there, remote)?;
            let bytes = room.min(remote_room).min(operation.bytes - done);
            let piece = Piece {
                local: here,
                bytes,
                region,
                operation: number,
            };
            self.push(piece, operation.kind, remote_region, there)?;
            done += bytes;
        }
        Ok(())
    }

    fn push(
        &mut self,
        piece: Piece,
        kind: Kind,
        region: u32,
        remote: u64,
    ) -> Result<(), EngineError> {
        if self.pieces.len() >= MOST_PIECES {
            return Err(EngineError::Pieces);
        }
        if !self.gathers(&piece, kind, region, remote) {
            let slices = u64::from(self.slices) + self.cut().slices(piece.bytes);
            let slices = u32::try_from(slices).unwrap_or(u32::MAX);
            if slices > MOST_SLICES {
                let block = self.cut().block();
                return Err(EngineError::Slices { block });
            }
            self.runs.push(Run {
                first_slice: self.slices,
                first_piece: index(self.pieces.len()),
                ranges: 1,
                kind,
                region,
                remote,
                bytes: piece.bytes,
            });
            self.slices = slices;
        }
        self.pieces.push(piece);
        // The sum fits: a plan has fewer than 2^30 slices of at most 2^30 bytes.
        self.bytes += piece.bytes;
        Ok(())
    }

    /// Returns whether the last run has taken the piece into its one slice.
    fn gathers(&mut self, piece: &Piece, kind: Kind, region: u32, remote: u64) -> bool {
        let block = u64::from(self.cut().block());
        let (Some(run), Some(last)) = (self.runs.last_mut(), self.pieces.last()) else {
            return false;
        };
        let follows_there =
            run.region == region && run.remote.checked_add(run.bytes) == Some(remote);
        let fits = piece.bytes <= block.saturating_sub(run.bytes)
            && (!self.counts || last.operation == piece.operation);
        let follows_here =
            last.region == piece.region && last.local.checked_add(last.bytes) == Some(piece.local);
        let ranges = run.ranges + u32::from(!follows_here);
        let gathered = kind == run.kind && follows_there && fits && ranges <= self.gather;
        if gathered {
            run.bytes += piece.bytes;
            run.ranges = ranges;
        }
        gathered
    }

    /// Returns the number after the last slice of a run.
    fn end_of(&self, run: usize) -> u32 {
        self.runs
            .get(run + 1)
            .map_or(self.slices, |next| next.first_slice)
    }

    /// Returns slice `number`, which is one of the run.
    fn slice(&self, run: usize, number: u32) -> Slice<'_> {
        let end = self
            .runs
            .get(run + 1)
            .map_or(self.pieces.len(), |next| next.first_piece as usize);
        let run = &self.runs[run];
        let pieces = &self.pieces[run.first_piece as usize..end];
        let within = u64::from(number - run.first_slice);
        let range = match pieces {
            [_] => self.cut().slice(run.bytes, within).unwrap_or_default(),
            _ => 0..run.bytes,
        };
        let operation = |piece: Option<&Piece>| piece.map_or(0, |piece| piece.operation);
        Slice {
            kind: run.kind,
            remote_region: run.region,
            remote: run.remote + range.start,
            bytes: bytes_of_slice(range.end - range.start),
            operations: operation(pieces.first())..operation(pieces.last()) + 1,
            pieces,
            skipped: range.start,
        }
    }
}

impl Slice<'_> {
    /// Returns the local ranges, in the order in which the peer has their bytes. Contiguous ranges are joined.
    pub fn locals(&self) -> impl Iterator<Item = Local> {
        let mut left = self.pieces;
        let skipped = self.skipped;
        let most = u64::from(self.bytes);
        std::iter::from_fn(move || {
            let (first, mut rest) = left.split_first()?;
            let address = first.local + skipped;
            let mut bytes = (first.bytes - skipped).min(most);
            while let Some((next, others)) = rest.split_first()
                && next.region == first.region
                && address.checked_add(bytes) == Some(next.local)
            {
                bytes += next.bytes;
                rest = others;
            }
            left = rest;
            Some(Local {
                region: first.region,
                address,
                bytes: bytes_of_slice(bytes),
            })
        })
    }
}

fn check_wrap(operation: u32, side: Side, address: u64, bytes: u64) -> Result<(), EngineError> {
    match bytes.checked_sub(1).map(|last| address.checked_add(last)) {
        Some(None) => Err(EngineError::Wraps {
            operation,
            side,
            address,
            bytes,
        }),
        Some(Some(_)) | None => Ok(()),
    }
}

/// Returns the registration that has the byte at `address`, and how many bytes it has from that byte on.
fn room_at(
    operation: u32,
    side: Side,
    address: u64,
    regions: &impl Regions,
) -> Result<(u32, u64), EngineError> {
    let room = |region: Region| {
        let before = address.checked_sub(region.address)?;
        let room = region.bytes.checked_sub(before)?;
        (room > 0).then_some((region.number, room))
    };
    let found = regions.region_of(address).and_then(room);
    found.ok_or(EngineError::NotRegistered {
        operation,
        side,
        address,
    })
}

/// Returns the index of a piece in 32 bits: there are at most [`MOST_PIECES`].
fn index(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

/// Returns the bytes of a slice in 32 bits: they are at most [`MOST_SLICE_BYTES`](crate::engine::limits::MOST_SLICE_BYTES).
fn bytes_of_slice(bytes: u64) -> u32 {
    u32::try_from(bytes).unwrap_or(u32::MAX)
}
