//! Every limit of a shape: the greatest value works, one more is refused with its name, value and limit.

use moe_reference::oracle::{self, Case, Input, Wire};
use test_support::limits::HANG;
use test_support::reference;

use crate::device::DeviceCall;
use test_support::moe::{Call, Setup, Traffic, run};
use warpverbs::moe::{Format, Moe, MoeConfig, Scales};

const SHAPE: MoeConfig = MoeConfig::BF16
    .with_hidden(128)
    .with_experts(64)
    .with_top_k(2)
    .with_max_tokens(4);

const FP8: Format = Format::Fp8(Scales::F32);

const fn opaque(payload_bytes: u32, scale_bytes: u32) -> Format {
    Format::Opaque {
        payload_bytes,
        scale_bytes,
    }
}

#[test]
fn each_limit_holds_and_a_step_beyond_is_refused_by_name_value_and_limit() {
    let hidden = |hidden, format| SHAPE.with_hidden(hidden).with_format(format);
    let experts = |experts, top_k| SHAPE.with_experts(experts).with_top_k(top_k);
    let tokens = |max_tokens| SHAPE.with_max_tokens(max_tokens);
    let room = |local_experts| SHAPE.with_local_experts(local_experts);
    let good = [
        hidden(8, Format::Bf16),
        hidden(16_384, Format::Bf16),
        hidden(128, FP8),
        hidden(16_384, FP8),
        hidden(8, opaque(16, 0)),
        hidden(8, opaque(32_768, 4096)),
        experts(1, 1),
        experts(4096, 32),
        tokens(1),
        tokens(65_534),
        room(64),
    ];
    for config in good {
        assert!(config.check(4).is_ok(), "{config:?}");
    }
    assert!(SHAPE.check(1024).is_ok());
    let bad = [
        (
            hidden(0, Format::Bf16),
            "hidden is 0; it must be 8 to 16384",
        ),
        (
            hidden(7, Format::Bf16),
            "hidden is 7; it must be 8 to 16384",
        ),
        (
            hidden(9, Format::Bf16),
            "hidden is 9, which is not a multiple of 8",
        ),
        (
            hidden(16_385, Format::Bf16),
            "hidden is 16385; it must be 8 to 16384",
        ),
        (
            hidden(16_376, FP8),
            "hidden is 16376, which is not a multiple of 128",
        ),
        (
            hidden(120, FP8),
            "hidden is 120, which is not a multiple of 128",
        ),
        (
            hidden(16_512, FP8),
            "hidden is 16512; it must be 8 to 16384",
        ),
        (
            hidden(8, opaque(15, 0)),
            "payload_bytes is 15; it must be 16 to 32768",
        ),
        (
            hidden(8, opaque(24, 0)),
            "payload_bytes is 24, which is not a multiple of 16",
        ),
        (
            hidden(8, opaque(32_769, 0)),
            "payload_bytes is 32769; it must be 16 to 32768",
        ),
        (
            hidden(8, opaque(16, 2)),
            "scale_bytes is 2, which is not a multiple of 4",
        ),
        (
            hidden(8, opaque(16, 4097)),
            "scale_bytes is 4097; it must be 0 to 4096",
        ),
        (experts(0, 1), "experts is 0; it must be 1 to 4096"),
        (experts(4097, 1), "experts is 4097; it must be 1 to 4096"),
        (experts(64, 0), "top-k is 0; it must be 1 to 32"),
        (experts(64, 33), "top-k is 33; it must be 1 to 32"),
        (experts(31, 32), "top-k is 32; it must be 1 to 31"),
        (tokens(0), "max_tokens is 0; it must be 1 to 65534"),
        (tokens(65_535), "max_tokens is 65535; it must be 1 to 65534"),
        (room(65), "local_experts is 65; it must be 0 to 64"),
    ];
    for (config, words) in bad {
        assert_eq!(config.check(4).unwrap_err().to_string(), words);
    }
    let ranks = |ranks| SHAPE.check(ranks).unwrap_err().to_string();
    assert_eq!(ranks(0), "ranks is 0; it must be 1 to 1024");
    assert_eq!(ranks(1025), "ranks is 1025; it must be 1 to 1024");
    let many = SHAPE.with_experts(4096).with_local_experts(65);
    assert_eq!(
        many.check(1024).unwrap_err().to_string(),
        "local_experts is 65; it must be 0 to 64",
        "65,536 slots in all"
    );
}

#[test]
fn the_widest_tokens_with_most_choices_of_most_experts_go_through() {
    let config = MoeConfig::BF16
        .with_hidden(16_384)
        .with_experts(4096)
        .with_top_k(32)
        .with_max_tokens(1);
    let full = Traffic {
        percent_none: 5,
        percent_empty: 0,
    };
    // A rank of several: outputs by expert take a row of each rank for every expert.
    run(&Setup::adverse(2), |team| {
        let moe = Moe::new(team, "layer", config).unwrap();
        let mut call = Call::new(&moe);
        call.send(full, 51, 1);
        call.receive();
        call.send_back();
        call.receive_back();
    });
}

#[test]
fn a_rank_sends_65534_tokens_and_one_more_is_refused() {
    let config = MoeConfig::BF16
        .with_hidden(8)
        .with_experts(2)
        .with_top_k(1)
        .with_max_tokens(65_534)
        .with_format(opaque(16, 0));
    let mut setup = Setup::adverse(2);
    setup.team.deadline = HANG;
    run(&setup, |team| {
        let moe = Moe::new(team, "layer", config).unwrap();
        let rank = team.rank();
        // Both ranks' tokens go to the expert of rank 1; rank 0 has as many as the layer allows.
        let input = |rank: u32, tokens: u32| {
            let word = |token: u32| [token, rank, !token, 7].map(u32::to_le_bytes);
            Input {
                x: (0..tokens).flat_map(word).flatten().collect(),
                scales: Vec::new(),
                experts: vec![1; tokens as usize],
                weights: vec![1.0; tokens as usize],
            }
        };
        let inputs = vec![input(0, 65_534), input(1, 3)];
        let mut device = DeviceCall::new(&moe);
        assert_eq!(
            device.try_send(&input(rank, 65_535), false).unwrap_err(),
            "65535 tokens in a call; max_tokens is 65534"
        );
        device.send(&inputs[rank as usize], false);
        let out = device.receive();
        device.call.check().unwrap();
        let wire = Wire::AsIs {
            row_bytes: 16,
            scale_bytes: 0,
            fp8: false,
        };
        let case = Case {
            wire,
            ..reference::case(&config, &moe.placement(), inputs)
        };
        oracle::by_expert::check(&case, rank as usize, &out).unwrap();
        assert_eq!(out.counts[0], if rank == 1 { 65_537 } else { 0 });
    });
}
