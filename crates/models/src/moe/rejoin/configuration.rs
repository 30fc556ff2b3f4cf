//! A configuration of the model, and the defects of mutants.

/// The defect of a mutant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the name of each says what is done wrong")]
pub enum Mutant {
    NotCleared,
    CreditNotCleared,
    SkipNotCleared,
    LastKept,
    NoFence,
    ClearBeforeFence,
    JoinerCountsFromOne,
}

/// A configuration of the model.
#[derive(Clone, Copy, Debug)]
pub struct Rejoin {
    /// The number of calls of the survivor.
    pub calls: u8,
    /// The rule that the model breaks; None: it keeps all rules.
    pub mutant: Option<Mutant>,
}

impl Rejoin {
    pub(super) fn has(&self, mutant: Mutant) -> bool {
        self.mutant == Some(mutant)
    }
}
