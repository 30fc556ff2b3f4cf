//! A store for ranks that are processes of one machine, or of machines that share a file system with hard links.
//!
//! A key `a/b` is the files `a/b@1`, `a/b@2` and so on, one for each change: a writer links a finished file to the next
//! number, which fails for all but one, and the value is that of the highest number. So nothing is ever locked: a process
//! that is killed or stopped in the middle of anything has made its change or not, and holds up nobody. No file is removed while
//! the run lasts: a number that became free could be taken twice. Keys change when membership does, not with every beat.

use std::collections::HashMap;
use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use super::file_lease::{LeaseRecord, Leases};
use super::{LeaseId, Store, StoreError, check_key, check_ttl, check_value};

/// The key that holds the run that the directory belongs to. No rank can write it: names do not begin with a dot.
const RUN: &str = ".run";
/// Where files are written before they get their name.
const SCRATCH: &str = ".new";
/// A file there that is older, of a process that has ended, was left by it.
const LEFT_OVER: Duration = Duration::from_secs(60);
/// Sleep between two looks at the directory: short, since bring-up is a chain of a few exchanges.
const POLL: Duration = Duration::from_millis(2);

/// A directory that is a store.
#[derive(Debug)]
pub struct FileStore {
    directory: PathBuf,
    scratch: AtomicU64,
    /// By key: a change that was there once.
    seen: Mutex<HashMap<String, u64>>,
    leases: Leases,
}

/// What a change made of the key.
#[derive(Debug)]
enum Content {
    Value(Vec<u8>),
    Leased(LeaseRecord, Vec<u8>),
    Removed,
}

/// A key as it was found.
struct Found {
    /// Number of its newest change; 0: none.
    version: u64,
    content: Content,
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
            scratch: AtomicU64::new(0),
            seen: Mutex::default(),
            leases: Leases::default(),
        };
        let scratch = directory.join(SCRATCH);
        fs::create_dir_all(&scratch).map_err(io_error(&scratch))?;
        clear(&scratch);
        store.claim(run_id)?;
        Ok(store)
    }

    fn claim(&self, run_id: &str) -> Result<(), StoreError> {
        self.add(RUN, 0, &Content::Value(run_id.into()))?;
        match self.find(RUN)?.content {
            Content::Value(found) if found == run_id.as_bytes() => Ok(()),
            Content::Value(found) => Err(StoreError::OtherRun {
                store: format!("directory {}", self.directory.display()),
                found: String::from_utf8_lossy(&found).into_owned(),
                wanted: run_id.to_owned(),
            }),
            Content::Leased(..) | Content::Removed => Err(StoreError::NotARecord {
                key: RUN.to_owned(),
                bytes: 0,
            }),
        }
    }

    /// The newest change of `key`.
    fn find(&self, key: &str) -> Result<Found, StoreError> {
        let version = self.newest(key);
        if version == 0 {
            return Ok(Found {
                version,
                content: Content::Removed,
            });
        }
        let path = self.path(key, version);
        let bytes = fs::read(&path).map_err(io_error(&path))?;
        Ok(Found {
            version,
            content: Content::parse(key, bytes)?,
        })
    }

    /// Its number: files of a key have no gap and none ever goes, so that doubling steps and then halves find the last.
    fn newest(&self, key: &str) -> u64 {
        let mut known = self.seen().get(key).copied().unwrap_or(0);
        let mut step = 1;
        while self.exists(key, known + step) {
            known += step;
            step *= 2;
        }
        while step > 1 {
            step /= 2;
            if self.exists(key, known + step) {
                known += step;
            }
        }
        if known != 0 {
            self.seen().insert(key.to_owned(), known);
        }
        known
    }

    /// Adds a change behind `version`. `false`: somebody else did.
    fn add(&self, key: &str, version: u64, content: &Content) -> Result<bool, StoreError> {
        let path = self.path(key, version + 1);
        let parent = path.parent().unwrap_or(&self.directory);
        fs::create_dir_all(parent).map_err(io_error(parent))?;
        let scratch = self.write_scratch(&content.bytes())?;
        let linked = fs::hard_link(&scratch, &path);
        let _ = fs::remove_file(&scratch);
        match linked {
            Ok(()) => {
                self.seen().insert(key.to_owned(), version + 1);
                Ok(true)
            }
            Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(false),
            Err(error) => Err(io_error(&path)(error)),
        }
    }

    /// Changes `key` to what `change` makes of it, until nobody else was faster. `false` if it is to stay.
    fn change(
        &self,
        key: &str,
        mut change: impl FnMut(&Found) -> Option<Content>,
    ) -> Result<bool, StoreError> {
        loop {
            let found = self.find(key)?;
            let Some(content) = change(&found) else {
                return Ok(false);
            };
            if self.add(key, found.version, &content)? {
                return Ok(true);
            }
        }
    }

    fn exists(&self, key: &str, version: u64) -> bool {
        self.path(key, version).exists()
    }

    fn path(&self, key: &str, version: u64) -> PathBuf {
        self.file(key, &format!("@{version}"))
    }

    fn file(&self, key: &str, suffix: &str) -> PathBuf {
        self.directory.join(format!("{key}{suffix}"))
    }

    fn write_scratch(&self, bytes: &[u8]) -> Result<PathBuf, StoreError> {
        let number = self.scratch.fetch_add(1, Ordering::Relaxed);
        // Several handles of one process count each for itself.
        let name = format!("{}-{:p}-{number}", std::process::id(), self);
        let path = self.directory.join(SCRATCH).join(name);
        fs::write(&path, bytes).map_err(io_error(&path))?;
        Ok(path)
    }

    /// The value, unless its lease has run out.
    fn value<'a>(&self, key: &str, content: &'a Content) -> Option<&'a [u8]> {
        match content {
            Content::Value(value) => Some(value),
            Content::Leased(record, value) => self.lives(key, record).then_some(value),
            Content::Removed => None,
        }
    }

    fn lives(&self, key: &str, record: &LeaseRecord) -> bool {
        self.leases
            .lives(record, &self.file(key, &record.beat_suffix()))
    }

    fn seen(&self) -> MutexGuard<'_, HashMap<String, u64>> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Store for FileStore {
    fn put(&self, key: &str, value: &[u8]) -> Result<(), StoreError> {
        check_key(key)?;
        check_value(key, value)?;
        self.change(key, |_| Some(Content::Value(value.to_vec())))
            .map(drop)
    }

    fn try_get(&self, key: &str) -> Result<Option<Vec<u8>>, StoreError> {
        check_key(key)?;
        let found = self.find(key)?;
        Ok(self.value(key, &found.content).map(<[u8]>::to_vec))
    }

    fn compare_and_set(
        &self,
        key: &str,
        expected: Option<&[u8]>,
        value: &[u8],
    ) -> Result<bool, StoreError> {
        check_key(key)?;
        check_value(key, value)?;
        self.change(key, |found| {
            let now = self.value(key, &found.content);
            (now == expected).then(|| Content::Value(value.to_vec()))
        })
    }

    fn remove(&self, key: &str) -> Result<bool, StoreError> {
        check_key(key)?;
        self.change(key, |found| {
            self.value(key, &found.content)?;
            Some(Content::Removed)
        })
    }

    fn list(&self, key: &str) -> Result<Vec<String>, StoreError> {
        check_key(key)?;
        let directory = self.directory.join(key);
        let mut names: Vec<String> = versions(&directory)?
            .into_iter()
            .map(|(name, _)| name)
            .collect();
        names.sort_unstable();
        names.dedup();
        let mut set = Vec::new();
        for name in names {
            if self.try_get(&format!("{key}/{name}"))?.is_some() {
                set.push(name);
            }
        }
        for name in folders(&directory)? {
            if !self.list(&format!("{key}/{name}"))?.is_empty() {
                set.push(name);
            }
        }
        set.sort_unstable();
        set.dedup();
        Ok(set)
    }

    fn take_lease(
        &self,
        key: &str,
        value: &[u8],
        ttl: Duration,
    ) -> Result<Option<LeaseId>, StoreError> {
        check_key(key)?;
        check_value(key, value)?;
        check_ttl(key, ttl)?;
        let record = self.leases.begin(ttl);
        let beat = self.file(key, &record.beat_suffix());
        let taken = self.change(key, |found| {
            let free = self.value(key, &found.content).is_none();
            free.then(|| Content::Leased(record.clone(), value.to_vec()))
        });
        if !matches!(taken, Ok(true)) {
            self.leases.forget(record.id());
            return taken.map(|_| None);
        }
        self.beat(&beat, &record)?;
        Ok(Some(record.id()))
    }

    fn renew_lease(&self, key: &str, id: LeaseId) -> Result<bool, StoreError> {
        check_key(key)?;
        let Some(record) = self.leases.own(id) else {
            return Ok(false);
        };
        let mine = matches!(self.find(key)?.content, Content::Leased(found, _) if found.id() == id);
        if mine && self.leases.in_time(id) {
            self.beat(&self.file(key, &record.beat_suffix()), &record)?;
            // Looked at again: a process that was stopped before it wrote has been taken for gone meanwhile.
            if self.leases.renewed(id) {
                return Ok(true);
            }
        }
        self.end_lease(key, id)?;
        Ok(false)
    }

    fn end_lease(&self, key: &str, id: LeaseId) -> Result<(), StoreError> {
        check_key(key)?;
        let Some(record) = self.leases.forget(id) else {
            return Ok(());
        };
        self.change(key, |found| match &found.content {
            Content::Leased(found, _) if found.id() == id => Some(Content::Removed),
            _ => None,
        })?;
        let _ = fs::remove_file(self.file(key, &record.beat_suffix()));
        Ok(())
    }

    fn wait_for_change(&self, timeout: Duration) {
        std::thread::sleep(timeout.min(POLL));
    }
}

impl FileStore {
    /// Tells those who look that the holder is there.
    fn beat(&self, path: &Path, record: &LeaseRecord) -> Result<(), StoreError> {
        let scratch = self.write_scratch(&self.leases.next_beat(record.id()))?;
        fs::rename(&scratch, path).map_err(io_error(path))
    }
}

impl Content {
    /// A line that says what it is, then the value.
    fn bytes(&self) -> Vec<u8> {
        match self {
            Self::Value(value) => [b"value\n", value.as_slice()].concat(),
            Self::Leased(record, value) => {
                [b"lease ", record.line().as_bytes(), b"\n", value].concat()
            }
            Self::Removed => b"removed\n".to_vec(),
        }
    }

    fn parse(key: &str, mut bytes: Vec<u8>) -> Result<Self, StoreError> {
        let garbage = StoreError::NotARecord {
            key: key.to_owned(),
            bytes: bytes.len(),
        };
        let end = bytes.iter().position(|&byte| byte == b'\n');
        let Some(end) = end else {
            return Err(garbage);
        };
        let line = String::from_utf8_lossy(&bytes[..end]).into_owned();
        bytes.drain(..=end);
        match line.split_once(' ') {
            None if line == "value" => Ok(Self::Value(bytes)),
            None if line == "removed" => Ok(Self::Removed),
            Some(("lease", record)) => match LeaseRecord::parse(record) {
                Some(record) => Ok(Self::Leased(record, bytes)),
                None => Err(garbage),
            },
            _ => Err(garbage),
        }
    }
}

/// Name and number of each change in `directory`.
fn versions(directory: &Path) -> Result<Vec<(String, u64)>, StoreError> {
    let names = entries(directory, |kind| !kind.is_dir())?;
    let numbered = names.into_iter().filter_map(|name| {
        let (name, number) = name.rsplit_once('@')?;
        Some((name.to_owned(), number.parse().ok()?))
    });
    Ok(numbered
        .filter(|(name, _): &(String, u64)| !name.starts_with('.'))
        .collect())
}

fn folders(directory: &Path) -> Result<Vec<String>, StoreError> {
    let mut names = entries(directory, |kind| kind.is_dir())?;
    names.retain(|name| !name.starts_with('.'));
    Ok(names)
}

fn entries(
    directory: &Path,
    wanted: impl Fn(fs::FileType) -> bool,
) -> Result<Vec<String>, StoreError> {
    let entries = match fs::read_dir(directory) {
        Ok(entries) => entries,
        Err(error) if missing(&error) => return Ok(Vec::new()),
        Err(error) => return Err(io_error(directory)(error)),
    };
    let mut names = Vec::new();
    for entry in entries {
        let entry = entry.map_err(io_error(directory))?;
        if entry.file_type().is_ok_and(&wanted) {
            names.push(entry.file_name().to_string_lossy().into_owned());
        }
    }
    Ok(names)
}

/// Removes what processes that were killed have left in the scratch directory.
fn clear(scratch: &Path) {
    for entry in fs::read_dir(scratch).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let runs = name
            .split('-')
            .next()
            .is_some_and(|pid| Path::new("/proc").join(pid).exists());
        let written = entry.metadata().and_then(|data| data.modified());
        let age = written.map(|at| SystemTime::now().duration_since(at).unwrap_or_default());
        if !runs && age.is_ok_and(|age| age > LEFT_OVER) {
            let _ = fs::remove_file(entry.path());
        }
    }
}

/// Nothing there, or a file where the path needs a directory.
fn missing(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory)
}

fn io_error(path: &Path) -> impl FnOnce(io::Error) -> StoreError {
    let path = path.to_owned();
    |source| StoreError::Io { path, source }
}
