//! What only a directory can get wrong.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rendezvous::{FileStore, MAX_VALUE, Store, StoreError, open_store};

/// Returns the one file of a key.
fn version(home: &Path) -> PathBuf {
    let one = |directory: &Path| {
        let mut names = fs::read_dir(directory).unwrap();
        let one = names.next().unwrap().unwrap().path();
        assert!(names.next().is_none());
        one
    };
    one(&one(home))
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
fn a_directory_opened_to_others_later_is_refused_by_name_at_each_opening() {
    let directory = tempfile::tempdir().unwrap();
    let set_mode = |mode| {
        let mode = fs::Permissions::from_mode(mode);
        fs::set_permissions(directory.path(), mode).unwrap();
    };
    let url = format!("file://{}", directory.path().display());
    let first = open_store(&url, "r").unwrap();
    first.put("key", b"1").unwrap();
    set_mode(0o777);
    let error = open_store(&url, "r").unwrap_err();
    assert!(matches!(error, StoreError::Shared { .. }), "{error}");
    let error = error.to_string();
    let named = error.contains(&*directory.path().display().to_string());
    assert!(named && error.contains("mode 0777"), "{error}");
    // With `?shared` the caller trusts the other users, and gets the directory.
    assert!(open_store(&format!("{url}?shared"), "r").is_ok());
    set_mode(0o700);
    let again = open_store(&url, "r").unwrap();
    assert_eq!(again.try_get("key").unwrap().unwrap(), b"1");
}

#[test]
fn two_handles_on_one_directory_are_one_store() {
    let directory = tempfile::tempdir().unwrap();
    let [one, two] = ["r", "r"].map(|run| FileStore::open(directory.path(), run).unwrap());
    one.put("x/y", b"1").unwrap();
    assert_eq!(two.try_get("x/y").unwrap().unwrap(), b"1");
    assert!(!two.compare_and_set("x/y", None, b"2").unwrap());
    for i in 0..100u32 {
        one.put("x/y", i.to_string().as_bytes()).unwrap();
    }
    assert_eq!(two.try_get("x/y").unwrap().unwrap(), b"99");
    let late = FileStore::open(directory.path(), "r").unwrap();
    assert_eq!(late.try_get("x/y").unwrap().unwrap(), b"99");
    assert!(late.compare_and_set("x/y", Some(b"99"), b"end").unwrap());
    assert_eq!(one.try_get("x/y").unwrap().unwrap(), b"end");
}

#[test]
fn a_file_of_something_else_is_named_and_not_read_as_a_value() {
    let directory = tempfile::tempdir().unwrap();
    let store = FileStore::open(directory.path(), "r").unwrap();
    store.put("k", b"").unwrap();
    let file = version(&directory.path().join("k@"));
    let head = fs::read_to_string(&file).unwrap();
    let head = head.split('\n').next().unwrap();
    for bytes in [
        "",
        "value",
        "lease 1 {}\nx",
        "something else\n",
        head,
        &format!("{head}\n"),
        &format!("{head}\nvalue x\n"),
        &format!("{head}\nlease 1 {{}}\nx"),
    ] {
        fs::write(&file, bytes).unwrap();
        let error = store.try_get("k").unwrap_err();
        assert!(matches!(error, StoreError::NotARecord { .. }), "{error}");
        assert!(
            store
                .changed_since(&["k"], None, 0)
                .unwrap()
                .unreadable
                .len()
                == 1
        );
    }
    fs::write(&file, format!("{head}\nvalue 1\nwhole")).unwrap();
    assert_eq!(store.try_get("k").unwrap().unwrap(), b"whole");
}

#[test]
fn a_file_longer_than_any_value_is_refused_by_key_and_not_read_whole() {
    let directory = tempfile::tempdir().unwrap();
    let store = FileStore::open(directory.path(), "r").unwrap();
    let largest = vec![b'v'; MAX_VALUE];
    store.put("hello/1", &largest).unwrap();
    assert_eq!(store.try_get("hello/1").unwrap().unwrap(), largest);
    let version = version(&directory.path().join("hello/1@"));
    let file = fs::OpenOptions::new().write(true).open(version).unwrap();
    let one_more = file.metadata().unwrap().len() + 1;
    for length in [one_more, 1 << 30] {
        file.set_len(length).unwrap();
        let error = store.try_get("hello/1").unwrap_err();
        let StoreError::TooLong {
            key, bytes, limit, ..
        } = &error
        else {
            panic!("{error}");
        };
        assert_eq!((key.as_str(), *limit), ("hello/1", MAX_VALUE));
        assert!(*bytes > MAX_VALUE, "{error}");
        let looked = store.changed_since(&["hello/1"], None, 0).unwrap();
        assert!(looked.entries.is_empty());
        assert_eq!(looked.unreadable[0].to_string(), error.to_string());
    }
}

/// All files and directories below a directory.
fn files_below(directory: &Path) -> usize {
    let entries = fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    entries
        .map(|path| 1 + if path.is_dir() { files_below(&path) } else { 0 })
        .sum()
}

#[test]
fn keys_that_were_removed_leave_nothing_in_the_directory() {
    let directory = tempfile::tempdir().unwrap();
    let store = FileStore::open(directory.path(), "r").unwrap();
    let mut counts = Vec::new();
    for round in 0..4 {
        let ttl = Duration::from_secs(100);
        let name = |kind: &str| format!("{kind}/{round}/1.{round}");
        let lease = store
            .take_lease(&name("member"), b"", ttl)
            .unwrap()
            .unwrap();
        assert!(store.put_leased(&name("also"), b"", lease).unwrap());
        for kind in ["row", "hello"] {
            store.put(&name(kind), b"1").unwrap();
            store.put(&name(kind), b"2").unwrap();
        }
        assert!(store.remove(&name("row")).unwrap());
        assert!(!store.remove(&name("row")).unwrap());
        assert_eq!(store.remove_below("hello").unwrap(), 1);
        store.end_lease(&name("member"), lease).unwrap();
        // Ones that have run out go by their names, and were not set.
        let short = Duration::from_millis(50);
        assert!(
            store
                .take_lease(&name("gone"), b"", short)
                .unwrap()
                .is_some()
        );
        let gone = store.watch(&name("gone"), Some(b""), test_basics::limits::HANG);
        assert_eq!(gone.unwrap(), None);
        assert!(!store.remove(&name("gone")).unwrap());
        counts.push(files_below(directory.path()));
    }
    assert_eq!(counts, [counts[0]; 4]);
    // What was removed and is set again is another key for those that look.
    store.put("k", b"1").unwrap();
    let before = store.changed_since(&["k"], None, 0).unwrap();
    assert!(store.remove("k").unwrap());
    assert!(store.compare_and_set("k", None, b"1").unwrap());
    let behind = store.changed_since(&["k"], None, before.revision).unwrap();
    assert!(behind.entries[0].created > before.entries[0].created);
}

#[test]
fn a_directory_that_was_removed_and_is_there_again_is_an_empty_store() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store");
    fs::create_dir(&path).unwrap();
    let [one, two] = ["r", "r"].map(|run| FileStore::open(&path, run).unwrap());
    let ttl = Duration::from_secs(100);
    for round in 0..3 {
        let lease = one.take_lease("seat", b"one", ttl).unwrap().unwrap();
        one.put("k/1", b"1").unwrap();
        one.put("k/1", b"2").unwrap();
        assert_eq!(two.list("k").unwrap(), ["1"]);
        let since = two.changed_since(&[], Some("k"), 0).unwrap().revision;
        fs::remove_dir_all(&path).unwrap();
        // Without the directory nothing is known: it does not count as empty.
        for store in [&one, &two] {
            let failed = [
                store.try_get("k/1").map(drop),
                store.list("k").map(drop),
                store.count("k").map(drop),
                store.put("k/1", b"3"),
                store.renew_lease("seat", lease).map(drop),
            ];
            if let Some(done) = failed[..4].iter().find(|it| it.is_ok()) {
                panic!("round {round}: {done:?}");
            }
        }
        fs::create_dir(&path).unwrap();
        assert!(!one.renew_lease("seat", lease).unwrap(), "round {round}");
        assert_eq!(two.try_get("k/1").unwrap(), None);
        assert_eq!(two.count("k").unwrap().keys, 0);
        assert!(two.compare_and_set("k/1", None, b"again").unwrap());
        assert!(!one.compare_and_set("k/1", None, b"mine").unwrap());
        let found = two.changed_since(&[], Some("k"), since).unwrap();
        assert_eq!(found.entries.len(), 1, "no look misses it");
        assert_eq!(one.try_get("k/1").unwrap().unwrap(), b"again");
        // It belongs to the run as before.
        let error = FileStore::open(&path, "another").unwrap_err();
        assert!(matches!(error, StoreError::OtherRun { .. }), "{error}");
        let seat = two.take_lease("seat", b"two", ttl).unwrap().unwrap();
        two.end_lease("seat", seat).unwrap();
        assert!(two.remove("k/1").unwrap());
    }
}
