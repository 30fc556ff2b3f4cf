//! One WQE as several operations, since an operation of a provider takes fewer bytes or fewer ranges.

use crate::provider::LocalRange;

/// The most ranges of an operation, whatever the provider takes.
pub(super) const MOST_RANGES: usize = 4;

/// What an operation takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Limits {
    /// The most bytes, at least 1.
    pub(super) bytes: u64,
    /// The most ranges, 1 to [`MOST_RANGES`].
    pub(super) ranges: usize,
}

impl Limits {
    /// Returns the limits of a provider that takes so much. A provider that says 0 takes one range, or any length.
    pub(super) fn new(bytes: usize, ranges: usize) -> Self {
        Self {
            bytes: if bytes == 0 { u64::MAX } else { bytes as u64 },
            ranges: ranges.clamp(1, MOST_RANGES),
        }
    }
}

/// The ranges of one operation. Its bytes are contiguous at the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    all: [LocalRange; MOST_RANGES],
    count: u8,
}

impl Piece {
    const EMPTY: Self = Self {
        all: [LocalRange {
            address: 0,
            key: 0,
            bytes: 0,
        }; MOST_RANGES],
        count: 0,
    };

    pub(super) fn ranges(&self) -> &[LocalRange] {
        &self.all[..usize::from(self.count)]
    }

    /// Returns the number of bytes.
    pub(super) fn bytes(&self) -> u64 {
        self.ranges()
            .iter()
            .map(|range| u64::from(range.bytes))
            .sum()
    }

    fn push(&mut self, range: LocalRange) {
        self.all[usize::from(self.count)] = range;
        self.count += 1;
    }
}

/// Cuts ranges into pieces, in order: as few as the limits allow, and at least one.
#[derive(Debug)]
pub(super) struct Pieces<'a> {
    ranges: &'a [LocalRange],
    limits: Limits,
    /// The bytes of the first of `ranges` that are in pieces already.
    cut: u32,
    is_begun: bool,
}

impl<'a> Pieces<'a> {
    pub(super) fn new(ranges: &'a [LocalRange], limits: Limits) -> Self {
        Self {
            ranges,
            limits,
            cut: 0,
            is_begun: false,
        }
    }
}

impl Iterator for Pieces<'_> {
    type Item = Piece;

    fn next(&mut self) -> Option<Piece> {
        let mut piece = Piece::EMPTY;
        let mut room = self.limits.bytes;
        while let Some((first, others)) = self.ranges.split_first() {
            if piece.ranges().len() == self.limits.ranges || room == 0 {
                break;
            }
            let left = first.bytes - self.cut;
            let bytes = left.min(u32::try_from(room).unwrap_or(u32::MAX));
            if bytes > 0 {
                piece.push(LocalRange {
                    address: first.address.wrapping_add(self.cut.into()),
                    key: first.key,
                    bytes,
                });
            }
            room -= u64::from(bytes);
            self.cut += bytes;
            if self.cut == first.bytes {
                (self.ranges, self.cut) = (others, 0);
            }
        }
        let is_first = !std::mem::replace(&mut self.is_begun, true);
        (is_first || piece.count > 0).then_some(piece)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(address: u64, key: u32, bytes: u32) -> LocalRange {
        LocalRange {
            address,
            key,
            bytes,
        }
    }

    fn cut(ranges: &[LocalRange], bytes: usize, most: usize) -> Vec<Vec<LocalRange>> {
        let pieces = Pieces::new(ranges, Limits::new(bytes, most));
        pieces.map(|piece| piece.ranges().to_vec()).collect()
    }

    #[test]
    fn what_fits_is_one_operation_and_so_is_nothing() {
        let two = [range(100, 1, 10), range(500, 2, 20)];
        assert_eq!(cut(&two, 30, 2), [two.to_vec()]);
        assert_eq!(cut(&two, 0, 9), [two.to_vec()]);
        assert_eq!(cut(&[], 30, 2), [vec![]]);
        assert_eq!(cut(&[range(1, 1, 0)], 30, 2), [vec![]]);
    }

    #[test]
    fn bytes_and_ranges_beyond_the_limits_go_into_the_next_operation() {
        let two = [range(100, 1, 10), range(500, 2, 20)];
        assert_eq!(cut(&two, 30, 1), [[two[0]], [two[1]]]);
        assert_eq!(
            cut(&two, 12, 2),
            [
                vec![two[0], range(500, 2, 2)],
                vec![range(502, 2, 12)],
                vec![range(514, 2, 6)],
            ]
        );
        assert_eq!(cut(&two, 0, 0), [[two[0]], [two[1]]]);
    }

    #[test]
    fn pieces_have_all_bytes_in_their_order_within_the_limits() {
        let seed = fastrand::u64(..);
        let mut random = fastrand::Rng::with_seed(seed);
        for _ in 0..2000 {
            let ranges: Vec<LocalRange> = (0..random.u32(0..9))
                .map(|key| range(u64::from(key) << 32, key, random.u32(1..50)))
                .collect();
            let limits = Limits::new(random.usize(1..60), random.usize(0..6));
            let flat = |ranges: &[LocalRange]| -> Vec<(u32, u64)> {
                let bytes = |it: &LocalRange| {
                    let (key, from) = (it.key, it.address);
                    (0..u64::from(it.bytes)).map(move |at| (key, from + at))
                };
                ranges.iter().flat_map(bytes).collect()
            };
            let pieces: Vec<Piece> = Pieces::new(&ranges, limits).collect();
            let all: Vec<LocalRange> = pieces.iter().flat_map(|it| it.ranges().to_vec()).collect();
            assert_eq!(flat(&all), flat(&ranges), "seed {seed}");
            for piece in &pieces {
                let is_within = piece.bytes() <= limits.bytes;
                assert!(
                    is_within && piece.ranges().len() <= limits.ranges,
                    "seed {seed}"
                );
                assert_eq!(piece.bytes() == 0, ranges.is_empty(), "seed {seed}");
            }
        }
    }
}
