//! A configuration of the model, and the defects of mutants.

/// The defect of a mutant.
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
    /// A host ends the QPs to a rank that has missed a deadline.
    EndsAtTheDeadline,
}

/// A configuration of the model.
#[derive(Clone, Copy, Debug)]
pub struct Epoch {
    /// The number of members, with the one that joins.
    pub ranks: usize,
    /// The number of calls of each rank.
    pub calls: u8,
    /// The number of ranks that may die.
    pub deaths: u8,
    /// The number of living ranks that may be taken for dead.
    pub suspicions: u8,
    /// The number of calls that may end aborted.
    pub aborts: u8,
    /// True if a host ends the QPs to a rank as soon as it knows for certain that the rank's process has ended.
    pub evidence: bool,
    /// True if the last rank is no member yet, and joins.
    pub join: bool,
    /// The rule that the model breaks; None: it keeps all rules.
    pub mutant: Option<Mutant>,
    /// The number of states that an independent model has, if known.
    pub states: Option<usize>,
}

impl Epoch {
    pub(super) fn has(&self, mutant: Mutant) -> bool {
        self.mutant == Some(mutant)
    }

    /// Returns a name with all that makes this configuration differ from others.
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
