//! Leases: keys that are there while their holder is.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use crate::conformance::on_each;
use warpverbs::team::{FileStore, Lease, Store, StoreError};

const TTL: Duration = Duration::from_millis(300);
const LONG: Duration = Duration::from_secs(20);

#[test]
fn a_lease_is_there_while_it_is_renewed_and_gone_some_time_after() {
    on_each(|store| {
        let id = store
            .take_lease("member/3", b"three", TTL)
            .unwrap()
            .unwrap();
        assert_eq!(store.take_lease("member/3", b"other", TTL).unwrap(), None);
        assert_eq!(store.list("member").unwrap(), ["3"]);
        let start = Instant::now();
        while start.elapsed() < TTL * 3 {
            assert!(store.renew_lease("member/3", id).unwrap());
            assert_eq!(store.try_get("member/3").unwrap().unwrap(), b"three");
            thread::sleep(TTL / 10);
        }
        assert_eq!(store.watch("member/3", Some(b"three"), LONG).unwrap(), None);
        assert!(store.list("member").unwrap().is_empty());
        assert!(!store.renew_lease("member/3", id).unwrap(), "it stays lost");
        let again = store.take_lease("member/3", b"four", TTL).unwrap().unwrap();
        assert_ne!(again, id);
        assert_eq!(store.try_get("member/3").unwrap().unwrap(), b"four");
        assert!(
            !store.renew_lease("member/3", id).unwrap(),
            "that of another"
        );
        assert!(store.renew_lease("member/3", again).unwrap());
    });
}

#[test]
fn a_lease_given_back_is_gone_at_once_and_giving_it_back_again_does_nothing() {
    on_each(|store| {
        let id = store.take_lease("k", b"1", LONG).unwrap().unwrap();
        store.end_lease("k", id).unwrap();
        assert_eq!(store.try_get("k").unwrap(), None);
        let next = store.take_lease("k", b"2", LONG).unwrap().unwrap();
        store.end_lease("k", id).unwrap();
        assert_eq!(store.try_get("k").unwrap().unwrap(), b"2");
        store.put("k", b"3").unwrap();
        assert!(
            !store.renew_lease("k", next).unwrap(),
            "replaced by a value"
        );
        assert_eq!(store.try_get("k").unwrap().unwrap(), b"3");
    });
}

#[test]
fn a_time_to_live_outside_the_limits_is_refused_with_them() {
    on_each(|store| {
        for ttl in [Duration::from_millis(49), Duration::from_secs(3601)] {
            let error = store.take_lease("k", b"", ttl).unwrap_err();
            assert!(matches!(error, StoreError::Ttl { .. }), "{error}");
        }
        assert_eq!(store.try_get("k").unwrap(), None);
    });
}

#[test]
fn a_lease_that_renews_itself_outlives_its_time_to_live_and_ends_with_its_owner() {
    on_each(|store| {
        let lease = Lease::take(&store, "self", b"me", TTL).unwrap().unwrap();
        assert!(Lease::take(&store, "self", b"you", TTL).unwrap().is_none());
        thread::sleep(TTL * 2);
        // On a machine that is busy a renewal may be late, and the lease lives all the same.
        let start = Instant::now();
        while !lease.is_held() && start.elapsed() < LONG {
            thread::sleep(Duration::from_millis(5));
        }
        assert!(lease.is_held());
        assert_eq!(store.try_get("self").unwrap().unwrap(), b"me");
        drop(lease);
        assert_eq!(store.try_get("self").unwrap(), None);
        let lost = Lease::take(&store, "self", b"me", TTL).unwrap().unwrap();
        store.put("self", b"taken").unwrap();
        let start = Instant::now();
        while lost.is_held() && start.elapsed() < LONG {
            thread::sleep(Duration::from_millis(5));
        }
        assert!(!lost.is_held());
        drop(lost);
        assert_eq!(store.try_get("self").unwrap().unwrap(), b"taken");
    });
}

#[test]
fn only_one_of_many_gets_a_lease_that_ran_out() {
    on_each(|store| {
        let first = store.take_lease("seat", b"-", TTL).unwrap();
        assert!(first.is_some());
        store.watch("seat", Some(b"-"), LONG).unwrap();
        let taken: usize = thread::scope(|scope| {
            let tries: Vec<_> = (0..8)
                .map(|i: u8| {
                    let store = &store;
                    scope.spawn(move || store.take_lease("seat", &[i], LONG).unwrap())
                })
                .collect();
            let ends = tries.into_iter().map(|end| end.join().unwrap());
            ends.flatten().count()
        });
        assert_eq!(taken, 1);
    });
}

#[test]
fn another_handle_on_the_directory_sees_a_lease_run_out_by_its_own_clock() {
    let directory = tempfile::tempdir().unwrap();
    let open = || Arc::new(FileStore::open(directory.path(), "run").unwrap());
    let (holder, other) = (open(), open());
    let id = holder.take_lease("k", b"1", TTL).unwrap().unwrap();
    assert_eq!(other.try_get("k").unwrap().unwrap(), b"1");
    for _ in 0..10 {
        thread::sleep(TTL / 5);
        assert!(holder.renew_lease("k", id).unwrap());
        assert_eq!(other.try_get("k").unwrap().unwrap(), b"1");
    }
    let start = Instant::now();
    assert_eq!(other.watch("k", Some(b"1"), LONG).unwrap(), None);
    assert!(start.elapsed() < LONG / 2, "{:?}", start.elapsed());
    assert!(!holder.renew_lease("k", id).unwrap());
}
