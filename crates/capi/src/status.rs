//! How every function ends: a status, and the words of the last error of a thread.

// UNSAFETY: functions with C names, and pointers from C.
#![expect(unsafe_code, reason = "the C ABI")]

use std::any::Any;
use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char};
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;

/// Number of the ABI. It grows with every change of this header that breaks a compiled program. A struct that grows does not: its `size` shows it.
pub const WV_ABI_VERSION: u32 = 4;

/// How a function ended. Each value is a cause on which a program can act; its number never changes, and new ones may come. What
/// it means in words is wv_status_text(), the whole message wv_last_error().
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum wv_status {
    /// All went well.
    WV_OK = 0,
    /// An argument is null, misaligned, out of its range, too short, or does not fit the others. Correct the program.
    WV_BAD_ARGUMENT = 1,
    /// A configuration, or a variable of the environment.
    WV_BAD_CONFIG = 2,
    /// The `size` of a struct is none that a header of this library has, or the struct holds more than this library knows.
    WV_BAD_STRUCT = 3,
    /// A handle that was given back, or of another kind, or none.
    WV_BAD_HANDLE = 4,
    /// Team, layer, device or build cannot do this at all.
    WV_UNSUPPORTED = 5,
    /// Not now: calls or kernels still use the object that would change. It may be called again.
    WV_BUSY = 6,
    /// The wait ended before its event. It may be called again.
    WV_TIMEOUT = 7,
    /// wv_report: a phase did not go through for every rank.
    WV_INCOMPLETE = 8,
    /// No slot is free for a transfer, and nothing was done. It may be called again when a transfer was released.
    WV_WOULD_BLOCK = 9,

    /// A rank did not come to a collective call within its time.
    WV_PEER_ABSENT = 16,
    /// Another rank has given up.
    WV_PEER_FAILED = 17,
    /// Ranks were started with different settings.
    WV_PEER_MISMATCH = 18,
    /// The QPs to the rank or engine are not connected, or cannot be.
    WV_PEER_NOT_CONNECTED = 19,
    /// The process before still runs, and could store into memory of this rank.
    WV_PEER_RUNS = 20,
    /// Another process has this rank, or another engine this name.
    WV_RANK_TAKEN = 21,
    /// The generation of the rank is over, or has been used; or the descriptor is of another life of the engine.
    WV_GENERATION_OVER = 22,
    /// The other ranks have dropped this one from the group. It may come back by wv_team_join.
    WV_EXPELLED = 24,
    /// This rank has left its group.
    WV_LEFT = 25,

    /// The store cannot be reached or used now. Its records are not lost.
    WV_STORE_FAILED = 32,
    /// The store refuses: URL, user, rights, space, or the build lacks its kind.
    WV_STORE_REFUSED = 33,
    /// The store holds records of another run or version, or records that cannot be read.
    WV_STORE_FOREIGN = 34,

    /// No RDMA device can be used.
    WV_NO_HCA = 48,
    /// The HCA, or its driver, refused.
    WV_HCA_REFUSED = 49,
    /// No GPU, or no kernels for it.
    WV_NO_GPU = 50,
    /// The GPU, or its driver, refused.
    WV_GPU_REFUSED = 51,
    /// A kernel has failed.
    WV_KERNEL_FAILED = 52,
    /// No memory is left: of device, host or HCA.
    WV_OUT_OF_MEMORY = 53,
    /// A ring of work requests has no room.
    WV_OUT_OF_RING = 54,

    /// A thread or a function of the library has panicked. What it worked on is over, the process goes on.
    WV_PANIC = 64,
    /// A cause that this header does not know.
    WV_OTHER = 65,
}

impl wv_status {
    /// All of them.
    pub(crate) const ALL: [Self; 31] = {
        use wv_status::*;
        [
            WV_OK,
            WV_BAD_ARGUMENT,
            WV_BAD_CONFIG,
            WV_BAD_STRUCT,
            WV_BAD_HANDLE,
            WV_UNSUPPORTED,
            WV_BUSY,
            WV_TIMEOUT,
            WV_INCOMPLETE,
            WV_WOULD_BLOCK,
            WV_PEER_ABSENT,
            WV_PEER_FAILED,
            WV_PEER_MISMATCH,
            WV_PEER_NOT_CONNECTED,
            WV_PEER_RUNS,
            WV_RANK_TAKEN,
            WV_GENERATION_OVER,
            WV_EXPELLED,
            WV_LEFT,
            WV_STORE_FAILED,
            WV_STORE_REFUSED,
            WV_STORE_FOREIGN,
            WV_NO_HCA,
            WV_HCA_REFUSED,
            WV_NO_GPU,
            WV_GPU_REFUSED,
            WV_KERNEL_FAILED,
            WV_OUT_OF_MEMORY,
            WV_OUT_OF_RING,
            WV_PANIC,
            WV_OTHER,
        ]
    };

    /// Its name and what it means.
    fn words(self) -> (&'static CStr, &'static CStr) {
        match self {
            Self::WV_OK => (c"WV_OK", c"all went well"),
            Self::WV_BAD_ARGUMENT => (c"WV_BAD_ARGUMENT", c"an argument is not what it must be"),
            Self::WV_BAD_CONFIG => (
                c"WV_BAD_CONFIG",
                c"a configuration or a variable of the environment is not what it must be",
            ),
            Self::WV_BAD_STRUCT => (
                c"WV_BAD_STRUCT",
                c"the size of a struct is none that this library knows",
            ),
            Self::WV_BAD_HANDLE => (
                c"WV_BAD_HANDLE",
                c"a handle is not live, or of another kind",
            ),
            Self::WV_UNSUPPORTED => (
                c"WV_UNSUPPORTED",
                c"team, layer, device or build cannot do this",
            ),
            Self::WV_BUSY => (c"WV_BUSY", c"calls or kernels still need what would change"),
            Self::WV_TIMEOUT => (c"WV_TIMEOUT", c"it did not happen in time"),
            Self::WV_INCOMPLETE => (
                c"WV_INCOMPLETE",
                c"a phase did not go through for every rank",
            ),
            Self::WV_WOULD_BLOCK => (c"WV_WOULD_BLOCK", c"no slot is free for a transfer"),
            Self::WV_PEER_ABSENT => (c"WV_PEER_ABSENT", c"ranks did not come in time"),
            Self::WV_PEER_FAILED => (c"WV_PEER_FAILED", c"another rank has given up"),
            Self::WV_PEER_MISMATCH => (
                c"WV_PEER_MISMATCH",
                c"ranks were started with different settings",
            ),
            Self::WV_PEER_NOT_CONNECTED => (
                c"WV_PEER_NOT_CONNECTED",
                c"the QPs to the rank or engine are not connected",
            ),
            Self::WV_PEER_RUNS => (c"WV_PEER_RUNS", c"the process before still runs"),
            Self::WV_RANK_TAKEN => (
                c"WV_RANK_TAKEN",
                c"another process has this rank, or this name",
            ),
            Self::WV_GENERATION_OVER => (
                c"WV_GENERATION_OVER",
                c"the generation of the rank is over or has been used",
            ),
            Self::WV_EXPELLED => (
                c"WV_EXPELLED",
                c"the other ranks have dropped this one from the group",
            ),
            Self::WV_LEFT => (c"WV_LEFT", c"this rank has left its group"),
            Self::WV_STORE_FAILED => (
                c"WV_STORE_FAILED",
                c"the store cannot be reached or used now",
            ),
            Self::WV_STORE_REFUSED => (c"WV_STORE_REFUSED", c"the store refuses"),
            Self::WV_STORE_FOREIGN => (
                c"WV_STORE_FOREIGN",
                c"the store holds what another run or version has written",
            ),
            Self::WV_NO_HCA => (c"WV_NO_HCA", c"no RDMA device does"),
            Self::WV_HCA_REFUSED => (c"WV_HCA_REFUSED", c"the HCA or its driver refused"),
            Self::WV_NO_GPU => (c"WV_NO_GPU", c"no GPU, or no kernels for it"),
            Self::WV_GPU_REFUSED => (c"WV_GPU_REFUSED", c"the GPU or its driver refused"),
            Self::WV_KERNEL_FAILED => (c"WV_KERNEL_FAILED", c"a kernel has failed"),
            Self::WV_OUT_OF_MEMORY => (c"WV_OUT_OF_MEMORY", c"no memory is left"),
            Self::WV_OUT_OF_RING => (c"WV_OUT_OF_RING", c"a ring of work requests has no room"),
            Self::WV_PANIC => (
                c"WV_PANIC",
                c"a thread or a function of the library has panicked",
            ),
            Self::WV_OTHER => (c"WV_OTHER", c"a cause that has no number here"),
        }
    }

    /// The words of a number that C holds for a status; none if it is none.
    fn words_of(number: i32) -> Option<(&'static CStr, &'static CStr)> {
        let known = Self::ALL.iter().find(|known| **known as i32 == number);
        known.map(|known| known.words())
    }
}

/// The name of a status: "WV_TIMEOUT". "WV_?" for a number that this library does not know. Never NULL, and never freed.
#[unsafe(no_mangle)]
pub extern "C" fn wv_status_name(status: i32) -> *const c_char {
    wv_status::words_of(status)
        .map_or(c"WV_?", |(name, _)| name)
        .as_ptr()
}

/// The meaning of a status, in words without values. Never NULL, and never freed.
#[unsafe(no_mangle)]
pub extern "C" fn wv_status_text(status: i32) -> *const c_char {
    let unknown = c"a status that this library does not know";
    wv_status::words_of(status)
        .map_or(unknown, |(_, text)| text)
        .as_ptr()
}

/// Why a function did not do its work.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) status: wv_status,
    pub(crate) words: String,
}

impl Failure {
    /// Of `status`, in these words.
    pub(crate) fn new(status: wv_status, words: impl Into<String>) -> Self {
        let words = words.into();
        Self { status, words }
    }

    /// Of the argument `name`.
    pub(crate) fn argument(name: &str, value: impl fmt::Display, limit: &str) -> Self {
        let words = format!("{name} is {value}; it must be {limit}");
        Self::new(wv_status::WV_BAD_ARGUMENT, words)
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
        Err(panic) => {
            let words = format!("a defect of the library: {}", panic_words(&*panic));
            Failure::new(wv_status::WV_PANIC, words)
        }
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

/// The message of the last failing call of this thread; an empty text if none has failed. Stays until the next one fails.
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

/// What is behind a pointer from C.
///
/// # Safety
/// Null, or the address of a live `T` that no thread changes while the result lives.
pub(crate) unsafe fn given<'a, T>(name: &str, pointer: *const T) -> Result<&'a T, Failure> {
    if !pointer.is_aligned() {
        return Err(Failure::argument(name, format!("{pointer:p}"), "aligned"));
    }
    // SAFETY: the caller's promise; aligned.
    unsafe { pointer.as_ref() }
        .ok_or_else(|| Failure::argument(name, "null", "the address of a struct"))
}

/// `count` numbers from C; none may be null.
///
/// # Safety
/// Null, or the address of `count` live `T` that no thread changes while the result lives.
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

/// Refuses a null or misaligned place for a result, before the result is made.
pub(crate) fn room<T>(name: &str, pointer: *mut T) -> Result<(), Failure> {
    if pointer.is_null() || !pointer.is_aligned() {
        Err(Failure::argument(
            name,
            format!("{pointer:p}"),
            "the address of a variable",
        ))
    } else {
        Ok(())
    }
}

/// The same of a place of `bytes` bytes, an argument of its own, that is to have at least `least`.
pub(crate) fn room_of(
    (name, pointer): (&str, *mut u8),
    (length, bytes): (&str, usize),
    least: usize,
) -> Result<(), Failure> {
    room(name, pointer)?;
    if bytes < least {
        let limit = format!("at least {least}");
        Err(Failure::argument(length, bytes, &limit))
    } else {
        Ok(())
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
    fn every_status_has_its_number_and_its_own_words() {
        let source = include_str!("status.rs");
        let lines = source.lines().filter_map(|line| {
            let (name, number) = line.strip_prefix("    WV_")?.split_once(" = ")?;
            Some((name, number.strip_suffix(',')?.parse::<i32>().ok()?))
        });
        let lines: Vec<(&str, i32)> = lines.collect();
        assert_eq!(lines.len(), wv_status::ALL.len());
        let mut texts = std::collections::BTreeSet::new();
        for (name, number) in lines {
            let (named, text) = wv_status::words_of(number).unwrap();
            assert_eq!(named.to_str().unwrap(), format!("WV_{name}"));
            assert!(texts.insert(text), "{text:?} twice");
        }
        for number in [-1, 10, 23, 66, i32::MAX] {
            // SAFETY: a text that is never freed.
            let name = unsafe { CStr::from_ptr(wv_status_name(number)) };
            assert_eq!(name, c"WV_?");
        }
    }

    #[test]
    fn a_panic_becomes_a_status_and_its_words() {
        let hook = std::panic::take_hook();
        std::panic::set_hook(Box::new(|_| {}));
        let status = guard(|| panic!("index {}", 7));
        std::panic::set_hook(hook);
        assert_eq!(status, wv_status::WV_PANIC);
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
            "config is null; it must be the address of a struct"
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
