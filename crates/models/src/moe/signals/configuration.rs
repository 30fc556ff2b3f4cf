//! A configuration of the model, and the defects of mutants.

use super::pattern::{Pattern, Phase};

/// How the clocks of deadlines run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clock {
    /// No deadline passes: no rank may be stuck.
    Stopped,
    /// So many waits, of any rank at any moment, end by timeout.
    Any(u8),
    /// Rank 0 runs at any speed or stops for ever. A deadline expires only when nothing else can move.
    Slow,
    /// As `Slow`, and the link of rank 0 is cut at any moment, once.
    Cut(Cut),
}

/// The directions in which the link of rank 0 is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cut {
    /// Packets for rank 0 are lost.
    pub to: bool,
    /// Packets from rank 0 are lost.
    pub from: bool,
    /// The link is back later.
    pub mends: bool,
}

/// The defect of a mutant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the name of each says what is done wrong")]
pub enum Mutant {
    NoCredit,
    ReleasedEarly,
    QpRotates,
    AcceptsOlder,
    SkipOverwrites,
    SkipWithoutStart,
    CountRouted,
    NoSkipWord,
    SuspectGetsNoCombine,
    CreditsNotTold,
    OneSet,
    LastCreditWins,
    NoClosing,
    /// The kernels' rule for gaps, except that the run begins at the last data call instead of after it.
    RunFromLast,
    /// The kernels' rule for gaps, except that a run goes on over a call whose data was sent.
    RunOverData,
    /// A call that ends aborted is announced to no rank.
    AbortNotTold,
    /// A masked rank gets no word.
    MaskNotTold,
    /// Words of zero are compared as if they named call 0.
    ZeroIsCall,
    /// A rank that awaits no member begins its calls at once.
    DoesNotKeepPace,
    /// Calls after one that was held in vain end at once.
    HeldInVainOnce,
    /// Calls after a call that was held in vain end at their deadlines, although others wait in them.
    HeldToTheDeadline,
    /// The receive phases of an aborted call do not close the call, so that the next call of its set does.
    AbortedClosesLate,
    /// A phase that finds work in flight to one peer sends nothing to any peer.
    FlightStopsAll,
    /// A rank takes a call for passed although a peer has passed it by one set only.
    PassedBySets,
}

/// The rule that says which calls a skip names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Skips {
    /// The newest run of skips without a gap: rule A5.
    Adjacent,
    /// Every call of the set since the last data: `mark_skipped` of the kernels.
    Gaps,
}

/// A configuration of the model.
#[derive(Clone, Debug)]
pub struct Signals {
    /// The order of phases, the same at all ranks.
    pub pattern: Pattern,
    /// The number of ranks, two or three.
    pub ranks: usize,
    /// The number of calls of each rank.
    pub calls: u8,
    /// The rule that says which deadlines may pass.
    pub clock: Clock,
    /// The rule that the model breaks; None: it keeps all rules.
    pub mutant: Option<Mutant>,
    /// True if control writes have a FIFO of their own.
    pub overtakes: bool,
    /// True if a rank that waits lets the others know (A8).
    pub beat: bool,
    /// The rule that says which calls a skip names.
    pub skips: Skips,
    /// True if threads wait for all peers of a phase at once, as the kernels do. Otherwise they wait for one peer after another.
    pub parallel: bool,
    /// How many calls may end aborted before they have sent anything. Where ranks keep pace, such a call waits for its deadline. After
    /// another such call it waits for that, or until a rank has reached it.
    pub aborts: u8,
    /// The number of calls whose input may be refused.
    pub refusals: u8,
    /// How often a caller leaves out one peer.
    pub masks: u8,
    /// True if a call of a rank that awaits no member begins at its deadline, or when a suspect sends a word.
    pub paces: bool,
    /// True if work in flight counts as a missing credit. Then data goes to a peer when the HCA has carried the last data of this kind and
    /// set, and to a suspect when the HCA has carried all data.
    pub carried: bool,
    /// True if a call that a peer has passed by two sets awaits no rank and suspects none (A12).
    pub passes: bool,
    /// The number of the first call, where numbers are taken modulo 16. None: numbers do not wrap.
    pub wraps_from: Option<u8>,
    /// The phases of `pattern`, for all calls.
    pub phases: Vec<Phase>,
    /// The number of states, if an independent model has counted them too.
    pub states: Option<usize>,
}

impl Signals {
    /// Returns a configuration with the rules as they were first written, in which nothing fails.
    pub fn new(pattern: Pattern, ranks: usize, calls: u8, clock: Clock) -> Self {
        Self {
            pattern,
            ranks,
            calls,
            clock,
            mutant: None,
            overtakes: false,
            beat: true,
            skips: Skips::Adjacent,
            parallel: false,
            aborts: 0,
            refusals: 0,
            masks: 0,
            paces: false,
            carried: false,
            passes: false,
            wraps_from: None,
            phases: pattern.phases(calls),
            states: None,
        }
    }

    /// Expects this number of states.
    pub fn states(self, states: usize) -> Self {
        Self {
            states: Some(states),
            ..self
        }
    }

    /// Adds a defect.
    pub fn mutant(self, mutant: Mutant) -> Self {
        Self {
            mutant: Some(mutant),
            states: None,
            ..self
        }
    }

    pub(super) fn has(&self, mutant: Mutant) -> bool {
        self.mutant == Some(mutant)
    }

    /// Returns a name with all that makes this configuration differ from others.
    pub fn name(&self) -> String {
        let mut name = format!(
            "{}, {} ranks, {} calls",
            self.pattern.name(),
            self.ranks,
            self.calls
        );
        match self.clock {
            Clock::Stopped => {}
            Clock::Any(timeouts) => name += &format!(", {timeouts} timeouts"),
            Clock::Slow => name += ", one slow",
            Clock::Cut(cut) => name += &format!(", one slow, {cut:?}"),
        }
        if self.overtakes {
            name += ", control overtakes";
        }
        if !self.beat {
            name += ", no beat";
        }
        if self.skips == Skips::Gaps {
            name += ", gaps";
        }
        if self.parallel {
            name += ", parallel";
        }
        if self.paces {
            name += ", keeps pace";
        }
        if self.carried {
            name += ", carried";
        }
        if self.passes {
            name += ", passes";
        }
        for (count, what) in [
            (self.aborts, "aborts"),
            (self.refusals, "refusals"),
            (self.masks, "masks"),
        ] {
            if count > 0 {
                name += &format!(", {count} {what}");
            }
        }
        if let Some(first) = self.wraps_from {
            name += &format!(", numbers from {first} modulo 16");
        }
        if let Some(mutant) = self.mutant {
            name = format!("{mutant:?}: {name}");
        }
        name
    }

    /// Returns whether ranks read the call of a peer in its control words.
    pub(super) fn tells_calls(&self) -> bool {
        self.paces || self.passes
    }

    /// Returns how the link of rank 0 is cut, if it is.
    pub(super) fn cut(&self) -> Option<Cut> {
        match self.clock {
            Clock::Cut(cut) => Some(cut),
            _ => None,
        }
    }

    /// Returns whether neither rank may lack anything of the other, because only rank 0 is disturbed.
    pub(super) fn are_healthy(&self, rank: usize, other: usize) -> bool {
        let undisturbed = self.aborts == 0 && self.refusals == 0 && self.masks == 0;
        let one_is_sick = self.cut().is_some() || (self.passes && self.clock == Clock::Slow);
        undisturbed && one_is_sick && rank != 0 && other != 0
    }

    /// Returns the number of the `index`-th call. 0 means no call, so a lap ends with a jump over 0 and, to keep the sets, over 1.
    pub(super) fn number(&self, index: u8) -> u8 {
        let Some(first) = self.wraps_from else {
            return index;
        };
        let number = first + index - 1;
        if number < 16 { number } else { number - 14 }
    }

    /// Returns the number of the call before `number` in its set. For the first call it returns 0, or a number older than all.
    pub(super) fn before(&self, number: u8) -> u8 {
        match self.wraps_from {
            None => number.saturating_sub(2),
            Some(_) if number < 4 => (number + 12) % 16,
            Some(_) => (number + 14) % 16,
        }
    }

    /// Returns whether call `a` is newer than call `b`.
    pub(super) fn newer(&self, a: u8, b: u8) -> bool {
        match self.wraps_from {
            None => a > b,
            Some(_) => (1..8).contains(&((16 + a - b) % 16)),
        }
    }

    /// Returns whether a word names a call newer than `call`. A word of zero names no call.
    pub(super) fn word_newer(&self, word: u8, call: u8) -> bool {
        (word != 0 || self.has(Mutant::ZeroIsCall)) && self.newer(word, call)
    }

    /// Returns the number of steps from call `first` to call `last` of the same set.
    pub(super) fn distance(&self, first: u8, last: u8) -> u8 {
        match self.wraps_from {
            None => (last - first) / 2,
            Some(_) => ((16 + last - first) % 16) / 2,
        }
    }

    /// Returns the number of FIFOs for each (sender, receiver, kind, set).
    pub(super) fn lanes(&self) -> usize {
        1 + usize::from(self.overtakes || self.has(Mutant::QpRotates))
    }

    pub(super) fn fifo(&self, sender: usize, peer: usize, index: usize, lane: usize) -> usize {
        ((sender * (self.ranks - 1) + peer) * 4 + index) * self.lanes() + lane
    }

    pub(super) fn fifos(&self) -> usize {
        self.ranks * (self.ranks - 1) * 4 * self.lanes()
    }
}
