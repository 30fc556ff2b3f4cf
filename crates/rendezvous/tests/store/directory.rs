//! What only a directory can get wrong.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use rendezvous::{FileStore, MAX_VALUE, Store, StoreError, open_store};

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
    let file = directory.path().join("k@/0/1");
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
    let version = directory.path().join("hello/1@/0/1");
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
