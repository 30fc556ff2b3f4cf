//! Slices of a range: the table of the rule, and its limits. Also the rule against a loop that takes a block as long as it can.

use std::ops::Range;

use warpverbs::internal::engine::{Cut, EngineError, LEAST_BLOCK, MOST_SLICE_BYTES};

const BLOCK: u32 = 65_536;
const FRAGMENT: u32 = 4_096;

fn usual() -> Cut {
    Cut::new(BLOCK, FRAGMENT, u32::MAX).unwrap()
}

/// Lengths of the slices, for few of them.
fn lengths(cut: Cut, bytes: u64) -> Vec<u64> {
    let slices = (0..cut.slices(bytes)).map(|number| cut.slice(bytes, number).unwrap());
    slices.map(|slice| slice.end - slice.start).collect()
}

#[test]
fn the_rule_is_that_of_its_table() {
    let cut = usual();
    assert_eq!(lengths(cut, 0), [0_u64; 0]);
    for whole in [1, 65_535, 65_536, 65_537, 69_632] {
        assert_eq!(lengths(cut, whole), [whole]);
    }
    assert_eq!(lengths(cut, 69_633), [65_536, 4_097]);
    assert_eq!(lengths(cut, 131_072), [65_536, 65_536]);
    assert_eq!(lengths(cut, 135_168), [65_536, 69_632]);
    assert_eq!(lengths(cut, 135_169), [65_536, 65_536, 4_097]);
    for (bytes, slices) in [
        (1 << 20, 16),
        (1 << 30, 16_384),
        ((1 << 32) - 1, 65_536),
        (1 << 32, 65_536),
        ((1 << 32) + 4_096, 65_536),
        ((1 << 32) + 4_097, 65_537),
        (1 << 40, 1 << 24),
        (u64::MAX, 1 << 48),
    ] {
        assert_eq!(cut.slices(bytes), slices, "{bytes} bytes");
        let last = cut.slice(bytes, slices - 1).unwrap();
        assert_eq!(last, (slices - 1) * 65_536..bytes);
        assert_eq!(cut.slice(bytes, slices), None);
    }
}

/// Returns what is taken while more than a block and a fragment remain, in numbers that cannot wrap.
fn taken(cut: Cut, bytes: u64) -> Vec<Range<u64>> {
    let mut slices = Vec::new();
    let mut at = 0;
    while bytes - at > u64::from(cut.most()) {
        slices.push(at..at + u64::from(cut.block()));
        at += u64::from(cut.block());
    }
    if at < bytes {
        slices.push(at..bytes);
    }
    slices
}

fn any_cut(random: &mut fastrand::Rng) -> Cut {
    let block = LEAST_BLOCK << random.u32(0..18);
    let block = block + random.u32(0..block.min(MOST_SLICE_BYTES - block + 1));
    let fragment = random.u32(0..=block.min(MOST_SLICE_BYTES - block));
    Cut::new(block, fragment, u32::MAX).unwrap()
}

#[test]
fn slices_cover_every_byte_once_and_keep_their_limits() {
    let seed = fastrand::u64(..);
    let mut random = fastrand::Rng::with_seed(seed);
    for run in 0..100_000 {
        let cut = any_cut(&mut random);
        let (block, most) = (u64::from(cut.block()), u64::from(cut.most()));
        let near = [0, 1, block, most, block + most, 2 * block, 20 * block];
        let bytes = near[random.usize(0..near.len())] + random.u64(0..3);
        let place = format!("seed {seed}, run {run}: {bytes} bytes, {cut:?}");
        let slices: Vec<_> = (0..cut.slices(bytes))
            .map(|number| cut.slice(bytes, number).unwrap())
            .collect();
        assert_eq!(slices, taken(cut, bytes), "{place}");
        let mut at = 0;
        for slice in &slices {
            assert_eq!(slice.start, at, "{place}");
            assert!((1..=most).contains(&(slice.end - slice.start)), "{place}");
            at = slice.end;
        }
        assert_eq!(at, bytes, "{place}");
        if let [_, .., last] = &slices[..] {
            assert!(last.end - last.start > most - block, "{place}");
        }
        assert_eq!(cut.slice(bytes, slices.len() as u64), None, "{place}");
        assert_eq!(cut.slice(bytes, u64::MAX), None, "{place}");
    }
}

/// Lengths whose slices no test can list: their number in 128 bits, and the first and the last of them.
#[test]
fn no_length_wraps() {
    let seed = fastrand::u64(..);
    let mut random = fastrand::Rng::with_seed(seed);
    for run in 0..100_000 {
        let cut = any_cut(&mut random);
        let shift = random.u32(0..40);
        let bytes = random.u64(1..=u64::MAX >> shift);
        let place = format!("seed {seed}, run {run}: {bytes} bytes, {cut:?}");
        let [wide, block, most] = [bytes, cut.block().into(), cut.most().into()].map(u128::from);
        let behind_first = wide.saturating_sub(most).div_ceil(block);
        let slices = cut.slices(bytes);
        assert_eq!(u128::from(slices), 1 + behind_first, "{place}");
        let last = cut.slice(bytes, slices - 1).unwrap();
        assert_eq!(u128::from(last.start), behind_first * block, "{place}");
        assert_eq!(last.end, bytes, "{place}");
        assert!(u128::from(last.end - last.start) <= most, "{place}");
        assert_eq!(cut.slice(bytes, 0).unwrap().start, 0, "{place}");
    }
}

#[test]
fn lengths_outside_their_limits_are_refused_with_value_and_limit() {
    let port = u32::MAX;
    for block in [0, LEAST_BLOCK - 1, MOST_SLICE_BYTES + 1, u32::MAX] {
        assert_eq!(Cut::new(block, 0, port), Err(EngineError::Block { block }));
    }
    let (fragment, block) = (LEAST_BLOCK + 1, LEAST_BLOCK);
    let refused = EngineError::Fragment { fragment, block };
    assert_eq!(Cut::new(block, fragment, port), Err(refused));
    // 2^30 bytes and a fragment: one WQE of mlx5 has no more than 2^30.
    let too_long = |block, fragment, most| EngineError::SliceBytes {
        block,
        fragment,
        most,
    };
    let most = MOST_SLICE_BYTES;
    assert_eq!(Cut::new(most, 1, port), Err(too_long(most, 1, most)));
    assert_eq!(Cut::new(most, 0, port).map(Cut::most), Ok(most));
    assert_eq!(Cut::new(most / 2, most / 2, port).map(Cut::most), Ok(most));
    // A port whose messages are shorter.
    let refused = Cut::new(BLOCK, FRAGMENT, BLOCK).unwrap_err();
    assert_eq!(refused, too_long(BLOCK, FRAGMENT, BLOCK));
    assert!(refused.to_string().contains("at most 65536"), "{refused}");
    assert!(Cut::new(BLOCK, FRAGMENT, BLOCK + FRAGMENT).is_ok());
    assert!(Cut::new(LEAST_BLOCK, LEAST_BLOCK, port).is_ok());
}
