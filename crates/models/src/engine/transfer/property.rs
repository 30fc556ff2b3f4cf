//! The properties that must hold, and the defects of mutants that break them.

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
