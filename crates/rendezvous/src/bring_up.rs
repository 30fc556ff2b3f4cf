//! A store over a map of text that another library keeps. Ranks can meet in it once; it carries no group.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{Debug, Write};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::check::{check_key, check_look, check_ttl, check_value};
use crate::{
    Changed, Count, Entry, KeyChange, KeyWatch, LeaseId, Looks, MAX_BOUND, Store, StoreError,
};

/// A map of text to text that all ranks reach, such as a c10d store of PyTorch. The map cannot list its keys, and no key in it ends by
/// itself. Errors are in the map's own words.
pub trait TextMap: Send + Sync + Debug {
    /// Returns the name of the map, for errors.
    fn name(&self) -> String;

    /// Returns the text of `key`, or none if the key was never set. Does not wait for the key.
    fn get(&self, key: &str) -> Result<Option<String>, String>;

    /// Sets `key`.
    fn set(&self, key: &str, text: &str) -> Result<(), String>;

    /// Sets `key` to `text` in one step if its text is `expected`. An empty `expected` stands for a key that was never set. Returns `text`
    /// if it did. If it did not, it returns another text, unless another rank has set the key to an equal one.
    fn compare_set(&self, key: &str, expected: &str, text: &str) -> Result<String, String>;

    /// Adds 1 to the number of `key`, in one step, and returns the sum. A key that was never set counts as 0.
    fn add_one(&self, key: &str) -> Result<u64, String>;

    /// Deletes `key`, as if it had never been set.
    fn delete(&self, key: &str) -> Result<(), String>;
}

/// A [`Store`] over a [`TextMap`], for the bring-up of a team whose members stay. It carries no leases: [`Store::without_leases`]
/// says so, and calls about leases fail with [`StoreError::NoLeases`].
///
/// Each change has a nonce, so a text never comes twice: `NONCE.HEX`, or `NONCE-` once the key was removed. The names below a key are in a
/// record of their own, into which every rank that sets a key enters the name. A rank that is killed between the two steps leaves a key
/// that [`Store::list`] does not list. A rank that is killed while it removes a key leaves a name without a key.
///
/// A call lasts as long as its calls of the map. The store finds changes by looking, as in a directory. A key that was set anew counts as
/// created anew. Only the caller's thread touches the map.
///
/// The map keeps a text for each key that was ever set, even for a removed one. [`BringUpStore::leave`] of the last handle deletes these
/// texts, except those of removed keys.
#[derive(Debug)]
pub struct BringUpStore {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    map: Box<dyn TextMap>,
    calls: Mutex<Calls>,
    seen: Mutex<Seen>,
}

/// The calls of the map by this handle.
#[derive(Debug, Default)]
struct Calls {
    /// True if the handle has left: no call begins any more.
    has_left: bool,
    /// The number of calls that have begun and not ended.
    running: u32,
}

/// What this handle has found at its looks.
#[derive(Debug)]
struct Seen {
    revision: u64,
    /// The text and the revision of each key that was set at the last look at it.
    keys: BTreeMap<String, (String, u64)>,
    /// The revision at which a key was last found gone.
    removed: u64,
    /// The names that this handle has entered, or found, in the record of all names.
    tops: BTreeSet<String>,
    /// How long the next wait is.
    pause: Duration,
}

/// First and longest wait between two looks.
const PAUSES: (Duration, Duration) = (Duration::from_millis(1), Duration::from_millis(50));
/// The record of names if it holds no name: no text of the map is empty.
const NO_NAMES: &str = ".";
/// What the place of each value begins with.
const VALUES: &str = "value/";
/// The place of the number of handles that have left.
const LEFT: &str = "left";
/// The characters after the nonce of a value, and after that of a removal.
const VALUE: char = '.';
const REMOVED: char = '-';

impl BringUpStore {
    /// Returns a store over `map`, in which ranks meet.
    #[must_use]
    pub fn new(map: Box<dyn TextMap>) -> Self {
        let seen = Seen {
            revision: 0,
            keys: BTreeMap::new(),
            removed: 0,
            tops: BTreeSet::new(),
            pause: PAUSES.0,
        };
        Self {
            shared: Arc::new(Shared {
                map,
                calls: Mutex::default(),
                seen: Mutex::new(seen),
            }),
        }
    }

    /// Ends the use of the map by this handle: later calls are refused. The last of `handles` handles that leaves deletes what they have
    /// set, and returns true. `handles` is the number of all handles that ever use these keys of the map; all of them pass the same number.
    ///
    /// No handle misses what is deleted. A handle is counted once, after its last call: its later calls are refused. If one of its calls
    /// still runs, in another thread or one that this call interrupts, the handle is not counted. The sum is `handles` only once every
    /// handle was counted, and then no handle asks any more. If a handle is never counted, because its process was killed for example, all
    /// keys stay.
    ///
    /// # Errors
    /// The error of the map. Keys that are not deleted then stay.
    pub fn leave(&self, handles: u32) -> Result<bool, StoreError> {
        let mut calls = self.calls();
        if std::mem::replace(&mut calls.has_left, true) || calls.running > 0 {
            return Ok(false);
        }
        drop(calls);
        let map = &self.shared.map;
        let delete = |place: &str| map.delete(place).map_err(|error| self.failed(error));
        let left = map.add_one(LEFT).map_err(|error| self.failed(error))?;
        if left != u64::from(handles) {
            return Ok(false);
        }
        let (mut places, mut next) = (Vec::new(), vec![String::new()]);
        while let Some(key) = next.pop() {
            let names = map.get(&names_key(&key));
            for name in names_of(names.map_err(|error| self.failed(error))?.as_deref()) {
                let below = |name: &str| {
                    if key.is_empty() {
                        name.to_owned()
                    } else {
                        format!("{key}/{name}")
                    }
                };
                match name.strip_suffix('/') {
                    Some(name) => next.push(below(name)),
                    None => places.push(value_key(&below(&name))),
                }
            }
            places.push(names_key(&key));
        }
        // Names are deleted last, so that a process that ends here leaves no key without a name.
        places.sort_unstable_by_key(|place| !place.starts_with(VALUES));
        places.iter().try_for_each(|place| delete(place))?;
        delete(LEFT)?;
        Ok(true)
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        let seen = self.shared.seen.lock();
        seen.unwrap_or_else(PoisonError::into_inner)
    }

    fn failed(&self, message: String) -> StoreError {
        StoreError::Foreign {
            store: self.shared.map.name(),
            message,
        }
    }

    fn no_leases(&self) -> StoreError {
        StoreError::NoLeases {
            store: self.shared.map.name(),
        }
    }

    /// Returns the answer of the map, unless this handle has left.
    fn asked<T>(
        &self,
        call: impl FnOnce(&dyn TextMap) -> Result<T, String>,
    ) -> Result<T, StoreError> {
        let mut calls = self.calls();
        if calls.has_left {
            return Err(self.failed("this rank has closed its team, and has left it".to_owned()));
        }
        calls.running += 1;
        drop(calls);
        let running = Running(self);
        let answer = call(&*self.shared.map);
        drop(running);
        answer.map_err(|message| self.failed(message))
    }

    fn calls(&self) -> MutexGuard<'_, Calls> {
        let calls = self.shared.calls.lock();
        calls.unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the text at `place` in the map, if it was ever set.
    fn text(&self, place: &str) -> Result<Option<String>, StoreError> {
        self.asked(|map| map.get(place))
    }

    /// Changes the text at `place`, which belongs to `key`, to what `next` makes of the text. It begins again if another handle has changed
    /// the text meanwhile. Returns false if `next` returns None: then nothing is to be changed.
    fn change(
        &self,
        key: &str,
        place: &str,
        next: impl Fn(Option<&str>) -> Result<Option<String>, StoreError>,
    ) -> Result<bool, StoreError> {
        let start = Instant::now();
        for _ in Looks::within(MAX_BOUND) {
            let found = self.text(place)?;
            let Some(text) = next(found.as_deref())? else {
                return Ok(false);
            };
            let expected = found.as_deref().unwrap_or("");
            if self.asked(|map| map.compare_set(place, expected, &text))? == text {
                return Ok(true);
            }
        }
        Err(StoreError::Late {
            key: key.to_owned(),
            waited: start.elapsed(),
        })
    }

    /// Sets the text of `key` to `text` if `expected` accepts the present value. Returns whether it did.
    fn replace(
        &self,
        key: &str,
        expected: impl Fn(Option<&[u8]>) -> bool,
        text: &str,
    ) -> Result<bool, StoreError> {
        let done = self.change(key, &value_key(key), |found| {
            let value = self.value(key, found)?;
            Ok(expected(value.as_deref()).then(|| text.to_owned()))
        })?;
        if done {
            self.seen().pause = PAUSES.0;
        }
        Ok(done)
    }

    /// Returns the value in a text. Returns None if there is no text, or the key was removed.
    fn value(&self, key: &str, text: Option<&str>) -> Result<Option<Vec<u8>>, StoreError> {
        let Some(text) = text else {
            return Ok(None);
        };
        let parsed = match text.split_once(VALUE) {
            Some((_, hex)) => from_hex(hex).map(Some),
            None => text.ends_with(REMOVED).then_some(None),
        };
        parsed.ok_or_else(|| StoreError::NotARecord {
            key: key.to_owned(),
            bytes: text.len(),
        })
    }

    /// Returns the names in the record of `key`. A name with a `/` at its end has further names below it.
    fn names(&self, key: &str) -> Result<BTreeSet<String>, StoreError> {
        Ok(names_of(self.text(&names_key(key))?.as_deref()))
    }

    /// Enters `name` in the record of `key` if `stands`, else strikes it out.
    fn note(&self, key: &str, name: &str, stands: bool) -> Result<(), StoreError> {
        let noted = self.change(key, &names_key(key), |found| {
            let mut names = names_of(found);
            let changes = if stands {
                names.insert(name.to_owned())
            } else {
                names.remove(name)
            };
            Ok(changes.then(|| text_of(&names)))
        });
        noted.map(drop)
    }

    /// Enters the name of `key`, and the names above it, in their records.
    fn enter(&self, key: &str) -> Result<(), StoreError> {
        let mut below = key;
        let mut ending = "";
        while let Some((above, name)) = below.rsplit_once('/') {
            self.note(above, &format!("{name}{ending}"), true)?;
            (below, ending) = (above, "/");
        }
        let top = format!("{below}{ending}");
        if !self.seen().tops.contains(&top) {
            self.note("", &top, true)?;
            self.seen().tops.insert(top);
        }
        Ok(())
    }

    /// Returns the keys below `key`, at every depth.
    fn below(&self, key: &str) -> Result<Vec<String>, StoreError> {
        let mut found = Vec::new();
        for name in self.names(key)? {
            match name.strip_suffix('/') {
                Some(name) => found.extend(self.below(&format!("{key}/{name}"))?),
                None => found.push(format!("{key}/{name}")),
            }
        }
        Ok(found)
    }

    /// Looks at each of `keys` once, and returns the keys that are set.
    fn look(&self, keys: BTreeSet<String>) -> Result<Vec<Entry>, StoreError> {
        let mut entries = Vec::new();
        for key in keys {
            let text = self.text(&value_key(&key))?;
            let value = self.value(&key, text.as_deref())?;
            let mut seen = self.seen();
            let Some((value, text)) = value.zip(text) else {
                if seen.keys.remove(&key).is_some() {
                    seen.revision += 1;
                    seen.removed = seen.revision;
                    seen.pause = PAUSES.0;
                }
                continue;
            };
            let known = seen.keys.get(&key).filter(|(known, _)| *known == text);
            let revision = match known {
                Some((_, revision)) => *revision,
                None => {
                    seen.revision += 1;
                    seen.pause = PAUSES.0;
                    let revision = seen.revision;
                    seen.keys.insert(key.clone(), (text, revision));
                    revision
                }
            };
            entries.push(Entry {
                key,
                value,
                revision,
                created: revision,
            });
        }
        Ok(entries)
    }
}

/// A call of the map that runs, until this is dropped.
struct Running<'a>(&'a BringUpStore);

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.calls().running -= 1;
    }
}

fn value_key(key: &str) -> String {
    format!("{VALUES}{key}")
}

fn names_key(key: &str) -> String {
    format!("names/{key}")
}

fn names_of(text: Option<&str>) -> BTreeSet<String> {
    let lines = text.into_iter().flat_map(str::lines);
    let names = lines.filter(|name| *name != NO_NAMES);
    names.map(str::to_owned).collect()
}

fn text_of(names: &BTreeSet<String>) -> String {
    let all: Vec<&str> = names.iter().map(String::as_str).collect();
    if all.is_empty() {
        NO_NAMES.to_owned()
    } else {
        all.join("\n")
    }
}

fn nonce() -> String {
    format!("{:016x}", fastrand::u64(..))
}

fn to_text(value: &[u8]) -> String {
    let mut text = nonce();
    text.push(VALUE);
    for byte in value {
        let _ = write!(text, "{byte:02x}");
    }
    text
}

fn from_hex(hex: &str) -> Option<Vec<u8>> {
    let digit = |byte: u8| char::from(byte).to_digit(16);
    let pairs = hex.as_bytes().chunks(2).map(|pair| match *pair {
        [high, low] => u8::try_from(digit(high)? * 16 + digit(low)?).ok(),
        _ => None,
    });
    pairs.collect()
}

impl Store for BringUpStore {
    fn bounded(&self, _bound: Duration) -> Arc<dyn Store> {
        let shared = Arc::clone(&self.shared);
        Arc::new(Self { shared })
    }

    fn without_leases(&self) -> Option<String> {
        Some(self.shared.map.name())
    }

    fn put(&self, key: &str, value: &[u8]) -> Result<(), StoreError> {
        check_key(key)?;
        check_value(key, value)?;
        self.asked(|map| map.set(&value_key(key), &to_text(value)))?;
        self.seen().pause = PAUSES.0;
        self.enter(key)
    }

    fn try_get(&self, key: &str) -> Result<Option<Vec<u8>>, StoreError> {
        check_key(key)?;
        self.value(key, self.text(&value_key(key))?.as_deref())
    }

    fn compare_and_set(
        &self,
        key: &str,
        expected: Option<&[u8]>,
        value: &[u8],
    ) -> Result<bool, StoreError> {
        check_key(key)?;
        check_value(key, value)?;
        let done = self.replace(key, |found| found == expected, &to_text(value))?;
        if done {
            self.enter(key)?;
        }
        Ok(done)
    }

    fn remove(&self, key: &str) -> Result<bool, StoreError> {
        check_key(key)?;
        let removed = format!("{}{REMOVED}", nonce());
        let done = self.replace(key, |found| found.is_some(), &removed)?;
        if done && let Some((above, name)) = key.rsplit_once('/') {
            self.note(above, name, false)?;
            // A rank that has set the key meanwhile found the name still in the record, and so did not enter it.
            if self.try_get(key)?.is_some() {
                self.enter(key)?;
            }
        }
        Ok(done)
    }

    fn list(&self, key: &str) -> Result<Vec<String>, StoreError> {
        check_key(key)?;
        let mut set = BTreeSet::new();
        for name in self.names(key)? {
            match name.strip_suffix('/') {
                None => {
                    set.insert(name);
                }
                Some(above) if !set.contains(above) => {
                    if !self.below(&format!("{key}/{above}"))?.is_empty() {
                        set.insert(above.to_owned());
                    }
                }
                Some(_) => {}
            }
        }
        Ok(set.into_iter().collect())
    }

    fn remove_below(&self, key: &str) -> Result<u64, StoreError> {
        check_key(key)?;
        let mut removed = 0;
        for key in self.below(key)? {
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
        let mut all: BTreeSet<String> = keys.iter().map(|&key| key.to_owned()).collect();
        if let Some(below) = below {
            all.extend(self.below(below)?);
        }
        let mut entries = self.look(all)?;
        entries.retain(|entry| entry.revision > since);
        Ok(Changed {
            entries,
            unreadable: Vec::new(),
            revision: self.seen().revision,
        })
    }

    fn count(&self, key: &str) -> Result<Count, StoreError> {
        check_key(key)?;
        let entries = self.look(self.below(key)?.into_iter().collect())?;
        Ok(Count {
            keys: entries.len() as u64,
            newest_created: entries.iter().map(|entry| entry.created).max().unwrap_or(0),
            revision: self.seen().revision,
        })
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
        Err(self.no_leases())
    }

    fn put_leased(&self, _: &str, _: &[u8], _: LeaseId) -> Result<bool, StoreError> {
        Err(self.no_leases())
    }

    fn renew_lease(&self, _: &str, _: LeaseId) -> Result<bool, StoreError> {
        Err(self.no_leases())
    }

    fn end_lease(&self, _: &str, _: LeaseId) -> Result<(), StoreError> {
        Err(self.no_leases())
    }

    /// Sleeps for 1 ms. As long as nothing changes, each sleep is twice as long as the last, up to 50 ms.
    fn wait_for_change(&self, timeout: Duration) {
        let pause = {
            let mut seen = self.seen();
            let pause = seen.pause;
            seen.pause = (pause * 2).min(PAUSES.1);
            pause
        };
        std::thread::sleep(pause.min(timeout));
    }

    fn next_change(
        &self,
        watch: &mut KeyWatch,
        since: u64,
        timeout: Duration,
    ) -> Result<KeyChange, StoreError> {
        check_key(watch.key())?;
        for left in Looks::within(timeout) {
            watch.asks();
            let found = self.look(BTreeSet::from([watch.key().to_owned()]))?;
            match found.into_iter().next() {
                Some(entry) if entry.revision > since => return Ok(KeyChange::Set(entry)),
                None if self.seen().removed > since => return Ok(KeyChange::Unknown),
                _ => {}
            }
            if !left.is_zero() {
                self.wait_for_change(left);
            }
        }
        Ok(KeyChange::Nothing)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_gives_its_value_back_and_never_comes_twice() {
        let store = BringUpStore::new(Box::new(Nothing));
        for value in [&b""[..], b"\0\xff.-", b"plain"] {
            let (one, two) = (to_text(value), to_text(value));
            assert_ne!(one, two);
            for text in [one, two] {
                assert_eq!(store.value("k", Some(&text)).unwrap().unwrap(), value);
            }
        }
        assert_eq!(store.value("k", Some("0123456789abcdef-")).unwrap(), None);
        for wrong in ["", "plain", "0123456789abcdef.0", "0123456789abcdef.0g"] {
            let error = store.value("k", Some(wrong)).unwrap_err();
            assert!(matches!(error, StoreError::NotARecord { .. }), "{wrong}");
        }
    }

    #[derive(Debug)]
    struct Nothing;

    impl TextMap for Nothing {
        fn name(&self) -> String {
            "nothing".to_owned()
        }

        fn get(&self, _: &str) -> Result<Option<String>, String> {
            Ok(None)
        }

        fn set(&self, _: &str, _: &str) -> Result<(), String> {
            Err("away".to_owned())
        }

        fn compare_set(&self, _: &str, _: &str, _: &str) -> Result<String, String> {
            Err("away".to_owned())
        }

        fn add_one(&self, _: &str) -> Result<u64, String> {
            Err("away".to_owned())
        }

        fn delete(&self, _: &str) -> Result<(), String> {
            Err("away".to_owned())
        }
    }

    /// A map whose first look finds nothing and lasts 2 ms. Each key is set during that look.
    #[derive(Debug, Default)]
    struct SetMeanwhile(std::sync::atomic::AtomicBool);

    impl TextMap for SetMeanwhile {
        fn name(&self) -> String {
            "late".to_owned()
        }

        fn get(&self, _: &str) -> Result<Option<String>, String> {
            if self.0.swap(true, std::sync::atomic::Ordering::Relaxed) {
                return Ok(Some(to_text(b"there")));
            }
            std::thread::sleep(Duration::from_millis(2));
            Ok(None)
        }

        fn set(&self, _: &str, _: &str) -> Result<(), String> {
            Ok(())
        }

        fn compare_set(&self, _: &str, _: &str, text: &str) -> Result<String, String> {
            Ok(text.to_owned())
        }

        fn add_one(&self, _: &str) -> Result<u64, String> {
            Ok(1)
        }

        fn delete(&self, _: &str) -> Result<(), String> {
            Ok(())
        }
    }

    #[test]
    fn a_change_while_the_last_look_of_a_watch_lasts_is_found() {
        let store = BringUpStore::new(Box::new(SetMeanwhile::default()));
        let mut watch = KeyWatch::new("key");
        let found = store.next_change(&mut watch, 0, Duration::from_millis(1));
        assert!(matches!(found, Ok(KeyChange::Set(_))), "{found:?}");
    }

    #[test]
    fn what_the_map_says_is_shown_with_its_name() {
        let store = BringUpStore::new(Box::new(Nothing));
        let error = store.put("a/b", b"").unwrap_err();
        assert_eq!(error.to_string(), "the store nothing: away");
        // The change may have been made before the error.
        assert_eq!(error.known(), crate::Known::Unknown);
        let error = store.leave(1).unwrap_err();
        assert_eq!(error.to_string(), "the store nothing: away");
        let error = store.renew_lease("a", LeaseId(1)).unwrap_err();
        assert!(
            error
                .to_string()
                .starts_with("the store nothing carries no leases"),
            "{error}"
        );
    }
}
