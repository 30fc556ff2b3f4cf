//! Panics in the threads of a group, in its layer, and in the thread that renews a lease.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use rendezvous::{Lease, MAX_BOUND, MemoryStore, Store};

use super::worlds::{LONG, memory};
use crate::membership::sim::{CutStore, lock};
use crate::membership::{GroupError, GroupEventKind, GroupState};
use crate::team::StoreError;

#[test]
fn a_panicking_group_thread_gives_a_state_and_an_error_and_others_go_on() {
    for name in [
        "group 1",
        "group watch 1",
        "group connect 1",
        "group record 1",
    ] {
        let mut world = memory(3, 3);
        world.until_whole(3, name);
        let broken = world.ranks.remove(&1).unwrap();
        *lock(&broken.layer.panics) = Some(name.to_owned());
        if ["group connect 1", "group record 1"].contains(&name) {
            // One of these threads asks the layer when a rank has gone. The other one waits for the next change of the record.
            drop(world.kill(2));
        }
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
        let told = |event: &&super::super::GroupEvent| {
            event.what == GroupEventKind::Panicked(panicked.clone())
        };
        assert_eq!(events.iter().filter(told).count(), 1, "{name}: {events:#?}");
        world.until_whole(3, &format!("without the rank whose {name} has panicked"));
        world.check(name);
        assert_eq!(group.state(), GroupState::Broken, "for good");
    }
}

#[test]
fn a_lease_whose_thread_has_panicked_is_lost_at_once_and_says_why() {
    let store: Arc<dyn Store> = Arc::new(CutStore {
        store: Arc::new(MemoryStore::new()),
        away: Arc::default(),
        cut: Arc::default(),
        held: Arc::default(),
        delay: Arc::default(),
        no_promise: Arc::default(),
        bound: MAX_BOUND,
        panics: AtomicBool::new(true),
        planted: Arc::default(),
        own: (0, 1),
        unlisted: Arc::default(),
    });
    // This lease lives so long that it does not run out by itself in this test.
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
