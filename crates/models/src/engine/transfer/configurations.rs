//! Configurations with the numbers of states that the reference implementation's model in Python found, and mutants with the property that
//! each breaks.

use super::{Mutant, Property, Transfer};
use crate::engine::account::Account;

/// Returns the configurations that every run checks.
pub fn configurations<A: Account>() -> Vec<Transfer<A>> {
    let mut all = of_the_reference();
    all.extend(cancelled_and_failed());
    all.extend(closed_by_deadline());
    all.extend(with_a_lost_peer());
    all.extend(with_a_panic());
    all.extend(with_pairs_used_again());
    all.extend(behind_a_grace());
    all
}

/// Returns the configurations that are also checked with `WV_TEST_FULL=1`.
pub fn larger<A: Account>() -> Vec<Transfer<A>> {
    let of = |name| Transfer {
        workers: 3,
        qps: 3,
        retries: 3,
        ..all_at_once(name)
    };
    vec![
        as_the_reference(
            740_785,
            Transfer {
                retries: 1,
                ..of("4 slices, 3 workers, all at once")
            },
        ),
        of("4 slices, 3 workers, all at once, 3 retries"),
        Transfer {
            panics: 2,
            deadline: true,
            ..all_at_once("all at once, both workers panic, deadline")
        },
        Transfer {
            qp_failures: 2,
            deadline: true,
            ..all_at_once("all at once, 2 QPs fail, deadline")
        },
        Transfer {
            deadline: true,
            stalls: 1,
            ..lost("a QP stalls, a QP fails, retry, the peer is lost, deadline")
        },
        Transfer {
            cancel: true,
            qp_failures: 1,
            retries: 1,
            ..stalled("2 QPs stall, a QP fails, retry, cancel, deadline")
        },
    ]
}

/// Returns configurations with the two rules that the reference implementation's model has otherwise, and with its numbers of states.
pub fn harmless<A: Account>() -> Vec<Transfer<A>> {
    cancelled_and_failed()
        .into_iter()
        .zip([6_294, 40_790, 141_654])
        .map(|(transfer, states)| as_the_reference(states, transfer))
        .collect()
}

fn of_the_reference<A: Account>() -> Vec<Transfer<A>> {
    let counted = |states, transfer| Transfer {
        states: Some(states),
        ..transfer
    };
    let failing = |name| Transfer {
        qp_failures: 1,
        ..Transfer::new(name, 3, 2)
    };
    vec![
        counted(321, Transfer::new("3 slices, 2 workers", 3, 2)),
        counted(1_193, chains("4 slices, room for 2, chains of 2")),
        counted(1_768, Transfer::new("3 slices, 3 workers", 3, 3)),
        counted(
            22,
            Transfer {
                qps: 1,
                ..Transfer::new("3 slices, 2 workers, 1 QP agreed", 3, 2)
            },
        ),
        counted(
            746,
            Transfer {
                cancel: true,
                ..Transfer::new("cancel at any time", 3, 2)
            },
        ),
        counted(2_215, failing("a QP fails, no retry")),
        counted(
            11_907,
            Transfer {
                qp_failures: 1,
                ..chains("a QP fails, chains, room for 2")
            },
        ),
        counted(
            2_305,
            Transfer {
                retries: 2,
                ..failing("a QP fails, retry on the other")
            },
        ),
        counted(
            2_279,
            Transfer {
                post_fails: true,
                ..chains("a chain is refused in part")
            },
        ),
        counted(
            99,
            Transfer {
                qp_failures: 1,
                ..Transfer::new("1 worker, its QP fails", 2, 1)
            },
        ),
    ]
}

fn cancelled_and_failed<A: Account>() -> Vec<Transfer<A>> {
    vec![
        retried_and_cancelled("a QP fails, retry, cancel"),
        Transfer {
            retries: 0,
            ..all_at_once("refused in part, a QP fails, cancel")
        },
        all_at_once("all at once"),
    ]
}

fn closed_by_deadline<A: Account>() -> Vec<Transfer<A>> {
    vec![
        Transfer {
            deadline: true,
            ..retried_and_cancelled("a QP fails, retry, cancel, deadline")
        },
        stalled("2 QPs stall, deadline"),
        Transfer {
            qp_failures: 1,
            retries: 1,
            ..stalled("2 QPs stall, a QP fails, retry, deadline")
        },
        Transfer {
            qp_failures: 2,
            retries: 2,
            ..Transfer::new("2 QPs fail, retry", 3, 2)
        },
        Transfer {
            qp_failures: 2,
            ..retried_and_cancelled("2 QPs fail, retry, cancel")
        },
    ]
}

fn with_a_lost_peer<A: Account>() -> Vec<Transfer<A>> {
    vec![
        Transfer {
            peer_is_lost: true,
            ..Transfer::new("the peer is lost", 3, 2)
        },
        lost("a QP fails, retry, the peer is lost"),
    ]
}

fn with_pairs_used_again<A: Account>() -> Vec<Transfer<A>> {
    vec![
        used_again("a QP fails, retry, the pair is used again"),
        Transfer {
            qp_failures: 2,
            reuses: 2,
            cancel: true,
            ..used_again("2 QPs fail, retry, both pairs are used again, cancel")
        },
        Transfer {
            peer_is_lost: true,
            ..used_again("a pair is used again, the peer is lost")
        },
        Transfer {
            panics: 1,
            ..used_again("a pair is used again, a worker panics")
        },
    ]
}

fn behind_a_grace<A: Account>() -> Vec<Transfer<A>> {
    vec![
        Transfer {
            retries: 1,
            reuses: 1,
            ..stalled("2 QPs stall, deadline, a pair is used again")
        },
        Transfer {
            stalls: 1,
            cancel: true,
            qp_failures: 1,
            retries: 1,
            reuses: 2,
            ..stalled("a QP stalls, a QP fails, retry, cancel, deadline, both pairs are used again")
        },
    ]
}

fn with_a_panic<A: Account>() -> Vec<Transfer<A>> {
    vec![
        panicked("a worker panics"),
        Transfer {
            panics: 2,
            ..panicked("both workers panic")
        },
        Transfer {
            panics: 1,
            ..retried_and_cancelled("a worker panics, a QP fails, retry, cancel")
        },
        Transfer {
            peer_is_lost: true,
            ..panicked("a worker panics, the peer is lost")
        },
    ]
}

fn chains<A: Account>(name: &'static str) -> Transfer<A> {
    Transfer {
        credit: 2,
        chain: 2,
        ..Transfer::new(name, 4, 2)
    }
}

fn all_at_once<A: Account>(name: &'static str) -> Transfer<A> {
    Transfer {
        post_fails: true,
        qp_failures: 1,
        cancel: true,
        retries: 2,
        ..chains(name)
    }
}

fn retried_and_cancelled<A: Account>(name: &'static str) -> Transfer<A> {
    Transfer {
        qp_failures: 1,
        retries: 2,
        cancel: true,
        ..Transfer::new(name, 3, 2)
    }
}

/// Returns a configuration with QPs that stall. It has a deadline, because nothing else ends a transfer that stalls.
fn stalled<A: Account>(name: &'static str) -> Transfer<A> {
    Transfer {
        stalls: 2,
        deadline: true,
        ..Transfer::new(name, 3, 2)
    }
}

fn lost<A: Account>(name: &'static str) -> Transfer<A> {
    Transfer {
        peer_is_lost: true,
        qp_failures: 1,
        retries: 2,
        ..Transfer::new(name, 3, 2)
    }
}

fn used_again<A: Account>(name: &'static str) -> Transfer<A> {
    Transfer {
        qp_failures: 1,
        retries: 2,
        reuses: 1,
        ..Transfer::new(name, 3, 2)
    }
}

fn panicked<A: Account>(name: &'static str) -> Transfer<A> {
    Transfer {
        panics: 1,
        ..Transfer::new(name, 3, 2)
    }
}

fn as_the_reference<A: Account>(states: usize, transfer: Transfer<A>) -> Transfer<A> {
    Transfer {
        mutant: Some(Mutant::AsTheReference),
        states: Some(states),
        ..transfer
    }
}

/// Returns the mutants, each with the property that it breaks.
pub fn mutants<A: Account>() -> Vec<(Transfer<A>, Property)> {
    let of = |slices| Transfer::new("", slices, 2);
    let cancel = Transfer {
        cancel: true,
        ..of(3)
    };
    let qp_fails = |slices| Transfer {
        qp_failures: 1,
        ..of(slices)
    };
    let retried = Transfer {
        retries: 2,
        ..qp_fails(3)
    };
    let refused = Transfer {
        post_fails: true,
        ..chains("")
    };
    let two_at_a_time = Transfer {
        credit: 2,
        ..cancel
    };
    let one_qp = Transfer { qps: 1, ..of(3) };
    let two_fail = Transfer {
        qp_failures: 2,
        ..retried
    };
    let retried_and_cancelled = retried_and_cancelled("");
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
            retried_and_cancelled,
        ),
        (
            Mutant::RetryForgottenAtClose,
            Property::Ends,
            retried_and_cancelled,
        ),
        (Mutant::PullsWithoutQp, Property::T8, one_qp),
        (Mutant::HandedByLoadAndStore, Property::T4, of(3)),
        (Mutant::NoticeWithTheLastSlice, Property::N1, of(3)),
        (Mutant::RetryForgottenWithoutQp, Property::Ends, two_fail),
        (Mutant::GraceForgotten, Property::Ends, stalled("")),
        (Mutant::GraceLooksOnce, Property::Ends, stalled("")),
        (Mutant::LostPeerWaitedFor, Property::Ends, lost("")),
        (Mutant::LostPeerCalledFenced, Property::T6, lost("")),
        (Mutant::PeerGoneBeforeReset, Property::T6, lost("")),
        (Mutant::UsedAgainAtOneEnd, Property::T6, used_again("")),
        (Mutant::PanicForgotten, Property::Ends, panicked("")),
        (Mutant::WrittenOffBeforeReset, Property::T6, panicked("")),
        (Mutant::WrittenOffBesideWorkers, Property::T5, panicked("")),
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
