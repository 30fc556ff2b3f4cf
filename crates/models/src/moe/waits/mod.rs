//! The waits of a phase at one rank: what the waiting thread looks at, when it looks at the clock, when and to whom it beats.
//!
//! All waits of a phase have one deadline, and come one after another. Each waits for one thing: a word in memory, or a completion
//! after others. What it waits for comes at any moment or never. Time passes at any moment, as where a thread stands still. So a
//! wait may begin after its deadline: one before it has waited for a late rank.
//!
//! A newcomer comes in at any moment. It is a member of the newest view and not of that of the call. A call that the host holds
//! back waits for the host's word, before its phase begins.

mod state;
mod steps;

/// What one does wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutant {
    /// A wait ends when the clock says so, after a look that came before the clock.
    NoLookAfterTheClock,
    /// A wait that begins after its deadline looks at nothing.
    PassedIsLate,
    /// A look finds out whether the ticket is done, then polls, and does not find out again.
    PollsLast,
    /// A look takes one completion, although more have come.
    OneCompletion,
    /// A wait for room in a ring does not beat.
    RoomIsSilent,
    /// Each wait begins its clock for beats anew.
    BeatClockRestarts,
    /// It beats to the members of the view of its call, and to no newcomer.
    OnlyMembers,
    /// A call that is held does not beat.
    HeldIsSilent,
    /// A call that is held beats for as long as it is held.
    HeldBeatsOn,
}

/// What a wait looks at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A word that the peer writes.
    Credit,
    /// The second of two completions: room in the ring.
    Room,
    /// As `Room`: work in flight is done.
    Work,
    /// A word of the host that lets the call begin. It may come after the deadlines of all others.
    Held,
}

/// One configuration.
#[derive(Clone, Debug)]
pub struct Waits {
    /// The waits of the phase, in their order: three at most.
    pub kinds: Vec<Kind>,
    /// Ticks from the begin of the phase to its deadline; 0: a caller does not want to wait. At most 8.
    pub deadline: u8,
    /// The rule that it breaks; none: it keeps all.
    pub mutant: Option<Mutant>,
}

/// Beats are due after so many ticks.
const QUARTER: u8 = 2;
/// A held call beats for so many deadlines.
const HELD_DEADLINES: u8 = 2;

impl Waits {
    /// So often a held call beats.
    fn held_beats(&self) -> u8 {
        HELD_DEADLINES * self.deadline / QUARTER
    }

    fn has(&self, mutant: Mutant) -> bool {
        self.mutant == Some(mutant)
    }

    /// Says all that makes it differ from others.
    pub fn name(&self) -> String {
        let name = format!("waits, {:?}, deadline {}", self.kinds, self.deadline);
        match self.mutant {
            None => name,
            Some(mutant) => format!("{mutant:?}: {name}"),
        }
    }
}
