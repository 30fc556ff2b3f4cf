//! A model of the waits of a phase at one rank: what the waiting thread looks at, when it looks at the clock, and when and to whom it
//! beats.
//!
//! All waits of a phase have one deadline, and come one after another. Each waits for one thing: a word in memory, or a completion that
//! others precede. That thing comes at any moment or never. Time passes at any moment, also while a thread stands still. So a wait may
//! begin after its deadline, because an earlier wait has waited for a late rank.
//!
//! A newcomer comes in at any moment. It is a member of the newest view, but not of the view of the call. A call that the host holds back
//! waits for the host's word before its phase begins.

mod state;
mod steps;

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
const QUARTER: u8 = 2;
/// The number of deadlines for which a held call beats.
const HELD_DEADLINES: u8 = 2;

impl Waits {
    /// Returns how often a held call beats.
    fn held_beats(&self) -> u8 {
        HELD_DEADLINES * self.deadline / QUARTER
    }

    fn has(&self, mutant: Mutant) -> bool {
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
