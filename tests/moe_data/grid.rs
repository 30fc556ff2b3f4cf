//! The shape grid: data x layout x what comes back x phases x zero-copy x routing x ranks x whether the experts divide.
//!
//! A run takes a sample in which every pair of values that exists occurs, or with `WV_TEST_FULL=1` all cells. In each the
//! oracles judge every byte of every output of two calls. `WV_SEED` chooses another sample and other inputs.

use std::collections::BTreeMap;
use std::env;

use warpverbs::moe::oracle::digest::Digest;
use warpverbs::moe::{Moe, Returns, RowLayout};
use warpverbs::team::TeamConfig;

use crate::cell::{Cell, Choose, Data, cells, taken};
use crate::raw::Raw;
use crate::support::{Setup, run};

/// A cell to start from.
pub(crate) const SIMPLE: Cell = Cell {
    data: Data::Bf16,
    layout: RowLayout::ExpertMajor,
    returns: Returns::Sums,
    fused: false,
    zero_copy: false,
    choose: Choose::Uniform,
    ranks: 3,
    rest: true,
};

/// Layers that one team makes, one after the other: each takes windows of the team for good.
const LAYERS: usize = 4;
/// Calls of each cell: both sets.
const CALLS: u32 = 2;

fn seed() -> u64 {
    let given = env::var("WV_SEED").ok();
    given.map_or(1, |seed| seed.parse().expect("WV_SEED is a number"))
}

fn setup(ranks: u32, hca_seed: Option<u64>) -> Setup {
    let usual = Setup::new(ranks);
    Setup {
        team: TeamConfig {
            log_depth: 8,
            qps_per_peer: if ranks > 5 { 2 } else { 4 },
            ..usual.team
        },
        hca_seed,
        ..usual
    }
}

/// Runs the cells, which have the same number of ranks, in one team. The digests, by rank and cell.
fn check(cells: &[Cell], seed: u64, hca_seed: Option<u64>) -> Vec<Vec<Digest>> {
    run(&setup(cells[0].ranks, hca_seed), |team| {
        let one = |(i, cell): (usize, &Cell)| {
            let moe = Moe::new(team, &format!("cell{i}"), cell.config()).unwrap();
            let mut raw = Raw::new(&moe, *cell);
            let mut digest = Digest::default();
            for call in 1..=CALLS {
                moe.set_schedule_seed(seed ^ hca_seed.unwrap_or(0) << 8 ^ u64::from(call));
                let found = raw.step(&cell.case(seed, call));
                let rank = team.rank();
                digest.merge(found.unwrap_or_else(|finding| {
                    panic!("{cell:?}, WV_SEED={seed}, call {call}, rank {rank}: {finding}")
                }));
            }
            digest
        };
        cells.iter().enumerate().map(one).collect()
    })
}

#[test]
fn every_pair_of_values_of_the_grid_is_what_the_oracles_say() {
    let (existing, built) = cells();
    let full = env::var_os("WV_TEST_FULL").is_some();
    let cells = taken(&built, seed(), full);
    let mut by_ranks: BTreeMap<u32, Vec<Cell>> = BTreeMap::new();
    for cell in &cells {
        by_ranks.entry(cell.ranks).or_default().push(*cell);
    }
    for cells in by_ranks.values() {
        for some in cells.chunks(LAYERS) {
            check(some, seed(), None);
        }
    }
    let (run, built) = (cells.len(), built.len());
    println!(
        "grid: {run} cells run of {existing} existing, {built} built; WV_SEED={}",
        seed()
    );
    assert!(run >= 42, "{run} cells");
}

#[test]
fn twenty_repetitions_with_random_delays_give_the_same_digest() {
    let cells = [
        SIMPLE,
        Cell {
            choose: Choose::Missing,
            fused: true,
            ..SIMPLE
        },
    ];
    for seed in [1, 2] {
        let first = check(&cells, seed, Some(0));
        for repetition in 1..20 {
            let again = check(&cells, seed, Some(repetition));
            assert_eq!(again, first, "WV_SEED={seed}, delays {repetition}");
        }
        assert_ne!(
            first[0][0], first[1][0],
            "different ranks get different tokens"
        );
    }
}
