//! `glob` and `wordexp`, which expand patterns of paths. libc lists directories by itself for both.
//!
//! `glob` takes functions by which it lists directories. This library passes functions that lead into the tree; the paths that `glob` finds
//! are still those of the pattern. `wordexp` takes no such functions. This library expands what `wordexp` leaves of a pattern in an RDMA
//! class.

// UNSAFETY: exported C symbols, calls of the next definitions of them, and lists in memory of libc.
#![expect(unsafe_code, reason = "exported libc symbols")]

use std::ffi::CStr;
use std::ptr::{self, null_mut};

use libc::{c_char, c_int, c_void, size_t};

use super::next::Next;
use super::path::{Target, classify};

/// The functions by which `glob` lists directories: the fields `gl_closedir` to `gl_stat` of its struct.
#[derive(Clone, Copy)]
#[repr(C)]
struct Functions {
    close: *const c_void,
    read: *const c_void,
    open: *const c_void,
    lstat: *const c_void,
    stat: *const c_void,
}

/// The `glob_t` of glibc.
#[repr(C)]
struct Glob {
    count: size_t,
    paths: *mut *mut c_char,
    offset: size_t,
    flags: c_int,
    functions: Functions,
}

const _: () = assert!(size_of::<Glob>() == size_of::<libc::glob_t>());

/// The flag `GLOB_ALTDIRFUNC`: `glob` uses the functions in its struct.
const OWN_FUNCTIONS: c_int = 1 << 9;

type Complaint = unsafe extern "C" fn(*const c_char, c_int) -> c_int;
type GlobFunction =
    unsafe extern "C" fn(*const c_char, c_int, Option<Complaint>, *mut Glob) -> c_int;

/// Returns whether a pattern may lead to an RDMA class.
fn may_be_ours(pattern: &[u8]) -> bool {
    const WORD: &[u8] = b"infiniband";
    pattern.windows(WORD.len()).any(|part| part == WORD)
}

/// Returns the functions that libc would use, each called by its name: `opendir`, `stat` and `lstat` are then those of this library.
fn functions() -> Functions {
    // SAFETY: these are the symbols that any code of the process calls by their names.
    unsafe extern "C" {
        fn opendir(path: *const c_char) -> *mut libc::DIR;
        fn stat(path: *const c_char, out: *mut libc::stat) -> c_int;
        fn lstat(path: *const c_char, out: *mut libc::stat) -> c_int;
    }
    Functions {
        close: libc::closedir as *const c_void,
        read: libc::readdir as *const c_void,
        open: opendir as *const c_void,
        lstat: lstat as *const c_void,
        stat: stat as *const c_void,
    }
}

/// # Safety
///
/// The caller keeps the contract of `glob(3)`, and `next` is libc's definition.
unsafe fn expand(
    pattern: *const c_char,
    flags: c_int,
    complaint: Option<Complaint>,
    found: *mut Glob,
    next: GlobFunction,
) -> c_int {
    // SAFETY: `pattern` is a C string by contract.
    let is_ours = may_be_ours(unsafe { CStr::from_ptr(pattern) }.to_bytes());
    if !is_ours || flags & OWN_FUNCTIONS != 0 || found.is_null() {
        // SAFETY: the caller of this function keeps the same contract.
        return unsafe { next(pattern, flags, complaint, found) };
    }
    // The fields need not hold anything before the call: they are only put back.
    // SAFETY: `found` is the caller's struct, which is writable.
    let before = unsafe { ptr::read(&raw const (*found).functions) };
    // SAFETY: as above.
    unsafe { (*found).functions = functions() };
    // SAFETY: the caller of this function keeps the same contract, and the functions are in the struct.
    let answer = unsafe { next(pattern, flags | OWN_FUNCTIONS, complaint, found) };
    // SAFETY: as above.
    unsafe {
        (*found).functions = before;
        (*found).flags &= !OWN_FUNCTIONS;
    }
    answer
}

macro_rules! glob_symbols {
    ($($name:ident: $text:literal)+) => { $(
        // SAFETY: the name, the signature and the meaning are those of libc.
        #[cfg_attr(not(miri), unsafe(no_mangle))]
        unsafe extern "C" fn $name(
            pattern: *const c_char,
            flags: c_int,
            complaint: Option<Complaint>,
            found: *mut Glob,
        ) -> c_int {
            static NEXT: Next = Next::new($text);
            let next = NEXT.find();
            if next.is_null() {
                return libc::GLOB_ABORTED;
            }
            // SAFETY: the next definition of this symbol, which has libc's signature.
            let next: GlobFunction = unsafe { std::mem::transmute(next) };
            // SAFETY: the caller of this function keeps the same contract.
            unsafe { expand(pattern, flags, complaint, found, next) }
        }
    )+ };
}

glob_symbols!(glob: c"glob" glob64: c"glob64");

/// The `wordexp_t` of glibc.
#[repr(C)]
struct Words {
    count: size_t,
    words: *mut *mut c_char,
    offset: size_t,
}

// SAFETY: the name, the signature and the meaning are those of libc.
#[cfg_attr(not(miri), unsafe(no_mangle))]
unsafe extern "C" fn wordexp(text: *const c_char, out: *mut Words, flags: c_int) -> c_int {
    type Function = unsafe extern "C" fn(*const c_char, *mut Words, c_int) -> c_int;
    /// The error `WRDE_NOSPACE`.
    const NO_SPACE: c_int = 1;
    static NEXT: Next = Next::new(c"wordexp");
    let next = NEXT.find();
    if next.is_null() {
        return NO_SPACE;
    }
    // SAFETY: the next definition of this symbol, which has libc's signature.
    let next: Function = unsafe { std::mem::transmute(next) };
    // SAFETY: the caller of this function keeps the same contract.
    let answer = unsafe { next(text, out, flags) };
    if answer != 0 {
        return answer;
    }
    // SAFETY: `text` is a C string by contract.
    let text = unsafe { CStr::from_ptr(text) }.to_bytes();
    // A pattern in a quoted word is not expanded. libc does not say which words were quoted.
    let is_quoted = text.iter().any(|byte| b"'\"\\".contains(byte));
    // SAFETY: libc has filled `out`.
    if is_quoted || unsafe { expand_words(&mut *out) }.is_some() {
        return 0;
    }
    NO_SPACE
}

/// Expands those words that are patterns in an RDMA class. Returns `None` if there is no memory.
///
/// # Safety
///
/// `all` is as `wordexp` leaves it.
unsafe fn expand_words(all: &mut Words) -> Option<()> {
    let mut index = 0;
    while index < all.count {
        // SAFETY: `index` is below the number of words.
        let word = unsafe { *all.words.add(all.offset + index) };
        // SAFETY: the word is a C string of libc.
        let is_ours = unsafe { is_pattern(word) };
        if !is_ours {
            index += 1;
            continue;
        }
        // SAFETY: zeros are a valid empty struct.
        let mut found: libc::glob_t = unsafe { std::mem::zeroed() };
        // SAFETY: `word` is a pattern, and `found` is an empty struct of the layout that `Glob` has.
        let outcome = unsafe { glob(word, 0, None, (&raw mut found).cast()) };
        let replaced = match outcome {
            // SAFETY: `glob` has found `gl_pathc` paths.
            0 => unsafe { replace(all, index, found.gl_pathv, found.gl_pathc) },
            _ => Some(1), // no path matches: the word stays, as in libc
        };
        // SAFETY: `found` is as `glob` has left it, or empty.
        unsafe { libc::globfree(&raw mut found) };
        index += replaced?;
    }
    Some(())
}

/// # Safety
///
/// `word` is a C string.
unsafe fn is_pattern(word: *const c_char) -> bool {
    // SAFETY: this is the contract of this function.
    let has_wildcard = unsafe { CStr::from_ptr(word) }
        .to_bytes()
        .iter()
        .any(|byte| b"*?[".contains(byte));
    // SAFETY: this is the contract of this function.
    has_wildcard && matches!(unsafe { classify(word) }, Target::Class(_))
}

/// Puts copies of `paths` in place of the word at `index`, and returns their number. Returns `None` if there is no memory; then nothing has
/// changed.
///
/// # Safety
///
/// `all` is as `wordexp` leaves it and has the word; `paths` are `count` C strings, at least one.
unsafe fn replace(
    all: &mut Words,
    index: usize,
    paths: *const *mut c_char,
    count: usize,
) -> Option<usize> {
    // SAFETY: the paths are C strings by contract.
    let copies: Vec<*mut c_char> = (0..count)
        .map(|at| unsafe { libc::strdup(*paths.add(at)) })
        .collect();
    // The list ends with a null, which counts here.
    let length = all.offset + all.count - 1 + count + 1;
    let bytes = length.checked_mul(size_of::<*mut c_char>());
    let words: *mut *mut c_char = match bytes {
        // SAFETY: the list is memory of libc's malloc.
        Some(bytes) if copies.iter().all(|copy| !copy.is_null()) => unsafe {
            libc::realloc(all.words.cast(), bytes).cast()
        },
        _ => null_mut(),
    };
    if words.is_null() {
        // SAFETY: each pointer is a copy of `strdup`, or null.
        copies
            .iter()
            .for_each(|copy| unsafe { libc::free((*copy).cast()) });
        return None;
    }
    all.words = words;
    // SAFETY: the list has room for the words that move up and for the copies.
    unsafe {
        let place = words.add(all.offset + index);
        libc::free((*place).cast());
        let behind = all.count - index; // the words after `place`, and the null
        ptr::copy(place.add(1), place.add(count), behind);
        ptr::copy_nonoverlapping(copies.as_ptr(), place, count);
    }
    all.count = all.count - 1 + count;
    Some(count)
}
