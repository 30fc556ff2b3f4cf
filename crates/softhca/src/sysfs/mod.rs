//! The sysfs tree in which libibverbs and other tools find the software HCAs of this process.
//!
//! The tree is a real directory, which `SYSFS_PATH` names, since libibverbs and libc walk it with calls that this library cannot take over.
//! Its shape is that of the kernel: class directories hold links to devices below a PCI function. So `realpath` on a class link gives a PCI
//! path.
//!
//! The link of a device in `class/infiniband_verbs` is made last and removed first. libibverbs finds a device by this link. So a program
//! that lists devices meanwhile sees only devices that are whole. The files of `counters` and `hw_counters` and the states of ports are
//! written anew each time this process opens one of them.

mod counters;
mod cpus;
mod files;
mod identity;
mod place;

pub(crate) use counters::changes;
pub(crate) use identity::{GidType, Identity, MAX_PORTS, PortIdentity, port_number};
pub(crate) use place::{new_tree_path, tree_exists};

use crate::shim;
use crate::sysfs::place::EXISTS;
use counters::LiveFile;
use private_dir::{PrivateDir, PrivateDirError, standard_parent, sweep};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::{fs, io};
use thiserror::Error;

/// The reason why a device could not be put into the tree.
#[derive(Debug, Error)]
#[error(transparent)]
pub struct SysfsError(#[from] Cause);

#[derive(Debug, Error)]
enum Cause {
    #[error(transparent)]
    Dir(#[from] PrivateDirError),
    #[error("cannot write the sysfs entries of {device} in {tree}: {source}", tree = .tree.display())]
    Entry {
        device: String,
        tree: PathBuf,
        source: io::Error,
    },
    #[error("device number {index} is above the limit of {limit}", limit = Identity::MAX_INDEX - 1)]
    Index { index: u32 },
    #[error("this process was forked from one that has software HCAs, and cannot have its own")]
    Forked,
    #[error("no path for the sysfs tree is short enough")]
    NoPath,
}

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
    EXISTS.store(true, Ordering::Release);
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

/// Brings the file at `path`, which is about to be opened, up to date, if it is a counter or a state of a port.
pub(crate) fn refresh(path: &[u8]) {
    if let Some(file) = LiveFile::parse(path)
        && let Some(value) = file.value()
    {
        // If this fails, a reader finds the old value.
        let _ = replace(Path::new(OsStr::from_bytes(path)), &format!("{value}\n"));
    }
}

/// Replaces the text of the file at `path` in one step. Another thread that reads the file finds the old text or the new text, and never a
/// part.
fn replace(path: &Path, text: &str) -> io::Result<()> {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    // The new file lies outside the directories that readers list. Its name holds the process id, since a forked child counts on from the
    // same number.
    let new = shim::tree_path().join(format!("new.{}.{number}", shim::process_id()));
    let replaced = fs::write(&new, text).and_then(|()| fs::rename(&new, path));
    if replaced.is_err() {
        let _ = fs::remove_file(&new);
    }
    replaced
}

fn lock() -> MutexGuard<'static, Option<Tree>> {
    TREE.lock().unwrap_or_else(PoisonError::into_inner)
}
