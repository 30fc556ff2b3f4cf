//! Scratch files: what a handle writes before it gets its name. Beats of leases lie beside them.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::disk::{check_exists, gone, io_error, is_there, names, rename_if_there};
use super::leases::{LeaseRecord, is_beat};
use crate::{Process, StoreError};

/// The directory in which files are written before they get their name, and which holds beats.
pub(super) const SCRATCH: &str = ".new";
/// The ending of a scratch file whose change was made.
const DONE: &str = ".done";
/// The most bytes of the name of a scratch file.
pub(super) const MAX_SCRATCH: usize = 128;

/// The scratch files of one handle.
#[derive(Debug)]
pub(super) struct ScratchFiles {
    /// The directory of the store.
    directory: PathBuf,
    /// The prefix of this handle's scratch files. No other handle has it.
    own: String,
    written: AtomicU64,
    /// True if the scratch directory was gone and this handle has made it again.
    restored: AtomicBool,
}

impl ScratchFiles {
    /// Makes the scratch directory in `directory`, which exists, and clears what ended processes have left there.
    pub(super) fn open(directory: &Path) -> Result<Self, StoreError> {
        let scratch = directory.join(SCRATCH);
        fs::create_dir_all(&scratch).map_err(io_error(&scratch))?;
        clear(&scratch);
        Ok(Self {
            directory: directory.to_owned(),
            own: format!("{}-{:016x}", Process::this().tag(), fastrand::u64(..)),
            written: AtomicU64::new(0),
            restored: AtomicBool::new(false),
        })
    }

    /// Returns the path of the scratch file or beat of this name.
    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.directory.join(SCRATCH).join(name)
    }

    /// Returns a name that no other file has, and its path.
    pub(super) fn new_name(&self) -> (String, PathBuf) {
        let number = self.written.fetch_add(1, Ordering::Relaxed);
        let name = format!("{}-{number}", self.own);
        let path = self.path(&name);
        (name, path)
    }

    /// Writes a scratch file with the bytes that `bytes` makes of its name.
    pub(super) fn write(&self, bytes: impl FnOnce(&str) -> Vec<u8>) -> Result<Scratch, StoreError> {
        let (name, path) = self.new_name();
        let bytes = bytes(&name);
        let made = File::create_new(&path).or_else(|error| {
            // The directory was removed and exists again.
            if !gone(&error) || !self.directory.is_dir() {
                return Err(error);
            }
            fs::create_dir_all(self.directory.join(SCRATCH))?;
            self.restored.store(true, Ordering::Relaxed);
            File::create_new(&path)
        });
        let mut file = made.map_err(|error| match check_exists(&self.directory) {
            Ok(()) => io_error(&path)(error),
            Err(missing) => missing,
        })?;
        let scratch = Scratch {
            path,
            is_gone: false,
        };
        let written = file.write_all(&bytes);
        written.map_err(io_error(&scratch.path))?;
        Ok(scratch)
    }

    /// Makes a scratch directory with the empty directory `inner` in it. Returns its path.
    pub(super) fn make_directory(&self, inner: &str) -> Result<PathBuf, StoreError> {
        let (_, path) = self.new_name();
        if !self.directory.join(SCRATCH).is_dir() {
            self.restored.store(true, Ordering::Relaxed);
        }
        let inner = path.join(inner);
        fs::create_dir_all(&inner).map_err(io_error(&inner))?;
        Ok(path)
    }

    /// Shows the writer of the scratch file `name` that its change was made, unless the file is gone.
    pub(super) fn show_done(&self, name: &str) -> Result<(), StoreError> {
        let written = self.path(name);
        rename_if_there(&written, &done(&written))
    }

    /// Returns whether the scratch directory was gone since the last call of this function. Then the directory has lost its contents.
    pub(super) fn take_restored(&self) -> bool {
        self.restored.swap(false, Ordering::Relaxed)
    }
}

/// A scratch file. It is removed when this is dropped.
#[derive(Debug)]
pub(super) struct Scratch {
    path: PathBuf,
    is_gone: bool,
}

impl Scratch {
    /// Renames the file to `path`, and replaces a file of that name.
    pub(super) fn replace(mut self, path: &Path) -> Result<(), StoreError> {
        fs::rename(&self.path, path).map_err(io_error(path))?;
        self.is_gone = true;
        Ok(())
    }

    /// Links the file to `path`.
    pub(super) fn link(&self, path: &Path) -> io::Result<()> {
        fs::hard_link(&self.path, path)
    }

    /// Returns whether a link to the file was made, although the system says that it was not.
    pub(super) fn has_links(&self) -> bool {
        fs::metadata(&self.path).is_ok_and(|data| data.nlink() > 1)
    }

    /// Returns whether another process has shown that the change of this file was made.
    pub(super) fn is_done(&self) -> Result<bool, StoreError> {
        is_there(&done(&self.path))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // Other processes rename the file from its name to `.done`, and never back.
        if !self.is_gone && fs::remove_file(&self.path).is_err() {
            let _ = fs::remove_file(done(&self.path));
        }
    }
}

/// Returns whether a scratch file may have this name.
pub(super) fn is_name(name: &[u8]) -> bool {
    let fits = |byte: &u8| byte.is_ascii_hexdigit() || *byte == b'-';
    !name.is_empty() && name.len() <= MAX_SCRATCH && name.iter().all(fits)
}

/// Returns the path of a scratch file after its change was made.
fn done(scratch: &Path) -> PathBuf {
    let mut path = scratch.as_os_str().to_owned();
    path.push(DONE);
    path.into()
}

/// Removes the files in the scratch directory that belong to ended processes of this machine.
fn clear(scratch: &Path) {
    for name in names(scratch).unwrap_or_default() {
        let path = scratch.join(&name);
        let is_left = if is_beat(&name) {
            LeaseRecord::of_beat(&fs::read(&path).unwrap_or_default())
                .is_some_and(|record| record.has_ended())
        } else {
            Process::of_tag(&name).is_some_and(|process| process.has_ended())
        };
        if is_left {
            let _ = fs::remove_file(&path).or_else(|_| fs::remove_dir_all(&path));
        }
    }
}
