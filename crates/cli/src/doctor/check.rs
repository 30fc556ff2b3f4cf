//! The type of a check, which is one row of a table of checks, and its texts.

use serde::{Deserialize, Serialize};

/// The verdict of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum State {
    /// All is as it should be.
    Ok,
    /// The subject works, but is slower, smaller or less safe than it could be.
    Degraded,
    /// The subject does not work.
    Missing,
    /// The check has no answer: it took too long, or what it looks at cannot be read.
    NotLookedAt,
}

impl State {
    /// Returns the word for the state, in text and in JSON.
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
    /// What was found, in words.
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

    /// Returns a result that is ok if `good`, else degraded.
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

/// The texts of a check, which do not depend on what it finds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Text {
    /// The name of the check on the command line and in JSON.
    pub(super) id: &'static str,
    /// The subject of the check.
    pub(super) what: &'static str,
    /// Why the check matters.
    pub(super) why: &'static str,
    /// The command or option that mends a defect.
    pub(super) mend: &'static str,
}

/// A check of a subject, which is a NIC, a GPU or the machine.
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
