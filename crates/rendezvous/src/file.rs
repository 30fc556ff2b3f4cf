//! A store for ranks that are processes of one machine, or of machines that share a file system with hard links.
//!
//! A key `a/b` is the files `a/b@1`, `a/b@2` and so on, one for each change: a writer links a finished file to the next
//! number, which fails for all but one, and the value is that of the highest number. So nothing is ever locked: a process
//! that is killed or stopped in the middle of anything has made its change or not, and holds up nobody. No file is removed while
//! the run lasts: a number that became free could be taken twice. Keys change when membership does, not with every beat.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use super::call::clamped;
use super::file_lease::{LeaseRecord, Leases};
use super::{
    Changed, Count, Entry, LeaseId, MAX_BOUND, Store, StoreError, check_key, check_look, check_ttl,
    check_value, trust,
};

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
    place: Arc<Place>,
    /// Longest time for which a change is tried while others are faster.
    bound: Duration,
}

/// What all handles share that were made from one.
#[derive(Debug)]
struct Place {
    directory: PathBuf,
    scratch: AtomicU64,
    /// By key: a change that was there once.
    seen: Mutex<HashMap<String, u64>>,
    leases: Leases,
    looks: Mutex<Looks>,
}

/// What looks have found, in the order in which they found it.
#[derive(Debug, Default)]
struct Looks {
    /// Counts what was new to a look.
    revision: u64,
    keys: BTreeMap<String, Looked>,
}

/// A key when it was last looked at.
#[derive(Debug)]
struct Looked {
    /// Number of its newest change, and of the one that set it when it was not set.
    version: u64,
    created_version: u64,
    /// Whether it was set.
    set: bool,
    /// When a look first found it so.
    revision: u64,
    /// When a look first found what set it.
    created: u64,
}

impl Looks {
    fn next(&mut self) -> u64 {
        self.revision += 1;
        self.revision
    }

    /// Notes what was found of `key`; revisions of its newest change and of its creation. A key that was never set has none.
    fn note(&mut self, key: &str, found: &Found, set: bool) -> (u64, u64) {
        let before = self.keys.get(key);
        if before.is_none() && !set {
            return (0, 0);
        }
        let same = |looked: &&Looked| looked.version == found.version && looked.set == set;
        if let Some(looked) = before.filter(same) {
            return (looked.revision, looked.created);
        }
        let created = before
            .filter(|looked| looked.created_version == found.created)
            .map(|looked| looked.created);
        let revision = self.next();
        let looked = Looked {
            version: found.version,
            created_version: found.created,
            set,
            revision,
            created: created.unwrap_or(revision),
        };
        let result = (revision, looked.created);
        self.keys.insert(key.to_owned(), looked);
        result
    }
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
    /// Number of the change that set it when it was not set.
    created: u64,
    content: Content,
}

fn check_exists(directory: &Path) -> Result<(), StoreError> {
    match directory.is_dir() {
        true => Ok(()),
        false => Err(StoreError::Missing {
            directory: directory.to_owned(),
        }),
    }
}

impl FileStore {
    /// Opens `directory` for the run `run_id`. The first rank to come writes the run into it.
    ///
    /// # Errors
    /// The directory is missing, cannot be written, belongs to another run, or can be changed by another user.
    pub fn open(directory: &Path, run_id: &str) -> Result<Self, StoreError> {
        check_exists(directory)?;
        Self::open_shared(&trust::resolved(directory)?, run_id)
    }

    /// The same where the users who can change the directory are trusted.
    ///
    /// # Errors
    /// The directory is missing, cannot be written, or belongs to another run.
    pub fn open_shared(directory: &Path, run_id: &str) -> Result<Self, StoreError> {
        check_exists(directory)?;
        let place = Place {
            directory: directory.to_owned(),
            scratch: AtomicU64::new(0),
            seen: Mutex::default(),
            leases: Leases::default(),
            looks: Mutex::default(),
        };
        let store = Self {
            place: Arc::new(place),
            bound: MAX_BOUND,
        };
        let scratch = directory.join(SCRATCH);
        fs::create_dir_all(&scratch).map_err(io_error(&scratch))?;
        clear(&scratch);
        store.claim(run_id)?;
        Ok(store)
    }

    fn claim(&self, run_id: &str) -> Result<(), StoreError> {
        self.add(RUN, 0, 1, &Content::Value(run_id.into()))?;
        match self.find(RUN)?.content {
            Content::Value(found) if found == run_id.as_bytes() => Ok(()),
            Content::Value(found) => Err(StoreError::OtherRun {
                store: format!("directory {}", self.place.directory.display()),
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
                created: 0,
                content: Content::Removed,
            });
        }
        let path = self.path(key, version);
        let bytes = fs::read(&path).map_err(io_error(&path))?;
        let (created, content) = Content::parse(key, bytes)?;
        Ok(Found {
            version,
            created,
            content,
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
    fn add(
        &self,
        key: &str,
        version: u64,
        created: u64,
        content: &Content,
    ) -> Result<bool, StoreError> {
        let path = self.path(key, version + 1);
        let parent = path.parent().unwrap_or(&self.place.directory);
        fs::create_dir_all(parent).map_err(io_error(parent))?;
        let scratch = self.write_scratch(&content.bytes(created))?;
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

    /// Changes `key` to what `change` makes of what was found and of its value, until nobody else was faster. `false` if it is to
    /// stay.
    fn change(
        &self,
        key: &str,
        mut change: impl FnMut(&Found, Option<&[u8]>) -> Option<Content>,
    ) -> Result<bool, StoreError> {
        let start = Instant::now();
        loop {
            let found = self.find(key)?;
            let value = self.value(&found.content);
            let Some(content) = change(&found, value) else {
                return Ok(false);
            };
            let created = match value {
                Some(_) => found.created,
                None => found.version + 1,
            };
            if self.add(key, found.version, created, &content)? {
                return Ok(true);
            }
            let waited = start.elapsed();
            if waited >= self.bound {
                return Err(StoreError::Late {
                    key: key.to_owned(),
                    waited,
                });
            }
        }
    }

    /// Looks at `key` and notes what is there. None if it is not set.
    fn look(&self, looks: &mut Looks, key: &str) -> Result<Option<Entry>, StoreError> {
        let found = self.find(key)?;
        let value = self.value(&found.content);
        let (revision, created) = looks.note(key, &found, value.is_some());
        Ok(value.map(|value| Entry {
            key: key.to_owned(),
            value: value.to_vec(),
            revision,
            created,
        }))
    }

    /// All keys below `key` that were ever set.
    fn keys_below(&self, key: &str, keys: &mut BTreeSet<String>) -> Result<(), StoreError> {
        let directory = self.place.directory.join(key);
        let names = versions(&directory)?;
        keys.extend(names.into_iter().map(|(name, _)| format!("{key}/{name}")));
        for name in folders(&directory)? {
            self.keys_below(&format!("{key}/{name}"), keys)?;
        }
        Ok(())
    }

    fn exists(&self, key: &str, version: u64) -> bool {
        self.path(key, version).exists()
    }

    fn path(&self, key: &str, version: u64) -> PathBuf {
        self.file(key, &format!("@{version}"))
    }

    fn file(&self, key: &str, suffix: &str) -> PathBuf {
        self.place.directory.join(format!("{key}{suffix}"))
    }

    fn write_scratch(&self, bytes: &[u8]) -> Result<PathBuf, StoreError> {
        let number = self.place.scratch.fetch_add(1, Ordering::Relaxed);
        // Several handles of one process count each for itself.
        let name = format!(
            "{}-{:p}-{number}",
            std::process::id(),
            Arc::as_ptr(&self.place)
        );
        let path = self.place.directory.join(SCRATCH).join(name);
        fs::write(&path, bytes).map_err(io_error(&path))?;
        Ok(path)
    }

    /// The value, unless its lease has run out.
    fn value<'a>(&self, content: &'a Content) -> Option<&'a [u8]> {
        match content {
            Content::Value(value) => Some(value),
            Content::Leased(record, value) => self.lives(record).then_some(value),
            Content::Removed => None,
        }
    }

    fn lives(&self, record: &LeaseRecord) -> bool {
        self.place.leases.lives(record, &self.beat_file(record))
    }

    fn beat_file(&self, record: &LeaseRecord) -> PathBuf {
        self.file(record.key(), &record.beat_suffix())
    }

    fn looks(&self) -> MutexGuard<'_, Looks> {
        let looks = self.place.looks.lock();
        looks.unwrap_or_else(PoisonError::into_inner)
    }

    fn seen(&self) -> MutexGuard<'_, HashMap<String, u64>> {
        self.place
            .seen
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

impl Store for FileStore {
    fn bounded(&self, bound: Duration) -> Arc<dyn Store> {
        Arc::new(Self {
            place: Arc::clone(&self.place),
            bound: clamped(bound),
        })
    }

    fn remove_below(&self, key: &str) -> Result<u64, StoreError> {
        check_key(key)?;
        let mut keys = BTreeSet::new();
        self.keys_below(key, &mut keys)?;
        let mut removed = 0;
        for key in keys {
            removed += u64::from(self.remove(&key)?);
        }
        Ok(removed)
    }

    fn changed_since(
        &self,
        keys: &[&str],
        below: Option<&str>,
        since: u64,
    ) -> Result<Changed, StoreError> {
        check_look(keys, below)?;
        let mut wanted: BTreeSet<String> = keys.iter().map(|&key| key.to_owned()).collect();
        if let Some(below) = below {
            self.keys_below(below, &mut wanted)?;
        }
        // Held over the whole look, so that its revision is behind all that it finds and before what others find later.
        let mut looks = self.looks();
        let (mut entries, mut unreadable) = (Vec::new(), Vec::new());
        for key in &wanted {
            match self.look(&mut looks, key) {
                Ok(Some(entry)) if entry.revision > since => entries.push(entry),
                Ok(_) => {}
                Err(error @ StoreError::NotARecord { .. }) => unreadable.push(error),
                Err(error) => return Err(error),
            }
        }
        Ok(Changed {
            entries,
            unreadable,
            revision: looks.revision,
        })
    }

    fn count(&self, key: &str) -> Result<Count, StoreError> {
        check_key(key)?;
        let mut keys = BTreeSet::new();
        self.keys_below(key, &mut keys)?;
        let mut looks = self.looks();
        let (mut set, mut newest_created) = (0, 0);
        for key in &keys {
            match self.look(&mut looks, key) {
                Ok(Some(entry)) => {
                    set += 1;
                    newest_created = newest_created.max(entry.created);
                }
                Ok(None) => {}
                // It counts as missing.
                Err(StoreError::NotARecord { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(Count {
            keys: set,
            newest_created,
            revision: looks.revision,
        })
    }

    fn put(&self, key: &str, value: &[u8]) -> Result<(), StoreError> {
        check_key(key)?;
        check_value(key, value)?;
        self.change(key, |_, _| Some(Content::Value(value.to_vec())))
            .map(drop)
    }

    fn try_get(&self, key: &str) -> Result<Option<Vec<u8>>, StoreError> {
        check_key(key)?;
        let found = self.find(key)?;
        Ok(self.value(&found.content).map(<[u8]>::to_vec))
    }

    fn compare_and_set(
        &self,
        key: &str,
        expected: Option<&[u8]>,
        value: &[u8],
    ) -> Result<bool, StoreError> {
        check_key(key)?;
        check_value(key, value)?;
        self.change(key, |_, now| {
            (now == expected).then(|| Content::Value(value.to_vec()))
        })
    }

    fn remove(&self, key: &str) -> Result<bool, StoreError> {
        check_key(key)?;
        self.change(key, |_, now| now.map(|_| Content::Removed))
    }

    fn list(&self, key: &str) -> Result<Vec<String>, StoreError> {
        check_key(key)?;
        let directory = self.place.directory.join(key);
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
        let record = self.place.leases.begin(key, ttl);
        let taken = self.change(key, |_, now| {
            let free = now.is_none();
            free.then(|| Content::Leased(record.clone(), value.to_vec()))
        });
        if !matches!(taken, Ok(true)) {
            self.place.leases.forget(record.id());
            return taken.map(|_| None);
        }
        self.beat(&record)?;
        Ok(Some(record.id()))
    }

    fn put_leased(&self, key: &str, value: &[u8], id: LeaseId) -> Result<bool, StoreError> {
        check_key(key)?;
        check_value(key, value)?;
        let Some(record) = self.place.leases.attach(id, key) else {
            return Ok(false);
        };
        // Whoever finds the key finds a lease that lives.
        self.beat(&record)?;
        self.change(key, |_, _| {
            Some(Content::Leased(record.clone(), value.to_vec()))
        })
    }

    fn renew_lease(&self, key: &str, id: LeaseId) -> Result<bool, StoreError> {
        check_key(key)?;
        let Some(record) = self.place.leases.own(id) else {
            return Ok(false);
        };
        let is_mine = |found: &Found| matches!(&found.content, Content::Leased(record, _) if record.id() == id);
        self.beat(&record)?;
        // Looked at behind the beat: who takes the key later finds that the lease lives.
        Ok(is_mine(&self.find(key)?))
    }

    fn end_lease(&self, key: &str, id: LeaseId) -> Result<(), StoreError> {
        check_key(key)?;
        let Some((record, keys)) = self.place.leases.forget(id) else {
            return Ok(());
        };
        for key in &keys {
            self.change(key, |found, _| match &found.content {
                Content::Leased(found, _) if found.id() == id => Some(Content::Removed),
                _ => None,
            })?;
        }
        let _ = fs::remove_file(self.beat_file(&record));
        Ok(())
    }

    /// Looks at the one key again and again.
    fn wait_for_key(&self, key: &str, since: u64, timeout: Duration) -> Result<bool, StoreError> {
        check_key(key)?;
        let start = Instant::now();
        loop {
            let newest = {
                let mut looks = self.looks();
                self.look(&mut looks, key)?;
                looks.keys.get(key).map_or(0, |looked| looked.revision)
            };
            let left = timeout.saturating_sub(start.elapsed());
            if newest > since || left.is_zero() {
                return Ok(newest > since);
            }
            std::thread::sleep(left.min(POLL));
        }
    }

    fn wait_for_change(&self, timeout: Duration) {
        std::thread::sleep(timeout.min(POLL));
    }
}

impl FileStore {
    /// Tells those who look that the holder is there.
    fn beat(&self, record: &LeaseRecord) -> Result<(), StoreError> {
        let path = self.beat_file(record);
        let scratch = self.write_scratch(&self.place.leases.next_beat(record.id()))?;
        fs::rename(&scratch, &path).map_err(io_error(&path))
    }
}

impl Content {
    /// A line that says what it is and which change has created the key, then the value.
    fn bytes(&self, created: u64) -> Vec<u8> {
        match self {
            Self::Value(value) => [format!("value {created}\n").as_bytes(), value].concat(),
            Self::Leased(record, value) => {
                let line = format!("lease {created} {}\n", record.line());
                [line.as_bytes(), value].concat()
            }
            Self::Removed => b"removed\n".to_vec(),
        }
    }

    fn parse(key: &str, mut bytes: Vec<u8>) -> Result<(u64, Self), StoreError> {
        let garbage = || StoreError::NotARecord {
            key: key.to_owned(),
            bytes: bytes.len(),
        };
        let end = bytes.iter().position(|&byte| byte == b'\n');
        let end = end.ok_or_else(garbage)?;
        let line = String::from_utf8_lossy(&bytes[..end]).into_owned();
        if line == "removed" {
            return Ok((0, Self::Removed));
        }
        let (kind, rest) = line.split_once(' ').ok_or_else(garbage)?;
        let (created, record) = rest.split_once(' ').unwrap_or((rest, ""));
        let created = created.parse().map_err(|_| garbage())?;
        let record = match (kind, record) {
            ("value", "") => None,
            ("lease", record) => Some(LeaseRecord::parse(record).ok_or_else(garbage)?),
            _ => return Err(garbage()),
        };
        bytes.drain(..=end);
        let content = match record {
            None => Self::Value(bytes),
            Some(record) => Self::Leased(record, bytes),
        };
        Ok((created, content))
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
