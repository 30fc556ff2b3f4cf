//! Expert slots: replicas, experts that moved, experts that no rank holds; tables that cannot be.

use test_support::moe::{Call, Setup, Traffic, expert, run};
use test_support::reference;
use warpverbs::internal::moe_abi::{LOST, MoeHandle, NONE};
use warpverbs::moe::{Batch, Moe, MoeCall, MoeConfig, Placement, Workspace};

const SHAPE: MoeConfig = MoeConfig::BF16
    .with_hidden(64)
    .with_experts(12)
    .with_top_k(4)
    .with_max_tokens(20);

const BUSY: Traffic = Traffic {
    percent_none: 10,
    percent_empty: 10,
};

/// A table in which each rank holds some experts, by chance. Experts of `everywhere` are at every rank, those of `nowhere` at
/// none.
fn table(seed: u64, ranks: u32, everywhere: &[u32], nowhere: &[u32]) -> Placement {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut held = vec![Vec::new(); ranks as usize];
    for expert in 0..SHAPE.experts {
        let home = random.u32(..ranks);
        for rank in 0..ranks {
            let here = everywhere.contains(&expert) || rank == home || random.u32(..4) == 0;
            if here && !nowhere.contains(&expert) {
                held[rank as usize].push(expert);
            }
        }
    }
    for held in &mut held {
        random.shuffle(held);
    }
    Placement::from_slots(SHAPE.experts, held).unwrap()
}

/// Returns what a handle says its rank's tokens went to.
fn chosen(moe: &Moe, call: &MoeCall, tokens: usize) -> Vec<u32> {
    let gpu = moe.team().gpu();
    let mut handle: MoeHandle = bytemuck::Zeroable::zeroed();
    gpu.read(call.addr(), bytemuck::bytes_of_mut(&mut handle))
        .unwrap();
    let mut chosen = vec![0u32; tokens * SHAPE.top_k as usize];
    if !chosen.is_empty() {
        gpu.read(handle.chosen.addr(), bytemuck::cast_slice_mut(&mut chosen))
            .unwrap();
    }
    chosen
}

#[test]
fn replicas_at_several_ranks_share_the_tokens_as_the_reference_says() {
    for (ranks, seed) in [(1, 1), (2, 2), (3, 3), (5, 4)] {
        let placement = table(seed, ranks, &[0, 7], &[]);
        run(&Setup::adverse(ranks), |team| {
            let moe = Moe::with_placement(team, "layer", SHAPE, placement.clone()).unwrap();
            let mut call = Call::new(&moe);
            for number in 1..=4 {
                call.send(BUSY, seed, number);
                call.receive();
                call.send_back();
                call.receive_back();
            }
        });
    }
}

#[test]
fn a_token_of_a_missing_expert_is_invalid_and_keeps_the_other_results() {
    let (ranks, seed) = (3, 11);
    let placement = table(seed, ranks, &[1], &[3, 4]);
    run(&Setup::adverse(ranks), |team| {
        let (rank, config) = (team.rank(), &SHAPE);
        let moe = Moe::with_placement(team, "layer", SHAPE, placement.clone()).unwrap();
        let mut work = Workspace::new(&moe).unwrap();
        let mut lost_choices = 0;
        for call in 1..=3 {
            let what = format!("seed {seed}, call {call}, rank {rank}");
            let batches = test_support::moe::batches(&moe, BUSY, seed, call);
            let own = &batches[rank as usize];
            work.send(own).unwrap();
            let wanted = reference::choose(config, &placement, rank, own, |_| true);
            let words: Vec<u32> = wanted
                .iter()
                .zip(&own.experts)
                .map(|(slot, &expert)| slot.unwrap_or(if expert < 0 { NONE } else { LOST }))
                .collect();
            let tokens = own.tokens(config);
            assert_eq!(chosen(&moe, work.call(), tokens), words, "{what}");

            let sources = work.receive().unwrap();
            test_support::moe::check_dispatch(&moe, &batches, &work, &sources, &what);
            work.experts(expert).unwrap();
            work.send_back().unwrap();
            let combined = work.receive_back().unwrap();
            let out = reference::combine(config, &placement, rank, own, expert);
            assert_eq!(combined.out, out, "{what}");
            let lost = own.experts.chunks_exact(SHAPE.top_k as usize);
            let valid: Vec<bool> = lost
                .map(|choices| !choices.iter().any(|expert| [3, 4].contains(expert)))
                .collect();
            assert_eq!(combined.token_valid, valid, "{what}");
            lost_choices += valid.iter().filter(|valid| !**valid).count();
        }
        assert!(
            lost_choices > 0,
            "the traffic chooses experts that are nowhere"
        );
    });
}

#[test]
fn an_expert_that_everybody_holds_needs_no_network() {
    let placement = Placement::from_slots(4, vec![vec![2, 0], vec![0, 1], vec![3, 0]]).unwrap();
    let config = SHAPE.with_experts(4).with_top_k(1);
    run(&Setup::adverse(3), |team| {
        let moe = Moe::with_placement(team, "layer", config, placement.clone()).unwrap();
        let mut work = Workspace::new(&moe).unwrap();
        let batch = Batch {
            x: vec![0x3f80; 5 * 64],
            experts: vec![0; 5],
            weights: vec![1.0; 5],
        };
        work.send(&batch).unwrap();
        work.receive().unwrap();
        let report = work.call().check().unwrap();
        for (rank, peer) in (0u32..).zip(&report.peers) {
            let here = rank == team.rank();
            let rows = if here { 5 } else { 0 };
            assert_eq!((peer.rows_sent, peer.rows_received), (rows, rows));
        }
    });
}

#[test]
fn a_rank_may_hold_no_expert_and_a_rank_may_hold_all() {
    let held = vec![vec![], (0..SHAPE.experts).rev().collect(), vec![5]];
    let placement = Placement::from_slots(SHAPE.experts, held).unwrap();
    run(&Setup::adverse(3), |team| {
        let moe = Moe::with_placement(team, "layer", SHAPE, placement.clone()).unwrap();
        let mut call = Call::new(&moe);
        call.send(BUSY, 21, 1);
        call.receive();
        call.send_back();
        call.receive_back();
    });
}

/// The error of each rank that makes a layer with the table that `placement` names for it.
fn errors(config: MoeConfig, placement: impl Fn(u32) -> Placement + Sync) -> Vec<String> {
    run(&Setup::adverse(2), |team| {
        Moe::with_placement(team, "layer", config, placement(team.rank()))
            .unwrap_err()
            .to_string()
    })
}

#[test]
fn tables_that_differ_between_ranks_are_named_at_all_of_them() {
    let held = |rank| match rank {
        0 => vec![vec![0, 1], vec![0]],
        _ => vec![vec![0], vec![0, 1]],
    };
    let config = SHAPE.with_experts(2).with_top_k(1);
    for error in errors(config, |rank| Placement::from_slots(2, held(rank)).unwrap()) {
        assert!(
            error.contains("placement of the experts is")
                && error.contains("[[0, 1], [0]] at rank 0")
                && error.contains("[[0], [0, 1]] at rank 1"),
            "{error}"
        );
    }
}

#[test]
fn a_table_larger_than_the_room_of_a_rank_is_refused() {
    let config = SHAPE.with_local_experts(6);
    let held = |more: u32| vec![(0..6 + more).collect(), (6..12).collect()];
    let placement = |more| Placement::from_slots(12, held(more)).unwrap();
    for error in errors(config, |_| placement(1)) {
        assert!(
            error.contains("number of expert slots of a rank is 7; it must be 0 to 6"),
            "{error}"
        );
    }
    run(&Setup::adverse(2), |team| {
        let moe = Moe::with_placement(team, "layer", config, placement(0)).unwrap();
        assert_eq!(moe.config().local_experts, 6);
    });
}

#[test]
fn a_table_for_another_number_of_experts_or_ranks_is_refused() {
    for error in errors(SHAPE, |_| Placement::blocks(11, 2)) {
        let words = "the placement has 11 experts on 2 ranks; the layer has 12 on 2";
        assert!(error.contains(words), "{error}");
    }
    for error in errors(SHAPE, |_| Placement::blocks(12, 3)) {
        let words = "the placement has 12 experts on 3 ranks; the layer has 12 on 2";
        assert!(error.contains(words), "{error}");
    }
}
