//! A configuration of the model, and the defects of mutants.

/// The defect of a mutant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the name of each says what is done wrong")]
pub enum Mutant {
    /// The host waits for a combine that does not come.
    AbandonEndsNothing,
    /// A call ends before its dispatch has been received.
    AbandonBeforeReceived,
    CombineOfAbandoned,
    /// A call whose place now belongs to a later call is ended once more.
    AbandonOfReplaced,
    /// A call, after which a later call was combined first, takes part in nothing any more, but counts as running.
    LaterCombineEndsNothing,
    /// `finished` names a call although a call before it runs.
    FinishedSkips,
    /// The host overwrites the oldest view at once.
    HostDoesNotWait,
}

/// A configuration of the model.
#[derive(Clone, Copy, Debug)]
pub struct Ends {
    /// The number of calls of the program.
    pub calls: u8,
    /// The number of views that the host writes after the first one.
    pub changes: u8,
    /// The rule that the model breaks; None: it keeps all rules.
    pub mutant: Option<Mutant>,
}

impl Ends {
    pub(super) fn has(&self, mutant: Mutant) -> bool {
        self.mutant == Some(mutant)
    }

    /// Returns a name with all that makes this configuration differ from others.
    pub fn name(&self) -> String {
        let name = format!("ends, {} calls, {} views", self.calls, self.changes);
        match self.mutant {
            None => name,
            Some(mutant) => format!("{mutant:?}: {name}"),
        }
    }
}
