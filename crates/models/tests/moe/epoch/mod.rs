//! Membership change with the device's call counter as a process of its own: prepare, promise, commit, apply (rules B1 to B8).
//!
//! The store is one record, changed by compare-and-set only; promises are keys of their own. Host and device of a rank are two
//! processes that share `started` (written by the device), `limit` and the two views (written by the host). Deaths, false
//! suspicions and aborts happen at every step, those of the proposer too.

mod checked;
mod state;
mod steps;

pub(crate) use checked::{aborts_and_joins, deaths, larger, mutants};

/// What one does wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mutant {
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
}

/// One configuration.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Epoch {
    pub(crate) ranks: usize,
    pub(crate) calls: u8,
    pub(crate) deaths: u8,
    pub(crate) suspicions: u8,
    pub(crate) aborts: u8,
    /// The last rank is no member yet, and joins.
    pub(crate) join: bool,
    pub(crate) mutant: Option<Mutant>,
    /// States, as an independent model has counted them.
    pub(crate) states: Option<usize>,
}

impl Epoch {
    fn has(&self, mutant: Mutant) -> bool {
        self.mutant == Some(mutant)
    }

    pub(crate) fn name(&self) -> String {
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
        if self.join {
            name += ", one joins";
        }
        if let Some(mutant) = self.mutant {
            name = format!("{mutant:?}: {name}");
        }
        name
    }
}
