//! FP8 cast in dispatch, FP8 of the caller, opaque bytes: payload and scales bit for bit, on several ranks.

use std::sync::Arc;

use crate::device::{DeviceCall, POISON};
use moe_reference::format;
use moe_reference::oracle::by_expert::ByExpert;
use moe_reference::oracle::{self, Case, Input, Wire, payload};
use test_support::moe::{Setup, expert, run};
use test_support::reference;
use warpverbs::moe::{Batch, Format, Layout, Moe, MoeConfig, Placement, Scales};

const SHAPE: MoeConfig = MoeConfig::BF16
    .with_hidden(384)
    .with_experts(7)
    .with_top_k(3)
    .with_max_tokens(12);

const ALL_SCALES: [Scales; 3] = [Scales::F32, Scales::PowerOfTwo, Scales::Ue8m0];

/// Choices of one rank: some -1, some ranks without a token.
fn routing(config: &MoeConfig, random: &mut fastrand::Rng) -> (Vec<i32>, Vec<f32>) {
    let tokens = match random.u32(..6) {
        0 => 0,
        1 => config.max_tokens,
        _ => random.u32(1..=config.max_tokens),
    };
    let (mut experts, mut weights) = (Vec::new(), Vec::new());
    for _ in 0..tokens {
        let mut ids: Vec<i32> = (0..i32::try_from(config.experts).unwrap()).collect();
        random.shuffle(&mut ids);
        for id in &ids[..config.top_k as usize] {
            experts.push(if random.u32(..5) == 0 { -1 } else { *id });
            weights.push(random.f32());
        }
    }
    (experts, weights)
}

/// BF16 bits of a token: each group of channels has a size of its own, from far below the least scale to huge; some zeros.
fn token(hidden: usize, random: &mut fastrand::Rng) -> Vec<u16> {
    let mut token = Vec::with_capacity(hidden);
    while token.len() < hidden {
        let top = random.u16(1..=0xfd);
        for _ in 0..128.min(hidden - token.len()) {
            let exponent = top.saturating_sub(random.u16(..20));
            let zero = random.u32(..16) == 0;
            let bits = random.u16(..2) << 15 | exponent << 7 | random.u16(..128);
            token.push(if zero { bits & 0x8000 } else { bits });
        }
    }
    token
}

/// Returns what every rank gives to dispatch in a layer of this shape; FP8 as BF16, unless `quantized`.
fn inputs(config: &MoeConfig, ranks: u32, quantized: bool, seed: u64) -> Vec<Input> {
    let layout = Layout::new(config, ranks);
    let cast = matches!(config.format, Format::Fp8(_)) && !quantized;
    let one = |rank: u32| {
        let mut random = fastrand::Rng::with_seed(seed << 8 | u64::from(rank));
        let (experts, weights) = routing(config, &mut random);
        let tokens = experts.len() / config.top_k as usize;
        let mut bytes = |each: u64| -> Vec<u8> {
            let count = usize::try_from(each).unwrap() * tokens;
            std::iter::repeat_with(|| random.u8(..))
                .take(count)
                .collect()
        };
        let (x, scales) = if cast || config.format == Format::Bf16 {
            (Vec::new(), Vec::new())
        } else {
            (bytes(layout.row_bytes), bytes(layout.scale_bytes))
        };
        let x = if x.is_empty() {
            let x: Vec<u16> = (0..tokens)
                .flat_map(|_| token(config.hidden as usize, &mut random))
                .collect();
            bytemuck::cast_slice(&x).to_vec()
        } else {
            x
        };
        Input {
            x,
            scales,
            experts,
            weights,
        }
    };
    (0..ranks).map(one).collect()
}

fn case(moe: &Moe, inputs: &[Input], quantized: bool) -> Case {
    let config = moe.config();
    let layout = Layout::new(config, moe.team().ranks());
    let wire = match config.format {
        Format::Fp8(kind) if !quantized => Wire::Cast(reference::scales(kind)),
        format => Wire::AsIs {
            row_bytes: usize::try_from(layout.row_bytes).unwrap(),
            scale_bytes: usize::try_from(layout.scale_bytes).unwrap(),
            fp8: matches!(format, Format::Fp8(_)),
        },
    };
    Case {
        wire,
        ..reference::case(config, &moe.placement(), inputs.to_vec())
    }
}

/// The bytes of a row's scales, gathered from where FP8 keeps them by expert.
fn scales_of(moe: &Moe, out: &ByExpert, expert: usize, row: usize) -> Vec<u8> {
    let room = (moe.team().ranks() * moe.config().max_tokens) as usize;
    let words = out.recv_scales.len() / out.src_info.len() / 4;
    let word = |word: usize| ((expert * words + word) * room + row) * 4;
    (0..words)
        .flat_map(|at| out.recv_scales[word(at)..word(at) + 4].to_vec())
        .collect()
}

/// Every received row of a cast layer is what the twin of the kernel makes of its token, bit for bit. `rows` is right.
fn equals_the_twin(moe: &Moe, kind: Scales, inputs: &[Input], out: &ByExpert, what: &str) -> usize {
    let (hidden, ranks) = (moe.config().hidden as usize, inputs.len());
    let room = ranks * moe.config().max_tokens as usize;
    let mut compared = 0;
    for expert in 0..moe.local_experts().len() {
        for (rank, input) in inputs.iter().enumerate() {
            let range = out.layout_range[expert * ranks + rank];
            let half = |word: u64| usize::try_from(word & 0xffff_ffff).unwrap();
            let (begin, count) = (half(range >> 32), half(range));
            for row in begin..begin + count {
                let token = out.src_info[expert * room + row] as usize;
                let x = &input.x[token * hidden * 2..][..hidden * 2];
                let x = bf16_bits(x);
                let (codes, scales) = format::quantize(reference::scales(kind), &x);
                let got = &out.recv_x[(expert * room + row) * hidden..][..hidden];
                assert_eq!(got, codes, "{what}: token {token} of rank {rank}");
                assert_eq!(scales_of(moe, out, expert, row), scales, "{what}: scales");
                compared += 1;
            }
        }
    }
    compared
}

/// Runs `calls` dispatches with the oracle over each; `then` looks further.
fn verify(
    config: MoeConfig,
    ranks: u32,
    quantized: bool,
    seed: u64,
    then: impl Fn(&Arc<Moe>, &mut DeviceCall, &[Input], &ByExpert, &str) + Sync,
) {
    run(&Setup::adverse(ranks), |team| {
        let moe = Moe::new(team, "layer", config).unwrap();
        for call in 0..3 {
            let seed = seed * 100 + call;
            let what = format!("{:?}, seed {seed}, rank {}", config.format, team.rank());
            moe.set_schedule_seed(seed);
            let inputs = inputs(&config, ranks, quantized, seed);
            let mut device = DeviceCall::new(&moe);
            let rank = team.rank() as usize;
            device.send(&inputs[rank], quantized);
            let out = device.receive();
            device.call.check().unwrap();
            let case = case(&moe, &inputs, quantized);
            if let Err(finding) = oracle::by_expert::check(&case, rank, &out) {
                panic!("{what}: {finding}");
            }
            then(&moe, &mut device, &inputs, &out, &what);
        }
    });
}

#[test]
fn tokens_cast_in_dispatch_are_those_of_the_twin_with_each_kind_of_scales() {
    for (kind, seed) in ALL_SCALES.into_iter().zip(1..) {
        for (ranks, hidden) in [(1, 128), (2, 384), (3, 5 * 128)] {
            let config = SHAPE.with_hidden(hidden).with_format(Format::Fp8(kind));
            verify(config, ranks, false, seed, |moe, _, inputs, out, what| {
                let compared = equals_the_twin(moe, kind, inputs, out, what);
                let rows: u32 = out.counts[..moe.local_experts().len()].iter().sum();
                assert_eq!(compared, rows as usize, "{what}");
            });
        }
    }
}

#[test]
fn fp8_that_the_caller_gives_arrives_byte_for_byte_with_its_scales() {
    for (kind, seed) in ALL_SCALES.into_iter().zip(11..) {
        let config = SHAPE.with_hidden(5 * 128).with_format(Format::Fp8(kind));
        verify(config, 3, true, seed, |_, _, _, _, _| {});
    }
}

#[test]
fn opaque_tokens_of_any_size_arrive_byte_for_byte() {
    let sizes = [(16, 0), (48, 4), (3584, 224), (4608, 12), (32_768, 4096)];
    for ((payload_bytes, scale_bytes), seed) in sizes.into_iter().zip(21..) {
        let config = SHAPE
            .with_hidden(64)
            .with_max_tokens(5)
            .with_format(Format::Opaque {
                payload_bytes,
                scale_bytes,
            });
        verify(config, 2, false, seed, |_, _, _, _, _| {});
    }
}

#[test]
fn bf16_rows_have_no_scales_and_every_bit_of_them_arrives() {
    verify(SHAPE, 3, false, 31, |_, _, _, out, what| {
        assert!(out.recv_scales.is_empty(), "{what}");
    });
}

#[test]
fn experts_that_compute_with_fp8_tokens_give_the_bits_of_the_reference() {
    for (kind, seed) in ALL_SCALES.into_iter().zip(41..) {
        let config = SHAPE.with_format(Format::Fp8(kind));
        verify(config, 3, false, seed, |moe, device, inputs, out, what| {
            let (hidden, room) = (config.hidden as usize, device.room());
            let mut y = vec![u16::from(POISON) << 8; device.experts() * room * hidden];
            for (local, (&id, &count)) in moe.local_experts().iter().zip(&out.counts).enumerate() {
                for row in 0..count as usize {
                    let at = (local * room + row) * hidden;
                    let scales = scales_of(moe, out, local, row);
                    let x = format::dequantize(
                        reference::scales(kind),
                        &out.recv_x[at..at + hidden],
                        &scales,
                    );
                    expert(id, &x, &mut y[at..at + hidden]);
                }
            }
            let (got, valid) = device.combine(&y);
            let rank = moe.team().rank();
            let own = &inputs[rank as usize];
            let arrives = |bytes: &[u8]| {
                let x = bf16_bits(bytes);
                let (codes, scales) = format::quantize(reference::scales(kind), &x);
                format::dequantize(reference::scales(kind), &codes, &scales)
            };
            let batch = Batch {
                x: own.x.chunks_exact(hidden * 2).flat_map(arrives).collect(),
                experts: own.experts.clone(),
                weights: own.weights.clone(),
            };
            let want = reference::combine(&config, &moe.placement(), rank, &batch, expert);
            assert!(got == want, "{what}: {}", first_difference(&got, &want));
            assert!(valid.iter().all(|valid| *valid), "{what}");
        });
    }
}

fn bf16_bits(bytes: &[u8]) -> Vec<u16> {
    let pairs = bytes.chunks_exact(2);
    pairs
        .map(|pair| u16::from_le_bytes([pair[0], pair[1]]))
        .collect()
}

fn first_difference(got: &[u16], want: &[u16]) -> String {
    let at = got.iter().zip(want).position(|(got, want)| got != want);
    format!("{at:?} of {} and {} elements", got.len(), want.len())
}

/// One rank that sends `tokens` (BF16 bits) to its one expert.
fn alone(hidden: u32, kind: Scales, tokens: &[u16]) -> ByExpert {
    let count = u32::try_from(tokens.len()).unwrap() / hidden;
    let config = MoeConfig::BF16
        .with_hidden(hidden)
        .with_experts(1)
        .with_top_k(1)
        .with_max_tokens(count)
        .with_format(Format::Fp8(kind));
    let mut out = run(&Setup::adverse(1), |team| {
        let moe = Moe::with_placement(team, "layer", config, Placement::blocks(1, 1)).unwrap();
        let mut device = DeviceCall::new(&moe);
        let input = Input {
            x: bytemuck::cast_slice(tokens).to_vec(),
            scales: Vec::new(),
            experts: vec![0; count as usize],
            weights: vec![1.0; count as usize],
        };
        device.send(&input, false);
        let out = device.receive();
        device.call.check().unwrap();
        out
    });
    out.remove(0)
}

#[test]
fn the_kernel_casts_every_bfloat16_to_the_nearest_code() {
    // Groups of 448, which makes the scale 1, and 127 other numbers.
    const HIDDEN: u32 = 4096;
    let all: Vec<u16> = (0..=u16::MAX)
        .filter(|bits| bits & 0x7fff <= 0x43e0)
        .collect();
    let mut tokens = Vec::new();
    for numbers in all.chunks(127) {
        tokens.push(0x43e0);
        tokens.extend(numbers);
        tokens.resize(tokens.len().next_multiple_of(128), 0);
    }
    tokens.resize(tokens.len().next_multiple_of(HIDDEN as usize), 0x43e0);
    for kind in [Scales::F32, Scales::Ue8m0] {
        let out = alone(HIDDEN, kind, &tokens);
        let mut halfway = 0;
        for (&bits, &code) in tokens.iter().zip(&out.recv_x) {
            let x = f64::from(f32::from_bits(u32::from(bits) << 16));
            assert_eq!(bits >> 15, u16::from(code >> 7), "{x:e}: sign");
            let number = |code: u8| payload::e4m3(code).abs();
            let (magnitude, code) = (x.abs(), code & 0x7f);
            let distance = (number(code) - magnitude).abs();
            // Neighbours are not nearer, and as near only if their code is odd.
            for other in [code.wrapping_sub(1), code + 1] {
                if other <= 0x7e {
                    let theirs = (number(other) - magnitude).abs();
                    assert!(distance <= theirs, "{x:e} became {code:#x}");
                    assert!(distance < theirs || code & 1 == 0, "{x:e} became {code:#x}");
                    halfway += u32::from(distance == theirs);
                }
            }
        }
        assert!(halfway >= 2 * 126, "{halfway}: all halfway cases are there");
    }
}

#[test]
fn numbers_that_are_none_or_infinite_stay_in_their_own_channel() {
    let mut tokens = vec![0x3f80_u16; 256];
    (tokens[0], tokens[1], tokens[2]) = (0x7f80, 0xff80, 0x7fc1);
    for kind in ALL_SCALES {
        let out = alone(256, kind, &tokens);
        let (codes, scales) = format::quantize(reference::scales(kind), &tokens);
        assert_eq!(out.recv_x, codes);
        assert_eq!(out.recv_scales, scales, "one row: not spread");
        assert_eq!(out.recv_x[..4], [0x7e, 0xfe, format::E4M3_NAN, 0]);
        let second = format::scale_at(reference::scales(kind), &scales, 1);
        assert!((1.0 / 448.0 - 1e-9..=1.0 / 256.0).contains(&second));
    }
}
