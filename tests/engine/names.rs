//! Engines find each other by name in a store: names that are free, taken or no names, and stores that vanish.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use warpverbs::engine::printable;
use warpverbs::internal::engine::{EngineError, HostError, Outcome, Publication};
use warpverbs::team::{BringUpStore, FileStore, MemoryStore, Store, StoreError, TextMap};

use crate::rig::{End, config, connect, listens};

/// What a store without leases stands on.
#[derive(Debug, Default)]
struct Map(Mutex<HashMap<String, String>>);

impl TextMap for Map {
    fn name(&self) -> String {
        "a map".to_owned()
    }

    fn get(&self, key: &str) -> Result<Option<String>, String> {
        Ok(self.0.lock().unwrap().get(key).cloned())
    }

    fn set(&self, key: &str, text: &str) -> Result<(), String> {
        let mut map = self.0.lock().unwrap();
        map.insert(key.to_owned(), text.to_owned());
        Ok(())
    }

    fn compare_set(&self, key: &str, expected: &str, text: &str) -> Result<String, String> {
        let mut map = self.0.lock().unwrap();
        let found = map.get(key).cloned().unwrap_or_default();
        if found != expected {
            return Ok(found);
        }
        map.insert(key.to_owned(), text.to_owned());
        Ok(text.to_owned())
    }

    fn add_one(&self, _: &str) -> Result<u64, String> {
        Err("engines leave no store of this kind".to_owned())
    }

    fn delete(&self, _: &str) -> Result<(), String> {
        Err("engines leave no store of this kind".to_owned())
    }
}

#[test]
fn engines_find_each_other_by_name_and_a_name_has_one_engine() {
    let directory = tempfile::tempdir().unwrap();
    let stores: [Arc<dyn Store>; 3] = [
        Arc::new(MemoryStore::new()),
        Arc::new(FileStore::open(directory.path(), "0").unwrap()),
        Arc::new(BringUpStore::new(Box::new(Map::default()))),
    ];
    for store in stores {
        let (a, b) = (End::new(config("a"), 4096), End::new(config("b"), 4096));
        let address = listens(&b.engine);
        let find = || a.engine.connect_by_name(store.as_ref(), "b");
        let unknown = find().unwrap_err();
        assert!(
            matches!(&unknown, HostError::UnknownName { name } if name == "b"),
            "{unknown}"
        );
        b.engine.publish(&store, &address.into()).unwrap();
        assert_eq!(find().unwrap().name(), "b");
        let twin = End::new(config("b"), 4096);
        let own = listens(&twin.engine);
        let taken = twin.engine.publish(&store, &own.into()).unwrap_err();
        assert!(
            matches!(&taken, HostError::NameTaken { name } if name == "b"),
            "{taken}"
        );
        // The name is still that of the first, and goes with its end.
        assert_eq!(find().unwrap().name(), "b");
        b.engine.unpublish();
        b.engine.unpublish();
        assert!(matches!(find(), Err(HostError::UnknownName { .. })));
        twin.engine.publish(&store, &own.into()).unwrap();
        // To a peer with this name there is a connection, and this is another engine.
        let refused = find().unwrap_err().to_string();
        assert!(
            refused.contains("another engine with the name 'b'"),
            "{refused}"
        );
        let _ = twin.engine.close();
        b.engine.publish(&store, &address.into()).unwrap();
        assert_eq!(find().unwrap().name(), "b");
        let closing = twin.engine.publish(&store, &own.into()).unwrap_err();
        assert!(
            matches!(closing, HostError::Refused(EngineError::Closing)),
            "{closing}"
        );
    }
}

#[test]
fn what_is_no_name_or_no_address_is_refused_and_nothing_is_published() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let a = End::new(config("a"), 4096);
    for (address, said) in [
        ("0.0.0.0:7000", "the address 0.0.0.0:7000 is published"),
        ("[::]:7000", "the address [::]:7000 is published"),
        ("127.0.0.1:0", "the address 127.0.0.1:0 is published"),
        ("unix:e", "the address unix:e is published"),
    ] {
        let refused = a.engine.publish(&store, &address.parse().unwrap());
        let refused = refused.unwrap_err();
        assert!(matches!(refused, HostError::NoAddress { .. }), "{refused}");
        assert!(refused.to_string().starts_with(said), "{refused}");
    }
    let own = listens(&a.engine);
    for name in ["no key", "ümlaut", "a//b", "/", &"x".repeat(255)] {
        let odd = End::new(config(name), 4096);
        let refused = odd.engine.publish(&store, &own.into()).unwrap_err();
        let looked = a.engine.connect_by_name(store.as_ref(), name).unwrap_err();
        for error in [refused, looked] {
            let HostError::Store { name: found, error } = &error else {
                panic!("{error:?}");
            };
            assert_eq!(found, name);
            let is_key = matches!(error, StoreError::Key { .. } | StoreError::TooLong { .. });
            assert!(is_key, "{error}");
        }
    }
    assert_eq!(store.list("engine").unwrap(), Vec::<String>::new());
    // A record that another program has written is no address.
    for record in [
        &b"\xffnowhere"[..],
        b"a\nb\x1b[2J:80",
        "127.0.0.1\u{202e}:80".as_bytes(),
        "\u{85}127.0.0.1:80".as_bytes(),
        b"127.0.0.1:080",
    ] {
        store.put("engine/b", record).unwrap();
        let refused = a.engine.connect_by_name(store.as_ref(), "b").unwrap_err();
        let HostError::Store { error, .. } = &refused else {
            panic!("{refused:?}");
        };
        let is_it = matches!(error, StoreError::NotARecord { bytes, .. } if *bytes == record.len());
        assert!(is_it, "{refused}");
        assert!(
            printable(&refused.to_string()) == refused.to_string(),
            "{refused:?}"
        );
    }
    // An engine that is gone without taking its name out.
    let gone = Publication::new(&store, "engine", "gone", &"127.0.0.1:1".parse().unwrap());
    let refused = a
        .engine
        .connect_by_name(store.as_ref(), "gone")
        .unwrap_err();
    assert!(refused.to_string().contains("127.0.0.1:1: "), "{refused}");
    drop(gone);
}

#[test]
fn a_store_that_vanishes_ends_no_connection_and_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let store: Arc<dyn Store> = Arc::new(FileStore::open(directory.path(), "0").unwrap());
    let (a, b) = (End::new(config("a"), 4096), End::new(config("b"), 4096));
    let address = listens(&b.engine);
    b.engine.publish(&store, &address.into()).unwrap();
    let [to_b, _to_a] = connect(&a, &b);
    let place = directory.keep();
    std::fs::remove_dir_all(&place).unwrap();
    // In its place is what no store is.
    std::fs::write(&place, b"").unwrap();
    let failed = a.engine.connect_by_name(store.as_ref(), "b").unwrap_err();
    assert!(matches!(failed, HostError::Store { .. }), "{failed}");
    let failed = a.engine.publish(&store, &address.into()).unwrap_err();
    assert!(matches!(failed, HostError::Store { .. }), "{failed}");
    let expected = a.fill(1);
    let id = to_b.write(a.at(0), b.at(0), 4096).unwrap();
    assert_eq!(a.concluded(id), Outcome::Done);
    assert!(b.bytes() == expected);
    // The record cannot be removed, which keeps nothing from ending.
    b.engine.unpublish();
    let _ = b.engine.close();
    std::fs::remove_file(&place).unwrap();
}
