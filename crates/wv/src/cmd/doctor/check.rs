//! What a check is: an item of a table, with all that is said of it.

use serde::{Deserialize, Serialize};

/// What a check has come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum State {
    /// As it should be.
    Ok,
    /// It works, and something is slower, smaller or less safe than it could be.
    Degraded,
    /// It does not work.
    Missing,
    /// The check had no answer: it took too long, or what it looks at cannot be read.
    NotLookedAt,
}

impl State {
    /// Its word, in text as in JSON.
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Degraded => "degraded",
            Self::Missing => "missing",
            Self::NotLookedAt => "not-looked-at",
        }
    }
}

/// The result of a check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Look {
    pub(super) state: State,
    /// The finding, in words.
    pub(super) found: String,
}

impl Look {
    pub(super) fn ok(found: impl Into<String>) -> Self {
        Self::new(State::Ok, found)
    }

    pub(super) fn degraded(found: impl Into<String>) -> Self {
        Self::new(State::Degraded, found)
    }

    pub(super) fn missing(found: impl Into<String>) -> Self {
        Self::new(State::Missing, found)
    }

    pub(super) fn not_looked(found: impl Into<String>) -> Self {
        Self::new(State::NotLookedAt, found)
    }

    /// Ok if `good`, else degraded.
    pub(super) fn ok_if(good: bool, found: impl Into<String>) -> Self {
        let state = if good { State::Ok } else { State::Degraded };
        Self::new(state, found)
    }

    fn new(state: State, found: impl Into<String>) -> Self {
        Self {
            state,
            found: found.into(),
        }
    }
}

/// The text of a check, whatever it finds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Text {
    /// Names the check on the command line and in JSON.
    pub(super) id: &'static str,
    /// The subject of the check.
    pub(super) what: &'static str,
    /// Why it matters.
    pub(super) why: &'static str,
    /// The command or option that mends it.
    pub(super) mend: &'static str,
}

/// A check of a subject: a NIC, a GPU, the machine.
pub(super) struct Check<S: ?Sized + 'static> {
    pub(super) id: &'static str,
    pub(super) what: &'static str,
    pub(super) why: &'static str,
    pub(super) mend: &'static str,
    pub(super) look: fn(&S) -> Look,
}

impl<S: ?Sized> Check<S> {
    pub(super) const fn text(&self) -> Text {
        Text {
            id: self.id,
            what: self.what,
            why: self.why,
            mend: self.mend,
        }
    }
}

/// What belongs together, in the order in which it is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Group {
    /// Libraries and drivers
    Software,
    /// Kernel, device files and limits
    Machine,
    /// Each NIC
    Nic,
    /// Each GPU
    Gpu,
    /// Each GPU with each NIC
    Pair,
    /// The store that ranks meet in
    Store,
}

impl Group {
    pub(super) const ALL: [Self; 6] = [
        Self::Software,
        Self::Machine,
        Self::Nic,
        Self::Gpu,
        Self::Pair,
        Self::Store,
    ];

    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Software => "software",
            Self::Machine => "machine",
            Self::Nic => "nic",
            Self::Gpu => "gpu",
            Self::Pair => "pair",
            Self::Store => "store",
        }
    }
}
