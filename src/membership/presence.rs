//! Whose lease is really gone: a lease that is missing while the store was away says nothing yet.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// Slot and generation.
pub(super) type RankGeneration = (u32, u32);

/// What was seen of leases.
#[derive(Debug)]
pub(super) struct Presence {
    ttl: Duration,
    /// Since when the store has answered every time.
    answers_since: Instant,
    absent: BTreeMap<RankGeneration, Instant>,
}

impl Presence {
    pub(super) fn new(ttl: Duration, now: Instant) -> Self {
        Self {
            ttl,
            answers_since: now,
            absent: BTreeMap::new(),
        }
    }

    /// The store did not answer. Holders could not renew either, so nothing counts until they have had time to.
    pub(super) fn store_failed(&mut self, now: Instant) {
        self.answers_since = now;
        self.absent.clear();
    }

    /// Those of `of` that hold no lease. Soon after the store was away, or after the begin, they must have had none for a whole
    /// time to live.
    pub(super) fn lost(
        &mut self,
        now: Instant,
        held: &BTreeSet<RankGeneration>,
        of: &BTreeSet<RankGeneration>,
    ) -> BTreeSet<RankGeneration> {
        self.absent
            .retain(|who, _| of.contains(who) && !held.contains(who));
        let settled = now.duration_since(self.answers_since) >= 3 * self.ttl;
        let needed = if settled { Duration::ZERO } else { self.ttl };
        let mut lost = BTreeSet::new();
        for &who in of.difference(held) {
            let since = *self.absent.entry(who).or_insert(now);
            if now.duration_since(since) >= needed {
                lost.insert(who);
            }
        }
        lost
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TTL: Duration = Duration::from_secs(1);

    #[test]
    fn a_missing_lease_counts_at_once_while_the_store_answers_and_after_a_time_to_live_when_it_was_away()
     {
        let start = Instant::now();
        let at = |ms: u64| start + Duration::from_millis(ms);
        let all = BTreeSet::from([(0, 1), (1, 1)]);
        let one = BTreeSet::from([(0, 1)]);
        let none = BTreeSet::new();
        let gone = BTreeSet::from([(1, 1)]);
        let mut presence = Presence::new(TTL, start);
        assert_eq!(
            presence.lost(at(10), &one, &all),
            none,
            "who looks for the first time"
        );
        assert_eq!(presence.lost(at(1009), &one, &all), none);
        assert_eq!(presence.lost(at(1010), &one, &all), gone);
        assert_eq!(presence.lost(at(4000), &all, &all), none);
        assert_eq!(presence.lost(at(4001), &one, &all), gone, "at once");

        presence.store_failed(at(5000));
        assert_eq!(presence.lost(at(5001), &none, &all), none);
        assert_eq!(
            presence.lost(at(5900), &all, &all),
            none,
            "they have taken them again"
        );
        assert_eq!(presence.lost(at(6500), &one, &all), none, "counted anew");
        assert_eq!(presence.lost(at(7500), &one, &all), gone);
    }
}
