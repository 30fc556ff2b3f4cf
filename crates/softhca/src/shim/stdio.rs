//! `fopen`, `opendir`, `realpath` and similar libc functions, which open, list or resolve a path by themselves and not by `open`.

// UNSAFETY: exported C symbols, and calls of the next definitions of these symbols.
#![expect(unsafe_code, reason = "exported libc symbols")]

use std::ptr::null_mut;

use libc::{DIR, FILE, c_char, c_int, c_void, size_t};

use super::next::{Next, redirected_symbols};
use super::open::about_to_read;
use super::path::{Target, classify, classify_at};

/// Returns the meaning of `path` for a function that reads the file or directory there. If the path leads into the tree, the tree is
/// brought up to date first.
///
/// # Safety
///
/// `path` is null or a C string.
pub(super) unsafe fn reading(path: *const c_char) -> Target {
    // SAFETY: this is the contract of this function.
    let target = unsafe { classify(path) };
    if target.is_in_tree() {
        // SAFETY: the path is a C string, since it was classified as one.
        unsafe { about_to_read(target.whole(path)) };
    }
    target
}

redirected_symbols! {
    [fopen: c"fopen" fopen64: c"fopen64"] (mode: *const c_char) -> *mut FILE, null_mut();
    [freopen: c"freopen" freopen64: c"freopen64"]
    (mode: *const c_char, stream: *mut FILE) -> *mut FILE, null_mut();
    [opendir: c"opendir"] () -> *mut DIR, null_mut();
    [realpath: c"realpath"] (resolved: *mut c_char) -> *mut c_char, null_mut();
    [__realpath_chk: c"__realpath_chk"]
    (resolved: *mut c_char, capacity: size_t) -> *mut c_char, null_mut();
    [canonicalize_file_name: c"canonicalize_file_name"] () -> *mut c_char, null_mut();
    // The lists and functions are handed to libc: their types do not matter here.
    [scandir: c"scandir" scandir64: c"scandir64"]
    (list: *mut c_void, filter: *const c_void, order: *const c_void) -> c_int, -1;
}

macro_rules! scandirat_symbols {
    ($($name:ident: $text:literal)+) => { $(
        // SAFETY: the name, the signature and the meaning are those of libc.
        #[cfg_attr(not(miri), unsafe(no_mangle))]
        unsafe extern "C" fn $name(
            dir: c_int,
            path: *const c_char,
            list: *mut c_void,
            filter: *const c_void,
            order: *const c_void,
        ) -> c_int {
            type Function = unsafe extern "C" fn(
                c_int, *const c_char, *mut c_void, *const c_void, *const c_void
            ) -> c_int;
            static NEXT: Next = Next::new($text);
            let next = NEXT.find();
            if next.is_null() {
                return -1;
            }
            // SAFETY: the next definition of this symbol, which has libc's signature.
            let next: Function = unsafe { std::mem::transmute(next) };
            // SAFETY: the caller of this function keeps the same contract.
            let target = unsafe { classify_at(dir, path) };
            if target.is_in_tree() {
                // SAFETY: the path is a C string, since it was classified as one.
                unsafe { about_to_read(target.whole(path)) };
            }
            // SAFETY: the caller of this function keeps the same contract; `target` lives until the call returns.
            unsafe { next(dir, target.place(path), list, filter, order) }
        }
    )+ };
}

scandirat_symbols!(scandirat: c"scandirat" scandirat64: c"scandirat64");
