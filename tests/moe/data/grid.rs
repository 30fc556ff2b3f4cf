//! The shape grid: data x layout x returns of combine x phases x zero-copy x routing x ranks. Further axes: whether the experts
//! divide, the order of signals, the table of the experts.
//!
//! A run takes a sample in which every pair of existing values occurs. With `WV_TEST_FULL=1` it takes every combination of the
//! first eight, each with an order and a table that the seed draws. In each the oracles judge every byte of every output of two
//! calls. `WV_SEED` chooses another sample and other inputs, `WV_TEST_RANKS=8` runs only its teams of 8.

use std::collections::BTreeMap;
use std::env;
use std::time::Instant;

use moe_reference::oracle::digest::Digest;
use softhca::HcaConfig;
use softhca::device::{DataOrder, Execution};
use warpverbs::moe::{Moe, Returns, RowLayout, Scales};
use warpverbs::team::SignalOrder;

use crate::cell::{Cell, Choose, Data, Table, cells, taken};
use crate::raw::Raw;
use test_support::external;
use test_support::moe::{Setup, adversary, run};

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
    order: SignalOrder::Inline,
    table: Table::Blocks,
};

/// Layers that one team makes, one after the other: each takes windows of the team for good.
const LAYERS: usize = 4;
/// Calls of each cell: both sets.
const CALLS: u32 = 2;

fn seed() -> u64 {
    let given = env::var("WV_SEED").ok();
    given.map_or(1, |seed| seed.parse().expect("WV_SEED is a number"))
}

fn full() -> bool {
    env::var_os("WV_TEST_FULL").is_some()
}

/// HCAs that keep no more than `cell.order` needs, and use all that this leaves open.
fn setup(cell: &Cell, hca_seed: Option<u64>) -> Setup {
    let usual = Setup::adverse(cell.ranks);
    Setup {
        team: usual
            .team
            .with_log_depth(8)
            .with_qps_per_peer(if cell.ranks > 5 { 2 } else { 4 })
            .with_order(Some(cell.order)),
        hca: HcaConfig {
            order: match cell.order {
                SignalOrder::Inline => DataOrder::InOrder,
                SignalOrder::Swap => DataOrder::AtomicsOrdered,
                SignalOrder::Flush => DataOrder::FlushOnly,
            },
            adversary: Some(adversary(hca_seed.unwrap_or(1))),
            schedule_seed: hca_seed,
            ..usual.hca
        },
        ..usual
    }
}

/// This grid where the HCA is a kernel (`gpuhca+simt`): cells of each kind of data, in teams of 3.
#[test]
fn cells_of_the_grid_are_what_the_oracles_say_on_gpuhca() {
    let existing = cells();
    let mut cells: Vec<Cell> = Vec::new();
    for cell in taken(&existing, seed(), full()) {
        let is_new = |other: &Cell| other.data != cell.data || other.layout != cell.layout;
        if full() || cells.iter().all(is_new) {
            let ranks = if full() { cell.ranks } else { 3 };
            let order = SignalOrder::Inline;
            cells.push(Cell {
                ranks,
                order,
                ..cell
            });
        }
    }
    external::ensure();
    for some in cells.chunks(LAYERS) {
        let usual = setup(&some[0], None);
        let setup = Setup {
            hca: HcaConfig {
                execution: Execution::External,
                ..HcaConfig::default()
            },
            ..usual
        };
        check_with(&setup, some, seed(), 0);
    }
    println!(
        "grid on gpuhca+simt: {} cells; WV_SEED={}",
        cells.len(),
        seed()
    );
}

/// Runs the cells, which have the same ranks and order, in one team. The digests, by rank and cell.
fn check(cells: &[Cell], seed: u64, hca_seed: Option<u64>) -> Vec<Vec<Digest>> {
    check_with(
        &setup(&cells[0], hca_seed),
        cells,
        seed,
        hca_seed.unwrap_or(0),
    )
}

/// As `check`, on these HCAs.
fn check_with(setup: &Setup, cells: &[Cell], seed: u64, hca_seed: u64) -> Vec<Vec<Digest>> {
    run(setup, |team| {
        let one = |(i, cell): (usize, &Cell)| {
            let (name, table) = (format!("cell{i}"), cell.placement());
            let moe = Moe::with_placement(team, &name, cell.config(), table).unwrap();
            let mut raw = Raw::new(&moe, *cell);
            let mut digest = Digest::default();
            for call in 1..=CALLS {
                moe.set_schedule_seed(seed ^ hca_seed << 8 ^ u64::from(call));
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
    let existing = cells();
    let mut cells = taken(&existing, seed(), full());
    assert!(cells.len() >= 42, "{} cells", cells.len());
    if let Ok(ranks) = env::var("WV_TEST_RANKS") {
        let ranks: u32 = ranks.parse().expect("WV_TEST_RANKS is a number");
        cells.retain(|cell| cell.ranks == ranks);
    }
    println!(
        "grid: {} cells run of {} existing; WV_SEED={}",
        cells.len(),
        existing.len(),
        seed()
    );
    let mut teams: BTreeMap<(u32, u32), Vec<Cell>> = BTreeMap::new();
    for cell in &cells {
        let team = (cell.ranks, cell.order as u32);
        teams.entry(team).or_default().push(*cell);
    }
    let start = Instant::now();
    for ((ranks, _), cells) in &teams {
        for some in cells.chunks(LAYERS) {
            check(some, seed(), None);
        }
        let order = cells[0].order;
        println!(
            "{ranks} ranks, {order}: {} cells, {:.1?} in all",
            cells.len(),
            start.elapsed()
        );
    }
}

/// Cells for teams of 2 to 8 ranks, every kind of data, layout, order and table among them. Those of one line share a team.
fn repeated() -> Vec<Vec<Cell>> {
    use SignalOrder::{Flush, Inline, Swap};
    let cell = |ranks, data, order, table| Cell {
        ranks,
        data,
        order,
        table,
        ..SIMPLE
    };
    let by_rank = |cell: Cell| Cell {
        layout: RowLayout::RankMajor,
        zero_copy: true,
        ..cell
    };
    let rows = |cell: Cell| Cell {
        returns: Returns::Rows,
        fused: true,
        choose: Choose::Missing,
        ..cell
    };
    let two = |data, table| cell(2, data, Swap, table);
    let three = |data, table| cell(3, data, Inline, table);
    let four = |data, table| cell(4, data, Flush, table);
    let eight = |data, table| cell(8, data, Inline, table);
    vec![
        vec![
            two(Data::Bf16, Table::Replicated),
            by_rank(two(Data::Fp8(Scales::Ue8m0), Table::Moved)),
        ],
        vec![
            three(Data::Bf16, Table::Blocks),
            rows(three(Data::Fp8(Scales::F32), Table::Replicated)),
            by_rank(three(Data::Opaque, Table::Blocks)),
        ],
        vec![
            four(Data::Fp8(Scales::PowerOfTwo), Table::Replicated),
            by_rank(four(Data::Quantized, Table::Blocks)),
        ],
        vec![rows(cell(5, Data::Opaque, Swap, Table::Moved))],
        vec![
            eight(Data::Fp8(Scales::F32), Table::Blocks),
            by_rank(eight(Data::Bf16, Table::Replicated)),
        ],
    ]
}

#[test]
fn twenty_repetitions_with_random_delays_give_the_same_digest() {
    // Teams of 8 take half of the time.
    let (seeds, most) = if full() { (1..=5, 8) } else { (1..=1, 5) };
    for seed in seeds {
        for cells in repeated().iter().filter(|cells| cells[0].ranks <= most) {
            let first = check(cells, seed, Some(0));
            for repetition in 1..20 {
                let again = check(cells, seed, Some(repetition));
                let what = &cells[0];
                assert_eq!(
                    again, first,
                    "WV_SEED={seed}, delays {repetition}: {what:?}"
                );
            }
            assert_ne!(
                first[0][0], first[1][0],
                "different ranks get different tokens"
            );
        }
    }
}
