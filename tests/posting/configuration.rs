//! What is checked: depth, programs, kind of NIC, and the one thing that a mutant does wrong.

/// An operation of a program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Op {
    /// WQEBBs, the NOP behind an operation of two included; of a stale wait: the ticket.
    pub(crate) blocks: i32,
    pub(crate) flags: Flags,
}

/// How an operation is called.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "independent switches of a call"
)]
pub(crate) struct Flags {
    /// It returns a ticket, which is waited for.
    pub(crate) wait: bool,
    /// The doorbell may be held back.
    pub(crate) more: bool,
    /// An operation of two WQEBBs and a NOP behind it.
    pub(crate) two: bool,
    /// The form that never blocks.
    pub(crate) attempt: bool,
    /// It may give up.
    pub(crate) deadline: bool,
    /// No put: a flush.
    pub(crate) flush: bool,
    /// No put: a wait for a ticket of generation 0.
    pub(crate) stale: bool,
}

/// `blocks` WQEBBs, with the letters that the reference uses: w wait, m more, a two WQEBBs, t try, d deadline, f flush, s stale.
pub(crate) fn op(blocks: i32, letters: &str) -> Op {
    let has = |letter| letters.contains(letter);
    Op {
        blocks,
        flags: Flags {
            wait: has('w'),
            more: has('m'),
            two: has('a'),
            attempt: has('t'),
            deadline: has('d'),
            flush: has('f'),
            stale: has('s'),
        },
    }
}

/// `count` puts of `blocks` WQEBBs.
pub(crate) fn puts(count: usize, blocks: i32) -> Vec<Op> {
    vec![op(blocks, ""); count]
}

/// How ring space is admitted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Admission {
    /// Claim (add, undo), then reserve: the protocol.
    #[default]
    Claim,
    /// Reserve at once and wait afterwards.
    Add,
    /// Reserve by compare-and-swap.
    Cas,
    /// Add where more than the margin is free, else compare-and-swap to the brim.
    Margin,
    /// Never use the last margin.
    SoftFull,
}

/// How the NIC learns what to run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Nic {
    /// Runs to the highest doorbell.
    #[default]
    Strict,
    /// Reads the record some time after a doorbell.
    Samples,
    /// Follows the record unasked.
    Follows,
}

/// What a mutant does wrong.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Mutant {
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
}

/// What a violation breaks. Numbers as in the reference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Property {
    /// I1: a reservation fits.
    Fits,
    /// I2: no live WQE is overwritten.
    LiveWqe,
    /// I3: the NIC runs exactly the WQE that is due.
    Due,
    /// I4: the record is monotone and never behind a doorbell.
    Record,
    /// I5: at rest everything posted has run.
    NothingLost,
    /// I6: one token.
    OneToken,
    /// I7: cons never passes what is completed.
    Completed,
    /// I8, I9: every call ends.
    Ends,
    /// I12: nothing of an old generation acts after the reset.
    Generation,
    /// S1: no old ticket is reported done.
    Stale,
    /// The holder's rounds are bounded.
    Bounded,
    /// At rest counters agree.
    Rest,
}

/// What the check must find.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Expect {
    Holds,
    Breaks(Property),
    BreaksSomething,
}

/// A configuration.
#[derive(Clone, Debug)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "independent switches of the model"
)]
pub(crate) struct Configuration {
    pub(crate) name: String,
    pub(crate) expect: Expect,
    pub(crate) depth: i32,
    /// A batch that passes a multiple of this is signalled and never held back.
    pub(crate) quarter: i32,
    /// The NIC's counters wrap at this.
    pub(crate) modulus: i32,
    /// Rounds of the holder of the token.
    pub(crate) budget: i32,
    pub(crate) programs: Vec<Vec<Op>>,
    pub(crate) admission: Admission,
    /// For margins.
    pub(crate) margin: i32,
    pub(crate) mutant: Mutant,
    pub(crate) nic: Nic,
    pub(crate) guard: bool,
    /// The NIC may write an error CQE at any moment.
    pub(crate) nic_error: bool,
    /// The host may latch an error at any moment.
    pub(crate) host_error: bool,
    pub(crate) recover: bool,
    /// There is a doorbell record.
    pub(crate) record: bool,
    /// The holder leaves by the second branch only.
    pub(crate) leave_quietly: bool,
    /// From every state an end must be reachable.
    pub(crate) live: bool,
    /// Stores of an old generation are let through, to see their effect.
    pub(crate) free: bool,
    /// How many states the reference found; a check of the model itself.
    pub(crate) states: Option<usize>,
}

impl Configuration {
    pub(crate) fn new(name: &str, depth: i32, programs: Vec<Vec<Op>>) -> Self {
        Self {
            name: name.to_owned(),
            expect: Expect::Holds,
            depth,
            quarter: (depth / 4).max(1),
            modulus: 1 << 12,
            budget: 1,
            programs,
            admission: Admission::Claim,
            margin: 0,
            mutant: Mutant::None,
            nic: Nic::Strict,
            guard: false,
            nic_error: false,
            host_error: false,
            recover: false,
            record: true,
            leave_quietly: false,
            live: false,
            free: false,
            states: None,
        }
    }

    pub(crate) fn quarter(self, quarter: i32) -> Self {
        Self { quarter, ..self }
    }

    pub(crate) fn live(self) -> Self {
        Self { live: true, ..self }
    }

    pub(crate) fn states(self, states: usize) -> Self {
        Self {
            states: Some(states),
            ..self
        }
    }

    pub(crate) fn mutant(self, mutant: Mutant, property: Property) -> Self {
        Self {
            name: format!("mutant: {}", self.name),
            mutant,
            expect: Expect::Breaks(property),
            ..self
        }
    }

    pub(crate) fn breaks(self, expect: Expect) -> Self {
        Self { expect, ..self }
    }

    pub(crate) fn nic(self, nic: Nic) -> Self {
        Self { nic, ..self }
    }

    pub(crate) fn without_record(self) -> Self {
        Self {
            record: false,
            ..self
        }
    }

    pub(crate) fn admission(self, admission: Admission, margin: i32) -> Self {
        Self {
            admission,
            margin,
            ..self
        }
    }

    /// An error at any moment, by the NIC and by the host.
    pub(crate) fn any_error(self) -> Self {
        Self {
            nic_error: true,
            host_error: true,
            ..self
        }
    }

    /// A host error at any moment, and recovery from it; counters wrap at 8.
    pub(crate) fn recovering(self) -> Self {
        Self {
            modulus: 8,
            host_error: true,
            guard: true,
            recover: true,
            ..self
        }
    }

    /// Word of the flag of ring index `index`.
    pub(crate) fn flag(&self, index: i32) -> usize {
        super::state::Word::FLAGS + usize::try_from(index.rem_euclid(self.depth)).unwrap()
    }

    /// Word of the WQEBB of ring index `index`.
    pub(crate) fn block(&self, index: i32) -> usize {
        self.flag(index) + usize::try_from(self.depth).unwrap()
    }

    /// Whether a batch passes a multiple of the quarter.
    pub(crate) fn crosses(&self, index: i32, blocks: i32) -> bool {
        index / self.quarter != (index + blocks) / self.quarter
    }
}
