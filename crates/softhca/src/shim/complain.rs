//! Prints what this library has to say on stderr.

// UNSAFETY: a write(2) of bytes that this library owns.
#![expect(
    unsafe_code,
    reason = "a write past Rust's handle, which may be locked"
)]

use libc::c_char;

/// Prints one line on stderr. Callers use this function for failures that the program above could only report as "no device".
pub(super) fn complain(message: &str) {
    let text = format!("softhca: {message}\n");
    // The line is one write, so that lines of several processes do not mix. A closed stderr is no reason to fail.
    // SAFETY: the pointer and the length are those of `text`.
    let _ = unsafe {
        libc::write(
            libc::STDERR_FILENO,
            text.as_ptr().cast::<c_char>().cast(),
            text.len(),
        )
    };
}
