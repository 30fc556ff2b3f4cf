//! Operations at which the threads of a warp or block meet. Numbers agree with `include/simt/runtime.h`.

/// Number of an operation, as a kernel passes it.
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

    /// As the kernel's source spells it.
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

    /// The results of a warp operation, one per lane; meaningless for lanes outside `mask`.
    ///
    /// `values` and `sources` are what each lane of `mask` brought; a shuffle from outside the mask gives all ones.
    pub(crate) fn combine(self, mask: u32, values: &[u64; 32], sources: &[u32; 32]) -> [u64; 32] {
        let lanes = || (0..32usize).filter(move |&lane| mask >> lane & 1 == 1);
        let votes = || lanes().fold(0u32, |votes, lane| votes | u32::from(values[lane] != 0) << lane);
        #[expect(clippy::cast_possible_truncation, reason = "reductions are defined on 32-bit values")]
        let reduce = |f: fn(u32, u32) -> u32| lanes().map(|lane| values[lane] as u32).reduce(f).map_or(0, u64::from);
        match self {
            Self::SYNC_WARP => [0; 32],
            Self::SHFL | Self::SHFL_UP | Self::SHFL_DOWN | Self::SHFL_XOR => {
                let mut out = [0; 32];
                for (out, &source) in out.iter_mut().zip(sources) {
                    let inside = mask >> (source & 31) & 1 == 1 && source < 32;
                    *out = if inside { values[(source & 31) as usize] } else { u64::MAX };
                }
                out
            }
            Self::BALLOT => [u64::from(votes()); 32],
            Self::ANY => [u64::from(votes() != 0); 32],
            Self::ALL => [u64::from(votes() == mask); 32],
            Self::MATCH_ANY => {
                let mut out = [0; 32];
                for lane in lanes() {
                    let same = lanes().filter(|&other| values[other] == values[lane]);
                    out[lane] = u64::from(same.fold(0u32, |same, other| same | 1 << other));
                }
                out
            }
            Self::MATCH_ALL => {
                let first = mask.trailing_zeros() as usize;
                let same = lanes().all(|lane| values[lane] == values[first]);
                [if same { u64::from(mask) } else { 0 }; 32]
            }
            Self::REDUCE_ADD => [reduce(u32::wrapping_add); 32],
            Self::REDUCE_MIN => [reduce(u32::min); 32],
            Self::REDUCE_MAX => [reduce(u32::max); 32],
            Self::REDUCE_MIN_SIGNED => [reduce(|a, b| a.cast_signed().min(b.cast_signed()).cast_unsigned()); 32],
            Self::REDUCE_MAX_SIGNED => [reduce(|a, b| a.cast_signed().max(b.cast_signed()).cast_unsigned()); 32],
            Self::REDUCE_AND => [reduce(|a, b| a & b); 32],
            Self::REDUCE_OR => [reduce(|a, b| a | b); 32],
            Self::REDUCE_XOR => [reduce(|a, b| a ^ b); 32],
            _ => [0; 32],
        }
    }

    /// Whether a kernel may pass this number to `simt_warp_op`.
    pub(crate) fn is_warp(self) -> bool {
        self.0 <= Self::REDUCE_XOR.0
    }

    /// Whether a kernel may pass this number to `simt_block_op`.
    pub(crate) fn is_block(self) -> bool {
        (Self::SYNC.0..=Self::SYNC_OR.0).contains(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(f: impl Fn(u32) -> u64) -> [u64; 32] {
        std::array::from_fn(|lane| f(u32::try_from(lane).unwrap()))
    }

    #[test]
    fn a_shuffle_from_outside_the_mask_reads_all_ones() {
        let sources = std::array::from_fn(|lane| u32::try_from(lane).unwrap() ^ 8);
        let out = Op::SHFL_XOR.combine(0xff, &values(u64::from), &sources);
        assert_eq!(out[3], u64::MAX);
        let out = Op::SHFL_XOR.combine(u32::MAX, &values(u64::from), &sources);
        assert_eq!(out, values(|lane| u64::from(lane ^ 8)));
    }

    #[test]
    fn votes_look_only_at_lanes_of_the_mask() {
        let odd = values(|lane| u64::from(lane & 1));
        assert_eq!(Op::BALLOT.combine(0x0000_ffff, &odd, &[0; 32])[0], 0xaaaa);
        assert_eq!(Op::ALL.combine(0xaaaa_aaaa, &odd, &[0; 32])[1], 1);
        assert_eq!(Op::ANY.combine(0x5555_5555, &odd, &[0; 32])[0], 0);
    }

    #[test]
    fn matches_group_lanes_of_equal_value() {
        let out = Op::MATCH_ANY.combine(0xff, &values(|lane| u64::from(lane % 3)), &[0; 32]);
        assert_eq!(&out[..8], &[0x49, 0x92, 0x24, 0x49, 0x92, 0x24, 0x49, 0x92]);
        assert_eq!(Op::MATCH_ALL.combine(0xf0, &values(|lane| u64::from(lane / 4)), &[0; 32])[4], 0xf0);
        assert_eq!(Op::MATCH_ALL.combine(0xf8, &values(|lane| u64::from(lane / 4)), &[0; 32])[4], 0);
    }

    #[test]
    fn reductions_know_signs() {
        let v = values(|lane| u64::from((lane.cast_signed() - 16).cast_unsigned()));
        let get = |op: Op| op.combine(u32::MAX, &v, &[0; 32])[7];
        assert_eq!(get(Op::REDUCE_MIN_SIGNED), u64::from((-16i32).cast_unsigned()));
        assert_eq!(get(Op::REDUCE_MAX_SIGNED), 15);
        assert_eq!(get(Op::REDUCE_MIN), 0);
        assert_eq!(get(Op::REDUCE_MAX), u64::from(u32::MAX));
        assert_eq!(get(Op::REDUCE_ADD), u64::from((-16i32).cast_unsigned()));
    }
}
