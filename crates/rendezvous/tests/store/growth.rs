//! A directory does not grow with the changes of its keys.

use std::ffi::CStr;
use std::fs;
use std::mem::MaybeUninit;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rendezvous::{FileStore, Store};
use rustix::fs::{Mode, OFlags, RawDir};

use crate::conformance::increment;

/// Most files of a key: two versions, and the file of a writer that is behind.
const MOST: usize = 3;
const WRITERS: u32 = 4;

/// All changes of a test together: half of them count, the other half are puts, removals and leases.
fn changes() -> u32 {
    match std::env::var_os("WV_TEST_FULL") {
        Some(_) => 50_000,
        None => 4_000,
    }
}

/// Returns how many files the keys have, each of them, at one moment: of those whose directories are not renamed just now.
fn files_of_keys(directory: &Path) -> Vec<(String, usize)> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let (path, name) = (entry.path(), entry.file_name());
        let name = name.to_string_lossy();
        if name.starts_with('.') {
            continue;
        }
        if !name.ends_with('@') {
            found.extend(files_of_keys(&path));
            continue;
        }
        let in_home = names_at_once(&path).unwrap_or_default();
        let rooms = in_home.iter().filter(|name| name.parse::<u64>().is_ok());
        // Two listings, and a room that both name.
        let files = rooms.filter_map(|room| names_at_once(&path.join(room)));
        let beats = in_home.iter().filter(|name| name.starts_with("beat-"));
        let files = files.map(|files| files.len()).max().unwrap_or(0) + beats.count();
        found.push((path.display().to_string(), files));
    }
    found
}

/// The names in a small directory, by one system call, which is one moment.
fn names_at_once(path: &Path) -> Option<Vec<String>> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY;
    let directory = rustix::fs::open(path, flags, Mode::empty()).ok()?;
    let mut space = [MaybeUninit::uninit(); 1 << 14];
    let mut entries = RawDir::new(directory, &mut space);
    let mut names = Vec::new();
    while let Some(entry) = entries.next() {
        let name: &CStr = entry.as_ref().ok()?.file_name();
        names.push(name.to_string_lossy().into_owned());
        if entries.is_buffer_empty() {
            break;
        }
    }
    names.retain(|name| name != "." && name != "..");
    Some(names)
}

/// Checks the number of files of each key, and returns the number of keys.
#[track_caller]
pub(crate) fn check(directory: &Path) -> usize {
    let found = files_of_keys(directory);
    for (key, files) in &found {
        assert!(*files <= MOST, "{key} has {files} files");
    }
    found.len()
}

fn key(number: u32) -> String {
    format!("row/{number}")
}

fn number(store: &dyn Store, key: &str) -> u32 {
    let value = store.try_get(key).unwrap().unwrap();
    String::from_utf8(value).unwrap().parse().unwrap()
}

fn many_changes(keys: u32) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    let open = || FileStore::open(path, "run").unwrap();
    let store = open();
    for number in 0..keys {
        store.put(&key(number), b"0").unwrap();
    }
    let first = store.changed_since(&[], Some("row"), 0).unwrap();
    let each = changes() / WRITERS;
    let done = &AtomicBool::new(false);
    let start = Instant::now();
    let looks = thread::scope(|scope| {
        let writers: Vec<_> = (0..WRITERS)
            .map(|writer| {
                scope.spawn(move || {
                    let store = open();
                    for change in 0..each / 2 {
                        increment(&store, &key((change + writer) % keys));
                        let other = format!("other/{}", (change + writer) % keys);
                        match change % 4 {
                            0 => drop(store.remove(&other).unwrap()),
                            1 => drop(store.compare_and_set(&other, None, b"set").unwrap()),
                            _ => store.put(&other, b"put").unwrap(),
                        }
                    }
                })
            })
            .collect();
        let counter = scope.spawn(|| {
            let mut looks = 0;
            while !done.load(Ordering::Relaxed) {
                check(path);
                looks += 1;
                thread::sleep(Duration::from_millis(1));
            }
            looks
        });
        let ends: Vec<_> = writers.into_iter().map(|writer| writer.join()).collect();
        done.store(true, Ordering::Relaxed);
        ends.into_iter().for_each(|end| end.unwrap());
        counter.join().unwrap()
    });
    eprintln!(
        "{} changes of {keys} keys in {:?}, {looks} looks",
        changes(),
        start.elapsed()
    );
    let late = open();
    let others = late.count("other").unwrap().keys;
    assert_eq!(check(path) as u64, u64::from(keys) + others);
    let counted: u32 = (0..keys)
        .map(|number| self::number(&late, &key(number)))
        .sum();
    assert_eq!(counted, each / 2 * WRITERS);
    let count = store.count("row").unwrap();
    assert_eq!(count.keys, u64::from(keys));
    assert!(count.newest_created <= first.revision, "none was removed");
    let changed = store
        .changed_since(&[], Some("row"), first.revision)
        .unwrap();
    assert_eq!(changed.entries.len(), keys as usize);
    assert_eq!(store.remove_below("row").unwrap(), u64::from(keys));
    assert_eq!(late.count("row").unwrap().keys, 0);
    check(path);
}

#[test]
fn many_changes_of_one_key_leave_few_files() {
    many_changes(1);
}

#[test]
fn many_changes_of_sixteen_keys_leave_few_files() {
    many_changes(16);
}

#[test]
fn many_leases_of_one_key_leave_few_files() {
    let directory = tempfile::tempdir().unwrap();
    let store = FileStore::open(directory.path(), "run").unwrap();
    let ttl = Duration::from_secs(1000);
    for round in 0..50 {
        let id = store.take_lease("seat", b"me", ttl).unwrap().unwrap();
        assert!(store.renew_lease("seat", id).unwrap());
        assert!(store.put_leased("row", b"mine", id).unwrap());
        check(directory.path());
        match round % 2 {
            0 => store.end_lease("seat", id).unwrap(),
            // Its holder lives and has lost the key.
            _ => {
                store.put("seat", b"taken").unwrap();
                assert!(!store.renew_lease("seat", id).unwrap());
                assert!(store.remove("seat").unwrap());
                store.end_lease("seat", id).unwrap();
            }
        }
    }
    for key in ["seat", "row"] {
        assert_eq!(store.try_get(key).unwrap(), None);
    }
}

#[test]
fn leases_that_run_out_leave_no_beats_behind_the_next_change() {
    let directory = tempfile::tempdir().unwrap();
    let store = FileStore::open(directory.path(), "run").unwrap();
    for _ in 0..5 {
        let ttl = Duration::from_millis(50);
        assert!(store.take_lease("seat", b"me", ttl).unwrap().is_some());
        let gone = store.watch("seat", Some(b"me"), test_basics::limits::HANG);
        assert_eq!(gone.unwrap(), None);
        check(directory.path());
    }
    store.put("seat", b"none").unwrap();
    assert_eq!(
        names_at_once(&directory.path().join("seat@"))
            .unwrap()
            .len(),
        1
    );
}
