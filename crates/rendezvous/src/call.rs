//! How long a call took, and what is known of its effect if it ended without a result.

use std::time::{Duration, Instant};

use super::StoreError;

/// What an error of a call that changes something says about the change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Known {
    /// The change was not made, and will not be made.
    NotDone,
    /// The change was sent. It was made, or will be made later, or never: read the key.
    Unknown,
}

impl StoreError {
    /// Returns what this error says about the change that its call asked for. An error of a call that only reads changes nothing.
    #[must_use]
    pub fn known(&self) -> Known {
        match self {
            Self::NoAnswer { .. }
            | Self::Io { .. }
            | Self::Thread(_)
            | Self::Foreign { .. }
            | Self::Interrupted { .. } => Known::Unknown,
            _ => Known::NotDone,
        }
    }

    /// Returns whether the store has not answered within the bound of the call. The same call may succeed later.
    #[must_use]
    pub fn is_unanswered(&self) -> bool {
        matches!(
            self,
            Self::Unreachable { .. } | Self::NoAnswer { .. } | Self::Late { .. }
        )
    }

    /// Returns whether the value of a key cannot be read: it is too long, or no record of this run and version. The store itself works.
    #[must_use]
    pub fn is_unreadable(&self) -> bool {
        self.unreadable_key().is_some()
    }

    /// Returns the key whose value cannot be read; none of other errors.
    #[must_use]
    pub fn unreadable_key(&self) -> Option<&str> {
        match self {
            Self::TooLong { key, .. }
            | Self::NotARecord { key, .. }
            | Self::OtherRecord { key, .. } => Some(key),
            _ => None,
        }
    }

    /// Returns this error for a caller that has waited for `time` in all.
    pub(crate) fn after(mut self, time: Duration) -> Self {
        if let Self::Unreachable { waited, .. }
        | Self::NoAnswer { waited, .. }
        | Self::Late { waited, .. } = &mut self
        {
            *waited = time;
        }
        self
    }
}

/// The result of a call and the time that it took.
#[derive(Debug)]
pub struct Timed<T> {
    /// What the call returned.
    pub result: Result<T, StoreError>,
    /// The time from its begin to its end, by the monotonic clock of this process.
    pub took: Duration,
}

impl<T> Timed<T> {
    /// Makes `call` and measures it.
    pub fn of(call: impl FnOnce() -> Result<T, StoreError>) -> Self {
        let start = Instant::now();
        let result = call();
        Self {
            result,
            took: start.elapsed(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_says_whether_the_change_can_have_been_made() {
        let no_answer = StoreError::NoAnswer {
            store: String::new(),
            waited: Duration::ZERO,
            seen: 0,
            cause: String::new(),
        };
        let late = StoreError::Late {
            key: "k".to_owned(),
            waited: Duration::ZERO,
        };
        assert_eq!(no_answer.known(), Known::Unknown);
        assert_eq!(late.known(), Known::NotDone);
        assert!(no_answer.is_unanswered() && late.is_unanswered());
        let wrong = StoreError::Key { key: String::new() };
        assert_eq!(
            (wrong.known(), wrong.is_unanswered()),
            (Known::NotDone, false)
        );
    }

    #[test]
    fn a_call_says_how_long_it_took() {
        let call = || {
            std::thread::sleep(Duration::from_millis(5));
            Ok(7)
        };
        let timed = Timed::of(call);
        assert!(timed.took >= Duration::from_millis(5));
        assert_eq!(timed.result.unwrap(), 7);
    }
}
