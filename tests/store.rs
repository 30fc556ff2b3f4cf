//! Both rendezvous stores, by one set of expectations; then what only a directory can get wrong.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use warpverbs::team::{FileStore, MemoryStore, Store, StoreError, open_store};

/// Runs `check` on a fresh store of each kind.
fn on_both(check: impl Fn(Arc<dyn Store>)) {
    check(Arc::new(MemoryStore::new()));
    let directory = tempfile::tempdir().unwrap();
    check(Arc::new(FileStore::open(directory.path(), "run").unwrap()));
}

#[test]
fn a_value_is_read_back_whole_and_a_later_one_replaces_it() {
    on_both(|store| {
        assert_eq!(store.try_get("a/b").unwrap(), None);
        store.put("a/b", b"one").unwrap();
        store.put("a/b", &[7; 100_000]).unwrap();
        assert_eq!(store.try_get("a/b").unwrap(), Some(vec![7; 100_000]));
        assert!(matches!(
            store.put("../b", b""),
            Err(StoreError::Key { .. })
        ));
    });
}

#[test]
fn compare_and_set_changes_only_what_is_expected() {
    on_both(|store| {
        assert!(!store.compare_and_set("k", Some(b"x"), b"y").unwrap());
        assert!(store.compare_and_set("k", None, b"x").unwrap());
        assert!(!store.compare_and_set("k", None, b"z").unwrap());
        assert!(store.compare_and_set("k", Some(b"x"), b"y").unwrap());
        assert_eq!(store.try_get("k").unwrap().unwrap(), b"y");
    });
}

#[test]
fn compare_and_set_of_many_threads_counts_every_step() {
    on_both(|store| {
        const EACH: u32 = 25;
        store.put("n", b"0").unwrap();
        let add = |store: &dyn Store| loop {
            let old = store.try_get("n").unwrap().unwrap();
            let next = String::from_utf8_lossy(&old).parse::<u32>().unwrap() + 1;
            let next = next.to_string();
            if store
                .compare_and_set("n", Some(&old), next.as_bytes())
                .unwrap()
            {
                return;
            }
        };
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..EACH).for_each(|_| add(&*store)));
            }
        });
        assert_eq!(store.try_get("n").unwrap().unwrap(), b"100");
    });
}

#[test]
fn names_below_a_key_are_listed_in_order_and_once() {
    on_both(|store| {
        assert!(store.list("failed").unwrap().is_empty());
        for key in ["failed/7", "failed/12/why", "failed/12/when", "other/1"] {
            store.put(key, b"").unwrap();
        }
        assert_eq!(store.list("failed").unwrap(), ["12", "7"]);
    });
}

#[test]
fn a_wait_ends_with_the_value_or_at_its_deadline() {
    on_both(|store| {
        let error = store.get("late", Instant::now() + Duration::from_millis(30));
        assert!(
            error
                .unwrap_err()
                .to_string()
                .starts_with("nobody has set 'late' within")
        );
        thread::scope(|scope| {
            let waiter =
                scope.spawn(|| store.get("late", Instant::now() + Duration::from_secs(10)));
            thread::sleep(Duration::from_millis(20));
            store.put("late", b"here").unwrap();
            assert_eq!(waiter.join().unwrap().unwrap(), b"here");
        });
    });
}

#[test]
fn a_missing_directory_is_an_error_that_names_it() {
    let error = open_store("file:///nonexistent/store", "r").unwrap_err();
    assert_eq!(
        error.to_string(),
        "the store directory /nonexistent/store does not exist; make it before the ranks start"
    );
}

#[test]
fn a_directory_of_another_run_is_refused_and_left_as_it_was() {
    let directory = tempfile::tempdir().unwrap();
    let first = FileStore::open(directory.path(), "monday").unwrap();
    first.put("key", b"kept").unwrap();
    assert!(
        FileStore::open(directory.path(), "monday").is_ok(),
        "other ranks of the same run"
    );
    let error = FileStore::open(directory.path(), "tuesday")
        .unwrap_err()
        .to_string();
    assert!(
        error.ends_with(
            "belongs to run 'monday', not to run 'tuesday'; each run needs an empty one"
        ),
        "{error}"
    );
    assert_eq!(first.try_get("key").unwrap().unwrap(), b"kept");
}

#[test]
fn two_handles_on_one_directory_are_one_store() {
    let directory = tempfile::tempdir().unwrap();
    let [one, two] = ["r", "r"].map(|run| FileStore::open(directory.path(), run).unwrap());
    one.put("x/y", b"1").unwrap();
    assert_eq!(two.try_get("x/y").unwrap().unwrap(), b"1");
    assert!(!two.compare_and_set("x/y", None, b"2").unwrap());
}
