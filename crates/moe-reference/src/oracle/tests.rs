//! Tests that each oracle passes right outputs, and fails on a defect of its own that is planted into them.

mod right;

use super::by_expert::{self, ByExpert};
use super::by_rank::{self, ByRank};
use super::digest::Digest;
use super::{Case, Finding, Wire, combine};
use crate::bf16;
use crate::format::Scales;
use right::{AS_IS, RANKS, case, wires};

/// Returns what the oracle says of rank 1 after `defect`.
fn expert_finding(wire: Wire, defect: impl FnOnce(&mut ByExpert)) -> Finding {
    let case = case(wire);
    let mut out = right::by_expert(&case, 1);
    defect(&mut out);
    by_expert::check(&case, 1, &out).unwrap_err()
}

fn rank_finding(defect: impl FnOnce(&mut ByRank)) -> Finding {
    let case = case(AS_IS);
    let mut out = right::by_rank(&case, 1);
    defect(&mut out);
    by_rank::check(&case, 1, &out).unwrap_err()
}

#[test]
fn what_is_right_passes_in_every_format_and_layout() {
    for wire in wires() {
        let case = case(wire);
        for rank in 0..RANKS {
            by_expert::check(&case, rank, &right::by_expert(&case, rank)).unwrap();
            by_rank::check(&case, rank, &right::by_rank(&case, rank)).unwrap();
        }
    }
}

#[test]
fn rows_of_a_rank_may_lie_anywhere_as_long_as_they_lie_together() {
    let case = case(AS_IS);
    let mut out = right::by_expert(&case, 1);
    // Expert 0 of rank 1 has one token of rank 0 and one of rank 2. Their rows change places.
    assert_eq!(out.counts[0], 2, "{:?}", out.layout_range);
    out.src_info.swap(0, 1);
    for byte in 0..512 {
        out.recv_x.swap(byte, 512 + byte);
    }
    for byte in 0..8 {
        out.recv_scales.swap(byte, 8 + byte);
    }
    out.layout_range.swap(0, 2);
    by_expert::check(&case, 1, &out).unwrap();
}

#[test]
fn a_count_that_is_one_off_is_found() {
    let found = expert_finding(AS_IS, |out| out.counts[0] += 1);
    assert!(
        matches!(
            found,
            Finding::Count {
                want: 2,
                got: 3,
                ..
            }
        ),
        "{found}"
    );
    let found = rank_finding(|out| out.counts[2] -= 1);
    assert!(matches!(found, Finding::Count { index: 2, .. }), "{found}");
}

#[test]
fn ranges_that_overlap_leave_a_hole_or_fall_short_are_found() {
    let why = |defect: fn(&mut ByExpert)| match expert_finding(AS_IS, defect) {
        Finding::Range { why, .. } => why,
        other => panic!("{other}"),
    };
    // Expert 0 of rank 1 has one row of rank 0, and one of rank 2.
    assert!(why(|out| out.layout_range[2] -= 1 << 32).contains("overlaps"));
    assert!(why(|out| out.layout_range[2] += 1 << 32).contains("leaves rows to no expert"));
    assert!(why(|out| out.layout_range[2] += 1).contains("goes beyond"));
    assert!(why(|out| out.layout_range[2] = 0).contains("no rank has"));
}

#[test]
fn a_token_in_place_of_another_and_one_that_came_twice_are_found() {
    let found = expert_finding(AS_IS, |out| out.src_info[0] ^= 1);
    assert!(matches!(found, Finding::Rows { .. }), "{found}");
    // The rows that rank 2 keeps of its own are tokens 1 and 2.
    let case = case(AS_IS);
    let mut out = right::by_rank(&case, 2);
    out.src_info[2 * 4 + 1] = out.src_info[2 * 4];
    let found = by_rank::check(&case, 2, &out).unwrap_err();
    assert!(matches!(found, Finding::Rows { .. }), "{found}");
}

#[test]
fn rows_by_rank_out_of_order_are_found() {
    let case = case(AS_IS);
    let mut out = right::by_rank(&case, 2);
    let before = out.src_info.clone();
    let source = (0..RANKS).find(|&source| out.counts[source] > 1).unwrap();
    out.src_info.swap(source * 4, source * 4 + 1);
    assert_ne!(out.src_info, before);
    let found = by_rank::check(&case, 2, &out).unwrap_err();
    assert!(matches!(found, Finding::Order { .. }), "{found}");
}

#[test]
fn one_wrong_byte_of_a_token_or_of_its_scales_is_found() {
    for defect in [
        |out: &mut ByExpert| out.recv_x[511] ^= 1,
        |out: &mut ByExpert| {
            out.recv_scales[7] ^= 0x80;
        },
    ] {
        let found = expert_finding(AS_IS, defect);
        assert!(matches!(found, Finding::Payload { .. }), "{found}");
    }
    let found = rank_finding(|out| out.recv_x[0] ^= 1);
    assert!(
        matches!(found, Finding::Payload { place: "rank", .. }),
        "{found}"
    );
}

#[test]
fn scales_that_are_not_transposed_are_found() {
    let fp8 = Wire::AsIs {
        row_bytes: 256,
        scale_bytes: 8,
        fp8: true,
    };
    let found = expert_finding(fp8, |out| {
        let flat = right::by_expert(&case(AS_IS), 1);
        out.recv_scales = flat.recv_scales;
    });
    assert!(matches!(found, Finding::Payload { .. }), "{found}");
}

#[test]
fn a_cast_that_rounds_the_other_way_is_found() {
    for scales in [Scales::F32, Scales::PowerOfTwo, Scales::Ue8m0] {
        let found = expert_finding(Wire::Cast(scales), |out| out.recv_x[5] ^= 1);
        assert!(matches!(found, Finding::Cast { channel: 5, .. }), "{found}");
        // The values are truncated instead of rounded, somewhere in a row.
        let case = case(Wire::Cast(scales));
        let mut out = right::by_expert(&case, 1);
        for byte in &mut out.recv_x[..256] {
            *byte = if *byte & 7 == 0 { *byte } else { *byte - 1 };
        }
        assert!(by_expert::check(&case, 1, &out).is_err());
    }
}

#[test]
fn a_scale_of_too_small_or_too_large_a_power_and_dirty_padding_are_found() {
    for scales in [Scales::PowerOfTwo, Scales::F32] {
        let found = expert_finding(Wire::Cast(scales), |out| {
            let bytes = &mut out.recv_scales[..4];
            let scale = f32::from_le_bytes(bytes.try_into().unwrap());
            bytes.copy_from_slice(&(scale * 2.0).to_le_bytes());
        });
        assert!(matches!(found, Finding::Scale { group: 0, .. }), "{found}");
    }
    let found = expert_finding(Wire::Cast(Scales::Ue8m0), |out| out.recv_scales[0] -= 1);
    assert!(matches!(found, Finding::Scale { group: 0, .. }), "{found}");
    let found = expert_finding(Wire::Cast(Scales::Ue8m0), |out| out.recv_scales[3] = 1);
    assert!(matches!(found, Finding::Scale { group: 3, .. }), "{found}");
}

#[test]
fn choices_and_weights_of_another_token_are_found() {
    let found = rank_finding(|out| out.recv_experts[0] = 1);
    assert!(
        matches!(found, Finding::Choice { what: "expert", .. }),
        "{found}"
    );
    let found = rank_finding(|out| {
        out.recv_weights
            .iter_mut()
            .for_each(|weight| *weight *= 2.0)
    });
    assert!(
        matches!(found, Finding::Choice { what: "weight", .. }),
        "{found}"
    );
}

#[test]
fn a_row_that_no_rank_sent_is_found_where_it_was_written() {
    let found = expert_finding(AS_IS, |out| *out.recv_x.last_mut().unwrap() = 0);
    assert!(
        matches!(
            found,
            Finding::Touched {
                row: 11,
                byte: 511,
                ..
            }
        ),
        "{found}"
    );
    let found = expert_finding(AS_IS, |out| *out.recv_scales.last_mut().unwrap() = 0);
    assert!(
        matches!(found, Finding::Touched { byte: 519, .. }),
        "{found}"
    );
    let found = rank_finding(|out| out.recv_x[4 * 512] = 0);
    assert!(
        matches!(
            found,
            Finding::Touched {
                index: 1,
                row: 0,
                ..
            }
        ),
        "{found}"
    );
}

#[test]
fn statistics_that_count_a_row_twice_and_a_wrong_mask_are_found() {
    let mut case = case(AS_IS);
    let out = right::by_expert(&case, 1);
    let before = [5u64, 6];
    let mut after: Vec<u64> = before
        .iter()
        .zip(&out.counts)
        .map(|(b, c)| b + u64::from(*c))
        .collect();
    by_expert::statistics(&case, 1, &before, &after).unwrap();
    after[1] += 1;
    let found = by_expert::statistics(&case, 1, &before, &after).unwrap_err();
    assert!(
        matches!(found, Finding::Statistic { index: 1, .. }),
        "{found}"
    );
    case.arrived[2][1] = false;
    by_expert::active(&case, 1, &[1, 1, 0]).unwrap();
    let found = by_expert::active(&case, 1, &[1, 1, 1]).unwrap_err();
    assert!(matches!(found, Finding::Active { rank: 2, .. }), "{found}");
}

#[test]
fn a_masked_rank_sends_nothing_and_another_place_takes_its_tokens() {
    let mut case = case(AS_IS);
    // Token 1 of rank 0 chooses expert 4, whose places at ranks 1 and 2 take turns: (1 + 0) % 2 is rank 2's.
    assert_eq!(case.ranks_of(0, 1), [2]);
    case.active[0][2] = false;
    assert_eq!(case.ranks_of(0, 1), [1]);
    assert!(case.is_whole(0, 1));
    // Only rank 2 has expert 3.
    assert!(!case.is_whole(0, 3));
    // A rank that holds the expert takes its own tokens.
    assert_eq!(case.ranks_of(2, 2), [2]);
}

/// Returns the sums of the reference, and the BF16 bits to which an ideal combine rounds them.
fn sums(case: &Case, rank: usize) -> (Vec<f32>, Vec<u16>) {
    let expert = |e: u32, x: &[f32], y: &mut [f32]| {
        for (y, x) in y.iter_mut().zip(x) {
            *y = x * (1.0 + e as f32 / 4.0) + 1.0;
        }
    };
    let want = combine::reference(case, rank, combine::Weights::Dispatch, false, expert);
    let out = want.iter().map(|sum| bf16::from_f32(*sum)).collect();
    (want, out)
}

#[test]
fn sums_without_one_expert_or_with_poison_are_found() {
    let mut case = case(AS_IS);
    let (want, mut out) = sums(&case, 0);
    combine::check(&case, &out, &want, combine::BF16_LIMIT).unwrap();
    case.returned[0][1] = false;
    let (_, less) = sums(&case, 0);
    let found = combine::check(&case, &less, &want, combine::BF16_LIMIT).unwrap_err();
    assert!(matches!(found, Finding::Sum { .. }), "{found}");
    // One token is two percent off.
    let mut off = out.clone();
    off[..256]
        .iter_mut()
        .for_each(|bits| *bits = bf16::from_f32(bf16::to_f32(*bits) * 1.02));
    assert!(combine::check(&case, &off, &want, combine::BF16_LIMIT).is_err());
    combine::check(&case, &off, &want, combine::FP8_LIMIT).unwrap();
    out[300] = 0x7fc0;
    let found = combine::check(&case, &out, &want, combine::BF16_LIMIT).unwrap_err();
    assert!(
        matches!(
            found,
            Finding::NotANumber {
                token: 1,
                channel: 44,
                ..
            }
        ),
        "{found}"
    );
}

#[test]
fn what_is_left_of_the_weights_is_scaled_up_when_asked_for() {
    let mut case = case(AS_IS);
    case.inputs[0].weights[..2].copy_from_slice(&[0.25, 0.75]);
    case.returned[0][1] = false;
    let one = |_: u32, _: &[f32], y: &mut [f32]| y.fill(1.0);
    let sum = |weights, renormalise| combine::reference(&case, 0, weights, renormalise, one)[0];
    // Token 0 of rank 0 chose expert 0, at rank 0, and expert 2, at rank 1.
    assert_eq!(sum(combine::Weights::Dispatch, false), 0.25);
    assert_eq!(sum(combine::Weights::Dispatch, true), 1.0);
    assert_eq!(sum(combine::Weights::Ones, false), 1.0);
    assert_eq!(sum(combine::Weights::Ones, true), 2.0);
    assert_eq!(sum(combine::Weights::Given(&[0.5; 8]), true), 1.0);
}

#[test]
fn a_token_that_lost_an_expert_and_is_called_valid_is_found() {
    let mut case = case(AS_IS);
    combine::token_valid(&case, 0, &[1; 4]).unwrap();
    case.returned[0][1] = false;
    // Token 0 chose expert 2 of rank 1; token 2 chose nothing and loses nothing.
    let found = combine::token_valid(&case, 0, &[1; 4]).unwrap_err();
    assert!(matches!(found, Finding::Valid { token: 0, .. }), "{found}");
    combine::token_valid(&case, 0, &[0, 1, 1, 0]).unwrap_err();
    let found = combine::token_valid(&case, 0, &[0, 1, 0, 1]).unwrap_err();
    assert!(matches!(found, Finding::Valid { token: 2, .. }), "{found}");
}

#[test]
fn two_zero_vectors_are_equal_and_opposite_ones_are_not() {
    assert_eq!(combine::difference(&[0.0; 3], &[0.0; 3]), 0.0);
    assert_eq!(combine::difference(&[1.0, 2.0], &[-1.0, -2.0]), 2.0);
    assert_eq!(combine::difference(&[1.0], &[0.0]), 1.0);
}

#[test]
fn a_digest_sees_every_byte_and_item_but_no_order() {
    let mut forwards = Digest::of(&[1], b"one");
    forwards.add(&[2], b"two");
    let mut backwards = Digest::of(&[2], b"two");
    backwards.merge(Digest::of(&[1], b"one"));
    assert_eq!(forwards, backwards);
    for other in [
        (vec![1], b"onf".to_vec()),
        (vec![2], b"one".to_vec()),
        (vec![1], b"one\0".to_vec()),
    ] {
        let mut digest = Digest::of(&other.0, &other.1);
        digest.add(&[2], b"two");
        assert_ne!(forwards, digest, "{other:?}");
    }
    forwards.add(&[2], b"two");
    assert_ne!(forwards, backwards, "an item twice");
}

#[test]
fn an_output_of_another_length_is_refused() {
    let found = expert_finding(AS_IS, |out| _ = out.counts.pop());
    assert_eq!(
        found.to_string(),
        "counts has 1 elements; its shape needs 2"
    );
}
