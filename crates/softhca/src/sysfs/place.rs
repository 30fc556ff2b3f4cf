//! Where the tree of a process lies, and whether there is one.

use crate::shim;
use private_dir::standard_parent;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

pub(super) static EXISTS: AtomicBool = AtomicBool::new(false);

/// Returns a new path for a tree of this process. Nothing is created.
pub(crate) fn new_tree_path() -> PathBuf {
    let parent = match std::env::var_os("SOFTHCA_DIR").map(PathBuf::from) {
        Some(given) if given.is_absolute() => given,
        _ => standard_parent(),
    };
    parent.join(format!("p{}-{:08x}", shim::process_id(), fastrand::u32(..)))
}

/// Returns whether this process, or the one it was forked from, has a tree.
pub(crate) fn tree_exists() -> bool {
    EXISTS.load(Ordering::Acquire)
}
