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
