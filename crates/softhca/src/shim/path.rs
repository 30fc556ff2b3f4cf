//! Which paths are ours: the device nodes and the sysfs classes of RDMA devices.
//!
//! Runs on every `open` of the process, also inside malloc and before main: no allocation, no lock, no system
//! call, and a path that is not ours is told apart by its first bytes.

// UNSAFETY: C strings given to libc functions; a static buffer that is written before other threads exist.
#![expect(unsafe_code, reason = "C strings and the buffer of the tree's path")]

use std::cell::UnsafeCell;
use std::ffi::CStr;
use std::sync::atomic::{AtomicUsize, Ordering};

use libc::c_char;

const NODE: &[u8] = b"/dev/infiniband/uverbs";
const CLASS: &[u8] = b"/sys/class/infiniband";
const SYS: usize = b"/sys".len();

/// What a path means to this library.
#[expect(clippy::large_enum_variant, reason = "a box would be an allocation")]
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Target {
    /// Not ours: the kernel answers.
    Other,
    /// `/dev/infiniband/uverbsN`.
    Node(u32),
    /// A path below our sysfs tree, named directly.
    InTree,
    /// A path below `/sys/class/infiniband*`, to be looked up in our tree instead.
    Class(Redirected),
}

impl Target {
    /// The path to hand to the kernel or to libc in place of `given`.
    pub(super) fn place(&self, given: *const c_char) -> *const c_char {
        match self {
            Self::Class(inside) => inside.as_ptr(),
            _ => given,
        }
    }

    /// Whether the path leads into the tree.
    pub(super) fn is_in_tree(&self) -> bool {
        matches!(self, Self::InTree | Self::Class(_))
    }
}

/// Where a path below `/sys` lies in the tree.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Redirected {
    bytes: [u8; Self::CAPACITY],
}

impl Redirected {
    /// Longer than any path in the tree.
    const CAPACITY: usize = 512;

    fn as_ptr(&self) -> *const c_char {
        self.bytes.as_ptr().cast()
    }

    fn new(tree: &[u8], rest: &[u8]) -> Option<Self> {
        let mut bytes = [0; Self::CAPACITY];
        let end = tree.len() + rest.len();
        // The last byte stays 0: it ends the C string.
        if end >= Self::CAPACITY {
            return None;
        }
        bytes[..tree.len()].copy_from_slice(tree);
        bytes[tree.len()..end].copy_from_slice(rest);
        Some(Self { bytes })
    }
}

/// Classifies `path`.
///
/// # Safety
///
/// `path` is null or a C string.
pub(super) unsafe fn classify(path: *const c_char) -> Target {
    if path.is_null() {
        return Target::Other;
    }
    // SAFETY: not null, so a C string by contract.
    let path = unsafe { CStr::from_ptr(path) };
    classify_bytes(path.to_bytes(), TREE.get())
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
    if path.starts_with(CLASS) {
        return match Redirected::new(tree, &path[SYS..]) {
            Some(redirected) => Target::Class(redirected),
            None => Target::Other, // too long for a file in the tree
        };
    }
    match path.strip_prefix(tree) {
        Some([] | [b'/', ..]) => Target::InTree,
        _ => Target::Other,
    }
}

/// The number that `digits` spells, without leading zeros or signs, if it fits.
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

/// The path of the sysfs tree of this process, readable without a lock.
pub(super) static TREE: TreePath = TreePath {
    bytes: UnsafeCell::new([0; TreePath::CAPACITY]),
    bytes_used: AtomicUsize::new(0),
};

/// A path that is set once per process (and again in the child of a fork).
pub(super) struct TreePath {
    bytes: UnsafeCell<[u8; Self::CAPACITY]>,
    bytes_used: AtomicUsize,
}

// SAFETY: `set` is only called while no other thread reads (its contract), `get` only reads.
unsafe impl Sync for TreePath {}

impl TreePath {
    /// libibverbs keeps paths of devices in 256 bytes; ours are at most 100 bytes longer than the tree's.
    pub(super) const CAPACITY: usize = 150;

    /// Empty before `set`.
    pub(super) fn get(&self) -> &[u8] {
        // Acquire: pairs with the release in `set`.
        let used = self.bytes_used.load(Ordering::Acquire);
        // SAFETY: nobody writes after `set`, whose contract excludes readers of an older value.
        unsafe { &(&*self.bytes.get())[..used] }
    }

    /// Whether the path fitted.
    ///
    /// # Safety
    ///
    /// No other thread uses a path that was set before: nothing was set, or this is the child of a fork.
    pub(super) unsafe fn set(&self, path: &[u8]) -> bool {
        if path.len() > Self::CAPACITY {
            return false;
        }
        self.bytes_used.store(0, Ordering::Relaxed);
        // SAFETY: no reader by contract.
        let bytes = unsafe { &mut *self.bytes.get() };
        bytes[..path.len()].copy_from_slice(path);
        // Release: pairs with the acquire in `get`.
        self.bytes_used.store(path.len(), Ordering::Release);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn redirected(to: &str) -> Target {
        Target::Class(Redirected::new(to.as_bytes(), b"").unwrap())
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
