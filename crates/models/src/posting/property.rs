//! The properties that must hold, and the defects of mutants that break them.

/// The defect of a mutant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(missing_docs, reason = "the name of each says what is done wrong")]
pub enum Mutant {
    #[default]
    None,
    OneFenceWithRecord,
    RoundsNotCounted,
    HandOverToNobody,
    LeaveWithoutDoorbell,
    ParkByStore,
    NoPublishFence,
    NoFenceBeforeDoorbell,
    WaitDoesNotRing,
    DebtForgotten,
    FlushDoesNothing,
    HoldBackWithoutLimit,
    OwnHintOnly,
    HoldBackWithoutFence,
    SignalOnRequestOnly,
    TwoBlocksSignalled,
    DeadlineWithoutLatch,
    NoGrace,
    GuardDroppedWithoutFence,
    ClosedReadBeforeCount,
    IndicesKept,
    RingNotCleared,
    TokenNotPlaced,
    NoStaleCheck,
    SlotNotAwaited,
    ServesOnAfterParking,
    ClaimNotUndone,
    CounterNotModular,
    ErrorNotSeenByWait,
    PublishFenceMissing,
    HolderWithoutAcquire,
    HandOverWithoutAcquire,
    HoldWithoutAcquire,
    PublishFenceOfGpu,
    DoorbellFenceOfGpu,
    MailboxStored,
    AgentNotStopped,
    NoBarrier,
    BarrierAfterFence,
    EntryBeforeCons,
    ConsumedReadOnce,
    ConsumedStored,
    LapIgnored,
    TakenUnseen,
    CqTooShort,
    ErrorPassed,
    FlushTakenForCause,
    RefreshWithoutFence,
    RefreshKeepsLife,
    ClosedNotFenced,
    MeetsWithClaim,
}

/// A property that a violation breaks. The numbers are those of the reference implementation's model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Property {
    /// I1: a reservation fits.
    Fits,
    /// I2: no live WQE is overwritten.
    LiveWqe,
    /// I3: the NIC runs exactly the WQE that is due.
    Due,
    /// I4: the record only grows, and is never less than a doorbell.
    Record,
    /// I5: at rest every WQE that was posted has run.
    NothingLost,
    /// I6: there is one token.
    OneToken,
    /// I7: cons never passes the completed WQEs.
    Completed,
    /// I8: every call ends.
    Ends,
    /// I9: every call ends after an error.
    EndsAfterError,
    /// I12: no access of an old life takes effect after the reset.
    Life,
    /// I13: a flag word of an earlier lap never matches.
    Lap,
    /// S1: no old ticket is reported done.
    Stale,
    /// S4: the cause of a failure is reported as such, and a flush never as a cause.
    Cause,
    /// No entry of the CQ is overwritten before it is taken.
    Overrun,
    /// The holder's rounds are bounded.
    Bounded,
    /// At rest the counters agree.
    Rest,
    /// I10: as I8, where a counter has wrapped.
    Wrap,
}

impl Property {
    /// All properties, in the order of their numbers.
    pub const ALL: [Self; 17] = [
        Self::Fits,
        Self::LiveWqe,
        Self::Due,
        Self::Record,
        Self::NothingLost,
        Self::OneToken,
        Self::Completed,
        Self::Ends,
        Self::EndsAfterError,
        Self::Life,
        Self::Lap,
        Self::Stale,
        Self::Cause,
        Self::Overrun,
        Self::Bounded,
        Self::Rest,
        Self::Wrap,
    ];

    /// Returns the number of the property in the reference implementation's model, and its name in words.
    pub fn name(self) -> &'static str {
        match self {
            Self::Fits => "I1 a reservation fits",
            Self::LiveWqe => "I2 no live WQE is overwritten",
            Self::Due => "I3 the NIC runs the WQE due",
            Self::Record => "I4 record monotone, never behind a doorbell",
            Self::NothingLost => "I5 at rest all that was posted has run",
            Self::OneToken => "I6 one token",
            Self::Completed => "I7 cons never passes what completed",
            Self::Ends => "I8 every call ends",
            Self::EndsAfterError => "I9 every call ends once there is an error",
            Self::Wrap => "I10 counters may wrap",
            Self::Life => "I12 nothing of an old life acts after the reset",
            Self::Lap => "I13 no flag of an earlier lap matches",
            Self::Stale => "S1 no old ticket is reported done",
            Self::Cause => "S4 a cause is reported as cause, a flush as flush",
            Self::Overrun => "CQ: no entry is overwritten before it is taken",
            Self::Bounded => "bound: rounds of the holder",
            Self::Rest => "at rest counters agree",
        }
    }
}

/// The expected result of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expect {
    /// All properties hold.
    Holds,
    /// This property breaks first.
    Breaks(Property),
}

/// A state that breaks a property.
pub(crate) type Violation = crate::explore::Broken<Property>;
