//! A configuration to check: the depth, the programs, the kind of NIC, and the defect of a mutant.

use super::property::{Expect, Mutant, Property};

/// An operation of a program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Op {
    /// The number of WQEBBs, the NOP after an operation of two WQEBBs included. Of a stale wait, the ticket.
    pub blocks: i32,
    /// The flags of the call.
    pub flags: Flags,
}

/// The flags with which an operation is called.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "independent switches of a call"
)]
pub struct Flags {
    /// The operation returns a ticket, which is waited for.
    pub wait: bool,
    /// The doorbell may be held back.
    pub more: bool,
    /// The operation takes two WQEBBs, with a NOP after it.
    pub two: bool,
    /// The operation has the form that never blocks.
    pub attempt: bool,
    /// The operation may give up.
    pub deadline: bool,
    /// The operation is a flush, not a put.
    pub flush: bool,
    /// The operation is a wait for a ticket of life 0, not a put.
    pub stale: bool,
}

/// Returns an operation of `blocks` WQEBBs. `letters` are those of the reference implementation's model: w wait, m more, a two WQEBBs, t
/// try, d deadline, f flush, s stale.
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

/// Returns `count` puts of `blocks` WQEBBs each.
pub fn puts(count: usize, blocks: i32) -> Vec<Op> {
    vec![op(blocks, ""); count]
}

/// The rule by which ring space is admitted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Admission {
    /// Claim (add, undo), then reserve. This is the protocol.
    #[default]
    Claim,
    /// Reserve at once and wait afterwards.
    Add,
    /// Reserve by compare-and-swap.
    Cas,
    /// Add where more than the margin is free, else compare-and-swap to the brim.
    Margin,
    /// Reserve only while more than the margin is free.
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

/// The purpose of a fence of a post.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fence {
    /// Orders WQEs before the flag that publishes them, and before the record of this thread.
    Publish,
    /// Orders what was swept before the record. It is needed only where publishers fence less than the NIC needs.
    Record,
    /// Orders record and WQEs before the doorbell.
    Doorbell,
    /// Orders WQEs before the token that is parked without a doorbell.
    Hold,
}

/// The kind of CQ, and how pollers look at it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Cq {
    /// One entry, which is looked at in one step, as in the reference implementation's model.
    #[default]
    Step,
    /// One entry, which is looked at one load at a time. Errors are followed by flushes.
    Collapsed,
    /// An entry for each WQEBB with an owner bit, looked at one access at a time. Errors are followed by flushes.
    Wide,
}

/// When the host recovers the QP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Recovery {
    /// The host does not recover it.
    #[default]
    Never,
    /// After an error, as in the reference implementation's model.
    AfterError,
    /// The host recovers the QP at any moment, one store or load at a time.
    Staged,
}

/// How the NIC learns which WQEs to run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Nic {
    /// The NIC runs to the highest doorbell.
    #[default]
    Strict,
    /// The NIC reads the record some time after a doorbell.
    Samples,
    /// The NIC follows the record without a doorbell.
    Follows,
}

/// A configuration.
#[derive(Clone, Debug)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "independent switches of the model"
)]
pub struct Configuration {
    /// The name of the configuration in the output.
    pub name: String,
    /// What the search must find.
    pub expect: Expect,
    /// The number of WQEBBs of the ring.
    pub depth: i32,
    /// A batch that passes a multiple of this number is signalled and never held back.
    pub quarter: i32,
    /// The number at which the NIC's counters wrap.
    pub modulus: i32,
    /// The number of rounds that the holder of the token may ring.
    pub budget: i32,
    /// The operations of each thread.
    pub programs: Vec<Vec<Op>>,
    /// The rule by which ring space is admitted.
    pub admission: Admission,
    /// The number of free indices that `Margin` and `SoftFull` demand besides the blocks of a thread.
    pub margin: i32,
    /// The rule that the model breaks, if any.
    pub mutant: Mutant,
    /// How the NIC learns which WQEs to run.
    pub nic: Nic,
    /// True if threads hold a guard of the peer.
    pub guard: bool,
    /// True if the NIC may write an error CQE at any moment.
    pub nic_error: bool,
    /// True if the host may latch an error at any moment.
    pub host_error: bool,
    /// When the host recovers the QP.
    pub recover: Recovery,
    /// True if a kernel runs on: one guard covers all operations of a program, and is refreshed between them.
    pub persistent: bool,
    /// True if the threads are of one block, which owns the QP. Then publishers fence at block scope.
    pub block: bool,
    /// True if ring and record are in host memory. Then only fences of system scope order for the NIC.
    pub host_queues: bool,
    /// True if the doorbell goes through a word of host memory and a thread of the host.
    pub mailbox: bool,
    /// True if every WQE of a batch is written by a lane of its own.
    pub lanes: bool,
    /// True if threads of the same program are lanes of one warp, each of which posts by itself. They begin an operation when all have
    /// ended the operation before it, because the compiler makes lanes wait for each other after each operation.
    pub warps: bool,
    /// The kind of CQ, and how pollers look at it.
    pub cq: Cq,
    /// True if a WQE may fail. The WQEs after it are then flushed.
    pub wqe_error: bool,
    /// The number modulo which flags keep indices; 0: they keep whole indices.
    pub flag_range: i32,
    /// True if the QP has a doorbell record.
    pub record: bool,
    /// True if the holder of the token leaves by the second branch only.
    pub leave_quietly: bool,
    /// True if an end must be reachable from every state.
    pub live: bool,
    /// True if stores of an old life are let through, to see their effect.
    pub free: bool,
    /// The number of states that the reference implementation's model found, if known. It checks the model itself.
    pub states: Option<usize>,
}

impl Configuration {
    /// Returns a configuration with shared queues, a record, a strict NIC and no errors.
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

    /// Signals batches that pass a multiple of this number, and never holds them back.
    pub fn quarter(self, quarter: i32) -> Self {
        Self { quarter, ..self }
    }

    /// Demands that an end is reachable from every state.
    pub fn live(self) -> Self {
        Self { live: true, ..self }
    }

    /// Expects as many states as the reference implementation's model found.
    pub fn states(self, states: usize) -> Self {
        Self {
            states: Some(states),
            ..self
        }
    }

    /// Adds a defect, which breaks `property`.
    pub fn mutant(self, mutant: Mutant, property: Property) -> Self {
        Self {
            name: format!("mutant: {}", self.name),
            mutant,
            expect: Expect::Breaks(property),
            ..self
        }
    }

    /// Sets how the NIC learns which WQEs to run.
    pub fn nic(self, nic: Nic) -> Self {
        Self { nic, ..self }
    }

    /// Leaves out the doorbell record.
    pub fn without_record(self) -> Self {
        Self {
            record: false,
            ..self
        }
    }

    /// Sets a rule for ring space that was tried instead of the protocol's.
    pub fn admission(self, admission: Admission, margin: i32) -> Self {
        Self {
            admission,
            margin,
            ..self
        }
    }

    /// Lets NIC and host report an error at any moment.
    pub fn any_error(self) -> Self {
        Self {
            nic_error: true,
            host_error: true,
            ..self
        }
    }

    /// Lets the host latch an error at any moment and recover from it. Counters wrap at 8.
    pub fn recovering(self) -> Self {
        Self {
            modulus: 8,
            host_error: true,
            guard: true,
            recover: Recovery::AfterError,
            ..self
        }
    }

    /// Lets a kernel run on under one guard, with a recovery at any moment. Counters wrap at 8.
    pub fn persistent(self) -> Self {
        Self {
            modulus: 8,
            guard: true,
            persistent: true,
            recover: Recovery::Staged,
            ..self
        }
    }

    /// Puts the threads into one block, which owns the QP.
    pub fn block_owned(self) -> Self {
        Self {
            block: true,
            ..self
        }
    }

    /// Puts ring and record into host memory.
    pub fn host_queues(self) -> Self {
        Self {
            host_queues: true,
            ..self
        }
    }

    /// Lets a thread of the host write the doorbell.
    pub fn mailbox(self) -> Self {
        Self {
            mailbox: true,
            ..self
        }
    }

    /// Lets a lane of its own write every WQE of a batch.
    pub fn lanes(self) -> Self {
        Self {
            lanes: true,
            ..self
        }
    }

    /// Makes threads of the same program lanes of one warp.
    pub fn warps(self) -> Self {
        Self {
            warps: true,
            ..self
        }
    }

    /// Sets the number at which the NIC's counters wrap.
    pub fn modulus(self, modulus: i32) -> Self {
        Self { modulus, ..self }
    }

    /// Looks at completions one access at a time. Such loops never rest, so the check demands that an end is reachable.
    pub fn cq(self, cq: Cq) -> Self {
        Self {
            cq,
            live: true,
            ..self
        }
    }

    /// Lets a WQE fail.
    pub fn wqe_error(self) -> Self {
        Self {
            wqe_error: true,
            ..self
        }
    }

    /// Returns whether the QP is in exclusive mode.
    pub(crate) fn is_alone(&self) -> bool {
        self.admission == Admission::Alone
    }

    /// Returns whether a batch passes a multiple of the quarter.
    pub(crate) fn crosses(&self, index: i32, blocks: i32) -> bool {
        index / self.quarter != (index + blocks) / self.quarter
    }
}
