//! The last accesses to each 8 bytes of memory, with which a later access may have to be ordered.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;

use super::access::Scope;
use super::agent::Published;

/// The number of accesses that are kept per granule. The oldest is dropped first. So a defect may be missed, but never invented.
const CELLS: usize = 24;

/// One access to a granule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Cell {
    pub(super) slot: u32,
    pub(super) epoch: u32,
    /// A mask of the bytes, among the 8 of the granule, that were accessed.
    pub(super) mask: u8,
    pub(super) writes: bool,
    /// The scope of an atomic (or a device). It conflicts with no access that is strong at a scope that contains both.
    pub(super) strong: Option<Scope>,
    pub(super) pc: u64,
}

/// What the last store to a half of a granule carries to the threads that load it.
#[derive(Debug)]
pub(super) struct Word {
    pub(super) version: u64,
    pub(super) published: Published,
}

/// 8 bytes of memory: their accesses, and the words of both halves.
#[derive(Debug, Default)]
pub(super) struct Granule {
    pub(super) cells: Vec<Cell>,
    pub(super) words: [Option<Arc<Word>>; 2],
}

impl Granule {
    /// Adds `cell` in place of the cells that it makes superfluous. `covers` returns whether the new access comes after an older one.
    pub(super) fn add(&mut self, cell: Cell, covers: impl Fn(&Cell) -> bool) {
        self.cells.retain(|old| {
            let inside = old.mask & !cell.mask == 0;
            let as_much = cell.writes || !old.writes;
            let as_weak = cell.strong.is_none() || old.strong == cell.strong;
            !(inside && as_much && as_weak && covers(old))
        });
        if self.cells.len() == CELLS {
            self.cells.remove(0);
        }
        self.cells.push(cell);
    }

    /// Returns the halves in which the bytes of `mask` lie.
    pub(super) fn halves(mask: u8) -> impl Iterator<Item = usize> {
        [0x0f, 0xf0]
            .into_iter()
            .enumerate()
            .filter_map(move |(half, bits)| (mask & bits != 0).then_some(half))
    }
}

/// Returns the 8-byte granules of a range, each with the mask of its bytes.
pub(super) fn granules(addr: u64, bytes: u64) -> impl Iterator<Item = (u64, u8)> {
    let end = addr.saturating_add(bytes);
    (addr >> 3..end.div_ceil(8)).map(move |granule| {
        let start = granule << 3;
        let low = addr.saturating_sub(start).min(8);
        let high = (end - start).min(8);
        let mask = (0..8u64).filter(|byte| (low..high).contains(byte));
        (granule, mask.fold(0, |mask, byte| mask | 1 << byte))
    })
}

/// All granules, by number.
pub(super) type Shadow = HashMap<u64, Granule, BuildHasherDefault<Mix>>;

/// A hash for numbers that differ in low bits: one multiplication.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Mix(u64);

impl Hasher for Mix {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }

    fn write_u64(&mut self, number: u64) {
        let mixed = (self.0 ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = mixed ^ mixed >> 32;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_cut_into_granules_with_the_bytes_of_each() {
        let cut = |addr, bytes| granules(addr, bytes).collect::<Vec<_>>();
        assert_eq!(cut(16, 8), [(2, 0xff)]);
        assert_eq!(cut(20, 4), [(2, 0xf0)]);
        assert_eq!(cut(6, 4), [(0, 0xc0), (1, 0x03)]);
        assert_eq!(cut(7, 17), [(0, 0x80), (1, 0xff), (2, 0xff)]);
        assert_eq!(cut(8, 0), []);
        assert_eq!(Granule::halves(0xf0).collect::<Vec<_>>(), [1]);
    }

    #[test]
    fn a_write_replaces_what_it_covers_and_a_read_replaces_no_write() {
        let cell = |writes, mask| Cell {
            slot: 1,
            epoch: 1,
            mask,
            writes,
            strong: None,
            pc: 0,
        };
        let mut granule = Granule::default();
        granule.add(cell(true, 0x0f), |_| true);
        granule.add(cell(false, 0xff), |_| true);
        assert_eq!(granule.cells.len(), 2);
        granule.add(cell(true, 0xff), |_| true);
        assert_eq!(granule.cells, [cell(true, 0xff)]);
        granule.add(cell(true, 0xff), |_| false);
        assert_eq!(granule.cells.len(), 2);
    }
}
