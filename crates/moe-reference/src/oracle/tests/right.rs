//! A small call, and its right outputs, which are made with none of the code that judges them.

use super::super::by_expert::ByExpert;
use super::super::by_rank::ByRank;
use super::super::payload::{self, e4m3};
use super::super::{Case, Input, Wire};
use crate::format::Scales;
use crate::{Home, Returns, Shape, bf16};

pub(super) const POISON: u8 = 0xa5;
pub(super) const RANKS: usize = 3;

/// Returns a case of three ranks, and five experts of which the last has two places, top-2. One token has no choice, one rank no token.
pub(super) fn case(wire: Wire) -> Case {
    let shape = Shape {
        hidden: 256,
        experts: 5,
        top_k: 2,
        max_tokens: 4,
        returns: Returns::Sums,
    };
    let place = |rank, local| Home { rank, local };
    let places = vec![
        vec![place(0, 0)],
        vec![place(0, 1)],
        vec![place(1, 0)],
        vec![place(2, 0)],
        vec![place(1, 1), place(2, 1)],
    ];
    let mut random = fastrand::Rng::with_seed(7);
    let mut input = |experts: &[i32]| {
        let tokens = experts.len() / 2;
        let (row_bytes, scale_bytes) = match wire {
            Wire::AsIs {
                row_bytes,
                scale_bytes,
                ..
            } => (row_bytes, scale_bytes),
            Wire::Cast(_) => (512, 0),
        };
        let mut x = Vec::new();
        for i in 0..tokens * row_bytes / 2 {
            let value = (random.f32() - 0.5) * if i % 256 < 128 { 3.0 } else { 900.0 };
            x.extend(bf16::from_f32(value).to_le_bytes());
        }
        Input {
            x,
            scales: (0..tokens * scale_bytes).map(|_| random.u8(..)).collect(),
            experts: experts.to_vec(),
            weights: experts.iter().map(|_| random.f32()).collect(),
        }
    };
    let inputs = vec![
        input(&[0, 2, 4, -1, -1, -1, 3, 4]),
        input(&[]),
        input(&[1, 0, 2, 4, 4, 3]),
    ];
    let mut case = Case::new(&shape, places, inputs);
    case.wire = wire;
    case
}

pub(super) const AS_IS: Wire = Wire::AsIs {
    row_bytes: 512,
    scale_bytes: 8,
    fp8: false,
};

/// Returns all formats in which a token arrives.
pub(super) fn wires() -> [Wire; 5] {
    [
        AS_IS,
        Wire::AsIs {
            row_bytes: 256,
            scale_bytes: 8,
            fp8: true,
        },
        Wire::Cast(Scales::F32),
        Wire::Cast(Scales::PowerOfTwo),
        Wire::Cast(Scales::Ue8m0),
    ]
}

/// Returns a token and its scales as they should arrive.
pub(super) fn arrives(case: &Case, source: usize, token: usize) -> (Vec<u8>, Vec<u8>) {
    let input = &case.inputs[source];
    let scales = match case.wire {
        Wire::AsIs {
            row_bytes,
            scale_bytes,
            ..
        } => {
            return (
                input.x[token * row_bytes..][..row_bytes].to_vec(),
                input.scales[token * scale_bytes..][..scale_bytes].to_vec(),
            );
        }
        Wire::Cast(scales) => scales,
    };
    let pairs = input.x[token * 512..][..512].chunks_exact(2);
    let x: Vec<f32> = pairs
        .map(|pair| bf16::to_f32(u16::from_le_bytes([pair[0], pair[1]])))
        .collect();
    let (mut row, mut out) = (Vec::new(), Vec::new());
    for channels in x.chunks(128) {
        let largest = channels.iter().fold(1e-4_f32, |most, x| most.max(x.abs()));
        let mut scale = largest / 448.0;
        if scales != Scales::F32 {
            scale = scale.log2().ceil().exp2();
        }
        row.extend(channels.iter().map(|x| nearest(f64::from(x / scale))));
        match scales {
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "an exponent from 0 to 254"
            )]
            Scales::Ue8m0 => out.push((scale.log2() + 127.0) as u8),
            _ => out.extend(scale.to_le_bytes()),
        }
    }
    out.resize(out.len().next_multiple_of(4), 0);
    (row, out)
}

/// Returns the e4m3 nearest to `value`. Of two equally near it returns the even one.
pub(super) fn nearest(value: f64) -> u8 {
    let distance = |bits: &u8| ((e4m3(*bits) - value).abs(), bits & 1);
    let numbers = (0..=255u8).filter(|bits| bits & 0x7f != 0x7f);
    let better = |a: &u8, b: &u8| distance(a).partial_cmp(&distance(b)).unwrap();
    numbers.min_by(better).unwrap()
}

pub(super) fn by_expert(case: &Case, rank: usize) -> ByExpert {
    let room = case.rows_of_an_expert();
    let (row_bytes, scale_bytes) = payload::arrives(case);
    let mut out = ByExpert {
        recv_x: vec![POISON; case.room * room * row_bytes],
        recv_scales: vec![POISON; case.room * room * scale_bytes],
        counts: vec![0; case.room],
        src_info: vec![u32::MAX; case.room * room],
        layout_range: vec![0; case.room * RANKS],
        poison: POISON,
    };
    for row in case.rows_at(rank) {
        for (_, expert) in &row.picks {
            let expert = *expert as usize;
            let at = out.counts[expert] as usize;
            let range = &mut out.layout_range[expert * RANKS + row.source as usize];
            *range = match *range {
                0 => (at as u64) << 32 | 1,
                more => more + 1,
            };
            out.counts[expert] += 1;
            out.src_info[expert * room + at] = row.token;
            let (x, scales) = arrives(case, row.source as usize, row.token as usize);
            out.recv_x[(expert * room + at) * row_bytes..][..row_bytes].copy_from_slice(&x);
            for (word, bytes) in scales.chunks(4).enumerate() {
                let to = if payload::scales_are_transposed(case) {
                    ((expert * scale_bytes / 4 + word) * room + at) * 4
                } else {
                    (expert * room + at) * scale_bytes + word * 4
                };
                out.recv_scales[to..to + 4].copy_from_slice(bytes);
            }
        }
    }
    out
}

pub(super) fn by_rank(case: &Case, rank: usize) -> ByRank {
    let (row_bytes, scale_bytes) = payload::arrives(case);
    let all = RANKS * case.max_tokens;
    let mut out = ByRank {
        recv_x: vec![POISON; all * row_bytes],
        recv_scales: vec![POISON; all * scale_bytes],
        counts: vec![0; RANKS],
        src_info: vec![u32::MAX; all],
        recv_experts: vec![-1; all * case.top_k],
        recv_weights: vec![0.0; all * case.top_k],
        poison: POISON,
    };
    for row in case.rows_at(rank) {
        let source = row.source as usize;
        let at = source * case.max_tokens + out.counts[source] as usize;
        out.counts[source] += 1;
        out.src_info[at] = row.token;
        let (x, scales) = arrives(case, source, row.token as usize);
        out.recv_x[at * row_bytes..][..row_bytes].copy_from_slice(&x);
        out.recv_scales[at * scale_bytes..][..scale_bytes].copy_from_slice(&scales);
        for (k, local) in row.picks {
            out.recv_experts[at * case.top_k + k] = local.cast_signed();
            let weight = case.inputs[source].weights[row.token as usize * case.top_k + k];
            out.recv_weights[at * case.top_k + k] = weight;
        }
    }
    out
}
