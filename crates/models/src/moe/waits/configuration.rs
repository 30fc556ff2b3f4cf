//! A configuration of the model, and the defects of mutants.

/// The defect of a mutant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutant {
    /// A wait ends when the clock says so, after a look that came before the look at the clock.
    NoLookAfterTheClock,
    /// A wait that begins after its deadline looks at nothing but the clock.
    PassedIsLate,
    /// A look finds out if the ticket is done, then polls, and does not find out again.
    PollsLast,
    /// A look takes one completion, although more have come.
    OneCompletion,
    /// A wait for room in a ring does not beat.
    RoomIsSilent,
    /// Each wait begins its clock for beats anew.
    BeatClockRestarts,
    /// The rank beats to the members of its call's view, but to no newcomer.
    OnlyMembers,
    /// A call that is held does not beat.
    HeldIsSilent,
    /// A call that is held beats for as long as it is held.
    HeldBeatsOn,
}

/// The thing that a wait waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A word that the peer writes.
    Credit,
    /// The second of two completions: room in the ring.
    Room,
    /// As `Room`, but the completion says that work in flight is done.
    Work,
    /// A word of the host that lets the call begin. It may come after the deadlines of all other waits.
    Held,
}

/// A configuration of the model.
#[derive(Clone, Debug)]
pub struct Waits {
    /// The waits of the phase, in their order: three at most.
    pub kinds: Vec<Kind>,
    /// The number of ticks from the begin of the phase to its deadline, at most 8. 0: the caller does not want to wait.
    pub deadline: u8,
    /// The rule that the model breaks; None: it keeps all rules.
    pub mutant: Option<Mutant>,
}

/// The number of ticks after which a beat is due.
pub(super) const QUARTER: u8 = 2;
/// The number of deadlines for which a held call beats.
pub(super) const HELD_DEADLINES: u8 = 2;

impl Waits {
    /// Returns how often a held call beats.
    pub(super) fn held_beats(&self) -> u8 {
        HELD_DEADLINES * self.deadline / QUARTER
    }

    pub(super) fn has(&self, mutant: Mutant) -> bool {
        self.mutant == Some(mutant)
    }

    /// Returns a name with all that makes this configuration differ from others.
    pub fn name(&self) -> String {
        let name = format!("waits, {:?}, deadline {}", self.kinds, self.deadline);
        match self.mutant {
            None => name,
            Some(mutant) => format!("{mutant:?}: {name}"),
        }
    }
}
