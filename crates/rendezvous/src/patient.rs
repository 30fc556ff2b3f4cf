//! A store that repeats calls for a while. It serves callers that can only go on or give up, such as a rank that comes up.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::{AroundStore, Known, Store, StoreAnswer, StoreCall, StoreCallKind, StoreError};

/// Pause between two calls.
const PAUSE: Duration = Duration::from_millis(50);

/// Repeats `call` while the store does not answer, and while it is known that nothing was changed. When no further call fits before
/// `until`, the result is the last error, with the time since the first call. At least two calls are made. A process that was stopped
/// during the first call finds its time over although it has asked the store nothing.
///
/// # Errors
/// The last error of `call`. If the last call still waited at `until`, the error of the call before: a call with too little time shows
/// nothing about the store.
pub fn repeat<T>(
    until: Instant,
    mut call: impl FnMut() -> Result<T, StoreError>,
) -> Result<T, StoreError> {
    let start = Instant::now();
    let mut before = None;
    loop {
        let error = match call() {
            Err(error) if error.is_unanswered() && error.known() == Known::NotDone => error,
            result => return result,
        };
        let now = Instant::now();
        if let Some(before) = before
            && now + PAUSE >= until
        {
            let error = if now >= until { before } else { error };
            return Err(error.after(start.elapsed()));
        }
        before = Some(error);
        std::thread::sleep(PAUSE);
    }
}

/// A store that begins each call again while the inner store does not answer, until `patience` has passed since the first try.
///
/// A change whose answer is lost is made again only if its key is as it was when the request was sent. Then the change was not made, and of
/// two requests that hold only at the same revision at most one is done. In any other case the caller gets [`StoreError::NoAnswer`]. A
/// `put` counts as made if the key now has the value that was put.
///
/// A call takes up to `patience` and one bound of the store, and at least two bounds before it fails. A rank that follows other ranks by
/// the store's answers uses [`Store::bounded`], whose handle does not repeat.
#[derive(Debug)]
pub struct Patient {
    store: Arc<dyn Store>,
    patience: Duration,
}

impl Patient {
    /// Returns `store` with calls that are repeated for `patience`.
    pub fn new(store: Arc<dyn Store>, patience: Duration) -> Self {
        Self { store, patience }
    }

    /// Makes a change. `made` is a value of `key` that proves that the change was made and none came after it; None if no value proves
    /// that.
    fn change(
        &self,
        key: &str,
        made: Option<&[u8]>,
        mut call: impl FnMut() -> Result<StoreAnswer, StoreError>,
    ) -> Result<StoreAnswer, StoreError> {
        let until = Instant::now() + self.patience;
        let mut unknown: Option<StoreError> = None;
        loop {
            let error = match (repeat(until, &mut call), unknown.take()) {
                // An earlier request may have been done, and be the reason why this one changed nothing.
                (Ok(StoreAnswer::Is(false)) | Err(_), Some(error)) => return Err(error),
                (Ok(answer), _) => return Ok(answer),
                (Err(error), None) => error,
            };
            let StoreError::NoAnswer { seen, .. } = error else {
                return Err(error);
            };
            let looked = repeat(until, || self.store.changed_since(&[key], None, 0));
            let Ok(found) = looked else {
                return Err(error);
            };
            let entry = found.entries.first();
            if made.is_some() && entry.map(|entry| entry.value.as_slice()) == made {
                return Ok(StoreAnswer::Done);
            }
            if entry.map_or(0, |entry| entry.revision) != seen || Instant::now() >= until {
                return Err(error);
            }
            unknown = Some(error);
        }
    }
}

impl AroundStore for Patient {
    fn inner(&self) -> &dyn Store {
        self.store.as_ref()
    }

    fn with_bound(&self, bound: Duration) -> Arc<dyn Store> {
        self.store.bounded(bound)
    }

    fn around(&self, call: &StoreCall<'_>) -> Result<StoreAnswer, StoreError> {
        let make = || call.make(self.store.as_ref());
        match call.kind {
            StoreCallKind::Put => self.change(&call.key, call.value.as_deref(), make),
            // No value proves the change: another rank may have set the same one.
            StoreCallKind::CompareAndSet
            | StoreCallKind::PutLeased { .. }
            | StoreCallKind::Remove => self.change(&call.key, None, make),
            _ => repeat(Instant::now() + self.patience, make),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unreachable(cause: &str) -> StoreError {
        StoreError::Unreachable {
            store: String::new(),
            waited: Duration::ZERO,
            cause: cause.to_owned(),
        }
    }

    #[test]
    fn a_call_that_a_stopped_process_slept_through_is_made_again() {
        let (until, mut calls) = (Instant::now() + PAUSE, 0);
        let answer = repeat(until, || {
            calls += 1;
            if calls == 2 {
                return Ok(calls);
            }
            while Instant::now() < until + PAUSE {
                std::thread::yield_now();
            }
            Err(unreachable("timeout"))
        });
        assert_eq!(answer.unwrap(), 2);
    }

    #[test]
    fn a_call_that_was_cut_short_does_not_hide_what_the_one_before_said() {
        let (start, mut calls) = (Instant::now(), 0);
        let until = start + 4 * PAUSE;
        let failed = repeat::<()>(until, || {
            calls += 1;
            if calls == 1 {
                return Err(unreachable("the certificate has expired"));
            }
            while Instant::now() < until {
                std::thread::yield_now();
            }
            Err(unreachable("timeout"))
        });
        let Err(StoreError::Unreachable { waited, cause, .. }) = failed else {
            panic!("{failed:?}");
        };
        assert_eq!(cause, "the certificate has expired");
        assert!(
            waited >= 3 * PAUSE && waited <= start.elapsed(),
            "{waited:?}"
        );
    }
}
