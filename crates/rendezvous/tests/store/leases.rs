//! Leases: keys that are set while their holder lives.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use rendezvous::{FileStore, Lease, Store, StoreError};
use test_basics::limits::{HANG, until};

use crate::conformance::on_each;

/// Times to live, tried one after the other. A machine may let a holder wait for longer than the first, and the holder rightly
/// loses its lease. The test is then tried again with the next. No loss with the last is excused.
const TTLS: [Duration; 3] = [
    Duration::from_millis(300),
    Duration::from_secs(2),
    Duration::from_secs(12),
];

/// Runs `holds` on each store, with a key of its own for each try, until it says that no lease was lost that was renewed.
fn in_time(holds: impl Fn(&Arc<dyn Store>, &str, Duration) -> Result<(), Lost>) {
    on_each(|store| tries(|key, ttl| holds(&store, key, ttl)));
}

fn tries(holds: impl Fn(&str, Duration) -> Result<(), Lost>) {
    for (number, ttl) in TTLS.into_iter().enumerate() {
        match holds(&format!("try-{number}"), ttl) {
            Ok(()) => return,
            Err(Lost(what)) => eprintln!("lost with a time to live of {ttl:?}: {what}"),
        }
    }
    panic!("no time to live was long enough");
}

/// A lease was lost, or found so, at this step.
struct Lost(&'static str);

fn unless_lost(holds: bool, what: &'static str) -> Result<(), Lost> {
    if holds { Ok(()) } else { Err(Lost(what)) }
}

#[test]
fn a_lease_is_there_while_it_is_renewed_and_gone_some_time_after() {
    in_time(|store, folder, ttl| {
        let key = format!("{folder}/3");
        let take = |value: &[u8]| store.take_lease(&key, value, ttl).unwrap();
        let is = |value: &[u8]| store.try_get(&key).unwrap().as_deref() == Some(value);
        let mut renewed = Instant::now();
        let id = take(b"three").unwrap();
        unless_lost(take(b"other").is_none(), "taken by another")?;
        unless_lost(store.list(folder).unwrap() == ["3"], "not listed")?;
        let start = Instant::now();
        while start.elapsed() < ttl * 3 {
            renewed = Instant::now();
            unless_lost(store.renew_lease(&key, id).unwrap(), "not renewed")?;
            unless_lost(is(b"three"), "gone when it was renewed")?;
            thread::sleep(ttl / 10);
        }
        assert_eq!(store.watch(&key, Some(b"three"), HANG).unwrap(), None);
        assert!(renewed.elapsed() >= ttl, "{:?}", renewed.elapsed());
        assert!(store.list(folder).unwrap().is_empty());
        let again = take(b"four").unwrap();
        assert_ne!(again, id);
        assert!(!store.renew_lease(&key, id).unwrap(), "that of another");
        unless_lost(is(b"four"), "gone after it was taken")?;
        unless_lost(
            store.renew_lease(&key, again).unwrap(),
            "the next not renewed",
        )
    });
}

#[test]
fn a_returned_lease_is_gone_at_once_and_a_second_return_does_nothing() {
    on_each(|store| {
        let id = store.take_lease("k", b"1", HANG).unwrap().unwrap();
        store.end_lease("k", id).unwrap();
        assert_eq!(store.try_get("k").unwrap(), None);
        let next = store.take_lease("k", b"2", HANG).unwrap().unwrap();
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
fn a_self_renewing_lease_outlives_its_time_and_ends_with_its_owner() {
    in_time(|store, key, ttl| {
        let lease = Lease::take(store, key, b"me", ttl).unwrap().unwrap();
        let other = Lease::take(store, key, b"you", ttl).unwrap();
        unless_lost(other.is_none(), "taken by another")?;
        thread::sleep(ttl * 2);
        unless_lost(lease.is_held(), "not renewed")?;
        let value = store.try_get(key).unwrap();
        unless_lost(value.as_deref() == Some(b"me"), "gone while it was held")?;
        drop(lease);
        assert_eq!(store.try_get(key).unwrap(), None);
        Ok(())
    });
}

#[test]
fn a_lease_whose_key_was_taken_is_held_no_more_and_leaves_the_key_alone() {
    on_each(|store| {
        let lost = Lease::take(&store, "self", b"me", TTLS[0]);
        let lost = lost.unwrap().unwrap();
        store.put("self", b"taken").unwrap();
        until("the holder learns of it", || lost.is_gone());
        assert!(!lost.is_held());
        drop(lost);
        assert_eq!(store.try_get("self").unwrap().unwrap(), b"taken");
    });
}

#[test]
fn only_one_of_many_gets_a_lease_that_ran_out() {
    on_each(|store| {
        let first = store.take_lease("seat", b"-", TTLS[0]).unwrap();
        assert!(first.is_some());
        store.watch("seat", Some(b"-"), HANG).unwrap();
        let taken: usize = thread::scope(|scope| {
            let tries: Vec<_> = (0..8)
                .map(|i: u8| {
                    let store = &store;
                    scope.spawn(move || store.take_lease("seat", &[i], HANG).unwrap())
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
    let holds = |key: &str, ttl: Duration| {
        let id = holder.take_lease(key, b"1", ttl).unwrap().unwrap();
        let seen = || other.try_get(key).unwrap().as_deref() == Some(b"1");
        unless_lost(seen(), "gone when it was taken")?;
        let mut renewed = Instant::now();
        for _ in 0..10 {
            thread::sleep(ttl / 5);
            renewed = Instant::now();
            unless_lost(holder.renew_lease(key, id).unwrap(), "not renewed")?;
            unless_lost(seen(), "gone when it was renewed")?;
        }
        assert_eq!(other.watch(key, Some(b"1"), HANG).unwrap(), None);
        assert!(renewed.elapsed() >= ttl, "{:?}", renewed.elapsed());
        // No rank has taken its key: a lease that one look found gone lives at the next.
        assert!(holder.renew_lease(key, id).unwrap());
        unless_lost(seen(), "gone when it was renewed late")?;
        assert_eq!(other.watch(key, Some(b"1"), HANG).unwrap(), None);
        let taken = other.take_lease(key, b"2", HANG).unwrap();
        assert!(taken.is_some(), "a key whose lease has run out");
        assert!(!holder.renew_lease(key, id).unwrap(), "that of another");
        assert_eq!(holder.try_get(key).unwrap().unwrap(), b"2");
        Ok(())
    };
    tries(holds);
}
