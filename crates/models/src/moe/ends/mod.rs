//! When a call has ended, so that the host may write a view over: at one rank, whose program combines its calls, abandons them,
//! or goes on without either.
//!
//! The kernels of a stream run one at a time. A kernel reads its call's view from its begin to its end, and the host acts at any
//! moment between. A call ends with its combine, with that of a later call, when it is abandoned, or when the call two later
//! begins. The device says so in one word, `finished`: the last call that has ended, and all before it.

mod state;
mod steps;

/// What one does wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the name of each says what is done wrong")]
pub enum Mutant {
    /// The host waits for a combine that does not come.
    AbandonEndsNothing,
    /// A call ends before its dispatch has been received.
    AbandonBeforeReceived,
    CombineOfAbandoned,
    /// A call whose place is that of a later one is ended once more.
    AbandonOfReplaced,
    /// A call after which a later one was combined first takes part in nothing any more, and counts as running.
    LaterCombineEndsNothing,
    /// `finished` names a call although one before it runs.
    FinishedSkips,
    /// The host writes the oldest view over at once.
    HostDoesNotWait,
}

/// One configuration.
#[derive(Clone, Copy, Debug)]
pub struct Ends {
    /// Calls of the program.
    pub calls: u8,
    /// Views that the host writes after the first one.
    pub changes: u8,
    /// The rule that it breaks; none: it keeps all.
    pub mutant: Option<Mutant>,
}

impl Ends {
    fn has(&self, mutant: Mutant) -> bool {
        self.mutant == Some(mutant)
    }

    /// Says all that makes it differ from others.
    pub fn name(&self) -> String {
        let name = format!("ends, {} calls, {} views", self.calls, self.changes);
        match self.mutant {
            None => name,
            Some(mutant) => format!("{mutant:?}: {name}"),
        }
    }
}
