//! The worlds of scenarios: how they are made, what is waited for, and what holds in each.

use std::sync::Arc;
use std::time::{Duration, Instant};

use rendezvous::{MemoryStore, Store};

use crate::membership::GroupConfig;
use crate::membership::sim::{Rank, World, WorldConfig, lock};

/// The longest wait of a test, after which it fails.
pub(super) const LONG: Duration = Duration::from_secs(100);
/// Bounds so long that no rank is dropped because the machine has no time for it.
pub(super) const PATIENT: GroupConfig = GroupConfig {
    lease_ttl: Duration::from_secs(4),
    stall_bound: Some(LONG),
    error_bound: Some(Duration::from_millis(150)),
    promise_bound: Some(Duration::from_secs(10)),
    found_bound: Some(LONG),
};

/// Returns whether the tests run with the counts of `./x test full`.
pub(super) fn full() -> bool {
    std::env::var_os("WV_TEST_FULL").is_some()
}

pub(super) fn memory(slots: u32, founders: u32) -> World {
    world_of(Arc::new(MemoryStore::new()), slots, founders, PATIENT)
}

/// Returns a group of `founders` in a team of `slots` ranks. The ranks make calls.
pub(super) fn world_of(
    store: Arc<dyn Store>,
    slots: u32,
    founders: u32,
    group: GroupConfig,
) -> World {
    let config = WorldConfig {
        founders,
        ..WorldConfig::new(slots, group)
    };
    World::new(store, config).unwrap()
}

impl World {
    /// Waits until all living ranks serve in one view of exactly these ranks, and have made `more` whole calls in it.
    pub(super) fn until_whole(&mut self, more: usize, what: &str) {
        self.until_replaced(more, what, |_| None);
    }

    /// Waits as `until_whole` does. Meanwhile each rank that was dropped, or has lost its HCA, comes back as a new generation.
    pub(super) fn until_whole_again(&mut self, more: usize, what: &str) {
        self.until_replaced(more, what, |world| {
            let cut = lock(&world.wire.cut);
            let over = |rank: &&Rank| rank.group().state().is_over() || cut.contains(&rank.own);
            world.ranks.values().find(over).map(|rank| rank.own.0)
        });
    }

    /// Waits as `until_whole` does. `replace` returns the slot of a rank to kill and start again, if there is one.
    fn until_replaced(&mut self, more: usize, what: &str, replace: impl Fn(&Self) -> Option<u32>) {
        let start = Instant::now();
        while !self.is_whole(more) {
            if let Some(slot) = replace(self) {
                drop(self.kill(slot));
                self.join(slot).unwrap();
            }
            if start.elapsed() >= LONG {
                let slots: Vec<u32> = self.ranks.keys().copied().collect();
                let stories: Vec<String> = self.ranks.values().map(Rank::story).collect();
                panic!(
                    "{what}: no whole view of {slots:?}:\n{}",
                    stories.join("\n")
                );
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Returns whether all living ranks serve in one view, and have made `more` whole calls in it.
    pub(super) fn is_whole(&self, more: usize) -> bool {
        let Some(epoch) = self.whole_view() else {
            return false;
        };
        self.ranks.values().all(|rank| {
            let done = lock(&rank.layer.done);
            let whole = done.iter().filter(|done| done.epoch == epoch && done.whole);
            whole.count() >= more
        })
    }

    /// Checks that all living ranks ran each call in the same view.
    pub(super) fn check(&self, what: &str) {
        let mut epochs = std::collections::BTreeMap::new();
        for rank in self.ranks.values() {
            for done in lock(&rank.layer.done).iter() {
                let epoch = *epochs.entry(done.number).or_insert(done.epoch);
                assert_eq!(epoch, done.epoch, "{what}: call {}", done.number);
            }
        }
    }
}

impl Rank {
    pub(super) fn story(&self) -> String {
        let group = self.group();
        let calls = lock(&self.layer.done).len();
        let (state, view, events) = (group.state(), group.view(), group.events());
        format!(
            "{:?}: {state:?}, {view:?}, {calls} calls, {events:#?}",
            self.own
        )
    }
}
