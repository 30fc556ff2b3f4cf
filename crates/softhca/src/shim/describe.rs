//! What the library says of itself, for a program that starts others with it and has opened it by name.

// UNSAFETY: exported C symbols that take strings and a buffer.
#![expect(unsafe_code, reason = "C strings and a buffer of the caller")]

use super::environment;
use libc::{c_char, size_t};
use std::ffi::CStr;
use std::panic::catch_unwind;
use std::ptr;

/// What is wrong with `value` for the environment variable `name`: up to `room` bytes of it go to `text`, without a zero behind
/// them. The length of all of it; 0 if nothing is wrong.
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
    // SAFETY: contract of this function.
    let (name, value) = unsafe { (CStr::from_ptr(name), CStr::from_ptr(value)) };
    let objection = catch_unwind(|| match (name.to_str(), value.to_str()) {
        (Ok(name), Ok(value)) => environment::objection(name, value),
        _ => Some("it is not UTF-8".to_owned()),
    });
    let objection = objection.unwrap_or_else(|_| Some("softhca has failed".to_owned()));
    // SAFETY: contract of this function.
    unsafe { put(&objection.unwrap_or_default(), text, room) }
}

/// What a device has and lacks, in lines of text, as [`softhca_objection`] gives its text.
///
/// # Safety
///
/// `text` has room for `room` bytes.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn softhca_capabilities(text: *mut c_char, room: size_t) -> size_t {
    let described = catch_unwind(crate::device::described).unwrap_or_default();
    // SAFETY: contract of this function.
    unsafe { put(&described, text, room) }
}

/// Copies as much as there is room for; the length of all.
///
/// # Safety
///
/// `target` has room for `room` bytes.
unsafe fn put(source: &str, target: *mut c_char, room: usize) -> usize {
    let bytes = source.len().min(room);
    // SAFETY: `bytes` is within both, and the caller's buffer is not part of ours.
    unsafe { ptr::copy_nonoverlapping(source.as_ptr(), target.cast::<u8>(), bytes) };
    source.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn objection(name: &CStr, value: &CStr, room: usize) -> (usize, Vec<u8>) {
        let mut text = vec![0xffu8; room];
        // SAFETY: two C strings and a buffer of the length given.
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
    fn text_that_has_no_room_is_cut_and_its_length_told() {
        assert_eq!(objection(c"SOFTHCA_STRICT", c"1", 4), (0, vec![0xff; 4]));
        let (length, text) = objection(c"SOFTHCA_STRICT", c"7", 6);
        assert_eq!(length, "SOFTHCA_STRICT=7 is not 0 or 1".len());
        assert_eq!(text, b"SOFTHC");
        let (length, text) = objection(c"SOFTHCA_STRICT", c"\xff", 64);
        assert_eq!(&text[..length], b"it is not UTF-8");
    }
}
