//! P6: how often newcomers of a slot have come to nothing, and how long such a slot waits for the next one.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use membership_rules::clocks::back_off;
use membership_rules::members::Members;
use membership_rules::record::Record;

/// The number of leases after which a newcomer has served long enough (P6).
const SERVED: u32 = 10;
/// The longest wait of a slot whose newcomers come to nothing, in leases.
const MOST_LEASES: u32 = 64;

/// P6: how often newcomers of each slot were gone before they had served long enough.
#[derive(Debug)]
pub(super) struct Newcomers {
    ttl: Duration,
    slots: BTreeMap<u32, Tries>,
}

#[derive(Debug, Default)]
struct Tries {
    /// The generation that is proposed or that has come in, and since when.
    now: Option<(u32, Instant)>,
    failures: u32,
    not_before: Option<Instant>,
}

/// Returns how long a slot waits after the last of `failures` newcomers that came to nothing, one after the other (P6).
pub(super) fn held_for(ttl: Duration, failures: u32) -> Duration {
    back_off(ttl, failures.saturating_sub(1), MOST_LEASES)
}

impl Newcomers {
    pub(super) fn new(ttl: Duration) -> Self {
        Self {
            ttl,
            slots: BTreeMap::new(),
        }
    }

    /// Returns whether a newcomer of `slot` may be taken in now.
    pub(super) fn may_come(&self, slot: u32, now: Instant) -> bool {
        let not_before = self.slots.get(&slot).and_then(|tries| tries.not_before);
        not_before.is_none_or(|not_before| not_before <= now)
    }

    /// Returns the slots that wait now, each with how many of its newcomers came to nothing, one after the other.
    pub(super) fn held(&self, now: Instant) -> Members {
        let waits = self
            .slots
            .iter()
            .filter(|(slot, _)| !self.may_come(**slot, now));
        waits.map(|(slot, tries)| (*slot, tries.failures)).collect()
    }

    /// Takes over what the newest record says of newcomers. Returns the slots that begin to wait because of it.
    pub(super) fn learn(&mut self, record: &Record, now: Instant) -> Vec<u32> {
        let mut begin = Vec::new();
        let takes = record.open.as_ref().map(|open| &open.takes);
        for (slot, generation) in takes.into_iter().flat_map(Members::iter) {
            let tries = self.slots.entry(slot).or_default();
            if tries.now.is_none_or(|(of, _)| of != generation) {
                tries.now = Some((generation, now));
            }
        }
        let served = SERVED * self.ttl;
        for (slot, tries) in &mut self.slots {
            let Some((generation, since)) = tries.now else {
                continue;
            };
            let member = record.members.get(*slot) == Some(generation);
            let proposed = takes.is_some_and(|takes| takes.get(*slot) == Some(generation));
            let left = record
                .left
                .get(slot)
                .is_some_and(|left| left.0 == generation);
            let long = now.duration_since(since) >= served;
            if member && long || left {
                (tries.now, tries.failures, tries.not_before) = (None, 0, None);
            } else if !member && !proposed {
                tries.now = None;
                tries.failures = tries.failures.saturating_add(1);
                let wait = held_for(self.ttl, tries.failures);
                tries.not_before = Some(now + wait);
                if !wait.is_zero() {
                    begin.push(*slot);
                }
            }
        }
        begin
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use membership_rules::record::Proposal;

    const TTL: Duration = Duration::from_secs(2);

    #[test]
    fn a_slot_whose_newcomers_come_to_nothing_waits_twice_as_long_each_time() {
        let start = Instant::now();
        let mut newcomers = Newcomers::new(TTL);
        let alone = Record::founded(Members::from([(0, 1)]));
        let takes = |generation: u32| {
            let proposal = Proposal {
                keep: alone.slots(),
                takes: Members::from([(1, generation)]),
                ..Proposal::default()
            };
            alone.propose(proposal).unwrap()
        };
        let mut now = start;
        let mut waits = Vec::new();
        for generation in 1..10 {
            assert!(newcomers.learn(&takes(generation), now).is_empty());
            assert!(newcomers.may_come(1, now) && newcomers.held(now).is_empty());
            let begins = newcomers.learn(&alone, now);
            let wait = held_for(TTL, generation);
            let held = newcomers.held(now);
            if wait.is_zero() {
                assert!(begins.is_empty() && held.is_empty())
            } else {
                assert_eq!((begins, held), (vec![1], Members::from([(1, generation)])));
                assert!(newcomers.held(now + wait).is_empty());
            }
            let mut waited = 0;
            while !newcomers.may_come(1, now) {
                now += TTL;
                waited += 1;
            }
            waits.push(waited);
        }
        assert_eq!(waits, [0, 1, 2, 4, 8, 16, 32, 64, 64]);
        // A newcomer that serves for ten leases ends the wait.
        let mut served = alone.clone();
        newcomers.learn(&takes(10), now);
        served.members.insert(1, 10);
        newcomers.learn(&served, now + 9 * TTL);
        newcomers.learn(&served, now + 10 * TTL);
        newcomers.learn(&alone, now + 11 * TTL);
        assert!(newcomers.may_come(1, now + 11 * TTL));
        assert_eq!(newcomers.slots[&1].failures, 0);
    }
}
