//! Removes the records of dropped ranks from the store. The member in the lowest slot does this. If that member dies, the next view has
//! another lowest member.
//!
//! No rank waits for the removal. So the thread that follows the rules does it at the end of a turn, and only for a part of a lease. A
//! member that took longer would be unheard meanwhile.

use std::sync::Arc;
use std::time::{Duration, Instant};

use membership_rules::clocks::back_off;
use membership_rules::record::{RankGeneration, Record};

use super::outcome::TURN_PART;
use super::rank::Rank;
use super::stored::{PROMISES, all_words, words_of};
use crate::team::Sweep;

/// In one of this many views the store is searched for whatever dropped ranks have left. After other views it is removed by name.
const SWEEP: u32 = 16;
/// Pause between two turns of a rank that has something left to remove.
const PAUSE: Duration = Duration::from_millis(2);
/// The longest wait after a call that has failed, in leases.
const MOST_LEASES: u32 = 64;

/// What the member in the lowest slot has removed, and has left to remove.
#[derive(Debug, Default)]
pub(super) struct Tidying {
    sweep: Sweep,
    /// The record after which the present removal was begun.
    begun: Option<Arc<Record>>,
    /// The record after which everything was removed.
    done: Option<Arc<Record>>,
    /// The number of calls in a row that have failed, and when the next one is due.
    failures: u32,
    next: Option<Instant>,
}

impl Tidying {
    /// Decides what is to be removed after `record`. This rank is the lowest member of its view.
    fn begin(&mut self, record: &Arc<Record>, leftovers: Sweep) {
        // A late rank may write a key after its removal. So all keys are searched now and then.
        let all_gone = self.sweep.is_done() && !record.epoch.is_multiple_of(SWEEP);
        let before = self.done.take().filter(|_| all_gone);
        let mut sweep = promises(record, before.as_ref().map(|before| before.number));
        match before
            .and_then(|before| dropped(&before, record))
            .as_deref()
        {
            Some([]) => {}
            over => {
                match over {
                    Some([one]) => words_of(*one).for_each(|key| sweep.add_key(key)),
                    _ => all_words().for_each(|key| sweep.add_tellers(key)),
                }
                sweep.add_all(leftovers);
            }
        }
        (self.sweep, self.begun) = (sweep, Some(Arc::clone(record)));
    }

    /// Notes that the device has the view of `record`, and that ranks may have left something in the store.
    pub(super) fn tidy(&mut self, rank: &Rank, record: &Arc<Record>) {
        if rank.is_lowest(record) {
            self.begin(record, rank.shared.transport.leftovers());
        } else {
            *self = Self::default();
        }
    }

    /// Notes that `who` has left, and that all ranks have ended their calls with it.
    pub(super) fn leaver(&mut self, who: RankGeneration) {
        words_of(who).for_each(|key| self.sweep.add_key(key));
    }

    /// Removes what is left, for as long as a turn may take, and makes one call at least. Returns how long this rank waits after that: at
    /// most `time`.
    pub(super) fn sweep(&mut self, rank: &mut Rank, record: &Record, time: Duration) -> Duration {
        let (now, ttl) = (Instant::now(), rank.shared.bounds.lease_ttl);
        let waits = self.next.is_some_and(|next| now < next);
        if waits || record.open.is_some() {
            return time;
        }
        while !self.sweep.is_done() && now.elapsed() < ttl / TURN_PART {
            let is_over = |slot, generation| record.was_dropped(slot, generation);
            let swept = rank.store.sweep(&mut self.sweep, &is_over);
            if let Err(error) = swept {
                tracing::warn!("records of ranks that are gone are left in the store: {error}");
                let failures = self.failures.saturating_add(1);
                self.failures = failures;
                self.next = Some(Instant::now() + back_off(ttl, failures, MOST_LEASES));
                return time;
            }
            (self.failures, self.next) = (0, None);
            if let Err(error) = rank.store.keep_lease(rank.own.applied == 0) {
                tracing::warn!("the lease is not renewed: {error}");
                break;
            }
        }
        if !self.sweep.is_done() {
            return time.min(PAUSE);
        }
        if let Some(begun) = self.begun.take() {
            self.done = Some(begun);
        }
        time
    }
}

/// Returns the promises to remove: all up to the view of `record`, unless a proposal is open. This rank has removed the promises below the
/// number `from`, if any.
fn promises(record: &Record, from: Option<u64>) -> Sweep {
    let mut sweep = Sweep::default();
    let all = PROMISES.trim_end_matches('/');
    // Most views come one proposal after the other. Then the number of the proposal says where its promises are.
    match from.filter(|from| from.checked_add(1) == Some(record.number)) {
        _ if record.open.is_some() => {}
        Some(_) => sweep.add_below(format!("{all}/{}", record.number)),
        None => sweep.add_proposals(all.to_owned(), record.number),
    }
    sweep
}

/// Returns the members of `before` that are over in `now`. Returns None if other generations may have written something as well: those that
/// asked in vain before a later generation of their slot came in.
fn dropped(before: &Record, now: &Record) -> Option<Vec<RankGeneration>> {
    let next = |(slot, generation): RankGeneration| {
        let earlier = before.admitted.get(slot).unwrap_or(0);
        generation <= earlier.saturating_add(1)
    };
    let stays = |who: &RankGeneration| now.members.get(who.0) == Some(who.1);
    let gone = before.members.iter().filter(|who| !stays(who));
    now.admitted.iter().all(next).then(|| gone.collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use membership_rules::members::Members;
    use membership_rules::record::Proposal;

    #[test]
    fn the_dropped_ranks_are_known_if_a_view_adds_only_next_generations() {
        let before = Record::founded(Members::from([(0, 1), (1, 1)]));
        let after = |keep: &[u32], takes: &[(u32, u32)]| {
            let proposal = Proposal {
                keep: keep.iter().copied().collect(),
                takes: takes.iter().copied().collect(),
                ..Proposal::default()
            };
            before.commit(&proposal, 1)
        };
        assert_eq!(dropped(&before, &after(&[0, 1], &[])), Some(vec![]));
        assert_eq!(dropped(&before, &after(&[0, 1], &[(2, 1)])), Some(vec![]));
        // The first generation of slot 2 has asked in vain.
        assert_eq!(dropped(&before, &after(&[0, 1], &[(2, 2)])), None);
        assert_eq!(dropped(&before, &after(&[0], &[])), Some(vec![(1, 1)]));
        let without = after(&[0], &[]);
        let again = Proposal {
            keep: [0].into_iter().collect(),
            takes: Members::from([(1, 2)]),
            ..Proposal::default()
        };
        assert_eq!(dropped(&without, &without.commit(&again, 2)), Some(vec![]));
    }
}
