//! A configuration of the model, and the defects of mutants.

use crate::moe::signals::pattern::{Pattern, Phase};

/// The defect of a mutant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the name of each says what is done wrong")]
pub enum Mutant {
    /// The signals of the other end are not cleared: data, credits, calls not sent.
    WordsNotCleared,
    /// `last` and `sent` are not cleared.
    LastNotCleared,
    SkipNotCleared,
    ToldNotCleared,
    SuspectNotCleared,
    /// `last`, `sent`, `skip`, `told` and `suspect` are not cleared.
    OwnStateNotCleared,
    OneEndClears,
    ClearedBeforeCallsEnded,
    /// The QP takes late words after the clearing.
    ClearedBeforeErr,
    UnitedWhenOneSays,
    /// Calls send to the other end as soon as this end is connected.
    SendsBeforeTheView,
    OldPacketNumbers,
    /// An end goes on saying that it is connected when it no longer is.
    StaysConnected,
    /// An end that is not connected when a view unites the pair leaves its QP as it is.
    UnconnectedIsUnited,
    /// An end fences its QP after its promise.
    PromisesBeforeErr,
    /// A call that ends aborted reports that itself, to the members of its own view, and no later call repeats it.
    AbortsToldOnce,
    /// A call that runs after several aborted calls names only the last of them.
    OneAbortTold,
    /// A ticket of a past life counts as work in flight, and is kept.
    OldTicketsFly,
}

/// A configuration of the model.
#[derive(Clone, Debug)]
pub struct Parted {
    /// The order of phases, the same at both ends.
    pub pattern: Pattern,
    /// The number of calls of each end.
    pub calls: u8,
    /// The number of the first call.
    pub first: u8,
    /// How many calls, an even number, run all at once while the pair is parted; 0: none.
    pub leap: u8,
    /// How often a QP fails.
    pub breaks: u8,
    /// How often an end begins to connect anew although nothing has failed.
    pub retries: u8,
    /// How many waits end by the deadline although nothing has failed.
    pub timeouts: u8,
    /// How many calls end aborted, because a change takes too long.
    pub aborts: u8,
    /// By how many calls a view may begin later than the pair has promised, because of other ranks.
    pub later: u8,
    /// True if a third rank is a member with both, and waits for both in every call.
    pub third: bool,
    /// The rule that the model breaks; None: it keeps all rules.
    pub mutant: Option<Mutant>,
    /// The phases of `pattern`, for all calls.
    pub phases: Vec<Phase>,
}

impl Parted {
    /// Returns a configuration with one failure of a QP.
    pub fn new(pattern: Pattern, calls: u8) -> Self {
        Self {
            pattern,
            calls,
            first: 1,
            leap: 0,
            breaks: 1,
            retries: 0,
            timeouts: 0,
            aborts: 0,
            later: 0,
            third: false,
            mutant: None,
            phases: pattern.phases(calls),
        }
    }

    pub(super) fn has(&self, mutant: Mutant) -> bool {
        self.mutant == Some(mutant)
    }

    /// Returns a name with all that makes this configuration differ from others.
    pub fn name(&self) -> String {
        let mut name = format!("parted, {}, {} calls", self.pattern.name(), self.calls);
        for (count, what) in [
            (self.breaks, "breaks"),
            (self.retries, "retries"),
            (self.timeouts, "timeouts"),
            (self.aborts, "aborts"),
            (self.later, "later"),
        ] {
            if count > 0 {
                name += &format!(", {count} {what}");
            }
        }
        if self.third {
            name += ", a third rank";
        }
        if self.first != 1 {
            name += &format!(", from {}", self.first);
        }
        if self.leap > 0 {
            name += &format!(", leap of {}", self.leap);
        }
        if let Some(mutant) = self.mutant {
            name = format!("{mutant:?}: {name}");
        }
        name
    }
}
