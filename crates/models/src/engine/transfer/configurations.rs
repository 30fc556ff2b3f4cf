//! What a configuration says, the configurations with the numbers of states that the reference implementation's model in Python found, and
//! mutants with the property that each breaks.

use std::marker::PhantomData;

use super::property::{Mutant, Property};
use crate::engine::account::{Account, Fields, Outcome};

/// A configuration of the model.
#[derive(Clone, Copy, Debug)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "independent switches of the model"
)]
pub struct Transfer<A> {
    /// The name of the configuration in the output.
    pub name: &'static str,
    /// The number of slices of the transfer, at most 4.
    pub slices: u8,
    /// The number of workers, at most 3.
    pub workers: u8,
    /// The number of QPs that the two ends have agreed on. A worker with a higher number has none.
    pub qps: u8,
    /// The number of slices that a QP has room for.
    pub credit: u8,
    /// The number of slices that a worker posts together.
    pub chain: u8,
    /// How often a slice is posted again on another QP.
    pub retries: u8,
    /// True if the user cancels at any moment.
    pub cancel: bool,
    /// True if a deadline passes at any moment. After a cancel or a deadline a grace ends at any moment.
    pub deadline: bool,
    /// True if the peer is lost at any moment.
    pub peer_is_lost: bool,
    /// How often a QP fails, at any moment.
    pub qp_failures: u8,
    /// How often a pair that both ends have reset is used again.
    pub reuses: u8,
    /// How often a QP stops moving, at any moment, until a thread puts it into the error state.
    pub stalls: u8,
    /// How many workers panic, at any moment.
    pub panics: u8,
    /// True if a chain is refused in part.
    pub post_fails: bool,
    /// True if an end must be reachable from every state.
    pub live: bool,
    /// The rule that the model breaks; None: it keeps all rules.
    pub mutant: Option<Mutant>,
    /// The number of states that the reference implementation's model found, if known.
    pub states: Option<usize>,
    account: PhantomData<A>,
}

impl<A: Account> Transfer<A> {
    /// Returns a configuration in which nothing fails. Each worker has a QP, with room for one slice.
    pub fn new(name: &'static str, slices: u8, workers: u8) -> Self {
        Self {
            name,
            slices,
            workers,
            qps: workers,
            credit: 1,
            chain: 1,
            retries: 0,
            cancel: false,
            deadline: false,
            peer_is_lost: false,
            qp_failures: 0,
            reuses: 0,
            stalls: 0,
            panics: 0,
            post_fails: false,
            live: true,
            mutant: None,
            states: None,
            account: PhantomData,
        }
    }

    pub(super) fn is(&self, mutant: Mutant) -> bool {
        self.mutant == Some(mutant)
    }

    pub(super) fn total(&self) -> u32 {
        u32::from(self.slices)
    }

    /// Returns how the transfer ends, if the account is settled. For an open transfer it returns `Done`, as the reference implementation
    /// does.
    pub(super) fn outcome(&self, account: A) -> Outcome {
        let Fields { closed, failed, .. } = account.fields();
        if failed && self.is(Mutant::AsTheReference) {
            return Outcome::Failed;
        }
        if closed || account.is_settled(self.total()) {
            account.outcome(self.total())
        } else {
            Outcome::Done
        }
    }

    /// Returns whether the read-modify-write from `before` to `after` has settled the account.
    pub(super) fn settles(&self, before: A, after: A) -> bool {
        let was = before.is_settled(self.total()) && !self.is(Mutant::ConcludedWithoutEdge);
        after.is_settled(self.total()) && !was
    }
}

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
