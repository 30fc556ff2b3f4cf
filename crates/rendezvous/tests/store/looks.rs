//! Looks at many keys, counts, keys under a lease, the watch of one key and the removal of a prefix, in every store.

use std::collections::BTreeSet;
use std::thread;
use std::time::{Duration, Instant};

use rendezvous::{Changed, KeyChange, KeyWatch, LeaseId, MAX_BOUND, MAX_LOOK, StoreError, Timed};
use test_basics::limits::{HANG, until};

use crate::conformance::on_each;

fn keys(changed: &Changed) -> Vec<&str> {
    changed
        .entries
        .iter()
        .map(|entry| entry.key.as_str())
        .collect()
}

#[test]
fn a_look_finds_what_has_changed_behind_a_revision_and_each_key_once() {
    on_each(|store| {
        let names = ["record", "row/1", "row/2/deep", "rows", "other"];
        for key in names {
            store.put(key, key.as_bytes()).unwrap();
        }
        let first = store
            .changed_since(&["record", "row/1", "missing"], Some("row"), 0)
            .unwrap();
        assert_eq!(keys(&first), ["record", "row/1", "row/2/deep"]);
        for entry in &first.entries {
            assert_eq!(entry.value, entry.key.as_bytes());
            assert!(entry.created <= entry.revision && entry.revision <= first.revision);
            assert!(entry.created > 0);
        }
        let look = |since| {
            store
                .changed_since(&["record"], Some("row"), since)
                .unwrap()
        };
        let none = look(first.revision);
        assert!(none.entries.is_empty() && none.unreadable.is_empty());
        assert!(none.revision >= first.revision);

        store.put("row/1", b"new").unwrap();
        store.put("other", b"not asked for").unwrap();
        let second = look(none.revision);
        assert_eq!(keys(&second), ["row/1"]);
        assert_eq!(second.entries[0].value, b"new");
        assert_eq!(second.entries[0].created, first.entries[1].created);
        assert!(second.entries[0].revision > first.entries[1].revision);

        store.remove("row/1").unwrap();
        assert!(
            look(second.revision).entries.is_empty(),
            "removals are not listed"
        );
        store.put("row/1", b"again").unwrap();
        let third = look(second.revision);
        assert_eq!(keys(&third), ["row/1"]);
        assert!(third.entries[0].created > second.entries[0].revision);
        assert_eq!(keys(&look(first.revision)), ["row/1"]);
        assert_eq!(look(0).entries.len(), 3);
    });
}

#[test]
fn a_look_at_too_many_keys_or_at_one_that_is_none_is_refused() {
    on_each(|store| {
        let many = ["k"; MAX_LOOK + 1];
        let error = store.changed_since(&many, None, 0).unwrap_err();
        assert_eq!(
            error.to_string(),
            "a look names 65 keys; at most 64 are read at once"
        );
        assert!(store.changed_since(&many[1..], Some("below"), 0).is_ok());
        for look in [
            store.changed_since(&["../k"], None, 0).map(drop),
            store.changed_since(&[], Some("../k"), 0).map(drop),
            store.count("").map(drop),
            store.remove_below("a//b").map(drop),
            store.wait_for_key("", 0, HANG).map(drop),
        ] {
            let error = look.unwrap_err();
            assert!(matches!(error, StoreError::Key { .. }), "{error}");
        }
    });
}

#[test]
fn a_count_differs_when_keys_come_or_go_and_not_when_they_change() {
    on_each(|store| {
        let count = || {
            let count = store.count("member").unwrap();
            (count.keys, count.newest_created)
        };
        assert_eq!(count(), (0, 0));
        store.put("member/1", b"").unwrap();
        store.put("members/1", b"").unwrap();
        let one = count();
        assert!(one.0 == 1 && one.1 > 0, "{one:?}");
        store.put("member/1", b"changed").unwrap();
        assert_eq!(count(), one);
        store.put("member/2/deep", b"").unwrap();
        let two = count();
        assert!(two.0 == 2 && two.1 > one.1, "{two:?}");
        store.remove("member/1").unwrap();
        assert_eq!(count(), (1, two.1));
        // As many keys as before, and not the same.
        store.put("member/1", b"").unwrap();
        assert!(count().0 == 2 && count().1 > two.1);
        assert!(store.count("member").unwrap().revision >= count().1);
    });
}

#[test]
fn keys_under_a_lease_go_with_it_and_only_a_living_lease_takes_them() {
    on_each(|store| {
        let never = LeaseId(u64::MAX >> 2);
        assert!(!store.put_leased("a", b"1", never).unwrap());
        assert_eq!(store.try_get("a").unwrap(), None);
        let id = store.take_lease("member/1", b"me", HANG).unwrap().unwrap();
        assert!(store.put_leased("a", b"1", id).unwrap());
        assert!(store.put_leased("a", b"2", id).unwrap());
        assert_eq!(store.try_get("a").unwrap().unwrap(), b"2");

        // Another rank writes the holder's key; the holder sees it and writes it again.
        store.put("member/1", b"not mine").unwrap();
        assert!(!store.renew_lease("member/1", id).unwrap());
        assert_eq!(
            store.try_get("a").unwrap().unwrap(),
            b"2",
            "the lease lives"
        );
        assert!(store.put_leased("member/1", b"me again", id).unwrap());
        assert!(store.renew_lease("member/1", id).unwrap());

        store.put("b", b"plain").unwrap();
        assert!(store.put_leased("b", b"leased", id).unwrap());
        assert!(store.put_leased("c", b"leased", id).unwrap());
        store.put("c", b"plain").unwrap();
        store.bounded(MAX_BOUND).end_lease("member/1", id).unwrap();
        for key in ["member/1", "a", "b"] {
            assert_eq!(store.try_get(key).unwrap(), None, "{key}");
        }
        assert_eq!(store.try_get("c").unwrap().unwrap(), b"plain");
        assert!(!store.put_leased("a", b"3", id).unwrap());
    });
}

#[test]
fn a_prefix_is_removed_with_all_depths_and_nothing_beside_it() {
    on_each(|store| {
        for key in ["p/1", "p/2/3", "p/2/4/5", "p", "p.x/1", "q/1"] {
            store.put(key, b"").unwrap();
        }
        assert_eq!(store.remove_below("p").unwrap(), 3);
        assert_eq!(store.remove_below("p").unwrap(), 0);
        assert_eq!(store.list("p").unwrap(), [""; 0]);
        for key in ["p", "p.x/1", "q/1"] {
            assert!(store.try_get(key).unwrap().is_some(), "{key}");
        }
    });
}

/// Asks until there is an answer. An etcd on a busy machine may not have answered within a short wait.
fn asked_again<T>(mut ask: impl FnMut() -> Result<T, StoreError>) -> T {
    let start = Instant::now();
    loop {
        match ask() {
            Err(error) if error.is_unanswered() && start.elapsed() < HANG => {}
            answer => return answer.unwrap(),
        }
    }
}

#[test]
fn a_watch_of_one_key_reports_changes_and_removals_of_that_key_only() {
    on_each(|store| {
        let short = Duration::from_millis(50);
        store.put("watched", b"1").unwrap();
        let revision = || store.changed_since(&["watched"], None, 0).unwrap().revision;
        assert!(
            store.wait_for_key("watched", 0, HANG).unwrap(),
            "it was set before"
        );
        let known = revision();
        store.put("other", b"1").unwrap();
        let nothing = asked_again(|| store.wait_for_key("watched", known, short));
        assert!(!nothing, "only another key was set");

        for change in [Some(b"2"), None, Some(b"3")] {
            let known = revision();
            thread::scope(|scope| {
                // It watches before or after the change, and gets it in any case.
                let watcher = scope.spawn(|| store.wait_for_key("watched", known, HANG));
                match change {
                    Some(value) => store.put("watched", value).unwrap(),
                    None => assert!(store.remove("watched").unwrap()),
                }
                assert!(watcher.join().unwrap().unwrap(), "{change:?}");
            });
        }
    });
}

#[test]
fn a_watch_that_stands_tells_every_change_and_asks_once() {
    on_each(|store| {
        let mut watch = KeyWatch::new("watched");
        let mut known = 0;
        for value in [b"1", b"2", b"3"] {
            store.put("other", value).unwrap();
            store.put("watched", value).unwrap();
            match store.next_change(&mut watch, known, HANG).unwrap() {
                KeyChange::Set(entry) => {
                    assert_eq!(
                        (entry.key.as_str(), &entry.value[..]),
                        ("watched", &value[..])
                    );
                    assert!(entry.revision > known && entry.created <= entry.revision);
                    known = entry.revision;
                }
                // A directory is looked at.
                KeyChange::Unknown => {
                    known = store.changed_since(&["watched"], None, 0).unwrap().revision;
                }
                KeyChange::Nothing => panic!("it was set to {value:?}"),
            }
        }
        assert!(watch.requests() <= 1, "{watch:?}");
        assert!(store.remove("watched").unwrap());
        let gone = store.next_change(&mut watch, known, HANG).unwrap();
        assert_eq!(gone, KeyChange::Unknown);
        // Unchanged keys are not reported, and the next wait asks anew.
        let mut watch = KeyWatch::new("watched");
        let known = store.changed_since(&["watched"], None, 0).unwrap().revision;
        let short = Duration::from_millis(50);
        let nothing = asked_again(|| store.next_change(&mut watch, known, short));
        assert_eq!(nothing, KeyChange::Nothing);
        store.put("watched", b"4").unwrap();
        let change = store.next_change(&mut watch, known, HANG).unwrap();
        assert_ne!(change, KeyChange::Nothing);
    });
}

#[test]
fn a_handle_of_another_bound_is_the_same_store_with_the_same_revisions() {
    on_each(|store| {
        let other = store.bounded(MAX_BOUND);
        store.put("k", b"1").unwrap();
        let look = Timed::of(|| other.changed_since(&["k"], None, 0));
        let look = look.result.unwrap();
        assert_eq!(keys(&look), ["k"]);
        assert!(
            store
                .changed_since(&["k"], None, look.revision)
                .unwrap()
                .entries
                .is_empty()
        );
        let id = store.take_lease("l", b"", HANG).unwrap().unwrap();
        assert!(other.renew_lease("l", id).unwrap());
        other.end_lease("l", id).unwrap();
        until("the lease is gone", || {
            store.try_get("l").unwrap().is_none()
        });
    });
}

#[test]
fn a_look_misses_no_key_that_another_thread_of_its_handle_saw_first() {
    on_each(|store| {
        let rounds = 300u32;
        let name = |round: u32| format!("first/{round}");
        thread::scope(|scope| {
            let sees = scope.spawn(|| {
                // It gives the directory's handle the revision of each key, perhaps before the look below has listed the key.
                for round in 0..rounds {
                    let start = Instant::now();
                    let look = || store.changed_since(&[&name(round)], None, 0).unwrap();
                    while look().entries.is_empty() {
                        assert!(start.elapsed() < HANG, "{} is not set", name(round));
                    }
                }
            });
            scope.spawn(|| {
                for round in 0..rounds {
                    store.put(&name(round), b"1").unwrap();
                }
            });
            let (mut seen, mut since) = (BTreeSet::new(), 0);
            let mut all_set = false;
            loop {
                let found = store.changed_since(&[], Some("first"), since).unwrap();
                since = found.revision;
                seen.extend(found.entries.into_iter().map(|entry| entry.key));
                if all_set {
                    break;
                }
                all_set = sees.is_finished();
            }
            let missed: Vec<String> = (0..rounds)
                .map(name)
                .filter(|key| !seen.contains(key))
                .collect();
            assert!(missed.is_empty(), "{missed:?}");
        });
    });
}
