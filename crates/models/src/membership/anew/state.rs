//! What the model remembers: processes, the store and a copy of it, and how often each thing may still happen.

use membership_rules::members::Members;
use membership_rules::record::{Proposal, Record};
use membership_rules::slots::Slots;

/// Number of processes: three founders, and two that come to place 3.
pub(super) const PROCESSES: usize = 5;
pub(super) const FOUNDERS: usize = 3;
/// Bits of the largest number of a view or proposal in any run.
pub(super) const BITS: u32 = 5;

// Places in `left` of a state.
pub(super) const DIES: usize = 0;
pub(super) const CUTS: usize = 1;
pub(super) const LONG: usize = 2;
pub(super) const CHANGES: usize = 3;
pub(super) const LOSES: usize = 4;
pub(super) const RETURNS: usize = 5;
pub(super) const JOINS: usize = 6;

/// A record with only the fields that this model needs. The default stands for no record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Rec {
    pub(super) epoch: u8,
    pub(super) number: u8,
    /// Members among the founders, as bits.
    pub(super) members: u8,
    /// Generation of place 3 that is a member, or was one.
    pub(super) third: u8,
    pub(super) admitted: u8,
    /// The proposal: whether one is open, which places it keeps, and which generation it takes in at place 3.
    pub(super) open: bool,
    pub(super) keep: u8,
    pub(super) takes: u8,
}

impl Rec {
    pub(super) fn exists(self) -> bool {
        self.epoch != 0
    }

    pub(super) fn place(self) -> (u8, u8) {
        (self.epoch, self.number)
    }

    pub(super) fn record(self) -> Record {
        let founders = (0u32..).take(FOUNDERS);
        let members = |bits: u8, third: u8| -> Members {
            let of = founders.clone().filter(|slot| bits >> slot & 1 != 0);
            let of = of.map(|slot| (slot, 1));
            of.chain((third != 0).then_some((3, third.into())))
                .collect()
        };
        let mut record = Record::founded(members(self.members, self.third));
        record.epoch = self.epoch.into();
        record.number = self.number.into();
        record.admitted = members(0b111, self.admitted);
        record.open = self.open.then(|| Proposal {
            keep: (0..4)
                .filter(|slot| self.keep >> slot & 1 != 0)
                .collect::<Slots>(),
            takes: members(0, self.takes),
            ..Proposal::default()
        });
        record
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Process {
    pub(super) alive: bool,
    /// The process does not reach the store; `long`: for longer than the group takes to be founded anew.
    pub(super) cut: bool,
    pub(super) long: bool,
    /// Generation of the process; 0 before it has drawn one.
    pub(super) generation: u8,
    pub(super) had: Rec,
    pub(super) applied: Rec,
    /// The number of the proposal that the process has promised, or 0.
    pub(super) promised: u8,
    /// The process has seen that the last record that it had is not in the store.
    pub(super) lost: bool,
    pub(super) touched: bool,
    /// The process's lease was gone, and the process has not looked since for what else is missing.
    pub(super) doubts: bool,
    /// The process has drawn its generation before the store last lost what it held.
    pub(super) old: bool,
}

/// What a process says: the newest record that it has had, if any, and whether it was in touch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Said {
    pub(super) is: bool,
    pub(super) had: Rec,
    pub(super) touched: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Store {
    pub(super) record: Rec,
    /// The processes whose promise for the number of the record stands.
    pub(super) promises: u8,
    /// The word of each process.
    pub(super) words: [Said; PROCESSES],
    /// The newest generation of place 3 that was drawn or noted.
    pub(super) drawn: u8,
    /// For each generation, 1 + the process that has its `taken` key, or 0.
    pub(super) taken: [u8; 4],
}

/// A state of the model: processes and store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct State {
    pub(super) processes: [Process; PROCESSES],
    pub(super) store: Store,
    /// The store at an earlier moment.
    pub(super) copy: Store,
    pub(super) left: [u8; 7],
}

pub(super) fn slot(process: usize) -> u32 {
    u32::try_from(process.min(FOUNDERS)).expect("few processes")
}

/// Returns the mark of a process in `taken`. It is never 0, which marks no process.
pub(super) fn mark(process: usize) -> u8 {
    u8::try_from(process + 1).expect("few processes")
}
