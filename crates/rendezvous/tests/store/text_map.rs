//! A store over a map of text, as another library keeps one.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use rendezvous::{BringUpStore, KeyChange, KeyWatch, LeaseId, Store, StoreError, TextMap};
use test_basics::limits::HANG;

/// A map that does what c10d stores do, and no more. Clones are the same map.
#[derive(Clone, Debug, Default)]
pub(crate) struct Shelf {
    texts: Arc<Mutex<BTreeMap<String, String>>>,
}

impl Shelf {
    pub(crate) fn store() -> BringUpStore {
        BringUpStore::new(Box::new(Self::default()))
    }

    fn another(&self) -> BringUpStore {
        BringUpStore::new(Box::new(self.clone()))
    }
}

impl TextMap for Shelf {
    fn name(&self) -> String {
        "shelf".to_owned()
    }

    fn get(&self, key: &str) -> Result<Option<String>, String> {
        Ok(self.texts.lock().unwrap().get(key).cloned())
    }

    fn set(&self, key: &str, text: &str) -> Result<(), String> {
        assert!(!text.is_empty(), "c10d cannot tell an empty text from none");
        let mut texts = self.texts.lock().unwrap();
        texts.insert(key.to_owned(), text.to_owned());
        Ok(())
    }

    fn compare_set(&self, key: &str, expected: &str, text: &str) -> Result<String, String> {
        assert!(!text.is_empty());
        let mut texts = self.texts.lock().unwrap();
        let there = texts.get(key).cloned();
        match there {
            Some(there) if there != expected => Ok(there),
            // As c10d answers: the expected text, of a key that is not set.
            None if !expected.is_empty() => Ok(expected.to_owned()),
            _ => {
                texts.insert(key.to_owned(), text.to_owned());
                Ok(text.to_owned())
            }
        }
    }

    fn add_one(&self, key: &str) -> Result<u64, String> {
        let mut texts = self.texts.lock().unwrap();
        let text = texts.entry(key.to_owned()).or_insert("0".to_owned());
        let sum = text.parse::<u64>().unwrap() + 1;
        *text = sum.to_string();
        Ok(sum)
    }

    fn delete(&self, key: &str) -> Result<(), String> {
        let was = self.texts.lock().unwrap().remove(key);
        assert!(was.is_some(), "'{key}' is deleted and was never set");
        Ok(())
    }
}

#[test]
fn the_last_handle_that_leaves_deletes_all_and_no_other_deletes_any() {
    let shelf = Shelf::default();
    let handles: Vec<BringUpStore> = (0..3).map(|_| shelf.another()).collect();
    for (nth, handle) in handles.iter().enumerate() {
        handle.put(&format!("hello/{nth}"), b"here").unwrap();
        let deep = format!("welcome/{nth}/to/all");
        assert!(handle.compare_and_set(&deep, None, b"").unwrap());
        handle.put("shared", b"by all").unwrap();
    }
    handles[2].put("only/2", b"").unwrap();
    let keys = |shelf: &Shelf| shelf.texts.lock().unwrap().len();
    let before = keys(&shelf);
    assert!(!handles[2].leave(3).unwrap());
    // A second time it does not count, and it is not asked any more.
    assert!(!handles[2].leave(3).unwrap());
    let refused = handles[2].bounded(HANG).put("late", b"").unwrap_err();
    assert!(
        refused.to_string().contains("has closed its team"),
        "{refused}"
    );
    assert!(handles[2].try_get("hello/0").is_err());
    assert!(!handles[0].leave(3).unwrap());
    // What those have set that left is there until the last leaves.
    assert_eq!(keys(&shelf), before + 1);
    assert_eq!(handles[1].list("hello").unwrap(), ["0", "1", "2"]);
    handles[1].put("then", b"").unwrap();
    assert!(handles[1].leave(3).unwrap());
    assert_eq!(keys(&shelf), 0);
}

/// A map in one of whose calls its handle leaves.
#[derive(Debug)]
struct Left {
    shelf: Shelf,
    handle: Arc<Mutex<Option<Arc<BringUpStore>>>>,
}

impl TextMap for Left {
    fn name(&self) -> String {
        self.shelf.name()
    }

    fn get(&self, key: &str) -> Result<Option<String>, String> {
        if let Some(handle) = self.handle.lock().unwrap().take() {
            assert!(!handle.leave(1).unwrap());
        }
        self.shelf.get(key)
    }

    fn set(&self, key: &str, text: &str) -> Result<(), String> {
        self.shelf.set(key, text)
    }

    fn compare_set(&self, key: &str, expected: &str, text: &str) -> Result<String, String> {
        self.shelf.compare_set(key, expected, text)
    }

    fn add_one(&self, key: &str) -> Result<u64, String> {
        self.shelf.add_one(key)
    }

    fn delete(&self, key: &str) -> Result<(), String> {
        self.shelf.delete(key)
    }
}

#[test]
fn a_handle_that_leaves_in_the_middle_of_a_call_is_not_counted() {
    let (shelf, handle) = (Shelf::default(), Arc::default());
    let map = Left {
        shelf: shelf.clone(),
        handle: Arc::clone(&handle),
    };
    let store = Arc::new(BringUpStore::new(Box::new(map)));
    store.put("a/b", b"it").unwrap();
    let keys = shelf.texts.lock().unwrap().len();
    *handle.lock().unwrap() = Some(Arc::clone(&store));
    // The call ends as it would have, and the next is refused.
    assert_eq!(store.try_get("a/b").unwrap().unwrap(), b"it");
    assert!(store.try_get("a/b").is_err());
    assert!(!store.leave(1).unwrap());
    assert_eq!(shelf.texts.lock().unwrap().len(), keys);
}

#[test]
fn of_handles_that_leave_at_once_one_is_the_last_and_nothing_is_left() {
    for _ in 0..50 {
        let shelf = Shelf::default();
        const RANKS: u32 = 8;
        let last = thread::scope(|scope| {
            let leave = |rank: u32| {
                let store = shelf.another();
                scope.spawn(move || {
                    store.put(&format!("a/{rank}"), b"").unwrap();
                    store.put(&format!("of-{rank}/b"), b"").unwrap();
                    u32::from(store.leave(RANKS).unwrap())
                })
            };
            let leaving: Vec<_> = (0..RANKS).map(leave).collect();
            let left = leaving.into_iter().map(|it| it.join().unwrap());
            left.sum::<u32>()
        });
        assert_eq!((last, shelf.texts.lock().unwrap().len()), (1, 0));
    }
}

#[test]
fn handles_of_one_map_see_each_other_and_give_revisions_of_their_own() {
    let shelf = Shelf::default();
    let (one, two) = (shelf.another(), shelf.another());
    one.put("row/1", b"a").unwrap();
    one.put("row/2/deep", b"b").unwrap();
    let first = two.changed_since(&["row/1"], Some("row"), 0).unwrap();
    let keys: Vec<&str> = first.entries.iter().map(|entry| &*entry.key).collect();
    assert_eq!(keys, ["row/1", "row/2/deep"]);
    let look = |since| two.changed_since(&[], Some("row"), since).unwrap();
    assert!(look(first.revision).entries.is_empty());
    // The same value again is a change.
    one.put("row/1", b"a").unwrap();
    let second = look(first.revision);
    assert_eq!(second.entries.len(), 1);
    assert_eq!(
        (&*second.entries[0].key, &*second.entries[0].value),
        ("row/1", &b"a"[..])
    );
    assert_eq!(two.count("row").unwrap().keys, 2);
    assert_eq!(one.remove_below("row").unwrap(), 2);
    assert_eq!(two.count("row").unwrap().keys, 0);
    assert!(look(second.revision).entries.is_empty());
    assert_eq!(one.bounded(HANG).list("row").unwrap(), Vec::<String>::new());
}

#[test]
fn names_that_many_ranks_enter_at_once_are_all_there() {
    let shelf = Shelf::default();
    const RANKS: usize = 8;
    thread::scope(|scope| {
        for rank in 0..RANKS {
            let store = shelf.another();
            scope.spawn(move || {
                for round in 0..20 {
                    let key = format!("hello/{rank}");
                    store.put(&key, round.to_string().as_bytes()).unwrap();
                    if round % 3 == 0 {
                        assert!(store.remove(&key).unwrap());
                    }
                }
            });
        }
    });
    let names: Vec<String> = (0..RANKS).map(|rank| rank.to_string()).collect();
    assert_eq!(shelf.another().list("hello").unwrap(), names);
}

#[test]
fn a_wait_for_one_key_ends_with_its_change_and_its_removal() {
    let shelf = Shelf::default();
    let (one, two) = (shelf.another(), shelf.another());
    let mut watch = KeyWatch::new("k");
    let none = two.next_change(&mut watch, 0, Duration::ZERO).unwrap();
    assert_eq!(none, KeyChange::Nothing);
    let since = thread::scope(|scope| {
        let waiter = scope.spawn(|| two.next_change(&mut watch, 0, HANG).unwrap());
        one.put("k", b"v").unwrap();
        match waiter.join().unwrap() {
            KeyChange::Set(entry) => entry.revision,
            other => panic!("{other:?}"),
        }
    });
    one.remove("k").unwrap();
    let gone = two.next_change(&mut watch, since, HANG).unwrap();
    assert_eq!(gone, KeyChange::Unknown);
}

#[test]
fn leases_are_refused_with_the_name_of_the_map() {
    let store = Shelf::store();
    assert_eq!(store.without_leases().as_deref(), Some("shelf"));
    let long = Duration::from_secs(1);
    let all = [
        store.take_lease("k", b"", long).map(drop),
        store.put_leased("k", b"", LeaseId(1)).map(drop),
        store.renew_lease("k", LeaseId(1)).map(drop),
        store.end_lease("k", LeaseId(1)),
    ];
    for refused in all {
        let error = refused.unwrap_err();
        assert!(matches!(error, StoreError::NoLeases { .. }), "{error}");
        assert!(error.to_string().contains("shelf"), "{error}");
    }
    assert_eq!(store.try_get("k").unwrap(), None);
}
