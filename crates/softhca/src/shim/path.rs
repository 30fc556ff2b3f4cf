//! Recognises the paths that this library answers for: the device nodes and the sysfs classes of RDMA devices.
//!
//! This code runs on every `open` of the process, also inside malloc and before main: it allocates nothing and takes no lock. The first
//! bytes of an absolute path are enough to see that the path does not concern this library. The words of a relative path are enough for
//! nearly all relative paths. Only for the rest the kernel is asked for the directory where the path begins.

// UNSAFETY: C strings given to libc functions, and a static buffer that is written while the process has one thread.
#![expect(unsafe_code, reason = "C strings and the buffer of the tree's path")]

use std::cell::UnsafeCell;
use std::ffi::CStr;
use std::sync::atomic::{AtomicUsize, Ordering};

use libc::{c_char, c_int};

use super::raw;
use crate::sysfs;

const NODE: &[u8] = b"/dev/infiniband/uverbs";
/// The first letters of the names of all RDMA classes: `infiniband`, `infiniband_verbs`, `infiniband_mad`.
const CLASS: &[u8] = b"infiniband";
const SYS: &[u8] = b"/sys";
/// The room for a path, with the zero at its end.
const PATH_BYTES: usize = libc::PATH_MAX as usize;

/// The meaning of a path for this library.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Target {
    /// A path that the kernel alone answers for.
    Other,
    /// The device node `/dev/infiniband/uverbsN`, by its number N.
    Node(u32),
    /// A path below the sysfs tree of this library, named directly.
    InTree,
    /// A relative path that begins at a directory of the tree, with its whole path.
    Beside(Redirected),
    /// A path below `/sys/class/infiniband*`, to be looked up in the tree of this library instead.
    Class(Redirected),
}

impl Target {
    /// Returns the path to hand to the kernel or to libc in place of `given`.
    pub(super) fn place(&self, given: *const c_char) -> *const c_char {
        match self {
            Self::Class(inside) => inside.as_ptr(),
            _ => given,
        }
    }

    /// Returns whether the path leads into the tree.
    pub(super) fn is_in_tree(&self) -> bool {
        matches!(self, Self::InTree | Self::Beside(_) | Self::Class(_))
    }

    /// Returns the whole path in the tree, for a path that leads there. `given` is the path that the program gave.
    pub(super) fn whole(&self, given: *const c_char) -> *const c_char {
        match self {
            Self::Class(whole) | Self::Beside(whole) => whole.as_ptr(),
            _ => given,
        }
    }
}

/// The place in the tree where a path below `/sys` lies.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Redirected {
    bytes: [u8; Self::CAPACITY],
}

impl Redirected {
    /// The size of the buffer in bytes. It is longer than any path in the tree.
    const CAPACITY: usize = 512;

    fn as_ptr(&self) -> *const c_char {
        self.bytes.as_ptr().cast()
    }

    /// Makes the path that consists of `start` and `parts`; `None` if that is too long.
    fn new(start: &[u8], parts: &[&[u8]]) -> Option<Self> {
        let mut bytes = [0; Self::CAPACITY];
        let mut end = 0;
        for part in std::iter::once(&start).chain(parts) {
            // The last byte stays 0: it ends the C string.
            let room = &mut bytes[end..Self::CAPACITY - 1];
            room.get_mut(..part.len())?.copy_from_slice(part);
            end += part.len();
        }
        Some(Self { bytes })
    }

    fn bytes(&self) -> &[u8] {
        let end = self.bytes.iter().position(|&byte| byte == 0);
        &self.bytes[..end.unwrap_or(Self::CAPACITY)]
    }
}

/// Classifies `path`. A relative `path` begins at the current directory of the process.
///
/// # Safety
///
/// `path` is null or a C string.
pub(super) unsafe fn classify(path: *const c_char) -> Target {
    // SAFETY: this is the contract of this function.
    unsafe { classify_at(libc::AT_FDCWD, path) }
}

/// Classifies `path`. A relative `path` begins at the directory `dir`.
///
/// # Safety
///
/// `path` is null or a C string.
pub(super) unsafe fn classify_at(dir: c_int, path: *const c_char) -> Target {
    if path.is_null() {
        return Target::Other;
    }
    // SAFETY: `path` is not null, so by contract it is a C string.
    let path = unsafe { CStr::from_ptr(path) }.to_bytes();
    let tree = TREE.get();
    if path.first() == Some(&b'/') {
        return classify_bytes(path, tree);
    }
    if tree.is_empty() || !may_be_ours(path) {
        return Target::Other;
    }
    let mut buffer = [0; PATH_BYTES];
    match raw::directory(dir, &mut buffer) {
        Some(base) => classify_beside(base, path, tree),
        None => Target::Other,
    }
}

/// Returns whether a relative path can lead to an RDMA class, or to a file of the tree that must be brought up to date before a read.
fn may_be_ours(path: &[u8]) -> bool {
    let name = path.rsplit(|&byte| byte == b'/').next();
    path.windows(CLASS.len()).any(|part| part == CLASS) || name.is_some_and(sysfs::changes)
}

fn classify_bytes(path: &[u8], tree: &[u8]) -> Target {
    if let Some(number) = path.strip_prefix(NODE) {
        return match decimal(number) {
            Some(number) => Target::Node(number),
            None => Target::Other,
        };
    }
    if tree.is_empty() {
        return Target::Other;
    }
    if is_below(path, tree) {
        return Target::InTree;
    }
    // Any other path that leads to a class has more slashes, or dots.
    if path.starts_with(SYS) || path.starts_with(b"//") || path.starts_with(b"/.") {
        return class(path, tree);
    }
    Target::Other
}

/// Classifies a relative path that begins at the directory `base`.
fn classify_beside(base: &[u8], path: &[u8], tree: &[u8]) -> Target {
    let whole = Redirected::new(base, &[b"/", path]);
    if is_below(base, tree) {
        return whole.map_or(Target::InTree, Target::Beside);
    }
    match whole {
        Some(whole) if is_below(base, SYS) => class(whole.bytes(), tree),
        _ => Target::Other,
    }
}

fn is_below(path: &[u8], directory: &[u8]) -> bool {
    matches!(path.strip_prefix(directory), Some([] | [b'/', ..]))
}

/// Classifies an absolute path, which may lead to an RDMA class. Links on the way to the class are not followed: the kernel has none there.
/// There are links inside the class, so the rest of the path stays as it is.
fn class(path: &[u8], tree: &[u8]) -> Target {
    let mut names: [&[u8]; 3] = [b""; 3];
    let mut depth = 0;
    let mut rest = path;
    loop {
        let tail = rest;
        let slashes = rest.iter().take_while(|&&byte| byte == b'/').count();
        rest = &rest[slashes..];
        let end = rest.iter().position(|&byte| byte == b'/');
        let name = &rest[..end.unwrap_or(rest.len())];
        let [first, second, third] = names;
        let is_inside = depth == names.len()
            && (first, second) == (b"sys", b"class")
            && third.starts_with(CLASS);
        if is_inside && name != b".." {
            return match Redirected::new(tree, &[b"/class/", third, tail]) {
                Some(redirected) => Target::Class(redirected),
                None => Target::Other, // too long for a file in the tree
            };
        }
        match name {
            b"" => return Target::Other,
            b"." => {}
            b".." => depth = depth.saturating_sub(1),
            _ if depth == names.len() => return Target::Other,
            _ => {
                names[depth] = name;
                depth += 1;
            }
        }
        rest = &rest[name.len()..];
    }
}

/// Returns the number that `digits` spells, if it fits. `digits` may have no sign and no leading zero.
fn decimal(digits: &[u8]) -> Option<u32> {
    if digits.is_empty() || digits.len() > 9 || (digits[0] == b'0' && digits.len() > 1) {
        return None;
    }
    digits.iter().try_fold(0u32, |value, digit| {
        digit
            .is_ascii_digit()
            .then(|| value * 10 + u32::from(digit - b'0'))
    })
}

/// The path of the sysfs tree of this process, which can be read without a lock.
pub(super) static TREE: TreePath = TreePath::new();

/// A path that is set once per process, and once more in the child of a fork.
///
/// The path is part of a string `SYSFS_PATH=PATH`, which libc's environment names by its address (`putenv`). So the child of a fork changes
/// its environment by a write to this string, without the lock of libc's environment. A thread of the parent may have held that lock at the
/// fork, and the child would then wait for the lock forever.
pub(super) struct TreePath {
    string: UnsafeCell<[u8; Self::VARIABLE.len() + Self::CAPACITY + 1]>,
    /// The number of bytes of the path.
    bytes_used: AtomicUsize,
    /// The number of bytes of the path that [`Self::set`] was given.
    bytes_set: AtomicUsize,
}

// SAFETY: `set` and `set_for_child` are only called while no other thread reads (their contract), and `get` only reads.
unsafe impl Sync for TreePath {}

impl TreePath {
    const VARIABLE: &[u8] = b"SYSFS_PATH=";
    /// The most bytes of the path. libibverbs keeps paths of devices in 256 bytes, and a path of a device is at most 100 bytes longer than
    /// the path of the tree.
    const CAPACITY: usize = 150;
    /// The number of bytes that the child of a fork puts after the path: `-` and its process id, of at most 10 digits.
    const CHILD: usize = 11;

    const fn new() -> Self {
        let mut string = [0; Self::VARIABLE.len() + Self::CAPACITY + 1];
        let mut at = 0;
        while at < Self::VARIABLE.len() {
            string[at] = Self::VARIABLE[at];
            at += 1;
        }
        Self {
            string: UnsafeCell::new(string),
            bytes_used: AtomicUsize::new(0),
            bytes_set: AtomicUsize::new(0),
        }
    }

    /// Returns the path, which is empty before `set`.
    pub(super) fn get(&self) -> &[u8] {
        // Acquire: pairs with the release in `set`.
        let used = self.bytes_used.load(Ordering::Acquire);
        // SAFETY: no thread writes after `set`, whose contract excludes readers of an older path.
        unsafe { &(&*self.string.get())[Self::VARIABLE.len()..][..used] }
    }

    /// Returns the string for the environment, which is a C string at all times.
    pub(super) fn variable(&self) -> *mut c_char {
        self.string.get().cast()
    }

    /// Sets the path. Returns whether the path fitted, with room for what a child of a fork puts after it.
    ///
    /// # Safety
    ///
    /// No path was set before.
    pub(super) unsafe fn set(&self, path: &[u8]) -> bool {
        if path.len() > Self::CAPACITY - Self::CHILD {
            return false;
        }
        // SAFETY: no thread reads the string by contract: nobody looks at a path of no bytes.
        let string = unsafe { &mut *self.string.get() };
        string[Self::VARIABLE.len()..][..path.len()].copy_from_slice(path);
        self.bytes_set.store(path.len(), Ordering::Relaxed);
        // Release: pairs with the acquire in `get`.
        self.bytes_used.store(path.len(), Ordering::Release);
        true
    }

    /// Gives the child of a fork, whose process id is `id`, a path of its own: the path that was set, `-` and the id. If no path was set,
    /// the child has none either. This function neither allocates nor calls libc.
    ///
    /// # Safety
    ///
    /// The caller is the child of a fork, and the calling thread is its only thread.
    pub(super) unsafe fn set_for_child(&self, id: u32) {
        let set = self.bytes_set.load(Ordering::Relaxed);
        if set == 0 {
            return;
        }
        // SAFETY: there is no other thread by contract.
        let string = unsafe { &mut *self.string.get() };
        let end = &mut string[Self::VARIABLE.len() + set..];
        end.fill(0);
        let digits = id.checked_ilog10().map_or(1, |log| log as usize + 1);
        end[0] = b'-';
        let mut rest = id;
        for digit in end[1..=digits].iter_mut().rev() {
            *digit = b"0123456789"[rest as usize % 10];
            rest /= 10;
        }
        self.bytes_used.store(set + 1 + digits, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn redirected(to: &str) -> Target {
        Target::Class(Redirected::new(to.as_bytes(), &[]).unwrap())
    }

    #[test]
    fn nodes_tree_and_class_are_ours_and_nothing_else() {
        let classify = |path: &str| classify_bytes(path.as_bytes(), b"/tmp/tree");
        let table = [
            ("/dev/infiniband/uverbs0", Target::Node(0)),
            ("/dev/infiniband/uverbs17", Target::Node(17)),
            ("/dev/infiniband/uverbs", Target::Other),
            ("/dev/infiniband/uverbs01", Target::Other),
            ("/dev/infiniband/uverbs1x", Target::Other),
            ("/dev/infiniband/uverbs99999999999", Target::Other),
            ("/dev/infiniband/rdma_cm", Target::Other),
            ("/tmp/tree", Target::InTree),
            ("/tmp/tree/class", Target::InTree),
            ("/tmp/treetop", Target::Other),
            ("/tmp", Target::Other),
            ("", Target::Other),
            ("relative", Target::Other),
            ("/sys/class/net", Target::Other),
            (
                "/sys/class/infiniband",
                redirected("/tmp/tree/class/infiniband"),
            ),
            (
                "/sys/class/infiniband_verbs/uverbs0/dev",
                redirected("/tmp/tree/class/infiniband_verbs/uverbs0/dev"),
            ),
        ];
        for (path, expected) in table {
            assert_eq!(classify(path), expected, "{path}");
        }
    }

    #[test]
    fn a_class_is_found_through_dots_and_slashes_and_only_there() {
        let classify = |path: &str| classify_bytes(path.as_bytes(), b"/t");
        for (path, inside) in [
            ("//sys/class/infiniband", "/t/class/infiniband"),
            ("/./sys//class/./infiniband/", "/t/class/infiniband/"),
            ("/sys/class/net/../infiniband", "/t/class/infiniband"),
            (
                "/sys/class/infiniband/../infiniband_verbs/uverbs0",
                "/t/class/infiniband_verbs/uverbs0",
            ),
            // The kernel follows links after the class.
            (
                "/sys/class/infiniband/mlx5_0/device/../x",
                "/t/class/infiniband/mlx5_0/device/../x",
            ),
        ] {
            assert_eq!(classify(path), redirected(inside), "{path}");
        }
        for path in [
            "/sys",
            "/sys/class",
            "/sys/class/infiniband/..",
            "/sys/class/infiniband/../net",
            "/sys/class/net/infiniband",
            "/sys/devices/class/infiniband",
            "/../..",
            "//",
        ] {
            assert_eq!(classify(path), Target::Other, "{path}");
        }
    }

    #[test]
    fn a_relative_path_is_ours_by_the_directory_that_it_begins_at() {
        let classify =
            |base: &str, path: &str| classify_beside(base.as_bytes(), path.as_bytes(), b"/t");
        for (base, path) in [
            ("/sys", "class/infiniband/mlx5_0"),
            ("/sys/class", "infiniband/mlx5_0"),
            ("/sys/class/net", "../infiniband/mlx5_0"),
        ] {
            let expected = redirected("/t/class/infiniband/mlx5_0");
            assert_eq!(classify(base, path), expected, "{base} {path}");
        }
        let beside = Redirected::new(b"/t/class/infiniband/state", &[]).unwrap();
        assert_eq!(
            classify("/t/class/infiniband", "state"),
            Target::Beside(beside)
        );
        for (base, path) in [("/home", "class/infiniband"), ("/system", "infiniband")] {
            assert_eq!(classify(base, path), Target::Other, "{base} {path}");
        }
        // For most paths the kernel is not asked.
        assert!(may_be_ours(b"infiniband/x") && may_be_ours(b"ports/1/state"));
        assert!(!may_be_ours(b"Cargo.toml") && !may_be_ours(b"") && !may_be_ours(b"class/net"));
    }

    /// Returns the string that the environment would name.
    fn variable(path: &TreePath) -> &str {
        // SAFETY: `variable` returns a C string in a static buffer, by its contract.
        unsafe { CStr::from_ptr(path.variable()) }.to_str().unwrap()
    }

    #[test]
    fn children_of_forks_have_paths_behind_that_of_the_first_process() {
        let path = TreePath::new();
        assert_eq!(
            (variable(&path), path.get()),
            ("SYSFS_PATH=", b"".as_slice())
        );
        // SAFETY: this is the only thread that uses the path.
        unsafe { path.set_for_child(7) };
        assert_eq!(
            (variable(&path), path.get()),
            ("SYSFS_PATH=", b"".as_slice())
        );
        // SAFETY: as above, and no path was set before.
        assert!(unsafe { path.set(b"/tmp/p5") });
        assert_eq!(variable(&path), "SYSFS_PATH=/tmp/p5");
        // A child, a child of that child, and ids of the fewest and the most digits.
        for id in [4_194_304, 12, 0, 9, 10, 99, 100, u32::MAX] {
            // SAFETY: as above.
            unsafe { path.set_for_child(id) };
            assert_eq!(path.get(), format!("/tmp/p5-{id}").as_bytes());
            assert_eq!(variable(&path), format!("SYSFS_PATH=/tmp/p5-{id}"));
        }
    }

    #[test]
    fn a_path_leaves_room_for_that_of_any_child() {
        let longest = [b'a'; TreePath::CAPACITY - TreePath::CHILD + 1];
        let path = TreePath::new();
        // SAFETY: this is the only thread that uses the path, and no path was set before.
        assert!(!unsafe { path.set(&longest) });
        // SAFETY: as above.
        assert!(unsafe { path.set(&longest[1..]) });
        // SAFETY: as above.
        unsafe { path.set_for_child(u32::MAX) };
        assert_eq!(path.get().len(), TreePath::CAPACITY);
        assert!(variable(&path).ends_with("a-4294967295"));
    }

    #[test]
    fn without_a_tree_sysfs_is_the_kernels() {
        assert_eq!(classify_bytes(b"/sys/class/infiniband", b""), Target::Other);
        assert_eq!(classify_bytes(b"", b""), Target::Other);
    }

    #[test]
    fn a_path_longer_than_any_in_the_tree_is_the_kernels() {
        let long = [b"/sys/class/infiniband/".as_slice(), &[b'a'; 500]].concat();
        assert_eq!(classify_bytes(&long, b"/tmp/tree"), Target::Other);
    }
}
