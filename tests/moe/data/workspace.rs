//! A workspace in every format: BF16 that dispatch casts, FP8 and opaque bytes as the caller gives them, in both layouts.

use std::sync::Arc;

use moe_reference::format;
use moe_reference::oracle::combine::{FP8_LIMIT, POWER_OF_TWO_LIMIT, difference};
use test_support::reference;
use warpverbs::moe::{Batch, Encoded, Format, Moe, MoeConfig, RowLayout, Scales, Workspace, bf16};

use test_support::moe::{MIXED, Setup, batches, expert, run};

const SHAPE: MoeConfig = MoeConfig::BF16
    .with_hidden(256)
    .with_experts(5)
    .with_top_k(2)
    .with_max_tokens(7);

const LAYOUTS: [RowLayout; 2] = [RowLayout::ExpertMajor, RowLayout::RankMajor];

fn quantize(config: &MoeConfig, kind: Scales, batch: &Batch) -> Encoded {
    let mut tokens = Encoded {
        experts: batch.experts.clone(),
        weights: batch.weights.clone(),
        ..Encoded::default()
    };
    for token in batch.x.chunks_exact(config.hidden as usize) {
        let (codes, scales) = format::quantize(reference::scales(kind), token);
        tokens.x.extend(codes);
        tokens.scales.extend(scales);
    }
    tokens
}

/// Returns what the experts see of a batch.
fn arrived(config: &MoeConfig, kind: Scales, batch: &Batch) -> Batch {
    let cast = |token: &[u16]| {
        let (codes, scales) = format::quantize(reference::scales(kind), token);
        format::dequantize(reference::scales(kind), &codes, &scales)
    };
    Batch {
        x: batch
            .x
            .chunks_exact(config.hidden as usize)
            .flat_map(cast)
            .collect(),
        ..batch.clone()
    }
}

fn floats(bits: &[u16]) -> Vec<f32> {
    bits.iter().map(|&bits| bf16::to_f32(bits)).collect()
}

/// A call of one rank. Its combine must give the reference of the FP8 tokens, whether caller or kernel casts them.
fn fp8_call(moe: &Arc<Moe>, work: &mut Workspace, kind: Scales, call: u32, by_caller: bool) {
    let (config, rank) = (moe.config(), moe.team().rank());
    let what = format!("{:?}, call {call}, rank {rank}", config.format);
    let all = batches(moe, MIXED, 60, call);
    let own = &all[rank as usize];
    if by_caller {
        work.send_encoded(&quantize(config, kind, own)).unwrap()
    } else {
        work.send(own).unwrap()
    }
    let sources = work.receive().unwrap();
    work.call().check().unwrap();
    assert_eq!(
        sources,
        reference::dispatch(config, &moe.placement(), &all, rank),
        "{what}"
    );
    for (local, sources) in sources.iter().enumerate() {
        let rows = work.received_rows(local, 0..sources.len()).unwrap();
        let behind = work.received_rows(local, 1.min(sources.len())..sources.len());
        assert_eq!(behind.unwrap(), rows[1.min(rows.len())..], "{what}");
        for (row, source) in sources.iter().enumerate() {
            let token = all[source.rank as usize].token(config, source.token as usize);
            let (x, scales) = format::quantize(reference::scales(kind), token);
            let got = work.received_encoded(local, row).unwrap();
            assert_eq!((&got.x, &got.scales), (&x, &scales), "{what}: {source:?}");
            let numbers = work.received(local, row).unwrap();
            assert_eq!(rows[row], numbers, "{what}: {source:?}");
            assert_eq!(
                numbers,
                format::dequantize(reference::scales(kind), &x, &scales),
                "{what}"
            );
        }
    }
    work.experts(expert).unwrap();
    work.send_back().unwrap();
    let got = work.receive_back().unwrap();
    work.call().check().unwrap();
    let reference =
        |batch: &Batch| reference::combine(config, &moe.placement(), rank, batch, expert);
    assert_eq!(got.out, reference(&arrived(config, kind, own)), "{what}");
    let limit = match kind {
        Scales::F32 => FP8_LIMIT,
        Scales::PowerOfTwo | Scales::Ue8m0 => POWER_OF_TWO_LIMIT,
    };
    let far = difference(&floats(&got.out), &floats(&reference(own)));
    assert!(far <= limit, "{what}: {far:e} from the reference of BF16");
}

#[test]
fn fp8_of_dispatch_and_of_the_caller_give_equal_sums_in_both_layouts() {
    run(&Setup::adverse(2), |team| {
        for (i, kind) in [Scales::F32, Scales::PowerOfTwo, Scales::Ue8m0]
            .into_iter()
            .enumerate()
        {
            // A team has windows for five layers.
            let layout = LAYOUTS[i % 2];
            let config = SHAPE.with_format(Format::Fp8(kind)).with_layout(layout);
            let moe = Moe::new(team, &format!("layer{i}"), config).unwrap();
            let mut work = Workspace::new(&moe).unwrap();
            for call in 1..=4 {
                fp8_call(&moe, &mut work, kind, call, call % 2 == 0);
            }
        }
        let config = SHAPE
            .with_format(Format::Fp8(Scales::F32))
            .with_layout(RowLayout::RankMajor);
        let moe = Moe::new(team, "by-rank", config).unwrap();
        let mut work = Workspace::new(&moe).unwrap();
        for call in 1..=2 {
            fp8_call(&moe, &mut work, Scales::F32, call, call % 2 == 0);
        }
    });
}

/// What the experts of this test make of opaque bytes: every byte counts.
fn opaque_expert(id: u32, x: &[u8], scales: &[u8], y: &mut [u16]) {
    let sum: u32 = x.iter().chain(scales).map(|byte| u32::from(*byte)).sum();
    for (i, y) in (0u32..).zip(y) {
        *y = bf16::from_f32((sum % 251 + i % 13 + id) as f32);
    }
}

#[test]
fn opaque_tokens_go_through_in_bytes_and_are_refused_as_bf16() {
    for layout in LAYOUTS {
        let (payload_bytes, scale_bytes) = (80, 12);
        let config = SHAPE
            .with_format(Format::Opaque {
                payload_bytes,
                scale_bytes,
            })
            .with_layout(layout);
        run(&Setup::adverse(3), |team| {
            let moe = Moe::new(team, "layer", config).unwrap();
            let mut work = Workspace::new(&moe).unwrap();
            let rank = team.rank();
            let all = batches(&moe, MIXED, 61, 1);
            let bytes = |rank: u32, count: u32, salt: u64| -> Vec<u8> {
                let mut random = fastrand::Rng::with_seed(salt << 32 | u64::from(rank));
                (0..count).map(|_| random.u8(..)).collect()
            };
            let tokens = |rank: u32| {
                let batch = &all[rank as usize];
                let count = u32::try_from(batch.tokens(&config)).unwrap();
                Encoded {
                    x: bytes(rank, count * payload_bytes, 1),
                    scales: bytes(rank, count * scale_bytes, 2),
                    experts: batch.experts.clone(),
                    weights: batch.weights.clone(),
                }
            };
            let own = tokens(rank);
            let refused = work.send(&all[rank as usize]).unwrap_err().to_string();
            assert!(
                refused.starts_with("tokens in BF16: needs a layer of BF16 or FP8"),
                "{refused}"
            );
            let mut short = own.clone();
            short.scales.push(0);
            let refused = work.send_encoded(&short).unwrap_err().to_string();
            assert!(
                refused.starts_with("the scales, in bytes, has"),
                "{refused}"
            );

            work.send_encoded(&own).unwrap();
            let sources = work.receive().unwrap();
            for (local, sources) in sources.iter().enumerate() {
                for (row, source) in sources.iter().enumerate() {
                    let (theirs, token) = (tokens(source.rank), source.token as usize);
                    let got = work.received_encoded(local, row).unwrap();
                    let at = token * payload_bytes as usize;
                    assert_eq!(
                        got.x,
                        theirs.x[at..at + payload_bytes as usize],
                        "{source:?}"
                    );
                    let at = token * scale_bytes as usize;
                    assert_eq!(got.scales, theirs.scales[at..at + scale_bytes as usize]);
                    let refused = work.received(local, row).unwrap_err().to_string();
                    assert!(refused.starts_with("tokens in BF16"), "{refused}");
                }
            }
            work.experts_encoded(|id, row, y| opaque_expert(id, &row.x, &row.scales, y))
                .unwrap();
            work.send_back().unwrap();
            let got = work.receive_back().unwrap();
            work.call().check().unwrap();
            // The reference hands its experts a token of the batch: here its number among them.
            let count = all[rank as usize].tokens(&config);
            let numbered = Batch {
                x: (0..count)
                    .flat_map(|t| [u16::try_from(t).unwrap(); SHAPE.hidden as usize])
                    .collect(),
                ..all[rank as usize].clone()
            };
            let of = |id: u32, x: &[u16], y: &mut [u16]| {
                let (t, row, scale) = (
                    usize::from(x[0]),
                    payload_bytes as usize,
                    scale_bytes as usize,
                );
                let (x, scales) = (&own.x[t * row..][..row], &own.scales[t * scale..][..scale]);
                opaque_expert(id, x, scales, y);
            };
            let want = reference::combine(&config, &moe.placement(), rank, &numbered, of);
            assert_eq!(got.out, want, "rank {rank}, {layout:?}");
        });
    }
}
