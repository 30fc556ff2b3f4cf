//! `ftw`, `nftw` and `fts_open`: walks of libc, which opens directories by itself.
//!
//! The walk goes through the tree. Functions of the caller are told the paths that begin as the caller's path does. Entries of
//! `fts_read` lie in buffers of libc, and so have the paths of the tree.

// UNSAFETY: exported C symbols, calls of the next definitions of them, and a function of the caller.
#![expect(unsafe_code, reason = "exported libc symbols")]

use std::cell::Cell;
use std::ffi::CStr;
use std::ptr;

use libc::{c_char, c_int, c_void};

use super::next::Next;
use super::path::{Target, classify};
use super::stdio::reading;

/// `struct FTW`.
#[repr(C)]
struct Place {
    /// Where the name begins in the path.
    base: c_int,
    level: c_int,
}

type Ftw = unsafe extern "C" fn(*const c_char, *const c_void, c_int) -> c_int;
type Nftw = unsafe extern "C" fn(*const c_char, *const c_void, c_int, *mut Place) -> c_int;

/// A function of the caller.
#[derive(Clone, Copy)]
enum Visit {
    Ftw(Ftw),
    Nftw(Nftw),
}

/// A walk through the tree in place of a class.
struct Walk<'a> {
    visit: Visit,
    /// The path that the caller gave.
    given: &'a [u8],
    /// The path in the tree that stands for it.
    inside: &'a [u8],
}

thread_local! {
    /// The walk of this thread that goes on, the innermost one.
    static WALK: Cell<*const Walk<'static>> = const { Cell::new(ptr::null()) };
}

/// A path without the slashes at its end, as libc names it in a walk.
fn trimmed(path: &[u8]) -> &[u8] {
    let end = path.iter().rposition(|&byte| byte != b'/');
    &path[..end.map_or(path.len().min(1), |last| last + 1)]
}

/// Tells the function of the caller one path.
///
/// # Safety
///
/// libc calls it during a walk that [`Walk::run`] has begun.
unsafe extern "C" fn tell(
    path: *const c_char,
    stat: *const c_void,
    kind: c_int,
    place: *mut Place,
) -> c_int {
    let walk = WALK.get();
    // SAFETY: `run` holds the walk until it is over; it has set it in this thread, and walks inside of this one have set it back.
    let walk = unsafe { &*walk };
    // SAFETY: libc's own path, a C string.
    let told = unsafe { CStr::from_ptr(path) }.to_bytes();
    let Some(rest) = told.strip_prefix(walk.inside) else {
        // SAFETY: as libc has called us.
        return unsafe { walk.visit.call(path, stat, kind, place) };
    };
    let mut own = Vec::with_capacity(walk.given.len() + rest.len() + 1);
    own.extend_from_slice(walk.given);
    own.extend_from_slice(rest);
    own.push(0);
    let longer = c_int::try_from(walk.given.len()).unwrap_or(0)
        - c_int::try_from(walk.inside.len()).unwrap_or(0);
    if !place.is_null() {
        // SAFETY: libc's own struct, for us to read and write: it fills it anew for each call.
        unsafe { (*place).base += longer };
    }
    // SAFETY: a C string that lives until the call returns, and the rest as libc has called us.
    let answer = unsafe { walk.visit.call(own.as_ptr().cast(), stat, kind, place) };
    if !place.is_null() {
        // SAFETY: as above. libc goes on with its own base.
        unsafe { (*place).base -= longer };
    }
    answer
}

/// [`tell`] for `ftw`.
///
/// # Safety
///
/// As [`tell`].
unsafe extern "C" fn tell_ftw(path: *const c_char, stat: *const c_void, kind: c_int) -> c_int {
    // SAFETY: by contract.
    unsafe { tell(path, stat, kind, ptr::null_mut()) }
}

impl Visit {
    /// # Safety
    ///
    /// The function is the caller's, and the arguments are what libc promises it.
    unsafe fn call(
        self,
        path: *const c_char,
        stat: *const c_void,
        kind: c_int,
        place: *mut Place,
    ) -> c_int {
        match self {
            // SAFETY: by contract.
            Self::Ftw(visit) => unsafe { visit(path, stat, kind) },
            // SAFETY: by contract.
            Self::Nftw(visit) => unsafe { visit(path, stat, kind, place) },
        }
    }
}

impl Walk<'_> {
    /// Runs `body`, in which libc calls [`tell`] for this walk.
    fn run(&self, body: impl FnOnce() -> c_int) -> c_int {
        let outer = WALK.replace(ptr::from_ref(self).cast());
        let answer = body();
        WALK.set(outer);
        answer
    }
}

/// # Safety
///
/// As `nftw(3)` and `ftw(3)`; `walk` calls libc's definition with the path that it is given, and with [`tell`] in place of `visit` if its
/// second argument is true.
unsafe fn walk(
    path: *const c_char,
    visit: Visit,
    walk: impl FnOnce(*const c_char, bool) -> c_int,
) -> c_int {
    // SAFETY: a C string or null by contract.
    let target = unsafe { reading(path) };
    let Target::Class(_) = target else {
        return walk(target.place(path), false);
    };
    let place = target.place(path);
    // SAFETY: C strings: one was classified as such, and stands for the other.
    let [given, inside] = [path, place].map(|path| unsafe { CStr::from_ptr(path) }.to_bytes());
    let told = Walk {
        visit,
        given: trimmed(given),
        inside: trimmed(inside),
    };
    told.run(|| walk(place, true))
}

macro_rules! walk_symbols {
    ($($name:ident: $text:literal, $visit:ident, $tell:ident, $more:tt;)+) => { $(
        walk_symbols! { @define $name $text $visit $tell $more }
    )+ };
    (@define $name:ident $text:literal $visit:ident $tell:ident ($($argument:ident),*)) => {
        // SAFETY: the name is libc's, and so are signature and meaning.
        #[cfg_attr(not(miri), unsafe(no_mangle))]
        unsafe extern "C" fn $name(path: *const c_char, visit: $visit $(, $argument: c_int)*) -> c_int {
            type Function = unsafe extern "C" fn(*const c_char, $visit $(, walk_symbols!(@int $argument))*) -> c_int;
            static NEXT: Next = Next::new($text);
            let next = NEXT.find();
            if next.is_null() {
                return -1;
            }
            // SAFETY: the next definition of this symbol, which has libc's signature.
            let next: Function = unsafe { std::mem::transmute(next) };
            // SAFETY: as our caller's.
            unsafe {
                walk(path, Visit::$visit(visit), |path, is_told| {
                    next(path, if is_told { $tell } else { visit } $(, $argument)*)
                })
            }
        }
    };
    (@int $argument:ident) => { c_int };
}

walk_symbols! {
    ftw: c"ftw", Ftw, tell_ftw, (descriptors);
    ftw64: c"ftw64", Ftw, tell_ftw, (descriptors);
    nftw: c"nftw", Nftw, tell, (descriptors, flags);
    nftw64: c"nftw64", Nftw, tell, (descriptors, flags);
}

macro_rules! fts_symbols {
    ($($name:ident: $text:literal)+) => { $(
        // SAFETY: the name is libc's, and so are signature and meaning.
        #[cfg_attr(not(miri), unsafe(no_mangle))]
        unsafe extern "C" fn $name(
            paths: *const *const c_char,
            options: c_int,
            order: *const c_void,
        ) -> *mut c_void {
            type Function =
                unsafe extern "C" fn(*const *const c_char, c_int, *const c_void) -> *mut c_void;
            static NEXT: Next = Next::new($text);
            let next = NEXT.find();
            if next.is_null() {
                return ptr::null_mut();
            }
            // SAFETY: the next definition of this symbol, which has libc's signature.
            let next: Function = unsafe { std::mem::transmute(next) };
            // SAFETY: as our caller's.
            unsafe { with_paths(paths, |paths| next(paths, options, order)) }
        }
    )+ };
}

fts_symbols!(fts_open: c"fts_open" fts64_open: c"fts64_open");

/// Runs `body` with the paths that stand for `paths`. libc copies them.
///
/// # Safety
///
/// `paths` is null, or C strings and a null after them.
unsafe fn with_paths<T>(
    paths: *const *const c_char,
    body: impl FnOnce(*const *const c_char) -> T,
) -> T {
    // SAFETY: by contract; the list ends with the null.
    let given = (0..)
        .map_while(|index| unsafe { (!(*paths.add(index)).is_null()).then(|| *paths.add(index)) });
    // SAFETY: C strings by contract.
    let is_ours = |path: *const c_char| unsafe { classify(path) }.is_in_tree();
    if paths.is_null() || !given.clone().any(is_ours) {
        return body(paths);
    }
    // SAFETY: as above.
    let targets: Vec<(*const c_char, Target)> =
        given.map(|path| (path, unsafe { reading(path) })).collect();
    let mut places: Vec<_> = targets
        .iter()
        .map(|(path, target)| target.place(*path))
        .collect();
    places.push(ptr::null());
    body(places.as_ptr())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slashes_at_the_end_are_no_part_of_the_path_of_a_walk() {
        for (path, expected) in [("/a/b//", "/a/b"), ("/a", "/a"), ("///", "/"), ("", "")] {
            assert_eq!(trimmed(path.as_bytes()), expected.as_bytes(), "{path}");
        }
    }
}
