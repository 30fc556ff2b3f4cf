//! Faults of the software HCAs of this process, which a command sets while they run.

// UNSAFETY: calls a function of the software HCA that is found by name.
#![expect(unsafe_code, reason = "a C symbol")]

use std::ffi::{CString, c_char, c_void};
use std::mem::transmute;
use std::ptr::NonNull;

type SetFaults = unsafe extern "C" fn(*const c_char, *mut c_char, usize) -> usize;

/// Gives the fault spec `spec` to the software HCAs.
///
/// # Errors
/// This process has no software HCA, or the HCA refuses the spec. The text says why.
pub fn set(spec: &str) -> Result<(), String> {
    let spec = CString::new(spec).map_err(|error| error.to_string())?;
    // SAFETY: RTLD_DEFAULT searches the libraries of the process for a C string's name.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"softhca_set_faults".as_ptr()) };
    let found = NonNull::new(found).ok_or("this process has no software HCA")?;
    // SAFETY: libsofthca gives its function of this name this type, and is never unloaded.
    let call = unsafe { transmute::<NonNull<c_void>, SetFaults>(found) };
    let mut text = [0u8; 512];
    // SAFETY: a C string, and a buffer of the length given.
    let length = unsafe { call(spec.as_ptr(), text.as_mut_ptr().cast(), text.len()) };
    match length {
        0 => Ok(()),
        _ => Err(String::from_utf8_lossy(&text[..length.min(text.len())]).into_owned()),
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_process_without_a_software_hca_says_so() {
        let error = super::set("drop=1%").unwrap_err();
        assert_eq!(error, "this process has no software HCA");
    }
}
