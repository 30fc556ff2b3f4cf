//! Membership change with the device's call counter as a process of its own: prepare, promise, commit, apply.
//!
//! The store is one record, changed by compare-and-set only; promises are keys of their own. Host and device of a rank are two
//! processes that share `started` (written by the device), `limit` and the two views (written by the host). Deaths, false
//! suspicions and aborts happen at every step, those of the proposer too. A host that knows for certain that a process has ended may
//! end its QPs before any view says so.

mod state;
mod steps;

/// What one does wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the name of each says what is done wrong")]
pub enum Mutant {
    StartedReadBeforeLimitClosed,
    LimitLoadedBeforeStartedStored,
    FirstIsLargestPromise,
    OwnPromiseOnly,
    LimitOpenedBeforeView,
    CommitByMajority,
    PromiseBeforeApply,
    FenceAfterCommit,
    ProposalGrows,
    AbortKeepsNumber,
    LimitNotOpenedToFirst,
    /// The older view is overwritten while calls may still need it.
    ViewOverwritten,
    /// A host ends the QPs of a rank that has missed a deadline.
    EndsAtTheDeadline,
}

/// One configuration.
#[derive(Clone, Copy, Debug)]
pub struct Epoch {
    /// Members, and one that joins.
    pub ranks: usize,
    /// Calls of each rank.
    pub calls: u8,
    /// Ranks that may die.
    pub deaths: u8,
    /// Living ranks that may be taken for dead.
    pub suspicions: u8,
    /// Calls that may end aborted.
    pub aborts: u8,
    /// A host ends the QPs of a rank at once when it knows for certain that its process has ended.
    pub evidence: bool,
    /// The last rank is no member yet, and joins.
    pub join: bool,
    /// The rule that it breaks; none: it keeps all.
    pub mutant: Option<Mutant>,
    /// States, as an independent model has counted them.
    pub states: Option<usize>,
}

impl Epoch {
    fn has(&self, mutant: Mutant) -> bool {
        self.mutant == Some(mutant)
    }

    /// Says all that makes it differ from others.
    pub fn name(&self) -> String {
        let mut name = format!("epoch, {} ranks, {} calls", self.ranks, self.calls);
        for (count, what) in [
            (self.deaths, "deaths"),
            (self.suspicions, "false suspicions"),
            (self.aborts, "aborts"),
        ] {
            if count > 0 {
                name += &format!(", {count} {what}");
            }
        }
        if self.evidence {
            name += ", ends QPs on evidence";
        }
        if self.join {
            name += ", one joins";
        }
        if let Some(mutant) = self.mutant {
            name = format!("{mutant:?}: {name}");
        }
        name
    }
}
