//! What this library says on stderr.

// UNSAFETY: one write of bytes of this library.
#![expect(
    unsafe_code,
    reason = "a write past Rust's handle, which may be locked"
)]

use libc::c_char;

/// One line on stderr: for what the program above could only report as "no device".
pub(super) fn complain(message: &str) {
    let text = format!("softhca: {message}\n");
    // One write, so that lines of several processes do not mix; a closed stderr is no reason to fail.
    // SAFETY: pointer and length of `text`.
    let _ = unsafe {
        libc::write(
            libc::STDERR_FILENO,
            text.as_ptr().cast::<c_char>().cast(),
            text.len(),
        )
    };
}
