//! Keeps the first call of each view comparable with the numbers of later calls, however long the view stands.
//!
//! Calls compare by the signed difference of their 32-bit numbers, so a call that is 2^31 calls old looks new. A view may stand for
//! longer. So at each look a rank goes through all first calls that it holds. It moves each one that is 2^30 calls old to half that
//! age. This changes no conclusion: every call up to the later first call has begun already. Each rank does so by itself. The
//! record in the store keeps the first call that the view began with until a member writes a proposal. The proposal carries the
//! newer number, so every rank that can commit it has that number. A newcomer needs this, because it has made no calls to compare
//! with.

use std::sync::Arc;

use membership_rules::record::Record;

use super::rank::Rank;

/// The age, in calls, from which on a first call is moved up.
const MOST: u32 = 1 << 30;

/// Returns the first call `first` of a view, or a later call if `first` is old. All calls up to `finished` have ended. A first call that is
/// still to come is less than 2^30 ahead of `finished`.
fn kept_near(first: u32, finished: u32) -> u32 {
    if (MOST..3 * MOST).contains(&finished.wrapping_sub(first)) {
        finished.wrapping_sub(MOST / 2)
    } else {
        first
    }
}

/// Returns whether `last` can be the last call of another rank, seen by a rank whose calls up to `finished` have ended. Ranks of one view
/// are less than 2^30 calls apart.
pub(super) fn can_be_last(last: u32, finished: u32) -> bool {
    !(MOST..=3 * MOST).contains(&last.wrapping_sub(finished))
}

/// Moves up each old first call that this rank keeps. Returns `record`, with its first call moved as well if this rank runs
/// that view.
pub(super) fn keep_near(rank: &mut Rank, record: Arc<Record>) -> Arc<Record> {
    let finished = rank.shared.layer.finished();
    rank.first = kept_near(rank.first, finished);
    // A last call that is too old to compare is forgotten. A rank that leaves later waits until the others have written a newer one.
    rank.through = rank
        .through
        .filter(|last| kept_near(*last, finished) == *last);
    let mut inner = rank.shared.lock();
    for traces in inner.traces.values_mut() {
        traces.first = kept_near(traces.first, finished);
    }
    for first in inner.farewells.values_mut() {
        *first = kept_near(*first, finished);
    }
    drop(inner);
    if rank.own.is_current(&record) && rank.first != record.first {
        Arc::new(Record {
            first: rank.first,
            ..Record::clone(&record)
        })
    } else {
        record
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use membership_rules::record::newer;

    #[test]
    fn a_call_that_is_2_30_or_more_ahead_or_behind_is_nobodys_last() {
        for finished in [0, 1, MOST, 0x7fff_ffff, 0x8000_0000, u32::MAX] {
            for near in [0, 1, MOST - 1] {
                assert!(can_be_last(finished.wrapping_add(near), finished));
                assert!(can_be_last(finished.wrapping_sub(near), finished));
            }
            for far in [MOST, MOST + 1, 2 * MOST, 3 * MOST] {
                assert!(!can_be_last(finished.wrapping_add(far), finished));
            }
        }
    }

    #[test]
    fn a_first_call_compares_with_calls_for_however_long_its_view_stands() {
        for begin in [1, 0, MOST, 0x7fff_ffff, 0x8000_0000, u32::MAX - 5] {
            let mut first = begin;
            for step in [MOST / 4, MOST - 1, MOST, MOST + 1] {
                first = begin;
                let mut finished = begin.wrapping_sub(1);
                assert_eq!(kept_near(first, finished), begin);
                let mut calls = 0;
                // The numbers of calls wrap twice.
                while calls < 2u64 << 32 {
                    finished = finished.wrapping_add(step);
                    calls += u64::from(step);
                    first = kept_near(first, finished);
                    assert!(!newer(first, finished), "{first:#x}, {finished:#x}");
                    assert!(finished.wrapping_sub(first) < MOST);
                }
            }
            // A first call that is still to come is not moved.
            for ahead in [1, 2, 1000] {
                let to_come = first.wrapping_add(ahead);
                assert_eq!(kept_near(to_come, first), to_come);
            }
        }
    }
}
