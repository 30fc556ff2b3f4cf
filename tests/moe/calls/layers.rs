//! Many layers in one team, each with memory and calls of its own.

use test_support::moe::{Call, MIXED, Setup, run};
use warpverbs::moe::{Moe, MoeConfig};

const LAYERS: u32 = 64;

#[test]
fn a_team_carries_64_layers_of_different_shapes() {
    let mut setup = Setup::adverse(2);
    setup.team.windows = 3 * LAYERS;
    run(&setup, |team| {
        let shape = |layer: u32| {
            MoeConfig::BF16
                .with_hidden(8 * (1 + layer % 5))
                .with_experts(3 + layer % 4)
                .with_top_k(1 + layer % 3)
                .with_max_tokens(1 + layer / 5)
        };
        let make = |layer: u32| Moe::new(team, &format!("layer{layer}"), shape(layer));
        let layers: Vec<_> = (0..LAYERS).map(|layer| make(layer).unwrap()).collect();
        let error = make(LAYERS).unwrap_err().to_string();
        assert!(
            error.contains("number of windows is 193; it must be at most 192"),
            "{error}"
        );
        let mut calls: Vec<Call> = layers.iter().map(Call::new).collect();
        for number in 1..=2 {
            for (seed, call) in (40u64..).zip(&mut calls) {
                call.send(MIXED, seed, number);
                call.receive();
                call.send_back();
                call.receive_back();
            }
        }
    });
}
