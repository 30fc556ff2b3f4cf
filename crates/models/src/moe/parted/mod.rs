//! A parted pair with two living ends: what J2 must do with words, credits and slots where both ranks live.
//!
//! Two ranks run calls with each other. The QPs between them fail, at each end at another time, with words in flight. A view
//! parts them: each end fences its QP before it promises, and each applies the view at its own time. When the calls before that
//! view have ended, an end clears what both have sent each other. It makes its QP anew and connects; tries are repeated. When
//! both say that they are connected, another view unites them. From its first call on they send to each other as if they had
//! never met. `kernels/moe` defines what kernels keep of a peer and what they do with it. Call numbers have 8 bits for their 32
//! (`numbers`), and all limits of those are in proportion.
//!
//! Data goes to the other end when the HCA has carried the last of its kind and set, and to a suspect when it has carried all (A11).
//!
//! `device` has the phases of a call, `host` the change of views and the connection, `network` the packets. Agreement is taken
//! as proved (`epoch`): a view begins after every call that has started.

mod device;
mod host;
mod network;
mod numbers;
mod state;
mod steps;

use super::signals::pattern::{Pattern, Phase};

/// What one does wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the name of each says what is done wrong")]
pub enum Mutant {
    /// The signals of the other end stay as they are: data, credits, calls not sent.
    WordsNotCleared,
    /// `last` and `sent`.
    LastNotCleared,
    SkipNotCleared,
    ToldNotCleared,
    SuspectNotCleared,
    /// `last`, `sent`, `skip`, `told` and `suspect`.
    OwnStateNotCleared,
    OneEndClears,
    ClearedBeforeCallsEnded,
    /// The QP takes late words after the clearing.
    ClearedBeforeErr,
    UnitedWhenOneSays,
    /// Calls send to the other as soon as this end is connected.
    SendsBeforeTheView,
    OldPacketNumbers,
    /// An end goes on saying that it is connected when that is over.
    StaysConnected,
    /// An end that is not connected when a view unites the two leaves its QP as it is.
    UnconnectedIsUnited,
    /// An end fences its QP after its promise.
    PromisesBeforeErr,
    /// A call that ends aborted says so itself, to the members of the view that it has, and no later call says it again.
    AbortsToldOnce,
    /// A call that runs after aborted ones names the last of them only.
    OneAbortTold,
    /// A ticket of a life that is over counts as work in flight, and is kept.
    OldTicketsFly,
}

/// One configuration.
#[derive(Clone, Debug)]
pub struct Parted {
    /// The order of phases, the same at both ends.
    pub pattern: Pattern,
    /// Calls of each end.
    pub calls: u8,
    /// Number of the first call.
    pub first: u8,
    /// So many calls, an even number, run all at once while the two are parted; 0: none.
    pub leap: u8,
    /// Times that a QP fails.
    pub breaks: u8,
    /// Times that an end begins to connect anew although nothing has failed.
    pub retries: u8,
    /// Waits that end by the deadline although nothing has failed.
    pub timeouts: u8,
    /// Calls that end aborted, since a change takes too long.
    pub aborts: u8,
    /// A view begins up to so many calls later than the two have promised, for the sake of others.
    pub later: u8,
    /// A third rank is a member with both, and waits for both in every call.
    pub third: bool,
    /// The rule that it breaks; none: it keeps all.
    pub mutant: Option<Mutant>,
    /// Those of `pattern`, for all calls.
    pub phases: Vec<Phase>,
}

impl Parted {
    /// One failure of a QP.
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

    fn has(&self, mutant: Mutant) -> bool {
        self.mutant == Some(mutant)
    }

    /// Says all that makes it differ from others.
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
