//! Decides when a CQ raises an event for its entries: arming, solicited entries, moderation.
//!
//! Software arms a CQ by the second word of its doorbell record and a store to its UAR page. The word holds an index. Entries from that
//! index on count, so an entry that was written before the arming raises its event at once. One arming raises one event. An entry for which
//! an event was raised already (`last_notified_index` of the context) raises no second event. Otherwise programs that arm a CQ before they
//! poll it would find every event twice.
//!
//! Source: PRM "Completion Queue Doorbell"; `mlx5_arm_cq` in rdma-core.

use mlx5_prm::cq::Cqc;
use mlx5_prm::doorbell::cq_record;

/// Bit of the arm word: only solicited entries and errors raise the event.
const SOLICITED_ONLY: u32 = 1 << 24;

/// The state of a CQ's arming.
#[derive(Debug, Default)]
pub(crate) struct Arming {
    wish: Option<Wish>,
    /// The arm word as it was at the last look.
    seen: u32,
    /// True if `seen` was an arming. Otherwise it is a word from before the CQ was made.
    used: bool,
    /// Index after the last solicited entry.
    solicited_end: Option<u32>,
    /// Index after the last entry for which an event was raised.
    notified: u32,
    /// The time at which the event is raised, however few entries the CQ has.
    due_ns: Option<u64>,
}

#[derive(Clone, Copy, Debug)]
struct Wish {
    solicited_only: bool,
    /// Index of the first entry that counts.
    from: u32,
}

/// The caller's duty about the event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Notice {
    Nothing,
    /// Raise the event.
    Now,
    /// Judge the CQ again at this time.
    At(u64),
}

impl Arming {
    /// An arm word with bits that no arm word of software has.
    pub(super) const NO_ARMING: u32 = u32::MAX;

    /// Returns the state of a new CQ. Its present arm word does not count as an arming.
    pub(crate) fn new(word: u32) -> Self {
        Self {
            seen: word,
            ..Self::default()
        }
    }

    /// Takes the arm word as it is after a store to the UAR page. `named`: the store names this CQ. Returns whether the word is an arming.
    ///
    /// A word counts once. If the word is unchanged, the store belongs to a word that was already seen.
    pub(super) fn take(&mut self, word: u32, named: bool) -> bool {
        if word == self.seen && (self.used || !named) {
            return false;
        }
        self.seen = word;
        self.used = true;
        let (consumed, notified) = (word & cq_record::INDEX_MASK, self.notified);
        self.wish = Some(Wish {
            solicited_only: word & SOLICITED_ONLY != 0,
            from: if ahead(notified, consumed) > 0 {
                notified
            } else {
                consumed
            },
        });
        self.due_ns = None;
        true
    }

    /// Notes that the entry before index `end` is a solicited one.
    pub(super) fn solicited(&mut self, end: u32) {
        self.solicited_end = Some(end);
    }

    /// Returns whether to raise the event now. That is so if an entry has come and moderation, as context `cqc` has it, does not want to
    /// wait for more. `end`: the index after the last entry.
    pub(super) fn judge(&mut self, end: u32, cqc: &Cqc, now_ns: u64) -> Notice {
        let Some(wish) = self.wish else {
            return Notice::Nothing;
        };
        let waiting = ahead(end, wish.from);
        let counts = if wish.solicited_only {
            let solicited = self.solicited_end.unwrap_or(wish.from);
            ahead(solicited, wish.from) > 0
        } else {
            waiting > 0
        };
        if !counts {
            return Notice::Nothing;
        }
        let (wanted, period) = (cqc.cq_max_count(), cqc.cq_period());
        let enough = match (wanted, period) {
            (0, 0) => true,
            (0, _) => false,
            (wanted, _) => waiting >= wanted,
        };
        let over = self.due_ns.is_some_and(|due| due <= now_ns);
        if enough || over {
            self.notified = end & cq_record::INDEX_MASK;
            self.wish = None;
            self.due_ns = None;
            return Notice::Now;
        }
        if period == 0 || self.due_ns.is_some() {
            return Notice::Nothing;
        }
        let due = now_ns + u64::from(period) * 1000;
        self.due_ns = Some(due);
        Notice::At(due)
    }

    /// Returns the index after the last entry for which an event was raised.
    pub(super) fn notified(&self) -> u32 {
        self.notified
    }

    /// Returns `st` of a CQ context: 6 armed for solicited entries, 9 armed, 10 fired.
    pub(super) fn state(&self) -> u32 {
        match self.wish {
            None => 10,
            Some(wish) if wish.solicited_only => 6,
            Some(_) => 9,
        }
    }

    #[cfg(test)]
    fn is_armed(&self) -> bool {
        self.wish.is_some()
    }
}

/// Returns the number of entries from index `from` up to `to`; 0 if `to` comes before `from`.
fn ahead(to: u32, from: u32) -> u32 {
    let distance = to.wrapping_sub(from) & cq_record::INDEX_MASK;
    if distance > cq_record::INDEX_MASK / 2 {
        0
    } else {
        distance
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::objects::cq::{Cq, tests_cq};

    fn arm(cq: &mut Cq, word: u32) -> Notice {
        cq.record.store_release(cq_record::ARM, word.to_be_bytes());
        cq.look_at_arm_word(true, 0)
    }

    fn entry(cq: &mut Cq, solicited: bool, now_ns: u64) -> Notice {
        cq.push([0; 64]).unwrap();
        cq.entry_written(solicited, now_ns)
    }

    fn queue(memory: &mut Vec<u64>) -> Cq {
        tests_cq(memory, Cqc::default().with_log_cq_size(6))
    }

    #[test]
    fn an_armed_queue_tells_once() {
        let mut memory = Vec::new();
        let mut cq = queue(&mut memory);
        assert_eq!(entry(&mut cq, false, 0), Notice::Nothing);
        assert_eq!(arm(&mut cq, 1), Notice::Nothing);
        assert_eq!(entry(&mut cq, false, 0), Notice::Now);
        assert_eq!(entry(&mut cq, false, 0), Notice::Nothing);
        assert_eq!(arm(&mut cq, 1), Notice::Nothing, "a word counts once");
    }

    #[test]
    fn an_entry_that_was_reported_does_not_report_again() {
        let mut memory = Vec::new();
        let mut cq = queue(&mut memory);
        arm(&mut cq, 0);
        assert_eq!(entry(&mut cq, false, 0), Notice::Now);
        assert_eq!(arm(&mut cq, 1 << 28), Notice::Nothing);
        assert_eq!(entry(&mut cq, false, 0), Notice::Now);
        assert_eq!(entry(&mut cq, false, 0), Notice::Nothing);
        assert_eq!(
            arm(&mut cq, 2 << 28),
            Notice::Now,
            "the third raised no event"
        );
        assert_eq!(cq.arming.notified(), 3);
    }

    #[test]
    fn entries_behind_the_index_of_the_arming_tell_at_once() {
        let mut memory = Vec::new();
        let mut cq = queue(&mut memory);
        entry(&mut cq, false, 0);
        entry(&mut cq, false, 0);
        assert_eq!(arm(&mut cq, 1), Notice::Now);
        assert_eq!(arm(&mut cq, 1 << 28 | 2), Notice::Nothing);
        assert!(cq.arming.is_armed());
    }

    #[test]
    fn a_first_arming_may_equal_the_old_word_if_its_store_names_the_queue() {
        let mut memory = Vec::new();
        let mut cq = queue(&mut memory);
        cq.record.store_release(cq_record::ARM, [0; 4]);
        cq.arming = Arming::new(0);
        cq.look_at_arm_word(false, 0);
        assert!(!cq.arming.is_armed(), "a store of another queue");
        cq.look_at_arm_word(true, 0);
        assert!(cq.arming.is_armed());
        cq.disarm();
        cq.look_at_arm_word(false, 0);
        assert!(!cq.arming.is_armed());
        cq.record.store_release(cq_record::ARM, [0; 4]);
        cq.look_at_arm_word(false, 0);
        assert!(cq.arming.is_armed(), "a word that changed is one");
    }

    #[test]
    fn armed_for_solicited_entries_others_do_not_tell() {
        let mut memory = Vec::new();
        let mut cq = queue(&mut memory);
        arm(&mut cq, SOLICITED_ONLY);
        assert_eq!(cq.arming.state(), 6);
        assert_eq!(entry(&mut cq, false, 0), Notice::Nothing);
        assert_eq!(entry(&mut cq, true, 0), Notice::Now);
        assert_eq!(cq.arming.state(), 10);
        entry(&mut cq, false, 0);
        let word = 1 << 28 | SOLICITED_ONLY;
        assert_eq!(
            arm(&mut cq, word | 1),
            Notice::Nothing,
            "an event was raised already"
        );
        cq.arming.wish = None;
        entry(&mut cq, true, 0);
        assert_eq!(arm(&mut cq, word | 4), Notice::Nothing, "consumed");
        assert_eq!(arm(&mut cq, word | 3), Notice::Now, "behind the index");
    }

    #[test]
    fn moderation_waits_for_entries_or_for_time() {
        let mut memory = Vec::new();
        let mut cq = queue(&mut memory);
        cq.cqc.set_cq_max_count(3);
        cq.cqc.set_cq_period(10);
        arm(&mut cq, 0);
        assert_eq!(entry(&mut cq, false, 1000), Notice::At(11_000));
        assert_eq!(entry(&mut cq, false, 2000), Notice::Nothing);
        assert_eq!(entry(&mut cq, false, 3000), Notice::Now);
        arm(&mut cq, 1 << 28 | 3);
        assert_eq!(entry(&mut cq, false, 20_000), Notice::At(30_000));
        assert_eq!(cq.judge(29_999), Notice::Nothing);
        assert_eq!(cq.judge(30_000), Notice::Now);
        assert_eq!(cq.judge(30_000), Notice::Nothing);
    }

    #[test]
    fn indices_wrap() {
        assert_eq!(ahead(1, cq_record::INDEX_MASK), 2);
        assert_eq!(ahead(cq_record::INDEX_MASK, 1), 0);
        assert_eq!(ahead(7, 7), 0);
    }
}
