//! Exported functions that describe the library and set its faults. A program finds them by their names.

// UNSAFETY: exported C symbols that take strings and a buffer.
#![expect(unsafe_code, reason = "C strings and a buffer of the caller")]

use super::environment;
use libc::{c_char, size_t};
use std::ffi::CStr;
use std::panic::catch_unwind;
use std::ptr;

/// Writes what is wrong with `value` for the environment variable `name`: the first `room` bytes of that text go to `text`, without a zero
/// after them. Returns the length of the whole text in bytes, which is 0 if nothing is wrong.
///
/// # Safety
///
/// `name` and `value` are C strings, `text` has room for `room` bytes.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn softhca_objection(
    name: *const c_char,
    value: *const c_char,
    text: *mut c_char,
    room: size_t,
) -> size_t {
    // SAFETY: both are C strings by the contract of this function.
    let (name, value) = unsafe { (CStr::from_ptr(name), CStr::from_ptr(value)) };
    let objection = catch_unwind(|| match (name.to_str(), value.to_str()) {
        (Ok(name), Ok(value)) => environment::objection(name, value),
        _ => Some("it is not UTF-8".to_owned()),
    });
    let objection = objection.unwrap_or_else(|_| Some("softhca has failed".to_owned()));
    // SAFETY: `text` has room for `room` bytes by the contract of this function.
    unsafe { put(&objection.unwrap_or_default(), text, room) }
}

/// Writes what a device has and lacks, in lines of text. The text and its length are given as [`softhca_objection`] gives its text.
///
/// # Safety
///
/// `text` has room for `room` bytes.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn softhca_capabilities(text: *mut c_char, room: size_t) -> size_t {
    let described = catch_unwind(crate::device::described).unwrap_or_default();
    // SAFETY: `text` has room for `room` bytes by the contract of this function.
    unsafe { put(&described, text, room) }
}

/// Replaces the faults of every HCA of the process by those of `spec`. Times in `spec` count from this call. If something is wrong with
/// `spec`, nothing changes, and this function gives the reason as [`softhca_objection`] gives its text.
///
/// # Safety
///
/// `spec` is a C string, `text` has room for `room` bytes.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn softhca_set_faults(
    spec: *const c_char,
    text: *mut c_char,
    room: size_t,
) -> size_t {
    // SAFETY: `spec` is a C string by the contract of this function.
    let spec = unsafe { CStr::from_ptr(spec) };
    let told = catch_unwind(|| match spec.to_str().map(str::parse) {
        Ok(Ok(spec)) => {
            crate::device::set_faults_of_all(&spec);
            String::new()
        }
        Ok(Err(error)) => error.to_string(),
        Err(_) => "it is not UTF-8".to_owned(),
    });
    let told = told.unwrap_or_else(|_| "softhca has failed".to_owned());
    // SAFETY: `text` has room for `room` bytes by the contract of this function.
    unsafe { put(&told, text, room) }
}

/// Copies at most the first `room` bytes of `source` to `target`, and returns the whole length of `source` in bytes.
///
/// # Safety
///
/// `target` has room for `room` bytes.
unsafe fn put(source: &str, target: *mut c_char, room: usize) -> usize {
    let bytes = source.len().min(room);
    // SAFETY: `bytes` is within `source` and within the caller's buffer, and that buffer is no part of `source`.
    unsafe { ptr::copy_nonoverlapping(source.as_ptr(), target.cast::<u8>(), bytes) };
    source.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn objection(name: &CStr, value: &CStr, room: usize) -> (usize, Vec<u8>) {
        let mut text = vec![0xffu8; room];
        // SAFETY: two C strings, and a buffer of the given length.
        let length = unsafe {
            softhca_objection(
                name.as_ptr(),
                value.as_ptr(),
                text.as_mut_ptr().cast(),
                room,
            )
        };
        (length, text)
    }

    #[test]
    fn text_that_has_no_room_is_cut_and_its_length_given() {
        assert_eq!(objection(c"SOFTHCA_STRICT", c"1", 4), (0, vec![0xff; 4]));
        let (length, text) = objection(c"SOFTHCA_STRICT", c"7", 6);
        assert_eq!(length, "SOFTHCA_STRICT=7 is not 0 or 1".len());
        assert_eq!(text, b"SOFTHC");
        let (length, text) = objection(c"SOFTHCA_STRICT", c"\xff", 64);
        assert_eq!(&text[..length], b"it is not UTF-8");
    }

    #[test]
    fn faults_that_are_not_understood_are_refused_in_words() {
        let told = |spec: &CStr| {
            let mut text = [0u8; 200];
            // SAFETY: a C string, and a buffer of the given length.
            let length =
                unsafe { softhca_set_faults(spec.as_ptr(), text.as_mut_ptr().cast(), text.len()) };
            String::from_utf8_lossy(&text[..length]).into_owned()
        };
        assert_eq!(told(c"seed=1,drop=0.5%,partition=127.9.0.2@..2s"), "");
        assert!(
            told(c"drop=2").contains("is not a chance"),
            "{}",
            told(c"drop=2")
        );
        assert_eq!(told(c"\xff"), "it is not UTF-8");
    }
}
