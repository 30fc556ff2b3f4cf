//! What stands between C and Rust: results become numbers, and no panic goes any further.

use std::any::Any;
use std::ffi::c_int;
use std::panic::{AssertUnwindSafe, catch_unwind};

use libfabric_abi::errors::FI_EOTHER;

/// Runs a call that returns 0 or an error. Errors inside are positive, as the constants are.
pub(crate) fn status(call: impl FnOnce() -> Result<(), c_int>) -> c_int {
    number(|| call().map(|()| 0))
}

/// Runs a call that returns a number of its own.
pub(crate) fn number(call: impl FnOnce() -> Result<c_int, c_int>) -> c_int {
    match catch_unwind(AssertUnwindSafe(call)) {
        Ok(Ok(number)) => number,
        Ok(Err(error)) => -error,
        Err(panic) => {
            say(panic.as_ref());
            -FI_EOTHER
        }
    }
}

/// Runs a call that returns a count, `ssize_t`.
pub(crate) fn count(call: impl FnOnce() -> Result<isize, c_int>) -> isize {
    match catch_unwind(AssertUnwindSafe(call)) {
        Ok(Ok(count)) => count,
        Ok(Err(error)) => -(error as isize),
        Err(panic) => {
            say(panic.as_ref());
            -(FI_EOTHER as isize)
        }
    }
}

/// Runs a call that has something to return in any case.
pub(crate) fn value<T>(otherwise: T, call: impl FnOnce() -> T) -> T {
    catch_unwind(AssertUnwindSafe(call)).unwrap_or_else(|panic| {
        say(panic.as_ref());
        otherwise
    })
}

fn say(panic: &(dyn Any + Send)) {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
    let text = text.unwrap_or("a panic without words");
    crate::rules::say(&format!("softofi: a defect of the library itself: {text}"));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_negative_and_a_panic_is_one() {
        assert_eq!(status(|| Ok(())), 0);
        assert_eq!(status(|| Err(11)), -11);
        assert_eq!(count(|| Ok(3)), 3);
        assert_eq!(status(|| panic!("a test panics")), -FI_EOTHER);
        assert_eq!(value(7, || panic!("a test panics")), 7);
    }
}
