//! The tree of this process: its directory, and the devices in it.

use super::error::{Cause, SysfsError};
use super::identity::Identity;
use super::{files, place};
use crate::shim;
use private_dir::{PrivateDir, standard_parent, sweep};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The tree of this process; `None` until there is a device.
static TREE: Mutex<Option<Tree>> = Mutex::new(None);

struct Tree {
    dir: PrivateDir,
    owner: libc::c_int,
}

/// Makes a device visible. The first device of the process also creates the tree.
///
/// # Errors
///
/// If the tree or its files cannot be written. The device is then not in the tree.
pub(crate) fn add_device(device: &Identity) -> Result<(), SysfsError> {
    Ok(add(device)?)
}

fn add(device: &Identity) -> Result<(), Cause> {
    if device.index >= Identity::MAX_INDEX {
        return Err(Cause::Index {
            index: device.index,
        });
    }
    if shim::is_forked_child() {
        return Err(Cause::Forked);
    }
    let mut slot = lock();
    let tree = match &mut *slot {
        Some(tree) => tree,
        None => slot.insert(create_tree()?),
    };
    files::write(tree.dir.path(), device).map_err(|source| {
        files::remove(tree.dir.path(), device);
        Cause::Entry {
            device: device.name.clone(),
            tree: tree.dir.path().to_path_buf(),
            source,
        }
    })
}

fn create_tree() -> Result<Tree, Cause> {
    let path = shim::tree_path();
    let Some(parent) = path.parent() else {
        return Err(Cause::NoPath); // the path is empty
    };
    sweep(&standard_parent());
    sweep(parent);
    let dir = PrivateDir::create(&path)?;
    files::write_root(dir.path()).map_err(|source| Cause::Entry {
        device: "every device".into(),
        tree: path.clone(),
        source,
    })?;
    place::note_tree();
    shim::at_exit(remove_tree);
    Ok(Tree {
        dir,
        owner: shim::process_id(),
    })
}

/// Makes a device invisible: removes its files from the tree.
pub(crate) fn remove_device(device: &Identity) {
    if let Some(tree) = &*lock() {
        files::remove(tree.dir.path(), device);
    }
}

/// Removes the tree when the process exits. A killed process leaves its tree behind; the next start of a process sweeps it up.
extern "C" fn remove_tree() {
    let tree = match TREE.try_lock() {
        Ok(mut slot) => slot.take(),
        // A thread is in the middle of adding a device, and will not finish.
        Err(_) => return,
    };
    if let Some(tree) = tree
        && tree.owner == shim::process_id()
    {
        tree.dir.remove();
    }
}

fn lock() -> MutexGuard<'static, Option<Tree>> {
    TREE.lock().unwrap_or_else(PoisonError::into_inner)
}
