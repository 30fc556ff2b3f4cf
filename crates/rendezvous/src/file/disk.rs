//! What the file system answers, as a store takes it.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::Path;

use crate::StoreError;

/// Refuses a directory that does not exist.
pub(super) fn check_exists(directory: &Path) -> Result<(), StoreError> {
    if directory.is_dir() {
        Ok(())
    } else {
        Err(StoreError::Missing {
            directory: directory.to_owned(),
        })
    }
}

/// Returns the names in a directory.
pub(super) fn names(directory: &Path) -> io::Result<Vec<String>> {
    let names = fs::read_dir(directory)?
        .map(|entry| entry.map(|entry| entry.file_name().to_string_lossy().into_owned()));
    names.collect()
}

/// Returns whether something has this path.
pub(super) fn is_there(path: &Path) -> Result<bool, StoreError> {
    match fs::symlink_metadata(path) {
        Ok(_) => Ok(true),
        Err(error) if gone(&error) => Ok(false),
        Err(error) => Err(io_error(path)(error)),
    }
}

/// Renames what has the path `from`. Does nothing if there is nothing.
pub(super) fn rename_if_there(from: &Path, to: &Path) -> Result<(), StoreError> {
    match fs::rename(from, to) {
        Err(error) if !gone(&error) => Err(io_error(from)(error)),
        _ => Ok(()),
    }
}

/// Returns whether the error means that the path does not exist, or no longer exists.
pub(super) fn gone(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::NotFound | ErrorKind::StaleNetworkFileHandle
    )
}

/// Returns what makes an error of the system the error of a store, with the path.
pub(super) fn io_error(path: &Path) -> impl FnOnce(io::Error) -> StoreError {
    let path = path.to_owned();
    |source| StoreError::Io { path, source }
}
