//! How dispatch lays out what it received: by expert and by rank, with nothing else touched, and what it counts.

use std::sync::Arc;

use test_support::moe::{MIXED, Setup, Traffic, batches, check_dispatch, run};
use test_support::reference::{choose, dispatch, dispatch_by_rank};
use warpverbs::moe::{Moe, MoeConfig, RowLayout, Workspace};

const BY_EXPERT: MoeConfig = MoeConfig::BF16
    .with_hidden(64)
    .with_experts(7)
    .with_top_k(3)
    .with_max_tokens(20);
const BY_RANK: MoeConfig = BY_EXPERT.with_layout(RowLayout::RankMajor);

/// BF16 of a NaN.
const POISON: u16 = 0x7fed;

/// Rows that `recv_x` has room for.
fn room(moe: &Moe) -> u64 {
    let config = moe.config();
    let received = u64::from(moe.team().ranks() * config.max_tokens);
    match config.layout {
        RowLayout::ExpertMajor => received * u64::from(config.room(moe.team().ranks())),
        RowLayout::RankMajor => received,
    }
}

fn poison(moe: &Moe, work: &Workspace) {
    let [recv_x, ..] = work.expert_buffers();
    let rows = usize::try_from(room(moe)).unwrap();
    let bytes = vec![POISON; rows * moe.config().hidden as usize];
    let gpu = moe.team().gpu();
    gpu.write(recv_x, bytemuck::cast_slice(&bytes)).unwrap();
}

/// Every element of the rows for which `written` is false is as it was.
fn check_untouched(moe: &Moe, work: &Workspace, written: impl Fn(u64) -> bool, what: &str) {
    for place in (0..room(moe)).filter(|place| !written(*place)) {
        let row = work.output_row(place).unwrap();
        assert!(row.iter().all(|x| *x == POISON), "{what}: row {place}");
    }
}

/// Dispatches call after call by rank; each is held against the reference.
fn by_rank(moe: &Arc<Moe>, seed: u64, calls: u32) {
    let (config, rank) = (moe.config(), moe.team().rank());
    let mut work = Workspace::new(moe).unwrap();
    for call in 1..=calls {
        let what = format!("seed {seed}, call {call}, rank {rank}");
        let batches = batches(moe, MIXED, seed, call);
        moe.set_schedule_seed(seed ^ u64::from(call));
        work.send(&batches[rank as usize]).unwrap();
        poison(moe, &work);
        let sources = work.receive().unwrap();
        work.call().check().unwrap();

        let chosen: Vec<_> = (0u32..)
            .zip(&batches)
            .map(|(r, batch)| choose(config, &moe.placement(), r, batch, |_| true))
            .collect();
        let want = dispatch_by_rank(config, &moe.placement(), &batches, &chosen, rank);
        assert_eq!(work.rank_rows(), want, "{what}");
        let most = u64::from(config.max_tokens);
        for ((source, rows), batch) in (0u64..).zip(&want).zip(&batches) {
            for (place, row) in (source * most..).zip(rows) {
                let sent = batch.token(config, row.token as usize);
                assert_eq!(work.output_row(place).unwrap(), sent, "{what}: row {place}");
            }
        }
        let rows_of = |rank: u64| want[usize::try_from(rank).unwrap()].len() as u64;
        let written = |place: u64| place % most < rows_of(place / most);
        check_untouched(moe, &work, written, &what);
        // The same tokens as by expert, in the same order.
        assert_eq!(
            sources,
            dispatch(config, &moe.placement(), &batches, rank),
            "{what}"
        );
        check_dispatch(moe, &batches, &work, &sources, &what);
    }
}

#[test]
fn by_rank_each_token_comes_once_in_source_order_with_its_local_experts() {
    for (ranks, seed) in [(1, 1), (2, 2), (3, 3), (5, 4)] {
        run(&Setup::adverse(ranks), |team| {
            by_rank(&Moe::new(team, "layer", BY_RANK).unwrap(), seed, 4);
        });
    }
}

#[test]
fn by_rank_the_order_of_arrival_changes_nothing() {
    let digests: Vec<_> = [None, Some(5), Some(6)]
        .into_iter()
        .map(|hca_seed| {
            let mut setup = Setup::adverse(3);
            setup.hca.schedule_seed = hca_seed;
            run(&setup, |team| {
                let moe = Moe::new(team, "layer", BY_RANK).unwrap();
                let mut work = Workspace::new(&moe).unwrap();
                let own = &batches(&moe, MIXED, 9, 1)[team.rank() as usize];
                work.send(own).unwrap();
                poison(&moe, &work);
                work.receive().unwrap();
                let rows: Vec<_> = (0..room(&moe))
                    .map(|row| work.output_row(row).unwrap())
                    .collect();
                (rows, work.rank_rows().to_vec())
            })
        })
        .collect();
    assert!(digests[1] == digests[0] && digests[2] == digests[0]);
}

#[test]
fn one_token_one_expert_and_the_widest_choice_are_laid_out_by_rank_too() {
    let least = BY_RANK
        .with_hidden(8)
        .with_experts(1)
        .with_top_k(1)
        .with_max_tokens(1);
    let widest = BY_RANK
        .with_hidden(128)
        .with_experts(40)
        .with_top_k(32)
        .with_max_tokens(33);
    for config in [least, widest] {
        run(&Setup::adverse(2), |team| {
            by_rank(&Moe::new(team, "layer", config).unwrap(), 7, 2)
        });
    }
}

#[test]
fn rows_and_waiting_times_are_added_up_and_never_cleared() {
    const CALLS: u32 = 3;
    const BUSY: Traffic = Traffic {
        percent_none: 20,
        percent_empty: 0,
    };
    for config in [BY_EXPERT, BY_RANK] {
        run(&Setup::adverse(3), |team| {
            let moe = Moe::new(team, "layer", config).unwrap();
            let rank = team.rank() as usize;
            let mut work = Workspace::new(&moe).unwrap();
            let mut want = vec![0u64; config.room(3) as usize];
            let mut waited = work.statistics().unwrap();
            for call in 1..=CALLS {
                let batches = batches(&moe, BUSY, 12, call);
                work.send(&batches[rank]).unwrap();
                let sources = work.receive().unwrap();
                work.experts(test_support::moe::expert).unwrap();
                work.send_back().unwrap();
                work.receive_back().unwrap();
                for (want, rows) in want.iter_mut().zip(&sources) {
                    *want += rows.len() as u64;
                }
                let now = work.statistics().unwrap();
                assert_eq!(now.rows, want, "call {call}, rank {rank}");
                for (now, before) in [
                    (&now.dispatch_wait_ns, &waited.dispatch_wait_ns),
                    (&now.combine_wait_ns, &waited.combine_wait_ns),
                ] {
                    for peer in 0..3 {
                        let grew = now[peer] > before[peer];
                        assert_eq!(grew, peer != rank, "call {call}: {before:?} to {now:?}");
                    }
                }
                waited = now;
                assert_eq!(work.arrived().unwrap(), [true; 3]);
                assert_eq!(work.contributed().unwrap(), [true; 3]);
            }
        });
    }
}

#[test]
fn a_receive_phase_out_of_turn_gives_no_rows_in_either_layout() {
    for config in [BY_EXPERT, BY_RANK] {
        run(&Setup::adverse(2), |team| {
            let moe = Moe::new(team, "layer", config).unwrap();
            let mut work = Workspace::new(&moe).unwrap();
            let own = &batches(&moe, MIXED, 3, 1)[team.rank() as usize];
            work.send(own).unwrap();
            work.receive().unwrap();
            work.call().check().unwrap();
            let again = work.receive().unwrap();
            assert!(again.iter().all(Vec::is_empty), "{again:?}");
            assert!(work.rank_rows().iter().all(Vec::is_empty));
            assert_eq!(work.arrived().unwrap(), [false; 2]);
        });
    }
}
