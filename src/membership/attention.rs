//! Decides when a rank looks into the store, and for what: a state machine that reads no clock and makes no call.
//!
//! In peace a rank counts leases, and in one look of four it asks for keys. Once its turn to act has come it asks for all keys.

use std::time::{Duration, Instant};

/// Shortest pause between two looks of a rank whose turn it is in a change.
pub(super) const BUSY: Duration = Duration::from_millis(2);
/// Pause between two looks of a rank whose turn it is, while ranks want to come in or have left.
pub(super) const LOOK: Duration = Duration::from_millis(20);
/// In peace one look in this many asks for changes, because the watch of the record may have missed a change. The other looks count leases.
const PEACE: u32 = 4;

/// What has woken the thread that follows the rules.
#[derive(Clone, Copy, Debug)]
pub(super) struct Woken {
    /// The record has changed, or another rank has rung by it.
    pub(super) rang: bool,
    /// A thread of this rank has found something.
    pub(super) news: bool,
}

/// What kind of look a turn begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Looks {
    /// No look. The store does not hold what this rank's own threads have found, so the rank concludes from what it has read.
    Nothing,
    /// The rank counts the leases. If a lease was taken or has gone, it asks for keys as well.
    Leases,
    /// The rank asks for keys.
    Keys,
    /// The rank counts the leases, then asks for keys.
    LeasesAndKeys,
}

impl Looks {
    pub(super) fn count_leases(self) -> bool {
        matches!(self, Self::Leases | Self::LeasesAndKeys)
    }
}

/// The keys that a look asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Keys {
    None,
    /// The keys that a rank asks for even when it does not act.
    Named,
    All,
}

/// What a rank has looked at, and what its next look is for.
#[derive(Debug)]
pub(super) struct Attention {
    /// A quarter of a lease: the longest time between two looks.
    quarter: Duration,
    /// This rank looks at all keys: it acts, or its turn to act has come.
    reads: bool,
    /// The last look asked for all keys.
    whole: bool,
    /// The next turn begins with a look, whatever has woken this rank.
    due: bool,
    /// Looks in a row that have found nothing to do. `begin` sets `peace` to 0 and keeps its value in `before`; `rest` counts on from
    /// there.
    peace: u32,
    before: u32,
    looked: Option<Instant>,
    counted: Option<Instant>,
}

impl Attention {
    /// Returns the state of a rank whose lease lives for four times `quarter`. `reads`: the rank looks at all keys from the beginning.
    pub(super) fn new(quarter: Duration, reads: bool) -> Self {
        Self {
            quarter,
            reads,
            whole: false,
            due: true,
            peace: 0,
            before: 0,
            looked: None,
            counted: None,
        }
    }

    /// Begins a turn, and returns the look that it begins with. The next turn asks for keys unless [`Attention::rest`] says that this one
    /// found nothing to do.
    pub(super) fn begin(&mut self, woken: Woken, now: Instant) -> Looks {
        let Woken { rang, news } = woken;
        let is_due = |of: Option<Instant>| {
            of.is_none_or(|of| now.saturating_duration_since(of) + BUSY >= self.quarter)
        };
        let looks = rang || self.due || self.reads || is_due(self.looked);
        let counts_due = is_due(self.counted);
        self.before = std::mem::take(&mut self.peace);
        if !looks {
            return Looks::Nothing;
        }
        // In peace a rank that reads all keys counts leases in every second look.
        if self.reads && self.before > 0 && !rang && !news {
            return if self.before.is_multiple_of(2) {
                Looks::Keys
            } else {
                Looks::Leases
            };
        }
        let asks = rang || news || self.before.is_multiple_of(PEACE);
        if self.reads || self.before == 0 {
            // This turn asks for keys in any case. It counts leases only when that is due.
            return if counts_due {
                Looks::LeasesAndKeys
            } else {
                Looks::Keys
            };
        }
        if asks { Looks::Keys } else { Looks::Leases }
    }

    /// Returns the keys that this turn asks for. `changed`: the count of leases shows that a lease was taken or has gone.
    pub(super) fn keys(&mut self, looks: Looks, changed: bool) -> Keys {
        let asks = match looks {
            Looks::Nothing => false,
            Looks::Leases => changed,
            Looks::Keys | Looks::LeasesAndKeys => true,
        };
        self.whole = asks && self.reads;
        match (asks, self.reads) {
            (false, _) => Keys::None,
            (true, false) => Keys::Named,
            (true, true) => Keys::All,
        }
    }

    /// Notes that the leases were counted.
    pub(super) fn counted_at(&mut self, now: Instant) {
        self.counted = Some(now);
    }

    /// Notes the end of a look. Returns the time since the end of the look before.
    pub(super) fn looked_at(&mut self, now: Instant) -> Duration {
        let before = self.looked.replace(now);
        before.map_or(Duration::ZERO, |before| now.duration_since(before))
    }

    /// Returns when the last look has ended.
    pub(super) fn looked(&self) -> Option<Instant> {
        self.looked
    }

    /// Returns whether the last look asked for all keys. Other ranks may have taken some words back meanwhile, so conclusions from those
    /// words need such a look.
    pub(super) fn is_whole(&self) -> bool {
        self.whole
    }

    /// Returns whether this rank looks at all keys.
    pub(super) fn reads(&self) -> bool {
        self.reads
    }

    /// Sets whether this rank looks at all keys from now on, or only at those that concern it.
    pub(super) fn read_all(&mut self, reads: bool) {
        self.reads = reads;
    }

    /// Sets whether the next turn begins with a look, whatever wakes this rank.
    pub(super) fn set_due(&mut self, due: bool) {
        self.due = due;
    }

    /// Notes that this turn has found nothing to do. Returns whether a whole lease has now passed in peace, at a rank that does not act.
    pub(super) fn rest(&mut self, looks: Looks) -> bool {
        let looked = u32::from(looks != Looks::Nothing);
        self.peace = self.before.wrapping_add(looked).max(1);
        self.peace == PEACE && !self.reads
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const QUARTER: Duration = Duration::from_millis(500);
    const QUIET: Woken = Woken {
        rang: false,
        news: false,
    };

    /// Returns the looks with which `turns` turns in peace begin. Each turn comes a quarter of a lease after the one before.
    fn in_peace(attention: &mut Attention, turns: u32) -> Vec<Looks> {
        let start = Instant::now();
        let turn = |number| {
            let now = start + QUARTER * number;
            let looks = attention.begin(QUIET, now);
            attention.keys(looks, false);
            attention.looked_at(now);
            if looks.count_leases() {
                attention.counted_at(now);
            }
            attention.rest(looks);
            looks
        };
        (0..turns).map(turn).collect()
    }

    #[test]
    fn in_peace_one_look_in_four_asks_for_keys_and_the_others_count() {
        let mut attention = Attention::new(QUARTER, false);
        let begun = in_peace(&mut attention, 9);
        use Looks::{Keys, Leases, LeasesAndKeys};
        let first = [LeasesAndKeys, Leases, Leases, Leases];
        assert_eq!(begun[..4], first);
        assert_eq!(begun[4..], [Keys, Leases, Leases, Leases, Keys]);
    }

    #[test]
    fn in_peace_a_rank_that_reads_all_keys_counts_in_every_second_look() {
        let mut attention = Attention::new(QUARTER, true);
        let begun = in_peace(&mut attention, 5);
        use Looks::{Keys, Leases, LeasesAndKeys};
        assert_eq!(begun, [LeasesAndKeys, Leases, Keys, Leases, Keys]);
    }

    #[test]
    fn a_lease_that_has_gone_makes_a_rank_ask_for_its_keys() {
        let mut attention = Attention::new(QUARTER, false);
        in_peace(&mut attention, 2);
        assert_eq!(attention.keys(Looks::Leases, false), Keys::None);
        assert_eq!(attention.keys(Looks::Leases, true), Keys::Named);
        assert!(!attention.is_whole());
        attention.read_all(true);
        assert_eq!(attention.keys(Looks::Leases, true), Keys::All);
        assert!(attention.is_whole());
    }

    #[test]
    fn news_of_its_own_threads_make_a_rank_conclude_without_a_look() {
        let mut attention = Attention::new(QUARTER, false);
        let now = Instant::now();
        let looks = attention.begin(QUIET, now);
        assert_eq!(looks, Looks::LeasesAndKeys, "it has never looked");
        attention.looked_at(now);
        attention.counted_at(now);
        attention.set_due(false);
        let news = Woken {
            rang: false,
            news: true,
        };
        assert_eq!(attention.begin(news, now), Looks::Nothing);
        let rang = Woken {
            rang: true,
            news: false,
        };
        assert_eq!(attention.begin(rang, now), Looks::Keys);
    }
}
