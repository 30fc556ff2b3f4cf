//! What a rejoin must do with words, credits and slots.
//!
//! A survivor S and one peer slot: generation A (epoch 1) is dropped, B joins (epoch 2, from call `first`). Dispatch only, two
//! sets, a QP per set. A runs at any speed and gives up freely, so it may be far ahead, and its packets may be late. S runs calls
//! of the old epoch, fences A, commits, finishes all old calls, clears what A left, connects B. In epoch 2 both send the next
//! dispatch before they receive this one, and send credits after each release. No rank may be stuck (rules J1 to J3).

mod state;
mod steps;

/// What goes wrong in one.
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

/// One configuration.
#[derive(Clone, Copy, Debug)]
pub struct Rejoin {
    /// Calls of the survivor.
    pub calls: u8,
    /// The rule that it breaks; none: it keeps all.
    pub mutant: Option<Mutant>,
}

impl Rejoin {
    fn has(&self, mutant: Mutant) -> bool {
        self.mutant == Some(mutant)
    }
}
