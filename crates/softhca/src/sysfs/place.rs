//! The path of the tree of a process, and whether the tree exists.

use crate::shim;
use private_dir::standard_parent;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

/// True once this process, or the process it was forked from, has made a tree.
static EXISTS: AtomicBool = AtomicBool::new(false);

/// Returns a new path for a tree of this process, without creating anything.
pub(crate) fn new_tree_path() -> PathBuf {
    let parent = match std::env::var_os("SOFTHCA_DIR").map(PathBuf::from) {
        Some(given) if given.is_absolute() => given,
        _ => standard_parent(),
    };
    parent.join(format!("p{}-{:08x}", shim::process_id(), fastrand::u32(..)))
}

/// Returns whether this process, or the process it was forked from, has a tree.
pub(crate) fn tree_exists() -> bool {
    EXISTS.load(Ordering::Acquire)
}

/// Notes that this process has made its tree.
pub(super) fn note_tree() {
    EXISTS.store(true, Ordering::Release);
}
