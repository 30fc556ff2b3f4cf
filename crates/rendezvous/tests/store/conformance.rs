//! What every store does.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use rendezvous::{
    FileStore, MAX_KEY, MAX_VALUE, MemoryStore, Records, Store, StoreError, open_store,
};
use test_basics::limits::HANG;

use crate::disturbed::{Disturbed, Faults};
use crate::text_map::Shelf;

/// Each call of a store takes up to so long.
fn delayed() -> Faults {
    let delay = match std::env::var_os("WV_TEST_FULL") {
        Some(_) => Duration::from_millis(10),
        None => Duration::from_micros(300),
    };
    Faults {
        least: Duration::ZERO,
        delay,
        lost: 0,
    }
}

/// Runs `check` on a fresh store of each kind.
pub(crate) fn on_each(check: impl Fn(Arc<dyn Store>)) {
    let directories = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let memory = Arc::new(MemoryStore::new());
    let url = format!("file://{}", directories[1].path().display());
    let stores: [(&str, Arc<dyn Store>); 4] = [
        ("memory", Arc::new(MemoryStore::new())),
        (
            "memory with records",
            Arc::new(Records::new(memory, "run").unwrap()),
        ),
        (
            "directory",
            Arc::new(FileStore::open(directories[0].path(), "run").unwrap()),
        ),
        ("directory by its url", open_store(&url, "run").unwrap()),
    ];
    for (name, store) in stores {
        eprintln!("{name}");
        check(store);
    }
    let seed = fastrand::u64(..);
    let directory = tempfile::tempdir().unwrap();
    let slow: [(&str, Arc<dyn Store>); 2] = [
        ("memory", Arc::new(MemoryStore::new())),
        (
            "directory",
            Arc::new(FileStore::open(directory.path(), "run").unwrap()),
        ),
    ];
    for (name, store) in slow {
        eprintln!("{name}, each call delayed, seed {seed}");
        check(Arc::new(Disturbed::new(store, delayed(), seed)));
    }
    #[cfg(feature = "etcd")]
    on_etcd(check);
}

#[cfg(feature = "etcd")]
fn on_etcd(check: impl Fn(Arc<dyn Store>)) {
    use rendezvous::EtcdStore;
    use test_basics::etcd::{Etcd, NO_PROGRAM, program};

    if program().is_none() {
        return println!("left out: {NO_PROGRAM}");
    }
    let etcd = Etcd::start(1).unwrap();
    eprintln!("etcd");
    let store = EtcdStore::open(&etcd.url(0, "", "plain"), "run").unwrap();
    check(Arc::new(store));
    eprintln!("etcd by its url");
    check(open_store(&etcd.url(0, "", "by/url"), "run").unwrap());
    let seed = fastrand::u64(..);
    eprintln!("etcd, each call delayed, seed {seed}");
    let store = open_store(&etcd.url(0, "", "delayed"), "run").unwrap();
    check(Arc::new(Disturbed::new(store, delayed(), seed)));
}

/// As `on_etcd`, on one that carries no leases, too.
fn on_all(check: impl Fn(Arc<dyn Store>)) {
    eprintln!("a map of text");
    check(Arc::new(Shelf::store()));
    eprintln!("a map of text with records");
    check(Arc::new(
        Records::new(Arc::new(Shelf::store()), "run").unwrap(),
    ));
    on_each(check);
}

#[test]
fn a_value_is_read_back_whole_and_a_later_one_replaces_it() {
    on_all(|store| {
        assert_eq!(store.try_get("a/b").unwrap(), None);
        store.put("a/b", b"one").unwrap();
        store.put("a/b", &[7; 100_000]).unwrap();
        assert_eq!(store.try_get("a/b").unwrap(), Some(vec![7; 100_000]));
        store.put("a/b", b"").unwrap();
        assert_eq!(store.try_get("a/b").unwrap(), Some(Vec::new()));
    });
}

#[test]
fn keys_and_values_beyond_the_limits_are_refused_and_change_nothing() {
    on_all(|store| {
        for key in ["../b", "", "a//b", ".run"] {
            let error = store.put(key, b"").unwrap_err();
            assert!(matches!(error, StoreError::Key { .. }), "{error}");
        }
        let long = "k".repeat(MAX_KEY + 1);
        let error = store.try_get(&long).unwrap_err().to_string();
        assert!(
            error.ends_with("has 257 bytes; at most 256 are kept"),
            "{error}"
        );
        store.put("big", b"before").unwrap();
        let value = vec![1; MAX_VALUE + 1];
        for error in [
            store.put("big", &value).unwrap_err(),
            store
                .compare_and_set("big", Some(b"before"), &value)
                .unwrap_err(),
            store
                .take_lease("other", &value, Duration::from_secs(1))
                .unwrap_err(),
        ] {
            assert!(
                error
                    .to_string()
                    .contains("has 1048577 bytes; at most 1048576 are kept"),
                "{error}"
            );
        }
        assert_eq!(store.try_get("big").unwrap().unwrap(), b"before");
        // Room for the header of a record.
        let most = vec![1; MAX_VALUE - 200];
        store.put("big", &most).unwrap();
        assert!(store.try_get("big").unwrap().unwrap() == most);
    });
}

#[test]
fn compare_and_set_changes_only_what_is_expected() {
    on_all(|store| {
        assert!(!store.compare_and_set("k", Some(b"x"), b"y").unwrap());
        assert!(store.compare_and_set("k", None, b"x").unwrap());
        assert!(!store.compare_and_set("k", None, b"z").unwrap());
        assert!(store.compare_and_set("k", Some(b"x"), b"y").unwrap());
        assert_eq!(store.try_get("k").unwrap().unwrap(), b"y");
        assert!(store.remove("k").unwrap());
        assert!(!store.compare_and_set("k", Some(b"y"), b"z").unwrap());
        assert!(store.compare_and_set("k", None, b"again").unwrap());
    });
}

/// Adds one to the number in `key`.
pub(crate) fn increment(store: &dyn Store, key: &str) {
    loop {
        let old = store.try_get(key).unwrap().unwrap();
        let next = String::from_utf8_lossy(&old).parse::<u32>().unwrap() + 1;
        let next = next.to_string();
        if store
            .compare_and_set(key, Some(&old), next.as_bytes())
            .unwrap()
        {
            return;
        }
    }
}

#[test]
fn compare_and_set_of_many_threads_counts_every_step() {
    on_all(|store| {
        const EACH: u32 = 25;
        store.put("n", b"0").unwrap();
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..EACH).for_each(|_| increment(&*store, "n")));
            }
        });
        assert_eq!(store.try_get("n").unwrap().unwrap(), b"100");
    });
}

#[test]
fn a_removed_key_is_gone_and_may_be_set_again() {
    on_all(|store| {
        assert!(!store.remove("gone").unwrap());
        store.put("gone", b"1").unwrap();
        assert!(store.remove("gone").unwrap());
        assert!(!store.remove("gone").unwrap());
        assert_eq!(store.try_get("gone").unwrap(), None);
        store.put("gone", b"2").unwrap();
        assert_eq!(store.try_get("gone").unwrap().unwrap(), b"2");
    });
}

#[test]
fn names_below_a_key_are_listed_in_order_and_once_while_they_are_set() {
    on_all(|store| {
        assert!(store.list("failed").unwrap().is_empty());
        for key in [
            "failed/7",
            "failed/12/why",
            "failed/12/when",
            "other/1",
            "failed/7.x",
        ] {
            store.put(key, b"").unwrap();
            store.put(key, b"again").unwrap();
        }
        assert_eq!(store.list("failed").unwrap(), ["12", "7", "7.x"]);
        store.remove("failed/7").unwrap();
        store.remove("failed/12/why").unwrap();
        assert_eq!(store.list("failed").unwrap(), ["12", "7.x"]);
        store.remove("failed/12/when").unwrap();
        assert_eq!(store.list("failed").unwrap(), ["7.x"]);
    });
}

#[test]
fn a_wait_ends_with_the_value_or_at_its_deadline() {
    on_all(|store| {
        let error = store.get("late", Instant::now() + Duration::from_millis(30));
        assert!(
            error
                .unwrap_err()
                .to_string()
                .starts_with("no rank has set 'late' within")
        );
        thread::scope(|scope| {
            let waiter = scope.spawn(|| store.get("late", Instant::now() + HANG));
            // It waits by now, as a rule; it gets the value in any case.
            thread::sleep(Duration::from_millis(20));
            store.put("late", b"here").unwrap();
            assert_eq!(waiter.join().unwrap().unwrap(), b"here");
        });
    });
}

#[test]
fn a_watch_ends_with_a_new_value_or_with_the_known_one_at_its_timeout() {
    on_all(|store| {
        store.put("w", b"1").unwrap();
        let short = Duration::from_millis(20);
        assert_eq!(store.watch("w", None, HANG).unwrap().unwrap(), b"1");
        assert_eq!(store.watch("w", Some(b"1"), short).unwrap().unwrap(), b"1");
        thread::scope(|scope| {
            let watcher = scope.spawn(|| store.watch("w", Some(b"1"), HANG));
            // As above.
            thread::sleep(short);
            store.remove("w").unwrap();
            assert_eq!(watcher.join().unwrap().unwrap(), None);
        });
    });
}

#[test]
fn a_key_that_changed_a_thousand_times_is_read_by_an_old_reader() {
    on_all(|store| {
        store.put("often", b"0").unwrap();
        let start = Instant::now();
        for i in 1..=1000u32 {
            store.put("often", i.to_string().as_bytes()).unwrap();
            if i % 100 == 0 {
                assert_eq!(
                    store.try_get("often").unwrap().unwrap(),
                    i.to_string().as_bytes()
                );
            }
        }
        eprintln!("1,000 changes in {:?}", start.elapsed());
        assert_eq!(store.list("nothing").unwrap().len(), 0);
    });
}
