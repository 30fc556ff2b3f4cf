//! One table of every kind of QP and every scope that posts to it. Each row runs through libmlx5, the software HCA and simt, with
//! the same checks.
//!
//! A run takes a sample of the rows in which every pair of values of two columns occurs. WV_TEST_FULL=1 takes all rows,
//! WV_TEST_SEED another sample. Every other row of a run begins at an index 4 short of 2^16, 2^32 or 2^47.

mod checks;
mod data;
mod schedules;
mod words;

use std::time::Instant;

use softhca::device::Execution;
use test_support::bench::Bench;
use test_support::table::Cell;

/// Where the indices of a row begin: the multiple of 65,536 below the edge, which NOPs run up to.
const BASES: [u64; 3] = [0, (1 << 32) - (1 << 16), (1 << 47) - (1 << 16)];

#[test]
fn every_row_of_the_table_passes_every_check() {
    let seed = match std::env::var("WV_TEST_SEED") {
        Ok(seed) => seed.parse().unwrap(),
        Err(_) => 4,
    };
    let mut rng = fastrand::Rng::with_seed(seed);
    let all = Cell::all();
    let cells = match std::env::var_os("WV_TEST_FULL") {
        Some(_) => all.clone(),
        None => Cell::sample(seed),
    };
    let begin = Instant::now();
    let mut checks = 0;
    for (number, &cell) in cells.iter().enumerate() {
        let own = rng.u64(..1 << 32);
        let edge = (number % 2 == 1).then(|| BASES[number / 2 % BASES.len()]);
        let mut bench = Bench::new(cell, own, edge.unwrap_or(0), 7);
        if edge.is_some() {
            checks::run_in(&bench);
        }
        let start = Instant::now();
        checks += checks::all(&mut bench);
        println!(
            "{cell}, from {:#x}: {} ms",
            edge.map_or(0, |base| base + 0xfffc),
            start.elapsed().as_millis()
        );
    }
    println!(
        "conformance: {} cells run of {} existing, {checks} checks, seed {seed}, {} ms",
        cells.len(),
        all.len(),
        begin.elapsed().as_millis()
    );
    assert_eq!(
        all.len(),
        108,
        "54 with one collapsed CQE, 54 with a wide CQ"
    );
}

/// These rows and checks where the HCA is a kernel: a label `gpuhca+simt`.
#[test]
fn rows_of_the_table_pass_every_check_on_gpuhca() {
    let seed = 4;
    let mut rng = fastrand::Rng::with_seed(seed);
    let cells = match std::env::var_os("WV_TEST_FULL") {
        Some(_) => Cell::all(),
        None => Cell::sample(seed),
    };
    let begin = Instant::now();
    let mut checks = 0;
    for (number, &cell) in cells.iter().enumerate() {
        let own = rng.u64(..1 << 32);
        let edge = (number % 4 == 1).then(|| BASES[number / 4 % BASES.len()]);
        let mut bench = Bench::on(Execution::External, cell, own, edge.unwrap_or(0), 7);
        if edge.is_some() {
            checks::run_in(&bench);
        }
        let start = Instant::now();
        checks += checks::all(&mut bench);
        println!("gpuhca+simt, {cell}: {} ms", start.elapsed().as_millis());
    }
    println!(
        "conformance on gpuhca+simt: {} cells, {checks} checks, seed {seed}, {} ms",
        cells.len(),
        begin.elapsed().as_millis()
    );
}

/// A schedule is the order in which simt runs the threads; of every third row the HCA's engine has a seeded one too.
#[test]
fn every_word_arrives_under_thousands_of_schedules() {
    let full = std::env::var_os("WV_TEST_FULL").is_some();
    let (rows, each) = if full {
        (Cell::all(), 1000)
    } else {
        (Cell::sample(9), 250)
    };
    let begin = Instant::now();
    for (&cell, seed) in rows.iter().zip(0..) {
        schedules::run(&mut Bench::new(cell, seed, 0, 7), each);
    }
    let count = rows.len() * each as usize;
    println!(
        "schedules: {count} in {} rows, {} ms",
        rows.len(),
        begin.elapsed().as_millis()
    );
    assert!(count > 2000);
}

#[test]
fn a_sample_has_every_pair_of_values() {
    for seed in 0..20 {
        let sample = Cell::sample(seed);
        assert!(
            (9..=14).contains(&sample.len()),
            "seed {seed}: {} rows",
            sample.len()
        );
        for one in Cell::all() {
            for other in Cell::all() {
                let pair = |cell: &Cell| cell.doorbell == one.doorbell && cell.scope == other.scope;
                assert!(sample.iter().any(pair), "seed {seed}: {one}, {other}");
                let pair = |cell: &Cell| cell.sharing == one.sharing && cell.cq == other.cq;
                assert!(sample.iter().any(pair), "seed {seed}: {one}, {other}");
            }
        }
    }
}
