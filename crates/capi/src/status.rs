//! How every function ends: a status, and the words of the last error of a thread.

// UNSAFETY: functions with C names, and pointers from C.
#![expect(unsafe_code, reason = "the C ABI")]

use std::any::Any;
use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char};
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;

use warpverbs::config::ConfigError;
use warpverbs::error::{Error, Layer};

/// Changes with every change of this header that a compiled program would notice.
pub const WV_ABI_VERSION: u32 = 2;

/// How a function ended.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum wv_status {
    /// All went well.
    WV_OK = 0,
    /// An argument is null, out of its range, or too short.
    WV_BAD_ARGUMENT = 1,
    /// Configuration or environment.
    WV_CONFIG = 2,
    /// The HCA or its driver.
    WV_VERBS = 3,
    /// The GPU.
    WV_GPU = 4,
    /// Other ranks, or the meeting with them.
    WV_TEAM = 5,
    /// Shape, options or arrays of a layer.
    WV_MOE = 6,
    /// wv_report: a phase did not go through for every rank.
    WV_INCOMPLETE = 7,
    /// The stream is not idle yet.
    WV_TIMEOUT = 8,
    /// A defect of the library.
    WV_INTERNAL = 9,
}

/// Why a function did not do its work.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) status: wv_status,
    pub(crate) words: String,
}

impl Failure {
    /// Of the argument `name`.
    pub(crate) fn argument(name: &str, value: impl fmt::Display, limit: &str) -> Self {
        Self {
            status: wv_status::WV_BAD_ARGUMENT,
            words: format!("{name} is {value}; it must be {limit}"),
        }
    }

    /// Of the configuration.
    pub(crate) fn config(error: ConfigError) -> Self {
        Self {
            status: wv_status::WV_CONFIG,
            words: error.to_string(),
        }
    }
}

impl<E: Into<Error>> From<E> for Failure {
    fn from(error: E) -> Self {
        let error: Error = error.into();
        let status = match error.layer() {
            Layer::Config => wv_status::WV_CONFIG,
            Layer::Verbs => wv_status::WV_VERBS,
            Layer::Gpu => wv_status::WV_GPU,
            Layer::Team => wv_status::WV_TEAM,
            Layer::Moe => wv_status::WV_MOE,
            _ => wv_status::WV_INTERNAL,
        };
        Self {
            status,
            words: error.to_string(),
        }
    }
}

thread_local! {
    static LAST: RefCell<CString> = RefCell::default();
}

/// Runs the body of a C function: an error or a panic becomes a status, and its words those of the thread.
pub(crate) fn guard(body: impl FnOnce() -> Result<(), Failure>) -> wv_status {
    // Nothing that a panic leaves half done is used again: handles are made whole or not at all.
    let failure = match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(())) => return wv_status::WV_OK,
        Ok(Err(failure)) => failure,
        Err(panic) => Failure {
            status: wv_status::WV_INTERNAL,
            words: format!("a defect of the library: {}", panic_words(&*panic)),
        },
    };
    let words = failure.words.replace('\0', " ");
    let words = CString::new(words).unwrap_or_default();
    // A thread that is ending has no place for words any more.
    let _ = LAST.try_with(|last| last.replace(words));
    failure.status
}

fn panic_words(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "a panic".to_owned())
}

/// What the last failing call of this thread said; an empty text if none has failed. Stays until the next one fails.
#[unsafe(no_mangle)]
pub extern "C" fn wv_last_error() -> *const c_char {
    LAST.try_with(|last| last.borrow().as_ptr())
        .unwrap_or(c"".as_ptr())
}

/// WV_ABI_VERSION of the library that runs, to be compared with that of the header.
#[unsafe(no_mangle)]
pub extern "C" fn wv_abi_version() -> u32 {
    WV_ABI_VERSION
}

/// The struct or handle behind a pointer from C.
///
/// # Safety
/// Null, or the address of a live `T` that nobody changes while the result lives.
pub(crate) unsafe fn given<'a, T>(name: &str, pointer: *const T) -> Result<&'a T, Failure> {
    if !pointer.is_aligned() {
        return Err(Failure::argument(name, format!("{pointer:p}"), "aligned"));
    }
    // SAFETY: the caller's promise; aligned.
    unsafe { pointer.as_ref() }
        .ok_or_else(|| Failure::argument(name, "null", "the address of a struct or a handle"))
}

/// `count` numbers from C; none may be null.
///
/// # Safety
/// Null, or the address of `count` live `T` that nobody changes while the result lives.
pub(crate) unsafe fn array<'a, T>(
    name: &str,
    pointer: *const T,
    count: usize,
) -> Result<&'a [T], Failure> {
    if count == 0 {
        return Ok(&[]);
    }
    // No object is longer: the caller's promise cannot hold.
    let most = isize::MAX.unsigned_abs() / size_of::<T>().max(1);
    if count > most {
        let limit = format!("at most {most}");
        return Err(Failure::argument(
            &format!("length of {name}"),
            count,
            &limit,
        ));
    }
    // SAFETY: the caller's promise.
    let first = unsafe { given(name, pointer) }?;
    // SAFETY: the caller's promise; not null and aligned.
    Ok(unsafe { std::slice::from_raw_parts(ptr::from_ref(first), count) })
}

/// Where a result goes.
///
/// # Safety
/// Null, or an address at which a `T` may be written.
pub(crate) unsafe fn put<T>(name: &str, pointer: *mut T, value: T) -> Result<(), Failure> {
    room(name, pointer)?;
    // SAFETY: the caller's promise; not null and aligned.
    unsafe { ptr::write(pointer, value) };
    Ok(())
}

/// Refuses a place for a result that is none, before there is a result.
pub(crate) fn room<T>(name: &str, pointer: *mut T) -> Result<(), Failure> {
    match pointer.is_null() || !pointer.is_aligned() {
        true => Err(Failure::argument(
            name,
            format!("{pointer:p}"),
            "the address of a variable",
        )),
        false => Ok(()),
    }
}

/// A text from C, copied; none for null.
///
/// # Safety
/// Null, or the address of a text that ends with a NUL.
pub(crate) unsafe fn text(name: &str, pointer: *const c_char) -> Result<Option<String>, Failure> {
    if pointer.is_null() {
        return Ok(None);
    }
    // SAFETY: the caller's promise.
    let text = unsafe { CStr::from_ptr(pointer) };
    match text.to_str() {
        Ok(text) => Ok(Some(text.to_owned())),
        Err(_) => Err(Failure::argument(
            name,
            format!("{text:?}"),
            "a text in UTF-8",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn last() -> String {
        // SAFETY: the text of this thread, which nothing changes before it is copied.
        let text = unsafe { CStr::from_ptr(wv_last_error()) };
        text.to_str().unwrap().to_owned()
    }

    #[test]
    fn a_panic_becomes_a_status_and_its_words() {
        let hook = std::panic::take_hook();
        std::panic::set_hook(Box::new(|_| {}));
        let status = guard(|| panic!("index {}", 7));
        std::panic::set_hook(hook);
        assert_eq!(status, wv_status::WV_INTERNAL);
        assert_eq!(last(), "a defect of the library: index 7");
    }

    #[test]
    fn words_stay_with_their_thread_until_the_next_failure() {
        let fail = |value: u32| guard(|| Err(Failure::argument("n", value, "0")));
        assert_eq!(fail(1), wv_status::WV_BAD_ARGUMENT);
        std::thread::spawn(|| assert_eq!(last(), ""))
            .join()
            .unwrap();
        assert_eq!(guard(|| Ok(())), wv_status::WV_OK);
        assert_eq!(last(), "n is 1; it must be 0");
    }

    #[test]
    fn pointers_that_are_none_are_named() {
        // SAFETY: null is allowed.
        let error = unsafe { given::<u64>("config", ptr::null()) }.unwrap_err();
        assert_eq!(
            error.words,
            "config is null; it must be the address of a struct or a handle"
        );
        let odd = ptr::without_provenance_mut::<u64>(9);
        assert!(room("out", odd).is_err() && room("out", ptr::null_mut::<u64>()).is_err());
        // SAFETY: null is allowed.
        let (none, some) =
            unsafe { (array::<u64>("n", ptr::null(), 0), array::<u64>("n", odd, 1)) };
        assert!(none.unwrap().is_empty() && some.unwrap_err().words.ends_with("aligned"));
        let word = 7u64;
        for count in [usize::MAX, isize::MAX.unsigned_abs() / 8 + 1] {
            // SAFETY: a length that no array has is refused before the address is used.
            let error = unsafe { array("n", &raw const word, count) }.unwrap_err();
            assert_eq!(error.status, wv_status::WV_BAD_ARGUMENT);
            let words = format!("length of n is {count}; it must be at most 1152921504606846975");
            assert_eq!(error.words, words);
        }
        // SAFETY: null is allowed.
        assert_eq!(unsafe { text("store", ptr::null()) }.unwrap(), None);
        // SAFETY: a text.
        let error = unsafe { text("store", c"\xff".as_ptr()) }.unwrap_err();
        assert!(error.words.contains("UTF-8"), "{}", error.words);
    }
}
