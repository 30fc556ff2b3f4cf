//! Why a device is not in the tree.

use super::identity::Identity;
use private_dir::PrivateDirError;
use std::io;
use std::path::PathBuf;
use thiserror::Error;

/// The reason why a device could not be put into the tree.
#[derive(Debug, Error)]
#[error(transparent)]
pub struct SysfsError(#[from] Cause);

#[derive(Debug, Error)]
pub(super) enum Cause {
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
