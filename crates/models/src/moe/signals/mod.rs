//! Words, slots, credits, skips and deadlines: every interleaving of a few ranks that run one order of phases.
//!
//! Each (sender, receiver, kind, set) has one FIFO (the QP) and one payload slot. It has one signal in the receiver's memory:
//! data word (call, count), credits, calls not sent. Messages are delivered in order inside a FIFO and in any order between
//! FIFOs. The rules are A1 to A12, A11 without buffers (`buffers` has those); `turn` has one function per phase. Calls count from 1, 0 is none, as in the kernels.

pub mod pattern;
mod state;
mod steps;
mod turn;

use pattern::{Pattern, Phase};

/// How clocks run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clock {
    /// Not at all: no rank may be stuck.
    Stopped,
    /// So many waits, of any rank at any moment, end by timeout.
    Any(u8),
    /// Rank 0 runs at any speed or stops for ever; a deadline expires only when nothing else can move.
    Slow,
    /// As `Slow`, and the link of rank 0 is cut at any moment, once.
    Cut(Cut),
}

/// What the link of rank 0 does not carry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cut {
    /// What is for rank 0.
    pub to: bool,
    /// What is from rank 0.
    pub from: bool,
    /// It is back later.
    pub mends: bool,
}

/// What one does wrong.
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
    /// The kernels' rule for gaps, but the run begins at the last data call instead of after it.
    RunFromLast,
    /// The kernels' rule for gaps, but a run goes on where data was sent in between.
    RunOverData,
    /// A call that ends aborted is announced to no rank.
    AbortNotTold,
    /// A rank that is masked gets no word.
    MaskNotTold,
    /// Words of zero are compared as if they named call 0.
    ZeroIsCall,
    /// A rank that awaits no member begins its calls at once.
    DoesNotKeepPace,
    /// Calls after one that was held in vain end at once.
    HeldInVainOnce,
    /// Calls after one that was held in vain end at their deadlines, although others wait in them.
    HeldToTheDeadline,
    /// The receive phases of an aborted call do not close it, so that the next call of its set does.
    AbortedClosesLate,
    /// A phase that finds work in flight to one peer sends nothing to any.
    FlightStopsAll,
    /// A rank takes a call for passed that a peer has passed by one set.
    PassedBySets,
}

/// Which calls a skip names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Skips {
    /// The newest run of skips without a gap: rule A5.
    Adjacent,
    /// Every call of the set since the last data: `mark_skipped` of the kernels.
    Gaps,
}

/// One configuration.
#[derive(Clone, Debug)]
pub struct Signals {
    /// The order of phases, the same at all ranks.
    pub pattern: Pattern,
    /// Two or three.
    pub ranks: usize,
    /// Calls of each rank.
    pub calls: u8,
    /// Which deadlines may pass.
    pub clock: Clock,
    /// The rule that it breaks; none: it keeps all.
    pub mutant: Option<Mutant>,
    /// Control writes have a FIFO of their own.
    pub overtakes: bool,
    /// A rank that waits lets the others know (A8).
    pub beat: bool,
    /// Which calls a skip names.
    pub skips: Skips,
    /// Threads wait for all peers of a phase at once, as the kernels do; else for one after the other.
    pub parallel: bool,
    /// Calls that may end aborted before they have sent anything. Where ranks keep pace, each waits for its deadline, or, after
    /// another, until a rank has reached it.
    pub aborts: u8,
    /// Calls whose input may be refused.
    pub refusals: u8,
    /// Times that a caller leaves out one peer.
    pub masks: u8,
    /// A call of a rank that awaits no member begins at its deadline, or when a suspect sends a word.
    pub paces: bool,
    /// Work in flight is a missing credit: data goes to a peer when the HCA has carried the last of this kind and set, and to a
    /// suspect when it has carried all.
    pub carried: bool,
    /// A call that a peer has passed by two sets awaits no rank and suspects none (A12).
    pub passes: bool,
    /// Numbers are taken modulo 16, and the first call has this one.
    pub wraps_from: Option<u8>,
    /// Those of `pattern`, for all calls.
    pub phases: Vec<Phase>,
    /// States, where an independent model has counted them too.
    pub states: Option<usize>,
}

impl Signals {
    /// The rules as first written, and nothing goes wrong.
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

    /// With so many states.
    pub fn states(self, states: usize) -> Self {
        Self {
            states: Some(states),
            ..self
        }
    }

    /// Doing one thing wrong.
    pub fn mutant(self, mutant: Mutant) -> Self {
        Self {
            mutant: Some(mutant),
            states: None,
            ..self
        }
    }

    fn has(&self, mutant: Mutant) -> bool {
        self.mutant == Some(mutant)
    }

    /// Says all that makes it differ from others.
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
    fn tells_calls(&self) -> bool {
        self.paces || self.passes
    }

    /// Returns how the link of rank 0 is cut, if it is.
    fn cut(&self) -> Option<Cut> {
        match self.clock {
            Clock::Cut(cut) => Some(cut),
            _ => None,
        }
    }

    /// Returns whether neither may lack anything of the other: rank 0 is the only one that is disturbed.
    fn are_healthy(&self, rank: usize, other: usize) -> bool {
        let undisturbed = self.aborts == 0 && self.refusals == 0 && self.masks == 0;
        let one_is_sick = self.cut().is_some() || (self.passes && self.clock == Clock::Slow);
        undisturbed && one_is_sick && rank != 0 && other != 0
    }

    /// Returns the number of the `index`-th call. 0 is none, so a lap ends with a jump over 0 and, to keep the sets, over 1.
    fn number(&self, index: u8) -> u8 {
        let Some(first) = self.wraps_from else {
            return index;
        };
        let number = first + index - 1;
        if number < 16 { number } else { number - 14 }
    }

    /// Returns the number of the call before `number` in its set; none or older than all for the first.
    fn before(&self, number: u8) -> u8 {
        match self.wraps_from {
            None => number.saturating_sub(2),
            Some(_) if number < 4 => (number + 12) % 16,
            Some(_) => (number + 14) % 16,
        }
    }

    /// Returns whether call `a` is newer than call `b`.
    fn newer(&self, a: u8, b: u8) -> bool {
        match self.wraps_from {
            None => a > b,
            Some(_) => (1..8).contains(&((16 + a - b) % 16)),
        }
    }

    /// Returns whether a word that names call `word` is newer than call `call`; a word of zero names none.
    fn word_newer(&self, word: u8, call: u8) -> bool {
        (word != 0 || self.has(Mutant::ZeroIsCall)) && self.newer(word, call)
    }

    /// Steps of two from call `first` to call `last` of the same set.
    fn distance(&self, first: u8, last: u8) -> u8 {
        match self.wraps_from {
            None => (last - first) / 2,
            Some(_) => ((16 + last - first) % 16) / 2,
        }
    }
}
