//! Many short kernels, each under a schedule of its own, one after the other on the same QPs.

use test_support::abi::conformance as abi;
use test_support::abi::conformance::ConformanceParams;
use warpverbs::abi::Status;

use crate::checks::{arrived, expect, list, settle};
use test_support::bench::Bench;

/// Operations that move the items of a list, 8 bytes each.
const OPERATIONS: [u32; 3] = [
    abi::CONFORMANCE_PUT,
    abi::CONFORMANCE_PUT_SIGNAL,
    abi::CONFORMANCE_PUT_TWO,
];
const ENDS: [u32; 4] = [
    abi::CONFORMANCE_END_WAIT,
    abi::CONFORMANCE_END_TEST,
    abi::CONFORMANCE_END_FLUSH,
    abi::CONFORMANCE_END_QUIET,
];

/// Runs `count` kernels; every word arrives, and the HCA's checker has nothing to say.
pub(crate) fn run(bench: &mut Bench, count: u32) {
    let own = bench.seed;
    let mut rng = fastrand::Rng::with_seed(own);
    for number in 0..count {
        bench.seed = rng.u64(1..);
        let end = rng.choice(ENDS).unwrap();
        let mut options = [0, abi::CONFORMANCE_MORE][rng.usize(..2)];
        if end == abi::CONFORMANCE_END_FLUSH || end == abi::CONFORMANCE_END_QUIET {
            options |= [0, abi::CONFORMANCE_UNSIGNALLED][rng.usize(..2)];
        }
        // At least one for each thread, so that every scope has a ticket.
        let items = list(u64::from(bench.cell.shape().all()) + rng.u64(..90), 8);
        let params = ConformanceParams {
            operation: rng.choice(OPERATIONS).unwrap(),
            end,
            options,
            ..bench.params(0, &items)
        };
        let what = format!(
            "{}, seed {own}, kernel {number}, schedule {:#x}: {params:?}",
            bench.cell, bench.seed
        );
        bench.clear();
        let named = crate::checks::Named(&what);
        expect(bench, bench.cell.shape(), &params, Status::OK);
        if number % 16 == 0 {
            settle(bench);
        }
        arrived(bench, &items);
        drop(named);
    }
    settle(bench);
    bench.seed = own;
}
