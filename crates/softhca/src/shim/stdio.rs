//! `fopen`, `opendir` and `realpath`: libc functions that open or resolve a path by themselves, past `open`.

// UNSAFETY: exported C symbols, and the next definitions of them by dlsym.
#![expect(unsafe_code, reason = "exported libc symbols")]

use std::ffi::CStr;
use std::sync::atomic::{AtomicPtr, Ordering};

use libc::{DIR, FILE, c_char, c_void, size_t};

use super::open::about_to_read;
use super::path::{Target, classify};
use super::raw;

/// The definition that would be called without this library, found on first use.
struct Next {
    name: &'static CStr,
    found: AtomicPtr<c_void>,
}

impl Next {
    const fn new(name: &'static CStr) -> Self {
        Self {
            name,
            found: AtomicPtr::new(std::ptr::null_mut()),
        }
    }

    /// Null if no library defines it (`errno` is `ENOSYS` then).
    fn find(&self) -> *mut c_void {
        // Relaxed: the pointer is to code, which existed before; a thread that loses a race stores the same.
        let mut found = self.found.load(Ordering::Relaxed);
        if found.is_null() {
            // SAFETY: a C string.
            found = unsafe { libc::dlsym(libc::RTLD_NEXT, self.name.as_ptr()) };
            self.found.store(found, Ordering::Relaxed);
        }
        if found.is_null() {
            raw::fail(libc::ENOSYS);
        }
        found
    }
}

/// What `path` means to a function that reads the file or directory at it.
///
/// # Safety
///
/// `path` is null or a C string.
unsafe fn reading(path: *const c_char) -> Target {
    // SAFETY: by contract.
    let target = unsafe { classify(path) };
    if target.is_in_tree() {
        // SAFETY: a C string, since it was classified as one.
        unsafe { about_to_read(target.place(path)) };
    }
    target
}

macro_rules! fopen_symbols {
    ($($name:ident: $text:literal)*) => { $(
        // SAFETY: the name is libc's, and so are signature and meaning.
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name(path: *const c_char, mode: *const c_char) -> *mut FILE {
            type Function = unsafe extern "C" fn(*const c_char, *const c_char) -> *mut FILE;
            static NEXT: Next = Next::new($text);
            let next = NEXT.find();
            if next.is_null() {
                return std::ptr::null_mut();
            }
            // SAFETY: the next definition of this symbol, which has libc's signature.
            let next: Function = unsafe { std::mem::transmute(next) };
            // SAFETY: as our caller's.
            let target = unsafe { reading(path) };
            // SAFETY: as our caller's; `target` lives until the call returns.
            unsafe { next(target.place(path), mode) }
        }
    )* };
}

fopen_symbols!(fopen: c"fopen" fopen64: c"fopen64");

// SAFETY: the name is libc's, and so are signature and meaning.
#[unsafe(no_mangle)]
unsafe extern "C" fn opendir(path: *const c_char) -> *mut DIR {
    type Function = unsafe extern "C" fn(*const c_char) -> *mut DIR;
    static NEXT: Next = Next::new(c"opendir");
    let next = NEXT.find();
    if next.is_null() {
        return std::ptr::null_mut();
    }
    // SAFETY: the next definition of this symbol, which has libc's signature.
    let next: Function = unsafe { std::mem::transmute(next) };
    // SAFETY: as our caller's.
    let target = unsafe { reading(path) };
    // SAFETY: as our caller's; `target` lives until the call returns.
    unsafe { next(target.place(path)) }
}

// SAFETY: the name is libc's, and so are signature and meaning.
#[unsafe(no_mangle)]
unsafe extern "C" fn realpath(path: *const c_char, resolved: *mut c_char) -> *mut c_char {
    type Function = unsafe extern "C" fn(*const c_char, *mut c_char) -> *mut c_char;
    static NEXT: Next = Next::new(c"realpath");
    let next = NEXT.find();
    if next.is_null() {
        return std::ptr::null_mut();
    }
    // SAFETY: the next definition of this symbol, which has libc's signature.
    let next: Function = unsafe { std::mem::transmute(next) };
    // SAFETY: as our caller's.
    let target = unsafe { reading(path) };
    // SAFETY: as our caller's; `target` lives until the call returns.
    unsafe { next(target.place(path), resolved) }
}

// SAFETY: the name is libc's, and so are signature and meaning.
#[unsafe(no_mangle)]
unsafe extern "C" fn __realpath_chk(
    path: *const c_char,
    resolved: *mut c_char,
    capacity: size_t,
) -> *mut c_char {
    type Function = unsafe extern "C" fn(*const c_char, *mut c_char, size_t) -> *mut c_char;
    static NEXT: Next = Next::new(c"__realpath_chk");
    let next = NEXT.find();
    if next.is_null() {
        return std::ptr::null_mut();
    }
    // SAFETY: the next definition of this symbol, which has glibc's signature.
    let next: Function = unsafe { std::mem::transmute(next) };
    // SAFETY: as our caller's.
    let target = unsafe { reading(path) };
    // SAFETY: as our caller's; `target` lives until the call returns.
    unsafe { next(target.place(path), resolved, capacity) }
}
