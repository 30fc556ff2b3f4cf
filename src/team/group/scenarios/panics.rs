//! Threads of a group, and of what it uses, that panic.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::world::lock;
use super::{LONG, memory};
use crate::team::StoreError;
use crate::team::group::{GroupError, GroupState, What};
use crate::team::store::{Lease, LeaseId, MemoryStore, Store};

#[test]
fn a_thread_of_a_group_that_panics_is_a_state_and_an_error_and_the_others_go_on() {
    for name in ["group 1", "group watch 1", "group connect 1"] {
        let mut world = memory(3, 3);
        world.until_whole(3, name);
        let broken = world.ranks.remove(&1).unwrap();
        *lock(&broken.layer.panics) = Some(name.to_owned());
        let group = broken.group();
        let error = group.wait(GroupState::Left, LONG).unwrap_err();
        let GroupError::Panicked(panicked) = &error else {
            panic!("{name}: {error}");
        };
        assert_eq!(
            (panicked.thread.as_str(), panicked.message.as_str()),
            (name, "planted")
        );
        assert_eq!(group.state(), GroupState::Broken);
        let refused = [
            group.check(),
            group.suspect(0, "no more"),
            group.leave(LONG),
        ];
        for refused in refused {
            assert!(
                matches!(refused, Err(GroupError::Panicked(_))),
                "{name}: {refused:?}"
            );
        }
        let events = group.events();
        let told =
            |event: &&super::super::GroupEvent| event.what == What::Panicked(panicked.clone());
        assert_eq!(events.iter().filter(told).count(), 1, "{name}: {events:#?}");
        world.until_whole(3, &format!("without the rank whose {name} has panicked"));
        world.check(name);
        assert_eq!(group.state(), GroupState::Broken, "for good");
    }
}

/// A store that panics when it is asked to renew a lease.
#[derive(Debug, Default)]
struct Panics {
    store: MemoryStore,
    renews: AtomicBool,
}

impl Store for Panics {
    fn put(&self, key: &str, value: &[u8]) -> Result<(), StoreError> {
        self.store.put(key, value)
    }

    fn try_get(&self, key: &str) -> Result<Option<Vec<u8>>, StoreError> {
        self.store.try_get(key)
    }

    fn compare_and_set(
        &self,
        key: &str,
        expected: Option<&[u8]>,
        value: &[u8],
    ) -> Result<bool, StoreError> {
        self.store.compare_and_set(key, expected, value)
    }

    fn remove(&self, key: &str) -> Result<bool, StoreError> {
        self.store.remove(key)
    }

    fn list(&self, key: &str) -> Result<Vec<String>, StoreError> {
        self.store.list(key)
    }

    fn take_lease(
        &self,
        key: &str,
        value: &[u8],
        ttl: Duration,
    ) -> Result<Option<LeaseId>, StoreError> {
        self.store.take_lease(key, value, ttl)
    }

    fn renew_lease(&self, key: &str, id: LeaseId) -> Result<bool, StoreError> {
        assert!(self.renews.load(Ordering::Relaxed), "planted");
        self.store.renew_lease(key, id)
    }

    fn end_lease(&self, key: &str, id: LeaseId) -> Result<(), StoreError> {
        self.store.end_lease(key, id)
    }

    fn wait_for_change(&self, timeout: Duration) {
        self.store.wait_for_change(timeout);
    }
}

#[test]
fn a_lease_whose_thread_has_panicked_is_lost_at_once_and_says_why() {
    let store: Arc<dyn Store> = Arc::new(Panics::default());
    // So long that it does not run out by itself in this test.
    let ttl = Duration::from_secs(300);
    let short = Duration::from_millis(300);
    let held = Lease::take(&store, "held", b"", ttl).unwrap().unwrap();
    let lease = Lease::take(&store, "lost", b"", short).unwrap().unwrap();
    let until = Instant::now() + LONG;
    while lease.check().is_ok() && Instant::now() < until {
        std::thread::yield_now();
    }
    let error = lease.check().unwrap_err();
    let StoreError::Panicked(panicked) = &error else {
        panic!("{error}");
    };
    assert_eq!(
        (panicked.thread.as_str(), panicked.message.as_str()),
        ("lease lost", "planted")
    );
    while lease.is_held() && Instant::now() < until {
        std::thread::yield_now();
    }
    assert!(!lease.is_held());
    assert!(held.is_held() && held.check().is_ok());
}
