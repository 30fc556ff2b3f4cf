//! What is checked: configurations with the numbers of states that the reference found, and mutants with the property that
//! each breaks.

use super::{Mutant, Property, Transfer};
use crate::engine::account::Account;

/// Those of every run.
pub fn configurations<A: Account>() -> Vec<Transfer<A>> {
    let of = Transfer::new;
    let chains = |name| Transfer {
        credit: 2,
        chain: 2,
        ..of(name, 4, 2)
    };
    let counted = |states, transfer| Transfer {
        states: Some(states),
        ..transfer
    };
    vec![
        counted(321, of("3 slices, 2 workers", 3, 2)),
        counted(1_193, chains("4 slices, room for 2, chains of 2")),
        counted(1_768, of("3 slices, 3 workers", 3, 3)),
        counted(
            22,
            Transfer {
                qps: 1,
                ..of("3 slices, 2 workers, 1 QP agreed", 3, 2)
            },
        ),
        counted(
            746,
            Transfer {
                cancel: true,
                ..of("cancel at any time", 3, 2)
            },
        ),
        counted(
            2_215,
            Transfer {
                qp_fails: true,
                ..of("a QP fails, no retry", 3, 2)
            },
        ),
        counted(
            11_907,
            Transfer {
                qp_fails: true,
                ..chains("a QP fails, chains, room for 2")
            },
        ),
        counted(
            2_305,
            Transfer {
                qp_fails: true,
                retries: 2,
                ..of("a QP fails, retry on the other", 3, 2)
            },
        ),
        counted(6_294, retried_and_cancelled("a QP fails, retry, cancel")),
        counted(
            2_279,
            Transfer {
                post_fails: true,
                ..chains("a chain is refused in part")
            },
        ),
        counted(
            40_790,
            Transfer {
                post_fails: true,
                qp_fails: true,
                cancel: true,
                ..chains("refused in part, a QP fails, cancel")
            },
        ),
        counted(
            99,
            Transfer {
                qp_fails: true,
                ..of("1 worker, its QP fails", 2, 1)
            },
        ),
        counted(
            141_654,
            Transfer {
                post_fails: true,
                qp_fails: true,
                cancel: true,
                retries: 2,
                ..chains("all at once")
            },
        ),
    ]
}

fn retried_and_cancelled<A: Account>(name: &'static str) -> Transfer<A> {
    Transfer {
        qp_fails: true,
        retries: 2,
        cancel: true,
        ..Transfer::new(name, 3, 2)
    }
}

/// With `WV_TEST_FULL=1`.
pub fn larger<A: Account>() -> Vec<Transfer<A>> {
    let of = |name, retries| Transfer {
        credit: 2,
        chain: 2,
        post_fails: true,
        qp_fails: true,
        retries,
        cancel: true,
        ..Transfer::new(name, 4, 3)
    };
    vec![
        Transfer {
            states: Some(740_785),
            ..of("4 slices, 3 workers, all at once", 1)
        },
        of("4 slices, 3 workers, all at once, 3 retries", 3),
    ]
}

/// Each breaks the property named with it.
pub fn mutants<A: Account>() -> Vec<(Transfer<A>, Property)> {
    let of = |slices| Transfer::new("", slices, 2);
    let cancel = Transfer {
        cancel: true,
        ..of(3)
    };
    let qp_fails = |slices| Transfer {
        qp_fails: true,
        ..of(slices)
    };
    let retried = Transfer {
        retries: 2,
        ..qp_fails(3)
    };
    let refused = Transfer {
        credit: 2,
        chain: 2,
        post_fails: true,
        ..of(4)
    };
    let two_at_a_time = Transfer {
        credit: 2,
        ..cancel
    };
    let one_qp = Transfer { qps: 1, ..of(3) };
    [
        (Mutant::FailedCountedAsDone, Property::T1, qp_fails(3)),
        (Mutant::ExpectedCountApart, Property::Ends, cancel),
        (Mutant::ConcludedWithoutEdge, Property::T2, two_at_a_time),
        (Mutant::CancelConcludesAtOnce, Property::T5, cancel),
        (Mutant::CauseBehindTheStatus, Property::T7, qp_fails(2)),
        (Mutant::FlushedSlicesForgotten, Property::Ends, qp_fails(2)),
        (Mutant::CompletionCountedTwice, Property::T4, of(2)),
        (Mutant::AcceptedPrefixCountedAsFailed, Property::T6, refused),
        (Mutant::ConcludedBeforeTheFence, Property::T6, retried),
        (
            Mutant::CancellerConcludes,
            Property::T6,
            retried_and_cancelled(""),
        ),
        (
            Mutant::RetryForgottenAtClose,
            Property::Ends,
            retried_and_cancelled(""),
        ),
        (Mutant::PullsWithoutQp, Property::T8, one_qp),
        (Mutant::HandedByLoadAndStore, Property::T4, of(3)),
        (Mutant::NoticeWithTheLastSlice, Property::N1, of(3)),
    ]
    .map(|(mutant, property, transfer)| {
        let transfer = Transfer {
            mutant: Some(mutant),
            ..transfer
        };
        (transfer, property)
    })
    .into()
}
