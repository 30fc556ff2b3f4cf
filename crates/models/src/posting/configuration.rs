//! A configuration to check: depth, programs, kind of NIC, and the one thing that a mutant does wrong.

use super::property::{Expect, Mutant, Property};

/// An operation of a program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Op {
    /// WQEBBs, the NOP after an operation of two included; of a stale wait: the ticket.
    pub blocks: i32,
    /// How it is called.
    pub flags: Flags,
}

/// How an operation is called.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "independent switches of a call"
)]
pub struct Flags {
    /// It returns a ticket, which is waited for.
    pub wait: bool,
    /// The doorbell may be held back.
    pub more: bool,
    /// An operation of two WQEBBs and a NOP after it.
    pub two: bool,
    /// The form that never blocks.
    pub attempt: bool,
    /// It may give up.
    pub deadline: bool,
    /// No put: a flush.
    pub flush: bool,
    /// No put: a wait for a ticket of life 0.
    pub stale: bool,
}

/// `blocks` WQEBBs, with the letters that the reference uses: w wait, m more, a two WQEBBs, t try, d deadline, f flush, s stale.
pub fn op(blocks: i32, letters: &str) -> Op {
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
pub fn puts(count: usize, blocks: i32) -> Vec<Op> {
    vec![op(blocks, ""); count]
}

/// How ring space is admitted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Admission {
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
    /// Exclusive mode: one thread, no atomics.
    Alone,
}

/// How far a fence orders.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Scope {
    Cta,
    Gpu,
    Sys,
}

/// What a post's fences are for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fence {
    /// WQEs before the flag that says so, and before this thread's own record.
    Publish,
    /// What was swept before the record. Only where publishers fence less than the NIC needs.
    Record,
    /// Record and WQEs before the doorbell.
    Doorbell,
    /// WQEs before the token is parked without a doorbell.
    Hold,
}

/// How completions are looked at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Cq {
    /// One entry, in one step, as the reference does.
    #[default]
    Step,
    /// One entry, one load at a time; errors are followed by flushes.
    Collapsed,
    /// An entry per WQEBB with an owner bit, one access at a time; errors are followed by flushes.
    Wide,
}

/// How the host recovers the QP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Recovery {
    /// It does not.
    #[default]
    Never,
    /// After an error, as the reference does.
    AfterError,
    /// At any moment, one store or load of the host at a time.
    Staged,
}

/// How the NIC learns what to run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Nic {
    /// Runs to the highest doorbell.
    #[default]
    Strict,
    /// Reads the record some time after a doorbell.
    Samples,
    /// Follows the record unasked.
    Follows,
}

/// A configuration.
#[derive(Clone, Debug)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "independent switches of the model"
)]
pub struct Configuration {
    /// Its name in the output.
    pub name: String,
    /// What the search must find.
    pub expect: Expect,
    /// WQEBBs of the ring.
    pub depth: i32,
    /// A batch that passes a multiple of this is signalled and never held back.
    pub quarter: i32,
    /// The NIC's counters wrap at this.
    pub modulus: i32,
    /// Rounds of the holder of the token.
    pub budget: i32,
    /// The operations of each thread.
    pub programs: Vec<Vec<Op>>,
    /// How ring space is admitted.
    pub admission: Admission,
    /// Free indices that `Margin` and `SoftFull` demand beside the blocks of a thread.
    pub margin: i32,
    /// Which rule it breaks, if any.
    pub mutant: Mutant,
    /// How the NIC learns what to run.
    pub nic: Nic,
    /// Threads hold a guard of the peer.
    pub guard: bool,
    /// The NIC may write an error CQE at any moment.
    pub nic_error: bool,
    /// The host may latch an error at any moment.
    pub host_error: bool,
    /// How the host recovers the QP.
    pub recover: Recovery,
    /// A kernel that runs on: one guard over all operations of a program, refreshed between them.
    pub persistent: bool,
    /// The threads are of one block, which owns the QP: publishers fence at block scope.
    pub block: bool,
    /// Ring and record lie in host memory: only fences of system scope order for the NIC.
    pub host_queues: bool,
    /// The doorbell goes through a word of host memory and a thread of the host.
    pub mailbox: bool,
    /// Every WQE of a batch is written by a lane of its own.
    pub lanes: bool,
    /// Threads of the same program are lanes of one warp, each of which posts by itself. They begin an operation when all have
    /// ended the one before, since the compiler makes lanes wait for each other after each of them.
    pub warps: bool,
    /// How completions are looked at.
    pub cq: Cq,
    /// A WQE may fail; those after it are flushed.
    pub wqe_error: bool,
    /// Indices in flags are kept modulo this; 0: whole.
    pub flag_range: i32,
    /// The QP has a doorbell record.
    pub record: bool,
    /// The holder leaves by the second branch only.
    pub leave_quietly: bool,
    /// From every state an end must be reachable.
    pub live: bool,
    /// Stores of an old life are let through, to see their effect.
    pub free: bool,
    /// How many states the reference found; a check of the model itself.
    pub states: Option<usize>,
}

impl Configuration {
    /// Shared queues with a record, a strict NIC and no errors.
    pub fn new(name: &str, depth: i32, programs: Vec<Vec<Op>>) -> Self {
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
            recover: Recovery::Never,
            persistent: false,
            block: false,
            host_queues: false,
            mailbox: false,
            lanes: false,
            warps: false,
            cq: Cq::Step,
            wqe_error: false,
            flag_range: 0,
            record: true,
            leave_quietly: false,
            live: false,
            free: false,
            states: None,
        }
    }

    /// A batch that passes a multiple of this is signalled and never held back.
    pub fn quarter(self, quarter: i32) -> Self {
        Self { quarter, ..self }
    }

    /// From every state an end must be reachable.
    pub fn live(self) -> Self {
        Self { live: true, ..self }
    }

    /// As many as the reference found.
    pub fn states(self, states: usize) -> Self {
        Self {
            states: Some(states),
            ..self
        }
    }

    /// Does one thing wrong, which breaks `property`.
    pub fn mutant(self, mutant: Mutant, property: Property) -> Self {
        Self {
            name: format!("mutant: {}", self.name),
            mutant,
            expect: Expect::Breaks(property),
            ..self
        }
    }

    /// With such a NIC.
    pub fn nic(self, nic: Nic) -> Self {
        Self { nic, ..self }
    }

    /// The QP has no doorbell record.
    pub fn without_record(self) -> Self {
        Self {
            record: false,
            ..self
        }
    }

    /// With a rule for ring space that was tried instead.
    pub fn admission(self, admission: Admission, margin: i32) -> Self {
        Self {
            admission,
            margin,
            ..self
        }
    }

    /// An error at any moment, by the NIC and by the host.
    pub fn any_error(self) -> Self {
        Self {
            nic_error: true,
            host_error: true,
            ..self
        }
    }

    /// A host error at any moment, and recovery from it; counters wrap at 8.
    pub fn recovering(self) -> Self {
        Self {
            modulus: 8,
            host_error: true,
            guard: true,
            recover: Recovery::AfterError,
            ..self
        }
    }

    /// A kernel that runs on under one guard, and a recovery at any moment; counters wrap at 8.
    pub fn persistent(self) -> Self {
        Self {
            modulus: 8,
            guard: true,
            persistent: true,
            recover: Recovery::Staged,
            ..self
        }
    }

    /// The threads are of one block, which owns the QP.
    pub fn block_owned(self) -> Self {
        Self {
            block: true,
            ..self
        }
    }

    /// Ring and record lie in host memory.
    pub fn host_queues(self) -> Self {
        Self {
            host_queues: true,
            ..self
        }
    }

    /// A thread of the host writes the doorbell.
    pub fn mailbox(self) -> Self {
        Self {
            mailbox: true,
            ..self
        }
    }

    /// Every WQE of a batch is written by a lane of its own.
    pub fn lanes(self) -> Self {
        Self {
            lanes: true,
            ..self
        }
    }

    /// Threads of the same program are lanes of one warp.
    pub fn warps(self) -> Self {
        Self {
            warps: true,
            ..self
        }
    }

    /// The NIC's counters wrap at this.
    pub fn modulus(self, modulus: i32) -> Self {
        Self { modulus, ..self }
    }

    /// Looks at completions one access at a time. Such loops never rest, so that an end must be shown to be reachable.
    pub fn cq(self, cq: Cq) -> Self {
        Self {
            cq,
            live: true,
            ..self
        }
    }

    /// A WQE may fail.
    pub fn wqe_error(self) -> Self {
        Self {
            wqe_error: true,
            ..self
        }
    }

    /// Exclusive mode.
    pub(crate) fn is_alone(&self) -> bool {
        self.admission == Admission::Alone
    }

    /// Returns whether a batch passes a multiple of the quarter.
    pub(crate) fn crosses(&self, index: i32, blocks: i32) -> bool {
        index / self.quarter != (index + blocks) / self.quarter
    }
}
