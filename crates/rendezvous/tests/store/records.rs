//! Records of other runs and versions.

use std::sync::Arc;

use rendezvous::{MemoryStore, RECORD_VERSION, Records, Store, StoreError};

#[test]
fn a_record_of_another_run_or_version_is_refused_by_name() {
    let raw = Arc::new(MemoryStore::new());
    let monday = Records::new(raw.clone(), "monday").unwrap();
    let tuesday = Records::new(raw.clone(), "tuesday").unwrap();
    monday.put("k", b"value").unwrap();
    assert_eq!(monday.try_get("k").unwrap().unwrap(), b"value");
    assert_eq!(
        tuesday.try_get("k").unwrap_err().to_string(),
        "the record 'k' is of version 3 of run 'monday', not of version 3 of run 'tuesday'"
    );
    assert!(
        !tuesday
            .compare_and_set("k", Some(b"value"), b"mine")
            .unwrap(),
        "never taken for its own"
    );
    let later = RECORD_VERSION + 1;
    raw.put("k", format!("warpverbs {later} monday\nvalue").as_bytes())
        .unwrap();
    assert_eq!(
        monday.try_get("k").unwrap_err().to_string(),
        "the record 'k' is of version 4 of run 'monday', not of version 3 of run 'monday'"
    );
}

#[test]
fn bytes_that_are_no_record_are_named_by_their_key() {
    let raw = Arc::new(MemoryStore::new());
    let records = Records::new(raw.clone(), "run").unwrap();
    for bytes in [
        &b""[..],
        b"no line",
        b"other 1 run\nvalue",
        b"warpverbs x run\nvalue",
        b"warpverbs 1\nvalue",
        b"\xff\xfe 1 run\n",
    ] {
        raw.put("k", bytes).unwrap();
        let error = records.try_get("k").unwrap_err();
        assert!(matches!(error, StoreError::NotARecord { .. }), "{error}");
        assert_eq!(
            error.to_string(),
            format!(
                "'k' holds {} bytes that are no record of warpverbs",
                bytes.len()
            )
        );
    }
}

#[test]
fn a_run_id_that_cannot_stand_in_a_record_is_refused() {
    for run in ["", "two\nlines", &"r".repeat(129)] {
        let error = Records::new(Arc::new(MemoryStore::new()), run).unwrap_err();
        assert!(matches!(error, StoreError::Run { .. }), "{error}");
    }
    assert!(Records::new(Arc::new(MemoryStore::new()), &"r".repeat(128)).is_ok());
}
