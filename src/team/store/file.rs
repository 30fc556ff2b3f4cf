//! A store for ranks that are processes of one machine, or of machines that share a file system with locks.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::{Store, StoreError, check_key};

/// Holds the run that the directory belongs to.
const RUN_FILE: &str = ".run";
/// Held while a compare-and-set looks and writes.
const LOCK_FILE: &str = ".lock";
/// Sleep between two looks at the directory: short, since bring-up is a chain of a few exchanges.
const POLL: Duration = Duration::from_millis(2);

/// A directory in which each key is a file. A value appears by rename, so that a reader sees it whole or not at all.
#[derive(Debug)]
pub struct FileStore {
    directory: PathBuf,
    temporary: AtomicU64,
}

impl FileStore {
    /// Opens `directory` for the run `run_id`. The first rank to come writes the run into it.
    ///
    /// # Errors
    /// The directory is missing, cannot be written, or belongs to another run.
    pub fn open(directory: &Path, run_id: &str) -> Result<Self, StoreError> {
        if !directory.is_dir() {
            return Err(StoreError::Missing {
                directory: directory.to_owned(),
            });
        }
        let store = Self {
            directory: directory.to_owned(),
            temporary: AtomicU64::new(0),
        };
        store.claim(run_id)?;
        Ok(store)
    }

    fn claim(&self, run_id: &str) -> Result<(), StoreError> {
        let path = self.directory.join(RUN_FILE);
        let _lock = self.lock()?;
        match read(&path)? {
            None => self.replace(&path, run_id.as_bytes()),
            Some(found) if found == run_id.as_bytes() => Ok(()),
            Some(found) => Err(StoreError::OtherRun {
                directory: self.directory.clone(),
                found: String::from_utf8_lossy(&found).into_owned(),
                wanted: run_id.to_owned(),
            }),
        }
    }

    /// Exclusive among all processes until the file is dropped.
    fn lock(&self) -> Result<File, StoreError> {
        let path = self.directory.join(LOCK_FILE);
        let open = File::options().create(true).append(true).open(&path);
        let file = open.map_err(io_error(&path))?;
        file.lock().map_err(io_error(&path))?;
        Ok(file)
    }

    fn path(&self, key: &str) -> Result<PathBuf, StoreError> {
        check_key(key)?;
        Ok(self.directory.join(key))
    }

    /// Writes a file beside `path` and renames it.
    fn replace(&self, path: &Path, value: &[u8]) -> Result<(), StoreError> {
        let number = self.temporary.fetch_add(1, Ordering::Relaxed);
        let id = std::process::id();
        let thread = std::thread::current().id();
        let unique = format!(".{id}-{number}-{thread:?}.new");
        let parent = path.parent().unwrap_or(&self.directory);
        fs::create_dir_all(parent).map_err(io_error(parent))?;
        let temporary = parent.join(unique);
        let write = || -> io::Result<()> {
            File::create(&temporary)?.write_all(value)?;
            fs::rename(&temporary, path)
        };
        write().map_err(io_error(path))
    }
}

impl Store for FileStore {
    fn put(&self, key: &str, value: &[u8]) -> Result<(), StoreError> {
        self.replace(&self.path(key)?, value)
    }

    fn try_get(&self, key: &str) -> Result<Option<Vec<u8>>, StoreError> {
        read(&self.path(key)?)
    }

    fn compare_and_set(
        &self,
        key: &str,
        expected: Option<&[u8]>,
        value: &[u8],
    ) -> Result<bool, StoreError> {
        let path = self.path(key)?;
        let _lock = self.lock()?;
        if read(&path)?.as_deref() != expected {
            return Ok(false);
        }
        self.replace(&path, value)?;
        Ok(true)
    }

    fn list(&self, key: &str) -> Result<Vec<String>, StoreError> {
        let path = self.path(key)?;
        let entries = match fs::read_dir(&path) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(source) => return Err(StoreError::Io { path, source }),
        };
        let mut names = Vec::new();
        for entry in entries {
            let name = entry.map_err(io_error(&path))?.file_name();
            let name = name.to_string_lossy();
            if !name.starts_with('.') {
                names.push(name.into_owned());
            }
        }
        names.sort_unstable();
        Ok(names)
    }

    fn wait_for_change(&self, timeout: Duration) {
        std::thread::sleep(timeout.min(POLL));
    }
}

fn read(path: &Path) -> Result<Option<Vec<u8>>, StoreError> {
    match fs::read(path) {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(io_error(path)(error)),
    }
}

fn io_error(path: &Path) -> impl FnOnce(io::Error) -> StoreError {
    let path = path.to_owned();
    |source| StoreError::Io { path, source }
}
