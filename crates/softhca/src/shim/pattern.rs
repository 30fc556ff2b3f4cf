//! `glob` and `wordexp`: patterns of paths. libc lists directories by itself for both.
//!
//! `glob` takes functions to list directories by; ours lead into the tree, and the paths that it finds are those of the pattern.
//! `wordexp` takes none. What it leaves of a pattern in a class of ours is expanded after it.

// UNSAFETY: exported C symbols, calls of the next definitions of them, and lists in memory of libc.
#![expect(unsafe_code, reason = "exported libc symbols")]

use std::ffi::CStr;
use std::ptr::{self, null_mut};

use libc::{c_char, c_int, c_void, size_t};

use super::next::Next;
use super::path::{Target, classify};

/// The functions by which `glob` lists directories: `gl_closedir` to `gl_stat` of its struct.
#[derive(Clone, Copy)]
#[repr(C)]
struct Functions {
    close: *const c_void,
    read: *const c_void,
    open: *const c_void,
    lstat: *const c_void,
    stat: *const c_void,
}

/// `glob_t` of glibc.
#[repr(C)]
struct Glob {
    count: size_t,
    paths: *mut *mut c_char,
    offset: size_t,
    flags: c_int,
    functions: Functions,
}

const _: () = assert!(size_of::<Glob>() == size_of::<libc::glob_t>());

/// `GLOB_ALTDIRFUNC`: the functions count.
const OWN_FUNCTIONS: c_int = 1 << 9;

type Complaint = unsafe extern "C" fn(*const c_char, c_int) -> c_int;
type GlobFunction =
    unsafe extern "C" fn(*const c_char, c_int, Option<Complaint>, *mut Glob) -> c_int;

/// Returns whether a pattern may lead to a class of ours.
fn may_be_ours(pattern: &[u8]) -> bool {
    const WORD: &[u8] = b"infiniband";
    pattern.windows(WORD.len()).any(|part| part == WORD)
}

/// libc's definitions, which are called as those of this library by their names: `opendir` and `stat` are ours.
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
/// As `glob(3)`; `next` is libc's definition.
unsafe fn expand(
    pattern: *const c_char,
    flags: c_int,
    complaint: Option<Complaint>,
    found: *mut Glob,
    next: GlobFunction,
) -> c_int {
    // SAFETY: a C string by contract.
    let is_ours = may_be_ours(unsafe { CStr::from_ptr(pattern) }.to_bytes());
    if !is_ours || flags & OWN_FUNCTIONS != 0 || found.is_null() {
        // SAFETY: as our caller's.
        return unsafe { next(pattern, flags, complaint, found) };
    }
    // The fields need not hold anything before: they are only put back.
    // SAFETY: the caller's struct, which is writable.
    let before = unsafe { ptr::read(&raw const (*found).functions) };
    // SAFETY: as above.
    unsafe { (*found).functions = functions() };
    // SAFETY: as our caller's, and the functions are there.
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
        // SAFETY: the name is libc's, and so are signature and meaning.
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
            // SAFETY: as our caller's.
            unsafe { expand(pattern, flags, complaint, found, next) }
        }
    )+ };
}

glob_symbols!(glob: c"glob" glob64: c"glob64");

/// `wordexp_t`.
#[repr(C)]
struct Words {
    count: size_t,
    words: *mut *mut c_char,
    offset: size_t,
}

// SAFETY: the name is libc's, and so are signature and meaning.
#[cfg_attr(not(miri), unsafe(no_mangle))]
unsafe extern "C" fn wordexp(text: *const c_char, out: *mut Words, flags: c_int) -> c_int {
    type Function = unsafe extern "C" fn(*const c_char, *mut Words, c_int) -> c_int;
    /// `WRDE_NOSPACE`.
    const NO_SPACE: c_int = 1;
    static NEXT: Next = Next::new(c"wordexp");
    let next = NEXT.find();
    if next.is_null() {
        return NO_SPACE;
    }
    // SAFETY: the next definition of this symbol, which has libc's signature.
    let next: Function = unsafe { std::mem::transmute(next) };
    // SAFETY: as our caller's.
    let answer = unsafe { next(text, out, flags) };
    if answer != 0 {
        return answer;
    }
    // SAFETY: a C string by contract.
    let text = unsafe { CStr::from_ptr(text) }.to_bytes();
    // In words that are quoted, a pattern is none. Which words were, libc does not say.
    let is_quoted = text.iter().any(|byte| b"'\"\\".contains(byte));
    // SAFETY: libc has filled it.
    if is_quoted || unsafe { expand_words(&mut *out) }.is_some() {
        return 0;
    }
    NO_SPACE
}

/// Expands those words that are patterns in a class of ours. None: there is no memory.
///
/// # Safety
///
/// `all` is as `wordexp` leaves it.
unsafe fn expand_words(all: &mut Words) -> Option<()> {
    let mut index = 0;
    while index < all.count {
        // SAFETY: one of the words.
        let word = unsafe { *all.words.add(all.offset + index) };
        // SAFETY: a C string of libc.
        let is_ours = unsafe { is_pattern(word) };
        if !is_ours {
            index += 1;
            continue;
        }
        // SAFETY: zeros are an empty struct.
        let mut found: libc::glob_t = unsafe { std::mem::zeroed() };
        // SAFETY: a pattern, and an empty struct of the layout that `Glob` has.
        let outcome = unsafe { glob(word, 0, None, (&raw mut found).cast()) };
        let replaced = match outcome {
            // SAFETY: `glob` has found so many paths.
            0 => unsafe { replace(all, index, found.gl_pathv, found.gl_pathc) },
            _ => Some(1), // no path matches: the word stays, as in libc
        };
        // SAFETY: as `glob` has left it, or empty.
        unsafe { libc::globfree(&raw mut found) };
        index += replaced?;
    }
    Some(())
}

/// # Safety
///
/// `word` is a C string.
unsafe fn is_pattern(word: *const c_char) -> bool {
    // SAFETY: by contract.
    let has_wildcard = unsafe { CStr::from_ptr(word) }
        .to_bytes()
        .iter()
        .any(|byte| b"*?[".contains(byte));
    // SAFETY: by contract.
    has_wildcard && matches!(unsafe { classify(word) }, Target::Class(_))
}

/// Puts copies of `paths` in place of the word at `index`. How many; none if there is no memory, and then nothing has changed.
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
    // SAFETY: C strings by contract.
    let copies: Vec<*mut c_char> = (0..count)
        .map(|at| unsafe { libc::strdup(*paths.add(at)) })
        .collect();
    // With the null at the end.
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
        // SAFETY: copies of `strdup`, or null.
        copies
            .iter()
            .for_each(|copy| unsafe { libc::free((*copy).cast()) });
        return None;
    }
    all.words = words;
    // SAFETY: the list has room for what is moved up and for the copies.
    unsafe {
        let place = words.add(all.offset + index);
        libc::free((*place).cast());
        let behind = all.count - index; // the words after it, and the null
        ptr::copy(place.add(1), place.add(count), behind);
        ptr::copy_nonoverlapping(copies.as_ptr(), place, count);
    }
    all.count = all.count - 1 + count;
    Some(count)
}
