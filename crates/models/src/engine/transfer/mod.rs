//! A model of one striped transfer: workers, each with a QP of its own, pull slices from one account word.
//!
//! The workers post chains, reap completions, retry flushed slices and finish slices. A user cancels at any moment and polls. The thread
//! whose read-modify-write settles the account concludes the transfer: it writes cause and status, and sends the notice. The cause goes
//! through a store buffer, so it may become visible late. A QP fails at any moment, and an HCA may refuse part of a chain. Packets of a
//! failed QP may land until both ends have reset the pair.
//!
//! The reference implementation has a model in Python with the same states, except for two rules ([`Mutant::AsTheReference`]). That model
//! has no deadlines, no QP that stalls, no worker that panics and no lost peer. It has no second QP that fails and no pair that is used
//! again.
//!
//! Module `hca` has the steps of HCAs, wire and peer, `worker` the steps of a worker, and `user` the steps of the user and of the engine's
//! clock. `control` has the steps of the connection's own thread when a worker has panicked.

mod configurations;
mod control;
mod hca;
mod state;
mod steps;
mod user;
mod worker;

use std::marker::PhantomData;

use super::account::{Account, Fields, Outcome};

pub use configurations::{configurations, harmless, larger, mutants};
pub use state::State;
pub use steps::Step;

/// The properties that must hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Property {
    /// A transfer is done only when all its bytes have landed.
    T1,
    /// A transfer is concluded once.
    T2,
    /// A poll of an id returns the outcome of its own transfer, and later polls return the same.
    T3,
    /// A slice is finished once.
    T4,
    /// The HCA has no WQE of a transfer that is concluded.
    T5,
    /// No byte lands after the conclusion. If the report says that the other end is unknown, no byte lands at that end once its program has
    /// learned that this side is gone.
    T6,
    /// Who sees a status also sees its cause.
    T7,
    /// No transfer fails without a reason.
    T8,
    /// The notice is sent, and arrives after all bytes.
    N1,
    /// Every transfer is concluded.
    Ends,
}

impl Property {
    /// All properties. For each, some mutant must break it.
    pub const ALL: [Self; 10] = [
        Self::T1,
        Self::T2,
        Self::T3,
        Self::T4,
        Self::T5,
        Self::T6,
        Self::T7,
        Self::T8,
        Self::N1,
        Self::Ends,
    ];
}

pub(super) type Broken = crate::explore::Broken<Property>;

/// The defect of a mutant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the name of each says what is done wrong")]
pub enum Mutant {
    FailedCountedAsDone,
    /// The number of slices to expect is a word of its own.
    ExpectedCountApart,
    ConcludedWithoutEdge,
    CancelConcludesAtOnce,
    CauseBehindTheStatus,
    FlushedSlicesForgotten,
    CompletionCountedTwice,
    AcceptedPrefixCountedAsFailed,
    ConcludedBeforeTheFence,
    CancellerConcludes,
    RetryForgottenAtClose,
    PullsWithoutQp,
    HandedByLoadAndStore,
    NoticeWithTheLastSlice,
    /// If no QP is left and all other slices are handed out, a slice that waits for a retry goes on waiting.
    RetryForgottenWithoutQp,
    /// QPs that have slices of a closed transfer stay as they are.
    GraceForgotten,
    /// After the grace such QPs are looked for only once.
    GraceLooksOnce,
    /// The conclusion waits for the answer of a peer that is lost.
    LostPeerWaitedFor,
    /// Bytes that may still land at a lost peer change no outcome.
    LostPeerCalledFenced,
    /// The peer informs its program of this side's end before it resets its QPs.
    PeerGoneBeforeReset,
    /// A pair is used again, and taken for fenced, as soon as this end is reset.
    UsedAgainAtOneEnd,
    /// No thread finishes the slices that a worker held when it panicked.
    PanicForgotten,
    /// A panicked worker's slices are finished while the QPs still move their bytes.
    WrittenOffBeforeReset,
    /// A panicked worker's slices are finished while another worker has slices of the transfer.
    WrittenOffBesideWorkers,
    /// The rules of the reference implementation, which break no property. A cancel after a failure is noted too, and a failure decides the
    /// outcome whenever it comes. The half of a chain that is not refused may still land where both ends have reset the pair.
    AsTheReference,
}

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

    fn is(&self, mutant: Mutant) -> bool {
        self.mutant == Some(mutant)
    }

    fn total(&self) -> u32 {
        u32::from(self.slices)
    }

    /// Returns how the transfer ends, if the account is settled. For an open transfer it returns `Done`, as the reference implementation
    /// does.
    fn outcome(&self, account: A) -> Outcome {
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
    fn settles(&self, before: A, after: A) -> bool {
        let was = before.is_settled(self.total()) && !self.is(Mutant::ConcludedWithoutEdge);
        after.is_settled(self.total()) && !was
    }
}
