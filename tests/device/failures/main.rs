//! Every operation meets every failure: an error completion, a silent peer, a full ring, a deadline, an abort. It ends in the
//! status that says so. Nothing that did not arrive is reported as done. Afterwards both ends go through Err and Reset, old
//! tickets are stale, and new puts arrive.
//!
//! Which wait a call ended by shows in its status. A call with a long deadline that ends `aborted`, `would_block` or with the
//! failure of the QP has not waited for its deadline. How long it took by the device clock is printed, and depends on the
//! machine. Asserted is only that a call which times out does so no earlier than its deadline.

mod meet;
mod operation;

use meet::{Row, dead_peer, full_ring, wrong_key};
use operation::ALL;
use test_support::bench::Bench;
use test_support::table::{Cell, Scope};
use warpverbs::verbs::{CqKind, Doorbell, Queues, Sharing};

/// All operations on one pair of QPs, which is recovered after each failure.
fn every_operation(doorbell: Doorbell, cq: CqKind, scope: Scope) {
    let cell = Cell {
        sharing: Sharing::Shared,
        scope,
        doorbell,
        queues: Queues::Device,
        cq,
    };
    let mut bench = Bench::new(cell, 11, 0, 1);
    let mut rows: Vec<Row> = Vec::new();
    for operation in ALL {
        rows.push(wrong_key(&mut bench, &operation));
        rows.push(dead_peer(&mut bench, &operation));
        rows.extend(full_ring(&mut bench, &operation));
    }
    println!("{cell}: operation, failure, status, ms");
    for row in &rows {
        println!("  {row}");
    }
    println!(
        "failures: {} rows, {} lives of one pair",
        rows.len(),
        bench.base >> 16
    );
}

#[test]
fn every_operation_of_a_thread_meets_every_failure_on_one_collapsed_cqe() {
    every_operation(Doorbell::Record, CqKind::Collapsed, Scope::Thread);
}

#[test]
fn every_operation_of_a_warp_meets_every_failure_on_a_wide_cq_with_cause() {
    every_operation(Doorbell::Record, CqKind::Wide, Scope::Warp);
}

#[test]
fn every_operation_of_a_block_meets_every_failure_without_a_record() {
    every_operation(Doorbell::NoRecord, CqKind::Collapsed, Scope::Block);
}
