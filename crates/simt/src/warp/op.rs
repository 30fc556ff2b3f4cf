//! The operations at which the threads of a warp or block meet. Their numbers agree with `include/simt/runtime.h`.

use std::cell::Cell;

/// The values that the lanes of a warp bring to a meeting and take from it, by lane.
pub(crate) struct Lanes {
    pub(crate) values: [Cell<u64>; 32],
    /// The lane that each lane reads, for shuffles.
    pub(crate) sources: [Cell<u32>; 32],
    pub(crate) results: [Cell<u64>; 32],
}

impl Lanes {
    pub(crate) fn new() -> Self {
        Self {
            values: [const { Cell::new(0) }; 32],
            sources: [const { Cell::new(0) }; 32],
            results: [const { Cell::new(0) }; 32],
        }
    }
}

/// Returns the lanes of a mask, in order.
pub(crate) fn lanes_of(mask: u32) -> impl Iterator<Item = usize> {
    let next = |rest: u32| (rest != 0).then_some(rest);
    std::iter::successors(next(mask), move |rest| next(rest & (rest - 1)))
        .map(|rest| rest.trailing_zeros() as usize)
}

/// The number of an operation, as a kernel passes it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Op(pub(crate) u32);

impl Op {
    pub(crate) const SYNC_WARP: Self = Self(0);
    pub(crate) const SHFL: Self = Self(1);
    pub(crate) const SHFL_UP: Self = Self(2);
    pub(crate) const SHFL_DOWN: Self = Self(3);
    pub(crate) const SHFL_XOR: Self = Self(4);
    pub(crate) const BALLOT: Self = Self(5);
    pub(crate) const ANY: Self = Self(6);
    pub(crate) const ALL: Self = Self(7);
    pub(crate) const MATCH_ANY: Self = Self(8);
    pub(crate) const MATCH_ALL: Self = Self(9);
    pub(crate) const REDUCE_ADD: Self = Self(10);
    pub(crate) const REDUCE_MIN: Self = Self(11);
    pub(crate) const REDUCE_MAX: Self = Self(12);
    pub(crate) const REDUCE_MIN_SIGNED: Self = Self(13);
    pub(crate) const REDUCE_MAX_SIGNED: Self = Self(14);
    pub(crate) const REDUCE_AND: Self = Self(15);
    pub(crate) const REDUCE_OR: Self = Self(16);
    pub(crate) const REDUCE_XOR: Self = Self(17);
    pub(crate) const SYNC: Self = Self(32);
    pub(crate) const SYNC_COUNT: Self = Self(33);
    pub(crate) const SYNC_AND: Self = Self(34);
    pub(crate) const SYNC_OR: Self = Self(35);

    /// Returns the name of the operation in a kernel's source.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::SYNC_WARP => "__syncwarp",
            Self::SHFL => "__shfl_sync",
            Self::SHFL_UP => "__shfl_up_sync",
            Self::SHFL_DOWN => "__shfl_down_sync",
            Self::SHFL_XOR => "__shfl_xor_sync",
            Self::BALLOT => "__ballot_sync",
            Self::ANY => "__any_sync",
            Self::ALL => "__all_sync",
            Self::MATCH_ANY => "__match_any_sync",
            Self::MATCH_ALL => "__match_all_sync",
            Self::REDUCE_ADD => "__reduce_add_sync",
            Self::REDUCE_MIN | Self::REDUCE_MIN_SIGNED => "__reduce_min_sync",
            Self::REDUCE_MAX | Self::REDUCE_MAX_SIGNED => "__reduce_max_sync",
            Self::REDUCE_AND => "__reduce_and_sync",
            Self::REDUCE_OR => "__reduce_or_sync",
            Self::REDUCE_XOR => "__reduce_xor_sync",
            Self::SYNC => "__syncthreads",
            Self::SYNC_COUNT => "__syncthreads_count",
            Self::SYNC_AND => "__syncthreads_and",
            Self::SYNC_OR => "__syncthreads_or",
            _ => "an unknown operation",
        }
    }

    /// Computes the result of a warp operation for each lane of `mask`, and touches no other lane's.
    pub(crate) fn combine(self, mask: u32, lanes: &Lanes) {
        let votes = || {
            lanes_of(mask).fold(0u32, |votes, lane| {
                votes | u32::from(lanes.values[lane].get() != 0) << lane
            })
        };
        let share = |result: u64| lanes_of(mask).for_each(|lane| lanes.results[lane].set(result));
        #[expect(
            clippy::cast_possible_truncation,
            reason = "reductions are defined on 32-bit values"
        )]
        let word = |lane: usize| lanes.values[lane].get() as u32;
        let reduce =
            |f: fn(u32, u32) -> u32| share(lanes_of(mask).map(word).reduce(f).map_or(0, u64::from));
        match self {
            Self::SHFL | Self::SHFL_UP | Self::SHFL_DOWN | Self::SHFL_XOR => {
                for lane in lanes_of(mask) {
                    let source = lanes.sources[lane].get() as usize;
                    let inside = source < 32 && mask >> source & 1 == 1;
                    // A lane that takes no part gives all ones. That is undefined on a GPU, and a NaN in every float format.
                    lanes.results[lane].set(if inside {
                        lanes.values[source].get()
                    } else {
                        u64::MAX
                    });
                }
            }
            Self::BALLOT => share(votes().into()),
            Self::ANY => share((votes() != 0).into()),
            Self::ALL => share((votes() == mask).into()),
            Self::MATCH_ANY => {
                for lane in lanes_of(mask) {
                    let same =
                        lanes_of(mask).filter(|&other| lanes.values[other] == lanes.values[lane]);
                    lanes.results[lane].set(same.fold(0, |same, other| same | 1 << other));
                }
            }
            Self::MATCH_ALL => {
                let first = &lanes.values[mask.trailing_zeros() as usize & 31];
                let same = lanes_of(mask).all(|lane| lanes.values[lane] == *first);
                share(if same { mask.into() } else { 0 });
            }
            Self::REDUCE_ADD => reduce(u32::wrapping_add),
            Self::REDUCE_MIN => reduce(u32::min),
            Self::REDUCE_MAX => reduce(u32::max),
            Self::REDUCE_MIN_SIGNED => {
                reduce(|a, b| a.cast_signed().min(b.cast_signed()).cast_unsigned())
            }
            Self::REDUCE_MAX_SIGNED => {
                reduce(|a, b| a.cast_signed().max(b.cast_signed()).cast_unsigned())
            }
            Self::REDUCE_AND => reduce(|a, b| a & b),
            Self::REDUCE_OR => reduce(|a, b| a | b),
            Self::REDUCE_XOR => reduce(|a, b| a ^ b),
            _ => {}
        }
    }

    /// Returns whether a kernel may pass this number to `simt_warp_op`.
    pub(crate) fn is_warp(self) -> bool {
        self.0 <= Self::REDUCE_XOR.0
    }

    /// Returns whether a kernel may pass this number to `simt_block_op`.
    pub(crate) fn is_block(self) -> bool {
        (Self::SYNC.0..=Self::SYNC_OR.0).contains(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the results of `op` by lane, 0 for lanes outside the mask.
    fn combine(
        op: Op,
        mask: u32,
        value: impl Fn(u32) -> u64,
        source: impl Fn(u32) -> u32,
    ) -> Vec<u64> {
        let lanes = Lanes::new();
        for lane in 0..32 {
            lanes.values[lane as usize].set(value(lane));
            lanes.sources[lane as usize].set(source(lane));
        }
        op.combine(mask, &lanes);
        lanes.results.iter().map(Cell::get).collect()
    }

    #[test]
    fn a_shuffle_from_outside_the_mask_reads_all_ones() {
        let out = combine(Op::SHFL_XOR, 0xff, u64::from, |lane| lane ^ 8);
        assert_eq!((out[3], out[8]), (u64::MAX, 0));
        let out = combine(Op::SHFL_XOR, u32::MAX, u64::from, |lane| lane ^ 8);
        assert_eq!(out, (0..32).map(|lane| lane ^ 8).collect::<Vec<_>>());
    }

    #[test]
    fn votes_look_only_at_lanes_of_the_mask() {
        let odd = |lane: u32| u64::from(lane & 1);
        assert_eq!(combine(Op::BALLOT, 0x0000_ffff, odd, |_| 0)[0], 0xaaaa);
        assert_eq!(combine(Op::ALL, 0xaaaa_aaaa, odd, |_| 0)[1], 1);
        assert_eq!(combine(Op::ANY, 0x5555_5555, odd, |_| 0)[0], 0);
    }

    #[test]
    fn matches_group_lanes_of_equal_value() {
        let out = combine(Op::MATCH_ANY, 0xff, |lane| u64::from(lane % 3), |_| 0);
        assert_eq!(
            &out[..9],
            &[0x49, 0x92, 0x24, 0x49, 0x92, 0x24, 0x49, 0x92, 0]
        );
        assert_eq!(
            combine(Op::MATCH_ALL, 0xf0, |lane| u64::from(lane / 4), |_| 0)[4],
            0xf0
        );
        assert_eq!(
            combine(Op::MATCH_ALL, 0xf8, |lane| u64::from(lane / 4), |_| 0)[4],
            0
        );
    }

    #[test]
    fn reductions_know_signs() {
        let get = |op| {
            combine(
                op,
                u32::MAX,
                |lane| u64::from((lane.cast_signed() - 16).cast_unsigned()),
                |_| 0,
            )[7]
        };
        assert_eq!(
            get(Op::REDUCE_MIN_SIGNED),
            u64::from((-16i32).cast_unsigned())
        );
        assert_eq!(get(Op::REDUCE_MAX_SIGNED), 15);
        assert_eq!(get(Op::REDUCE_MIN), 0);
        assert_eq!(get(Op::REDUCE_MAX), u64::from(u32::MAX));
        assert_eq!(get(Op::REDUCE_ADD), u64::from((-16i32).cast_unsigned()));
    }
}
