//! Delays a proposal that drops or parts ranks until this rank has just heard a word of each rank that stays.
//!
//! Of two ranks that die at once, one may be known to be dead seconds earlier. A proposal that keeps the other one waits for its promise,
//! and holds calls meanwhile. Without a proposal calls go on, and a dead rank costs them its own experts only. So the proposal waits for
//! words until it can drop the second rank too. The wait has an end, because a rank that sends nothing may live. A rank that makes no calls
//! awaits no words. No rank awaits words of a peer to which its QPs have failed. The model of the rules lets any rank lack words in any of
//! its turns (`doubt`).

use std::thread;
use std::time::{Duration, Instant};

use membership_rules::record::{Proposal, Record};
use membership_rules::slots::Slots;
use rendezvous::Looks;

use super::GroupError;
use super::heard::Heard;
use super::rank::Rank;

/// The part of the lease's time to live for which one turn waits for words. A rank that makes calls is heard within a call.
const PART: u32 = 64;

/// What this rank would propose, and what it had heard when it first would.
#[derive(Debug)]
struct Doubt {
    /// The epoch and the number of the record to which the proposal belongs.
    epoch: u32,
    number: u64,
    since: Instant,
    keep: Slots,
    /// What the layer said of each slot when it was read. That was not longer ago than a quarter of a lease and one turn, because a rank
    /// that was heard long ago may be dead.
    words: Vec<u64>,
    read: Instant,
}

/// The proposal about which this rank is in doubt, if any.
#[derive(Debug, Default)]
pub(super) struct Doubts(Option<Doubt>);

impl Doubts {
    /// Returns whether a rank that `new` keeps may be dead as well, so that the proposal has to wait.
    pub(super) fn is_in_doubt(
        &mut self,
        rank: &Rank,
        heard: &Heard,
        record: &Record,
        new: &Proposal,
    ) -> Result<bool, GroupError> {
        let now = Instant::now();
        let parts = !new.parts.is_subset(&record.parted);
        let takes_away = parts || new.keep != record.slots();
        let before = self.0.take();
        if record.open.is_some() || !takes_away || !heard.calls_lately(now) {
            return Ok(false);
        }
        let of = |doubt: &Doubt| (doubt.epoch, doubt.number) == (record.epoch, record.number);
        let before = before.filter(of);
        let since = before.as_ref().map_or(now, |before| before.since);
        let quarter = rank.shared.bounds.lease_ttl / 4;
        let doubt = match before {
            Some(before) if before.keep == new.keep && now - before.read < quarter => before,
            _ => Doubt {
                epoch: record.epoch,
                number: record.number,
                since,
                keep: new.keep.clone(),
                words: words(rank)?,
                read: now,
            },
        };
        // The QPs between these ranks and this one are known to have failed, so no words of these ranks arrive here.
        let failed = new.parts.of(rank.own.slot).with(&rank.own.broken);
        for left in Looks::within(rank.shared.bounds.lease_ttl / PART) {
            let mut silent = new.keep.without(&doubt.heard(&words(rank)?));
            silent.take_away(&failed);
            silent.remove(rank.own.slot);
            if silent.is_empty() {
                return Ok(false);
            }
            thread::sleep(left.min(Duration::from_millis(1)));
        }
        let longest = (rank.rules.bounds.unheard + rank.shared.bounds.lease_ttl).saturating_mul(2);
        let is_over = since.elapsed() >= longest;
        self.0 = Some(doubt);
        Ok(!is_over)
    }
}

impl Doubt {
    /// Returns the slots of which the layer says another thing than when this doubt began.
    fn heard(&self, words: &[u64]) -> Slots {
        let both = self.words.iter().zip(words);
        let new = (0u32..)
            .zip(both)
            .filter(|(_, (before, now))| before != now);
        new.map(|(slot, _)| slot).collect()
    }
}

fn words(rank: &Rank) -> Result<Vec<u64>, GroupError> {
    rank.shared.layer.heard().map_err(GroupError::Layer)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_of_before_is_no_word_and_the_number_may_wrap() {
        let doubt = Doubt {
            epoch: 1,
            number: 0,
            since: Instant::now(),
            keep: (0..4).collect(),
            words: vec![5, 7, u64::MAX, 0],
            read: Instant::now(),
        };
        assert!(doubt.heard(&[5, 7, u64::MAX, 0]).is_empty());
        let some: Slots = [1, 2].into_iter().collect();
        assert_eq!(doubt.heard(&[5, 8, 0, 0]), some);
    }
}
