//! A call that is repeated for a while.

use std::time::{Duration, Instant};

use crate::{Known, StoreError};

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
