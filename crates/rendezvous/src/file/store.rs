//! The store in a directory.

use std::collections::BTreeSet;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::content::Content;
use super::disk::{check_exists, io_error};
use super::keys::{HOME, Keys, Newest};
use super::leases::{LeaseRecord, Leases};
use super::revisions::{Looked, Revisions};
use super::tries::Tries;
use crate::check::{check_key, check_look, check_ttl, check_value};
use crate::limits::clamped;
use crate::{
    Changed, Count, Entry, KeyChange, KeyWatch, LeaseId, Looks, MAX_BOUND, Store, StoreError, trust,
};

/// The key that holds the run that the directory belongs to. No rank can write this key: names do not begin with a dot.
const RUN: &str = ".run";
/// Sleep between two looks at the directory. It is short because bring-up is a chain of a few exchanges.
const POLL: Duration = Duration::from_millis(2);

/// A directory that is a store.
#[derive(Debug)]
pub struct FileStore {
    place: Arc<Place>,
    /// Longest time for which a call tries again while other writers are faster.
    bound: Duration,
}

/// What all handles share that are made from one handle by `bounded`.
#[derive(Debug)]
struct Place {
    keys: Keys,
    run: String,
    leases: Leases,
    revisions: Mutex<Revisions>,
}

/// A key as a call has found it.
struct Found {
    newest: Newest,
    /// The number of its newest change. 0: the key has no room.
    version: u64,
    /// The number of the change that set the key when it was not set.
    created: u64,
    content: Content,
}

impl FileStore {
    /// Opens `directory` for the run `run_id`. The first rank to open it writes the run into it.
    ///
    /// # Errors
    /// The directory is missing, cannot be written, belongs to another run, or can be changed by another user.
    pub fn open(directory: &Path, run_id: &str) -> Result<Self, StoreError> {
        check_exists(directory)?;
        Self::open_shared(&trust::resolved(directory)?, run_id)
    }

    /// As [`FileStore::open`], but trusts other users with the right to change the directory.
    ///
    /// # Errors
    /// The directory is missing, cannot be written, or belongs to another run.
    pub fn open_shared(directory: &Path, run_id: &str) -> Result<Self, StoreError> {
        check_exists(directory)?;
        let place = Place {
            keys: Keys::open(directory)?,
            run: run_id.to_owned(),
            leases: Leases::default(),
            revisions: Mutex::default(),
        };
        let store = Self {
            place: Arc::new(place),
            bound: MAX_BOUND,
        };
        store.claim()?;
        Ok(store)
    }

    fn claim(&self) -> Result<(), StoreError> {
        let run_id = self.place.run.as_str();
        self.change_once(RUN, &self.tries(), |found, _| {
            (!found.newest.exists).then(|| Content::Value(run_id.into()))
        })?;
        match self.find(RUN, &self.tries())?.content {
            Content::Value(found) if found == run_id.as_bytes() => Ok(()),
            Content::Value(found) => Err(StoreError::OtherRun {
                store: format!("directory {}", self.place.keys.directory().display()),
                found: String::from_utf8_lossy(&found).into_owned(),
                wanted: run_id.to_owned(),
            }),
            Content::Leased(..) | Content::Removed => Err(StoreError::NotARecord {
                key: RUN.to_owned(),
                bytes: 0,
            }),
        }
    }

    /// Returns the tries of a call that begins now.
    fn tries(&self) -> Tries {
        Tries::within(self.bound)
    }

    /// Returns the newest change of `key`.
    fn find(&self, key: &str, tries: &Tries) -> Result<Found, StoreError> {
        let mut newest = self.place.keys.newest(key, tries)?;
        let version = newest.version;
        let (created, content) = if newest.exists {
            Content::parse(key, std::mem::take(&mut newest.content))?
        } else {
            (0, Content::Removed)
        };
        Ok(Found {
            newest,
            version,
            created,
            content,
        })
    }

    /// Changes `key` to what `change` makes of the found version and its value. It begins again if another writer was faster. Returns false
    /// if `change` returns None: the key is to stay.
    fn change(
        &self,
        key: &str,
        tries: &Tries,
        change: impl FnMut(&Found, Option<&[u8]>) -> Option<Content>,
    ) -> Result<bool, StoreError> {
        let changed = self.change_once(key, tries, change)?;
        // If the directory was removed and exists again, it still belongs to this run.
        if self.place.keys.scratch().take_restored() {
            self.claim()?;
        }
        Ok(changed)
    }

    fn change_once(
        &self,
        key: &str,
        tries: &Tries,
        mut change: impl FnMut(&Found, Option<&[u8]>) -> Option<Content>,
    ) -> Result<bool, StoreError> {
        let keys = &self.place.keys;
        loop {
            let found = self.find(key, tries)?;
            let value = self.value(&found.content);
            let Some(content) = change(&found, value) else {
                return Ok(false);
            };
            if found.is_over() {
                keys.end(key, &found.newest)?;
            } else if !found.newest.has_room() {
                keys.begin(key)?;
            } else {
                let created = match value {
                    Some(_) => found.created,
                    None => found.version + 1,
                };
                let bytes = content.bytes(created);
                if keys.add(key, &found.newest, &bytes)? {
                    self.clear_beat(key, &found.content, &content);
                    if matches!(content, Content::Removed) {
                        self.end(key);
                    }
                    return Ok(true);
                }
            }
            tries.again(key)?;
        }
    }

    /// Ends the room of a key that was removed. If that fails, the next writer ends it.
    fn end(&self, key: &str) {
        let ended = self.find(key, &self.tries()).and_then(|found| {
            let over = found.is_over().then_some(&found.newest);
            over.map_or(Ok(()), |newest| self.place.keys.end(key, newest))
        });
        if let Err(error) = ended {
            tracing::debug!("the room of '{key}' is left: {error}");
        }
    }

    /// Removes the beat of the lease that the key had before a change. The beat stays if the key still has that lease, or the lease is
    /// held. If the key for which the lease was taken is removed, the beat is removed as well: a holder that lives writes it again.
    fn clear_beat(&self, key: &str, before: &Content, now: &Content) {
        let Content::Leased(record, _) = before else {
            return;
        };
        let stays = matches!(now, Content::Leased(now, _) if now.id() == record.id());
        let goes = matches!(now, Content::Removed) && record.key() == key;
        if goes || !stays && !self.lives(record) {
            let _ = fs::remove_file(self.beat_file(record));
        }
    }

    /// Looks at `key` and notes its version. Returns None if it is not set.
    fn look(
        &self,
        revisions: &mut Revisions,
        key: &str,
        tries: &Tries,
    ) -> Result<Option<Entry>, StoreError> {
        let found = self.find(key, tries)?;
        let value = self.value(&found.content);
        let looked = Looked {
            version: found.version,
            created: found.created,
            set: value.is_some(),
        };
        let revisions = revisions.note(key, looked);
        Ok(value.map(|value| Entry {
            key: key.to_owned(),
            value: value.to_vec(),
            revision: revisions.newest,
            created: revisions.created,
        }))
    }

    /// Removes the key. Returns whether it was set. A key whose lease has run out is removed too, but counts as not set.
    fn remove_in(&self, key: &str, tries: &Tries) -> Result<bool, StoreError> {
        let mut was_set = false;
        let removed = self.change(key, tries, |found, now| {
            was_set = now.is_some();
            let is_there = !matches!(found.content, Content::Removed);
            is_there.then_some(Content::Removed)
        })?;
        Ok(removed && was_set)
    }

    fn list_in(&self, key: &str, tries: &Tries) -> Result<Vec<String>, StoreError> {
        let (keys, folders) = self.names_below(key)?;
        let mut set = BTreeSet::new();
        for name in keys {
            let key = format!("{key}/{name}");
            let found = self.find(&key, tries)?;
            if self.value(&found.content).is_some() {
                set.insert(name);
            } else if let Content::Leased(record, _) = &found.content
                && self.place.leases.is_long_gone(record)
            {
                // No listing shows the key any more, so no rank would ever remove it by its name.
                self.remove_in(&key, tries)?;
            }
        }
        for name in folders {
            if !self.list_in(&format!("{key}/{name}"), tries)?.is_empty() {
                set.insert(name);
            }
        }
        Ok(set.into_iter().collect())
    }

    /// Adds all keys below `key` that have a room to `keys`.
    fn keys_below(&self, key: &str, keys: &mut BTreeSet<String>) -> Result<(), StoreError> {
        let (names, folders) = self.names_below(key)?;
        keys.extend(names.iter().map(|name| format!("{key}/{name}")));
        for name in folders {
            self.keys_below(&format!("{key}/{name}"), keys)?;
        }
        Ok(())
    }

    /// Returns the names of the keys directly below `key` that have a room, and the names of the folders there.
    fn names_below(&self, key: &str) -> Result<(Vec<String>, Vec<String>), StoreError> {
        let directory = self.place.keys.directory().join(key);
        let (mut keys, mut folders) = (Vec::new(), Vec::new());
        let entries = match fs::read_dir(&directory) {
            Ok(entries) => entries,
            Err(error) if error.kind() == ErrorKind::NotFound => {
                check_exists(self.place.keys.directory())?;
                return Ok((keys, folders));
            }
            Err(error) => return Err(io_error(&directory)(error)),
        };
        for entry in entries {
            let name = entry.map_err(io_error(&directory))?.file_name();
            let name = name.to_string_lossy();
            // Another program has made a file whose name is not of the store.
            match name.strip_suffix(HOME) {
                Some(key) if check_key(key).is_ok() => keys.push(key.to_owned()),
                None if check_key(&name).is_ok() => folders.push(name.into_owned()),
                _ => {}
            }
        }
        Ok((keys, folders))
    }

    /// Returns the value, unless its lease has run out.
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
        self.place.keys.scratch().path(&record.beat_name())
    }

    fn revisions(&self) -> MutexGuard<'_, Revisions> {
        let revisions = self.place.revisions.lock();
        revisions.unwrap_or_else(PoisonError::into_inner)
    }
}

impl Store for FileStore {
    fn bounded(&self, bound: Duration) -> Arc<dyn Store> {
        Arc::new(Self {
            place: Arc::clone(&self.place),
            bound: clamped(bound),
        })
    }

    fn name(&self) -> String {
        format!("the directory {}", self.place.keys.directory().display())
    }

    fn remove_below(&self, key: &str) -> Result<u64, StoreError> {
        check_key(key)?;
        let mut keys = BTreeSet::new();
        self.keys_below(key, &mut keys)?;
        let mut removed = 0;
        let tries = self.tries();
        for key in keys {
            removed += u64::from(self.remove_in(&key, &tries)?);
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
        let tries = self.tries();
        // The lock is held over the whole look, with the listing of keys. So the revision of the look is after all that it finds and before
        // what other threads find later. A key that is set after the listing has no revision of this look.
        let mut revisions = self.revisions();
        if let Some(below) = below {
            self.keys_below(below, &mut wanted)?;
        }
        let (mut entries, mut unreadable) = (Vec::new(), Vec::new());
        for key in &wanted {
            match self.look(&mut revisions, key, &tries) {
                Ok(Some(entry)) if entry.revision > since => entries.push(entry),
                Ok(_) => {}
                Err(error @ (StoreError::NotARecord { .. } | StoreError::TooLong { .. })) => {
                    unreadable.push(error)
                }
                Err(error) => return Err(error),
            }
        }
        Ok(Changed {
            entries,
            unreadable,
            revision: revisions.newest(),
        })
    }

    fn count(&self, key: &str) -> Result<Count, StoreError> {
        check_key(key)?;
        let mut keys = BTreeSet::new();
        let tries = self.tries();
        // The lock is held over the listing of keys too, as in a look.
        let mut revisions = self.revisions();
        self.keys_below(key, &mut keys)?;
        let (mut set, mut newest_created) = (0, 0);
        for key in &keys {
            match self.look(&mut revisions, key, &tries) {
                Ok(Some(entry)) => {
                    set += 1;
                    newest_created = newest_created.max(entry.created);
                }
                Ok(None) => {}
                // An unreadable value counts as missing.
                Err(StoreError::NotARecord { .. } | StoreError::TooLong { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(Count {
            keys: set,
            newest_created,
            revision: revisions.newest(),
        })
    }

    fn put(&self, key: &str, value: &[u8]) -> Result<(), StoreError> {
        check_key(key)?;
        check_value(key, value)?;
        self.change(key, &self.tries(), |_, _| {
            Some(Content::Value(value.to_vec()))
        })
        .map(drop)
    }

    fn try_get(&self, key: &str) -> Result<Option<Vec<u8>>, StoreError> {
        check_key(key)?;
        let found = self.find(key, &self.tries())?;
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
        self.change(key, &self.tries(), |_, now| {
            (now == expected).then(|| Content::Value(value.to_vec()))
        })
    }

    fn remove(&self, key: &str) -> Result<bool, StoreError> {
        check_key(key)?;
        self.remove_in(key, &self.tries())
    }

    fn list(&self, key: &str) -> Result<Vec<String>, StoreError> {
        check_key(key)?;
        self.list_in(key, &self.tries())
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
        let taken = self.change(key, &self.tries(), |_, now| {
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
        // The beat is written first, so a reader that finds the key finds a lease that lives.
        self.beat(&record)?;
        self.change(key, &self.tries(), |_, _| {
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
        // The key is read after the beat: a rank that takes the key later finds that the lease lives.
        Ok(is_mine(&self.find(key, &self.tries())?))
    }

    fn end_lease(&self, key: &str, id: LeaseId) -> Result<(), StoreError> {
        check_key(key)?;
        let Some((record, keys)) = self.place.leases.forget(id) else {
            return Ok(());
        };
        let tries = self.tries();
        for key in &keys {
            self.change(key, &tries, |found, _| match &found.content {
                Content::Leased(found, _) if found.id() == id => Some(Content::Removed),
                _ => None,
            })?;
        }
        let _ = fs::remove_file(self.beat_file(&record));
        Ok(())
    }

    /// Looks at this one key again and again.
    fn next_change(
        &self,
        watch: &mut KeyWatch,
        since: u64,
        timeout: Duration,
    ) -> Result<KeyChange, StoreError> {
        let key = watch.key();
        check_key(key)?;
        for left in Looks::within(timeout) {
            let newest = {
                let tries = self.tries();
                let mut revisions = self.revisions();
                self.look(&mut revisions, key, &tries)?;
                revisions.of(key)
            };
            if newest > since {
                return Ok(KeyChange::Unknown);
            }
            std::thread::sleep(left.min(POLL));
        }
        Ok(KeyChange::Nothing)
    }

    fn wait_for_change(&self, timeout: Duration) {
        std::thread::sleep(timeout.min(POLL));
    }
}

impl FileStore {
    /// Writes a beat, which shows readers that the holder lives.
    fn beat(&self, record: &LeaseRecord) -> Result<(), StoreError> {
        let beat = self.place.leases.next_beat(record);
        let scratch = self.place.keys.scratch().write(|_| beat)?;
        scratch.replace(&self.beat_file(record))
    }
}

impl Found {
    /// Returns whether the room has ended: no version comes after a removal.
    fn is_over(&self) -> bool {
        self.newest.exists && matches!(self.content, Content::Removed)
    }
}
