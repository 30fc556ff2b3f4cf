//! Many layers in one team, each with memory and calls of its own.

use test_support::moe::{Call, MIXED, Setup, run};
use warpverbs::moe::{Grid, Moe, MoeConfig, MoeError};
use warpverbs::team::TeamError;

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

#[test]
fn a_layer_that_one_rank_cannot_make_is_made_later() {
    let setup = Setup::adverse(4);
    run(&setup, |team| {
        let shape = MoeConfig::BF16
            .with_hidden(64)
            .with_experts(8)
            .with_top_k(2)
            .with_max_tokens(4);
        // No device runs such blocks, and no other rank has to have the same.
        let odd = shape.with_grid(Some(Grid {
            blocks: 1,
            threads: 33,
        }));
        for (round, short) in [1, 3, 1].into_iter().enumerate() {
            let name = format!("layer{}", round / 2);
            let is_short = team.rank() == short;
            let config = if is_short { odd } else { shape };
            // The rank that is short of memory tries twice. The others hear of each failure once, or of the newest alone.
            for _ in 0..=u32::from(is_short) {
                let text = loop {
                    let error = Moe::new(team, &name, config).unwrap_err();
                    match &error {
                        MoeError::Multiple { .. } if is_short => break error.to_string(),
                        MoeError::Team(TeamError::PeerFailed { rank, message }) => {
                            if *rank == short && !is_short {
                                break message.clone();
                            }
                        }
                        _ => panic!("{error}"),
                    }
                };
                assert!(text.contains("33"), "{text}");
            }
            team.barrier(&format!("failed-{round}")).unwrap();
        }
        let layers = [0, 1].map(|number| {
            let name = format!("layer{number}");
            // The second failure of the rank that was short is news to the others.
            loop {
                match Moe::new(team, &name, shape) {
                    Err(MoeError::Team(TeamError::PeerFailed { .. })) => {}
                    made => break made.unwrap(),
                }
            }
        });
        for (seed, moe) in (40u64..).zip(&layers) {
            let mut call = Call::new(moe);
            for number in 1..=2 {
                call.send(MIXED, seed, number);
                call.receive();
                call.send_back();
                call.receive_back();
            }
        }
    });
}
