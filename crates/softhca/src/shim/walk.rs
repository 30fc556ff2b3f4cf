//! `ftw`, `nftw` and `fts_open`: the walks of libc, which opens directories by itself.
//!
//! The walk goes through the tree. The caller's function is told paths that begin like the path that the caller gave. Entries of `fts_read`
//! lie in buffers of libc, so they have the paths of the tree.

// UNSAFETY: exported C symbols, calls of the next definitions of these symbols, and calls of the caller's function.
#![expect(unsafe_code, reason = "exported libc symbols")]

use std::cell::Cell;
use std::ffi::CStr;
use std::ptr;

use libc::{c_char, c_int, c_void};

use super::next::Next;
use super::path::{Target, classify};
use super::stdio::reading;

/// The `struct FTW` of libc.
#[repr(C)]
struct Place {
    /// The offset of the file's name in its path.
    base: c_int,
    level: c_int,
}

type Ftw = unsafe extern "C" fn(*const c_char, *const c_void, c_int) -> c_int;
type Nftw = unsafe extern "C" fn(*const c_char, *const c_void, c_int, *mut Place) -> c_int;

/// The function that the caller passed, by the kind of the walk.
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
    /// The path in the tree that stands for `given`.
    inside: &'a [u8],
}

thread_local! {
    /// The innermost walk that this thread is in; null if there is none.
    static WALK: Cell<*const Walk<'static>> = const { Cell::new(ptr::null()) };
}

/// Returns `path` without the slashes at its end, as libc names it in a walk.
fn trimmed(path: &[u8]) -> &[u8] {
    let end = path.iter().rposition(|&byte| byte != b'/');
    &path[..end.map_or(path.len().min(1), |last| last + 1)]
}

/// Tells the caller's function one path.
///
/// # Safety
///
/// libc calls this function during a walk that [`Walk::run`] has begun.
unsafe extern "C" fn tell(
    path: *const c_char,
    stat: *const c_void,
    kind: c_int,
    place: *mut Place,
) -> c_int {
    let walk = WALK.get();
    // SAFETY: `run` holds the walk until the walk is over. `run` has set it in this thread, and walks inside this walk have set it back.
    let walk = unsafe { &*walk };
    // SAFETY: `path` is libc's own path, a C string.
    let told = unsafe { CStr::from_ptr(path) }.to_bytes();
    let Some(rest) = told.strip_prefix(walk.inside) else {
        // SAFETY: libc has called this function with the same arguments.
        return unsafe { walk.visit.call(path, stat, kind, place) };
    };
    let mut own = Vec::with_capacity(walk.given.len() + rest.len() + 1);
    own.extend_from_slice(walk.given);
    own.extend_from_slice(rest);
    own.push(0);
    let longer = c_int::try_from(walk.given.len()).unwrap_or(0)
        - c_int::try_from(walk.inside.len()).unwrap_or(0);
    if !place.is_null() {
        // SAFETY: `place` is libc's own struct, which this function may read and write: libc fills it anew for each call.
        unsafe { (*place).base += longer };
    }
    // SAFETY: `own` is a C string that lives until the call returns, and libc has called this function with the other arguments.
    let answer = unsafe { walk.visit.call(own.as_ptr().cast(), stat, kind, place) };
    if !place.is_null() {
        // SAFETY: as above. libc goes on with its own base.
        unsafe { (*place).base -= longer };
    }
    answer
}

/// Tells the caller's function one path, as [`tell`] does, in a walk of `ftw`.
///
/// # Safety
///
/// The contract of [`tell`].
unsafe extern "C" fn tell_ftw(path: *const c_char, stat: *const c_void, kind: c_int) -> c_int {
    // SAFETY: this is the contract of this function.
    unsafe { tell(path, stat, kind, ptr::null_mut()) }
}

impl Visit {
    /// # Safety
    ///
    /// The function is the caller's, and the arguments are what libc promises to that function.
    unsafe fn call(
        self,
        path: *const c_char,
        stat: *const c_void,
        kind: c_int,
        place: *mut Place,
    ) -> c_int {
        match self {
            // SAFETY: this is the contract of this function.
            Self::Ftw(visit) => unsafe { visit(path, stat, kind) },
            // SAFETY: this is the contract of this function.
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
/// The caller keeps the contract of `nftw(3)` and `ftw(3)`. `walk` calls libc's definition with the path that it is given. If its second
/// argument is true, `walk` passes [`tell`] in place of `visit`.
unsafe fn walk(
    path: *const c_char,
    visit: Visit,
    walk: impl FnOnce(*const c_char, bool) -> c_int,
) -> c_int {
    // SAFETY: `path` is a C string or null by contract.
    let target = unsafe { reading(path) };
    let Target::Class(_) = target else {
        return walk(target.place(path), false);
    };
    let place = target.place(path);
    // SAFETY: both are C strings: `path` was classified as a C string, and `place` stands for it.
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
        // SAFETY: the name, the signature and the meaning are those of libc.
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
            // SAFETY: the caller of this function keeps the same contract.
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
        // SAFETY: the name, the signature and the meaning are those of libc.
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
            // SAFETY: the caller of this function keeps the same contract.
            unsafe { with_paths(paths, |paths| next(paths, options, order)) }
        }
    )+ };
}

fts_symbols!(fts_open: c"fts_open" fts64_open: c"fts64_open");

/// Runs `body` with the paths that stand for `paths`. libc copies the paths.
///
/// # Safety
///
/// `paths` is null, or a list of C strings that ends with a null.
unsafe fn with_paths<T>(
    paths: *const *const c_char,
    body: impl FnOnce(*const *const c_char) -> T,
) -> T {
    // SAFETY: `paths` is a list by contract, and the list ends with the null.
    let given = (0..)
        .map_while(|index| unsafe { (!(*paths.add(index)).is_null()).then(|| *paths.add(index)) });
    // SAFETY: the paths are C strings by contract.
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
