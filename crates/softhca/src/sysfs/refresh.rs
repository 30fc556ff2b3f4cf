//! Writes the files anew whose contents change, each when a program of this process is about to open it.

use super::counters::LiveFile;
use crate::shim;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::{fs, io};

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
