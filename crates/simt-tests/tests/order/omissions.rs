//! Barriers and fences that a kernel has and that the checker takes for missing: the findings are those of a kernel that lacks
//! them.
//!
//! The kernels run under names of their own, so that other tests of the process see nothing of it.

use simt::LaunchConfig;
use simt::check::{Kind, Omission, omit};

use super::{Defect, SEEDS, findings_as_named, has, line, none, shape};
use crate::args;

#[test]
fn a_block_barrier_treated_as_missing_is_found_until_it_comes_back() {
    let name = "neighbour without its barrier";
    let config = LaunchConfig {
        shared_bytes: 4 * 64,
        name,
        ..shape(1, 64)
    };
    for seed in SEEDS {
        let run = || {
            let mut out = [0i32; 64];
            findings_as_named(
                "order_neighbour",
                args![Defect::None as i32, out.as_mut_ptr()],
                &config,
                seed,
            )
        };
        let other = omit("another kernel", Omission::BlockBarriers);
        none(&run(), seed);
        assert!(!other.applied());
        let missing = omit(name, Omission::BlockBarriers);
        let parts = [name, &line("write own"), &line("read neighbour")];
        has(&run(), Kind::Unordered, &parts, seed);
        assert!(missing.applied());
        drop(missing);
        none(&run(), seed);
        drop(other);
    }
}

#[test]
fn each_barrier_of_a_grid_is_missed_by_its_number() {
    let name = "grid without a barrier";
    let config = LaunchConfig {
        cooperative: true,
        name,
        ..shape(4, 32)
    };
    for seed in SEEDS {
        let run = || {
            let (mut words, mut out) = ([0i32; 128], [0i32; 128]);
            findings_as_named(
                "order_grid",
                args![Defect::None as i32, words.as_mut_ptr(), out.as_mut_ptr()],
                &config,
                seed,
            )
        };
        // After the last of its six barriers nothing happens.
        for number in 0..5 {
            let _missing = omit(name, Omission::GridBarrier(number));
            has(&run(), Kind::Unordered, &["kernels/order.cu"], seed);
        }
        for number in 5..8 {
            let missing = omit(name, Omission::GridBarrier(number));
            none(&run(), seed);
            assert_eq!(missing.applied(), number == 5);
        }
    }
}

#[test]
fn fences_that_are_taken_for_missing_are_found_by_their_halves() {
    let name = "message without fences";
    let config = LaunchConfig {
        name,
        ..shape(2, 32)
    };
    for seed in SEEDS {
        let run = || {
            let (mut message, mut flag, mut out) = ([0i64; 2], 0u32, 0i64);
            let words = message.as_mut_ptr();
            findings_as_named(
                "order_message",
                args![Defect::None as i32, words, &raw mut flag, &raw mut out],
                &config,
                seed,
            )
        };
        for (omission, part) in [
            (Omission::Acquire, "missing: an acquire fence of scope .gpu"),
            (Omission::Release, "missing: "),
        ] {
            let _missing = omit(name, omission);
            let parts = [line("read message"), part.to_owned()];
            has(
                &run(),
                Kind::Unordered,
                &parts.each_ref().map(String::as_str),
                seed,
            );
        }
        none(&run(), seed);
    }
}
