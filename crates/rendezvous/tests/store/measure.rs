//! Measuring a store.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use rendezvous::{MemoryStore, Store, StoreError, measure};
use test_basics::limits::HANG;

use crate::conformance::on_each;
use crate::disturbed::{Disturbed, Faults};

#[test]
fn calls_are_counted_and_nothing_is_left_in_the_store() {
    on_each(|store| {
        store.put("measures", b"mine").unwrap();
        for calls in [0, 1, 4, 23] {
            let measured = measure(&*store, calls, HANG).unwrap();
            assert_eq!(measured.calls, calls.max(1));
            assert!(measured.p50 <= measured.p99 && measured.p99 <= measured.slowest);
            assert!(measured.per_second > 0.0);
            assert_eq!(store.count("measure").unwrap().keys, 0);
            assert_eq!(store.list("measure").unwrap(), [""; 0]);
        }
        assert_eq!(store.try_get("measures").unwrap().unwrap(), b"mine");
    });
}

#[test]
fn a_slow_store_is_found_as_slow_as_it_is_and_ends_with_the_bound() {
    let least = Duration::from_millis(12);
    let faults = Faults {
        least,
        ..Faults::default()
    };
    let memory: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let slow = Disturbed::new(Arc::clone(&memory), faults, 1);
    let measured = measure(&slow, 10, HANG).unwrap();
    assert_eq!(measured.calls, 10);
    assert!(
        measured.p50 >= least && measured.p99 >= least,
        "{measured:?}"
    );
    assert!(measured.shortest_lease_ttl >= 6 * least, "{measured:?}");
    assert!(!measured.carries(6 * least - Duration::from_nanos(1)));
    assert!(measured.per_second <= 1.0 / least.as_secs_f64());
    let bound = 3 * least;
    let start = Instant::now();
    let measured = measure(&slow, u32::MAX, bound).unwrap();
    assert!((1..=3).contains(&measured.calls), "{measured:?}");
    assert!(start.elapsed() < HANG);
    assert_eq!(measure(&slow, 9, Duration::ZERO).unwrap().calls, 1);
    assert_eq!(memory.count("measure").unwrap().keys, 0);
}

#[test]
fn a_store_that_does_not_answer_is_an_error_and_gets_no_keys() {
    let memory: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let faults = Faults {
        lost: 100,
        ..Faults::default()
    };
    let dead = Disturbed::new(Arc::clone(&memory), faults, 1);
    let error = measure(&dead, 10, HANG).unwrap_err();
    assert!(matches!(error, StoreError::Unreachable { .. }), "{error}");
    assert_eq!(memory.count("measure").unwrap().keys, 0);
}

#[test]
fn concurrent_measurements_have_their_own_keys_and_one_too_many_fails() {
    on_each(|store| {
        thread::scope(|scope| {
            let all = [(); 4].map(|()| scope.spawn(|| measure(&*store, 25, HANG)));
            for one in all {
                assert_eq!(one.join().unwrap().unwrap().calls, 25);
            }
        });
        for place in 0..16 {
            let key = format!("measure/{place}/lease");
            assert!(store.take_lease(&key, b"", HANG).unwrap().is_some());
        }
        let error = measure(&*store, 1, HANG).unwrap_err();
        assert!(matches!(error, StoreError::Late { .. }), "{error}");
    });
}
