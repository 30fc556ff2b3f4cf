//! Packet numbers (PSNs). The numbers of two lives of a QP keep a distance, so that no packet of an earlier life falls into a new window.

/// The number of bits of a packet number.
pub(crate) const PSN_BITS: u32 = 24;
/// The distance between the packet numbers of two lives of a QP.
const PSN_DISTANCE: u32 = 1 << 22;

/// Returns a random packet number.
pub(crate) fn any_psn() -> u32 {
    fastrand::u32(..1 << PSN_BITS)
}

/// Returns a random packet number at least [`PSN_DISTANCE`] away from `used`, on either side.
pub(crate) fn far_from(used: u32) -> u32 {
    let range = (1 << PSN_BITS) - 2 * PSN_DISTANCE;
    (used + PSN_DISTANCE + fastrand::u32(..range)) % (1 << PSN_BITS)
}

/// Returns the first packet number of the end that has published `psn`. Packets near `far` may still arrive at the QP of the other end.
/// Both ends get the same result.
pub(crate) fn first_psn(psn: u32, far: Option<u32>) -> u32 {
    let near = |far: u32| {
        let ahead = psn.wrapping_sub(far) % (1 << PSN_BITS);
        ahead.min((1 << PSN_BITS) - ahead) < PSN_DISTANCE
    };
    match far {
        Some(far) if near(far) => (psn + (1 << (PSN_BITS - 1))) % (1 << PSN_BITS),
        _ => psn,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packet_numbers_of_two_lives_are_far_apart_on_both_sides() {
        let seed = fastrand::u64(..);
        fastrand::seed(seed);
        for _ in 0..10_000 {
            let used = fastrand::u32(..1 << PSN_BITS);
            let psn = far_from(used);
            assert!(psn < 1 << PSN_BITS);
            let ahead = psn.wrapping_sub(used) % (1 << PSN_BITS);
            let apart = ahead.min((1 << PSN_BITS) - ahead);
            assert!(apart >= PSN_DISTANCE, "seed {seed}: {used:#x} {psn:#x}");
        }
    }
    #[test]
    fn a_psn_near_the_numbers_of_an_earlier_peer_moves_to_the_far_side() {
        let seed = fastrand::u64(..);
        fastrand::seed(seed);
        for _ in 0..10_000 {
            let far = fastrand::u32(..1 << PSN_BITS);
            let psn = (far + fastrand::u32(..1 << PSN_BITS)) % (1 << PSN_BITS);
            let first = first_psn(psn, Some(far));
            let ahead = first.wrapping_sub(far) % (1 << PSN_BITS);
            let apart = ahead.min((1 << PSN_BITS) - ahead);
            assert!(first < 1 << PSN_BITS);
            assert!(apart >= PSN_DISTANCE, "seed {seed}: {psn:#x} {far:#x}");
            assert!(first == psn || apart > PSN_DISTANCE, "seed {seed}");
        }
        assert_eq!(first_psn(7, None), 7);
    }
}
