//! Dispatch and combine among rank threads on the software HCA, against the scalar reference.

use std::sync::Arc;

use softhca::device::DataOrder;

use test_support::moe::{Call, MIXED, Setup, Traffic, adversary, run};
use warpverbs::moe::{Moe, MoeConfig, Placement};
use warpverbs::team::SignalOrder;

const SMALL: MoeConfig = MoeConfig::BF16
    .with_hidden(64)
    .with_experts(8)
    .with_top_k(2)
    .with_max_tokens(16);

/// Runs `calls` calls in the order `program` at every rank; each phase is checked against the reference.
fn verify(setup: &Setup, config: MoeConfig, seed: u64, calls: u32, program: Program) {
    run(setup, |team| {
        let moe = Moe::new(team, "layer", config).unwrap();
        program(&moe, seed, calls);
    });
}

/// An order of phases. All ranks run the same one.
type Program = fn(&Arc<Moe>, u64, u32);

/// Dispatch and combine of a call, then the next.
fn fused(moe: &Arc<Moe>, seed: u64, calls: u32) {
    let mut call = Call::new(moe);
    for number in 1..=calls {
        call.send(MIXED, seed, number);
        call.receive();
        call.send_back();
        call.receive_back();
    }
}

/// The combine of a call is received after the next dispatch is sent.
fn hook(moe: &Arc<Moe>, seed: u64, calls: u32) {
    let mut open = [Call::new(moe), Call::new(moe)];
    open[1].send(MIXED, seed, 1);
    for number in 1..=calls {
        let (this, next) = places(number);
        open[this].receive();
        open[this].send_back();
        if number < calls {
            open[next].send(MIXED, seed, number + 1);
        }
        open[this].receive_back();
    }
}

/// Two micro-batches: while one is computed, the other travels.
fn two_batches(moe: &Arc<Moe>, seed: u64, calls: u32) {
    let mut open = [Call::new(moe), Call::new(moe)];
    open[1].send(MIXED, seed, 1);
    open[0].send(MIXED, seed, 2);
    for first in (1..=calls).step_by(2) {
        open[1].receive();
        open[1].send_back();
        open[0].receive();
        open[0].send_back();
        open[1].receive_back();
        if first + 2 <= calls {
            open[1].send(MIXED, seed, first + 2);
        }
        open[0].receive_back();
        if first + 2 <= calls {
            open[0].send(MIXED, seed, first + 3);
        }
    }
}

/// No combine; a dispatch is received after the next one is sent. A rank must send its credits before it waits for one.
fn dispatch_only(moe: &Arc<Moe>, seed: u64, calls: u32) {
    let mut open = [Call::new(moe), Call::new(moe)];
    open[1].send(MIXED, seed, 1);
    for number in 1..=calls {
        let (this, next) = places(number);
        if number < calls {
            open[next].send(MIXED, seed, number + 1);
        }
        open[this].receive();
    }
}

/// Every second call has no combine.
fn every_second_combine(moe: &Arc<Moe>, seed: u64, calls: u32) {
    let mut call = Call::new(moe);
    for number in 1..=calls {
        call.send(MIXED, seed, number);
        call.receive();
        if number % 2 == 1 {
            call.send_back();
            call.receive_back();
        }
    }
}

/// Combines are sent and never received: the handle is dropped.
fn dropped_hook(moe: &Arc<Moe>, seed: u64, calls: u32) {
    let mut call = Call::new(moe);
    for number in 1..=calls {
        call.send(MIXED, seed, number);
        call.receive();
        call.send_back();
    }
}

/// Places of call `number` and the next one among two open calls.
fn places(number: u32) -> (usize, usize) {
    let this = (number % 2) as usize;
    (this, 1 - this)
}

#[test]
fn one_rank_alone_needs_no_qp() {
    verify(&Setup::adverse(1), SMALL, 1, 3, fused);
}

#[test]
fn two_ranks_exchange_tokens_over_both_sets_several_times() {
    verify(&Setup::adverse(2), SMALL, 2, 8, fused);
}

#[test]
fn four_ranks_share_experts_that_do_not_divide_by_them() {
    let config = SMALL.with_experts(10).with_top_k(3);
    verify(&Setup::adverse(4), config, 3, 6, fused);
}

#[test]
fn every_order_of_phases_works() {
    let programs: [(&str, Program); 5] = [
        ("hook", hook),
        ("two batches", two_batches),
        ("dispatch only", dispatch_only),
        ("every second combine", every_second_combine),
        ("dropped hook", dropped_hook),
    ];
    for (name, program) in programs {
        eprintln!("{name}");
        verify(&Setup::adverse(2), SMALL, 4, 6, program);
    }
    verify(&Setup::adverse(3), SMALL, 5, 6, dispatch_only);
    verify(&Setup::adverse(3), SMALL, 6, 6, two_batches);
}

#[test]
fn twenty_seeds_of_kernel_and_hca_schedules_agree_with_the_reference() {
    for seed in 0..20 {
        let mut setup = Setup::adverse(2 + (seed % 3) as u32);
        setup.hca.schedule_seed = Some(seed);
        setup.hca.adversary = Some(adversary(seed));
        let config = MoeConfig::BF16
            .with_experts(7)
            .with_top_k(3)
            .with_hidden(40)
            .with_max_tokens(9);
        verify(&setup, config, seed, 4, fused);
    }
}

#[test]
fn thirty_two_choices_of_a_token_and_more_tokens_than_a_warp_has_lanes() {
    let config = MoeConfig::BF16
        .with_hidden(24)
        .with_experts(40)
        .with_top_k(32)
        .with_max_tokens(70);
    verify(&Setup::adverse(3), config, 7, 3, fused);
}

#[test]
fn fewer_experts_than_ranks_leaves_ranks_without_work() {
    let config = SMALL.with_experts(2).with_top_k(1);
    verify(&Setup::adverse(4), config, 8, 4, fused);
}

#[test]
fn one_qp_per_peer_carries_all_kinds_and_sets() {
    let mut setup = Setup::adverse(2);
    setup.team = setup.team.with_qps_per_peer(1).with_log_depth(8);
    verify(&setup, SMALL, 9, 6, hook);
}

#[test]
fn a_placement_may_scatter_the_experts() {
    run(&Setup::adverse(3), |team| {
        let placement = Placement::from_ranks([2, 0, 2, 2, 1, 0, 2, 1], 3).unwrap();
        let moe = Moe::with_placement(team, "layer", SMALL, placement).unwrap();
        fused(&moe, 10, 4);
    });
}

#[test]
fn more_rows_than_the_ring_has_wqebbs_go_through() {
    let mut setup = Setup::adverse(2);
    setup.team.log_depth = 8;
    let config = MoeConfig::BF16
        .with_hidden(8)
        .with_experts(2)
        .with_top_k(2)
        .with_max_tokens(600);
    let full = Traffic {
        percent_none: 0,
        percent_empty: 0,
    };
    run(&setup, |team| {
        let moe = Moe::new(team, "layer", config).unwrap();
        let mut call = Call::new(&moe);
        for number in 1..=2 {
            call.send(full, 11, number);
            call.receive();
            call.send_back();
            call.receive_back();
        }
    });
}

#[test]
fn every_strategy_of_signals_works_where_the_device_keeps_it() {
    use DataOrder::{AtomicsOrdered, FlushOnly, InOrder};
    use SignalOrder::{Flush, Inline, Swap};
    let table = [
        (InOrder, [Inline, Swap, Flush].as_slice()),
        (AtomicsOrdered, &[Swap, Flush]),
        (FlushOnly, &[Flush]),
    ];
    let programs: [Program; 3] = [fused, hook, dispatch_only];
    for (order, strategies) in table {
        for (seed, &strategy) in (20u64..).zip(strategies) {
            let mut setup = Setup::adverse(2 + (seed % 2) as u32);
            setup.hca.order = order;
            setup.hca.adversary = Some(adversary(seed));
            setup.team.modes.moe_order = Some(strategy);
            eprintln!("{order}, {strategy}, seed {seed}");
            for program in programs {
                verify(&setup, SMALL, seed, 4, program);
            }
        }
    }
}

#[test]
fn the_team_takes_the_cheapest_strategy_that_its_devices_keep() {
    for (order, force, want) in [
        (DataOrder::InOrder, false, SignalOrder::Inline),
        (DataOrder::AtomicsOrdered, false, SignalOrder::Swap),
        (DataOrder::FlushOnly, false, SignalOrder::Flush),
        (DataOrder::FlushOnly, true, SignalOrder::Inline),
    ] {
        let mut setup = Setup::adverse(2);
        setup.hca.order = order;
        setup.hca.order_force = force;
        let chosen = run(&setup, |team| {
            let moe = Moe::new(team, "layer", SMALL).unwrap();
            fused(&moe, 30, 2);
            team.signal_order()
        });
        assert_eq!(chosen, [want, want], "{order}, force: {force}");
    }
}

#[test]
fn ranks_of_one_process_store_into_each_other_with_the_same_results() {
    for (seed, program) in (40..).zip([fused as Program, hook, two_batches, dispatch_only]) {
        let mut setup = Setup::adverse(2 + (seed % 2) as u32);
        setup.team.modes.direct = true;
        let wqes = run(&setup, |team| {
            let moe = Moe::new(team, "layer", SMALL).unwrap();
            program(&moe, seed, 6);
            let peers = (0..team.ranks()).filter(|peer| *peer != team.rank());
            let qps = peers.flat_map(|peer| (0..4).map(move |i| (peer, i)));
            qps.map(|(peer, i)| team.counters(peer, i).unwrap().posted)
                .sum::<u64>()
        });
        assert!(wqes.iter().all(|wqes| *wqes == 0), "seed {seed}: {wqes:?}");
    }
}
