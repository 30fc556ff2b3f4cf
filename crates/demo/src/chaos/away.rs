//! When each rank counts as disturbed: from the deed that names it until it must be whole again.
//!
//! A rank that was away is behind by the calls that the others have made meanwhile. It makes them up at its own pace, and then has two
//! deadlines more. While it catches up it may have to wait for another rank to which something is done. Then it has two deadlines from the
//! end of that. If a change holds its calls meanwhile, it has two deadlines after the change. A rank that was killed or dropped is away
//! until its next generation serves. A pair whose QPs a deed has failed is away until a view parts the pair and another view unites it.

use std::collections::{BTreeMap, BTreeSet};

use crate::record::{Disturbance, Record, RecordKind};

/// The longest time from a deed, or from a QP that failed in it, to a view that parts the pair because of it.
const BROKEN_US: u64 = 15_000_000;
/// The longest time, in leases, from a deed to the end of a rank that is dropped because of it.
const DROPPED_LEASES: u64 = 5;
/// The number of steps from which a rank's pace is taken: the middle of their times.
const PACE: usize = 50;

/// A time span, with both its ends, in microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Span {
    pub(super) from: u64,
    pub(super) until: u64,
}

impl Span {
    pub(super) fn touches(self, from: u64, until: u64) -> bool {
        self.from <= until && self.until >= from
    }
}

/// The limits of a run, in microseconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    pub(super) lease_us: u64,
    pub(super) deadline_us: u64,
    /// True if the ranks mask each other, and take back masked ranks when they are told to.
    pub(super) masks: bool,
}

/// When deeds disturb each rank, and when the machine keeps ranks from running.
#[derive(Debug, Default)]
pub(super) struct Away {
    by_deed: BTreeMap<u32, Vec<Span>>,
    /// The times in which the process of some rank without a deed did not run.
    by_machine: Vec<Span>,
}

/// What is known of one rank at a time of the record.
#[derive(Default)]
struct Known {
    /// The deeds that name the rank and are under way.
    deeds: BTreeSet<u32>,
    /// The generation of the rank that serves.
    serving: Option<u32>,
    /// True if the rank was killed or dropped, and no next generation serves.
    gone: bool,
    /// True if the rank's newest view parts it from another rank because of a deed.
    parted: bool,
    /// The ranks to which a QP has failed because of a deed, and when. No view of this rank has parted the pair since.
    failed: BTreeMap<u32, u64>,
    /// True if a change that the rank has promised holds its calls.
    held: bool,
    /// True if the rank was told to sleep before a call, and has not slept yet.
    sleepy: bool,
    /// True if the others may mask the rank because of a deed, and have not taken it back.
    masked: bool,
    /// The call before which all masked ranks are taken back.
    taken_back: Option<u32>,
    /// The rank's last step, and when it ended.
    step: u32,
    stepped: Option<u64>,
    /// The times between its last steps while nothing was done to it.
    gaps: Vec<u64>,
    spans: Vec<Span>,
}

impl Known {
    fn is_held(&self) -> bool {
        let any = !self.deeds.is_empty() || !self.failed.is_empty();
        any || self.gone || self.parted || self.masked || self.held || self.sleepy
    }

    /// Notes that the process of the rank has ended, or that the others have dropped it.
    fn end(&mut self) {
        self.gone = true;
        self.failed.clear();
        (self.held, self.sleepy) = (false, false);
    }

    /// Returns whether the rank's last disturbance lasted until `us`, or ended at most `after` before.
    fn was_away(&self, us: u64, after: u64) -> bool {
        let last = self.spans.last();
        last.is_some_and(|span| span.until.saturating_add(after) >= us)
    }

    /// Notes that the rank is away from `us` on. If its last span ended at most `after` before, that span goes on instead.
    fn begin(&mut self, us: u64, after: u64) {
        let open = u64::MAX;
        match self.spans.last_mut() {
            Some(last) if last.until.saturating_add(after) >= us => last.until = open,
            _ => self.spans.push(Span {
                from: us,
                until: open,
            }),
        }
    }

    /// Gives the rank `more` time to catch up, if it catches up at `us`.
    fn prolong(&mut self, us: u64, more: u64) {
        let last = self.spans.last_mut();
        if let Some(last) = last.filter(|last| (us..u64::MAX).contains(&last.until)) {
            last.until = last.until.saturating_add(more);
        }
    }

    /// Returns the middle of the times that the rank takes for a call, or `common` if it has made none.
    fn pace(&self, common: u64) -> u64 {
        middle(&self.gaps).unwrap_or(common)
    }
}

impl Away {
    /// Returns when ranks were disturbed, as `records` say, which are in the order of their times.
    pub(super) fn of(records: &[Record], limits: Limits) -> Self {
        let mut ranks: BTreeMap<u32, Known> = BTreeMap::new();
        let mut stood = Vec::new();
        for record in records {
            expire(&mut ranks, record.us, limits);
            if let RecordKind::Deed(begun) = &record.what {
                let others = ranks
                    .iter_mut()
                    .filter(|(rank, _)| !begun.ranks.contains(*rank));
                for (_, known) in others {
                    known.prolong(record.us, 2 * limits.deadline_us);
                }
                for rank in &begun.ranks {
                    let known = ranks.entry(*rank).or_default();
                    known.deeds.insert(begun.deed);
                    known.sleepy |= begun.how == Disturbance::Late;
                    known.masked = limits.masks;
                    known.taken_back = None;
                    known.begin(record.us, 0);
                }
                continue;
            }
            if let RecordKind::DeedOver { deed } = record.what {
                let all: Vec<u32> = ranks.keys().copied().collect();
                for rank in all {
                    if ranks.entry(rank).or_default().deeds.remove(&deed) {
                        settle(&mut ranks, rank, record.us, limits);
                    }
                }
                continue;
            }
            if let RecordKind::TakesBack { step } = record.what {
                for known in ranks
                    .values_mut()
                    .filter(|known| known.masked && known.deeds.is_empty())
                {
                    known.taken_back = Some(step);
                }
                continue;
            }
            if let RecordKind::Stood { ms } = record.what {
                let busy = ranks
                    .get(&record.rank)
                    .is_some_and(|of| of.was_away(record.us, 0));
                if !busy {
                    stood.push(starved(&ranks, record, ms * 1000, limits));
                }
                continue;
            }
            see(&mut ranks, record, limits);
        }
        let spans = |(rank, known): (u32, Known)| (rank, known.spans);
        Self {
            by_deed: ranks.into_iter().map(spans).collect(),
            by_machine: stood,
        }
    }

    /// Returns whether `rank` is disturbed at some time in `from..=until`.
    pub(super) fn is_away(&self, rank: u32, from: u64, until: u64) -> bool {
        let spans = self.by_deed.get(&rank).into_iter().flatten();
        spans.into_iter().any(|span| span.touches(from, until))
    }

    /// Returns whether the machine kept some rank without a deed from running at some time in `from..=until`.
    pub(super) fn is_starved(&self, from: u64, until: u64) -> bool {
        self.by_machine.iter().any(|span| span.touches(from, until))
    }
}

/// Takes note of a record of one rank.
fn see(ranks: &mut BTreeMap<u32, Known>, record: &Record, limits: Limits) {
    let (us, rank) = (record.us, record.rank);
    let known = ranks.entry(rank).or_default();
    match &record.what {
        RecordKind::Started => (known.stepped, known.sleepy) = (None, false),
        RecordKind::Slept => {
            known.sleepy = false;
            settle(ranks, rank, us, limits);
        }
        // If the process that ends is of an older generation than the one that serves, the rank itself has not ended.
        RecordKind::Killed | RecordKind::Expelled | RecordKind::GaveUp { .. }
            if known
                .serving
                .is_some_and(|serving| serving > record.generation) => {}
        RecordKind::Killed => {
            known.end();
            known.begin(us, 0);
        }
        RecordKind::Expelled | RecordKind::GaveUp { .. } => {
            // A rank that was dropped without a deed before is not a disturbed rank: nothing excuses what the others lose.
            let after = DROPPED_LEASES * limits.lease_us;
            if known.was_away(us, after) {
                known.end();
                known.begin(us, after);
            }
        }
        RecordKind::Suspects {
            other,
            qp_failed: true,
            ..
        } => {
            let other = *other;
            fail(ranks, rank, other, us);
            fail(ranks, other, rank, us);
        }
        RecordKind::Promises { .. } => {
            known.held = true;
            if known.was_away(us, 0) {
                known.begin(us, 0);
            }
        }
        RecordKind::Serves {
            parted, members, ..
        } => {
            known.held = false;
            let is_parted = |other| parted.contains(&(rank.min(other), rank.max(other)));
            known
                .failed
                .retain(|other, _| members.contains(other) && !is_parted(*other));
            let has_pair = parted.iter().any(|&(a, b)| a == rank || b == rank);
            known.serving = Some(record.generation);
            known.gone = false;
            known.parted = has_pair && known.was_away(us, BROKEN_US);
            if known.parted {
                known.begin(us, BROKEN_US);
            }
            settle(ranks, rank, us, limits);
        }
        RecordKind::Step { step, .. } => {
            let gap = known.stepped.map(|before| us.saturating_sub(before));
            known.step = *step;
            known.stepped = Some(us);
            if let Some(gap) = gap.filter(|_| !known.was_away(us, 0)) {
                if known.gaps.len() == PACE {
                    known.gaps.remove(0);
                }
                known.gaps.push(gap);
            }
            // Masks that end with the call of the taking back are part of the program.
            if known.taken_back.is_some_and(|call| call <= *step) {
                known.taken_back = None;
                known.masked = false;
                settle(ranks, rank, us, limits);
            }
        }
        _ => {}
    }
}

/// Notes that a QP between `rank` and `other` has failed. If `rank` is away then, the deed that disturbs it is the cause.
fn fail(ranks: &mut BTreeMap<u32, Known>, rank: u32, other: u32, us: u64) {
    let known = ranks.entry(rank).or_default();
    if !known.gone && known.was_away(us, 0) {
        known.failed.insert(other, us);
        known.begin(us, 0);
    }
}

/// Forgets failed QPs that no view has parted in time: a later parting has another cause.
fn expire(ranks: &mut BTreeMap<u32, Known>, us: u64, limits: Limits) {
    let all: Vec<u32> = ranks.keys().copied().collect();
    for rank in all {
        let failed = &mut ranks.entry(rank).or_default().failed;
        let before = failed.len();
        failed.retain(|_, since| since.saturating_add(BROKEN_US) >= us);
        if failed.len() < before {
            settle(ranks, rank, us, limits);
        }
    }
}

/// If nothing disturbs `rank` any more, ends its span at the time when it must have caught up.
fn settle(ranks: &mut BTreeMap<u32, Known>, rank: u32, us: u64, limits: Limits) {
    let until = us.saturating_add(catching_up(ranks, rank, limits));
    let known = ranks.entry(rank).or_default();
    if known.is_held() {
        return;
    }
    if let Some(last) = known.spans.last_mut().filter(|last| last.until == u64::MAX) {
        last.until = until;
    }
}

/// Returns how long `rank`, which is behind the others, may take until it is whole: its missed calls at its own pace, and two deadlines.
fn catching_up(ranks: &BTreeMap<u32, Known>, rank: u32, limits: Limits) -> u64 {
    let newest = ranks.values().map(|known| known.step).max().unwrap_or(0);
    let gaps: Vec<u64> = ranks
        .values()
        .flat_map(|known| known.gaps.clone())
        .collect();
    let common = middle(&gaps).unwrap_or(limits.deadline_us);
    let behind = ranks.get(&rank).filter(|known| known.stepped.is_some());
    let missed = behind.map_or(0, |known| u64::from(newest.saturating_sub(known.step)));
    let pace = ranks.get(&rank).map_or(common, |known| known.pace(common));
    missed
        .saturating_mul(pace)
        .saturating_add(2 * limits.deadline_us)
}

/// Returns the span in which a rank without a deed stood still for `long_us`. If that is a deadline or more, the span includes the time to
/// catch up.
fn starved(ranks: &BTreeMap<u32, Known>, record: &Record, long_us: u64, limits: Limits) -> Span {
    let more = if long_us >= limits.deadline_us {
        catching_up(ranks, record.rank, limits)
    } else {
        0
    };
    Span {
        from: record.us.saturating_sub(long_us),
        until: record.us.saturating_add(more),
    }
}

fn middle(times: &[u64]) -> Option<u64> {
    let mut sorted = times.to_vec();
    sorted.sort_unstable();
    sorted.get(sorted.len() / 2).copied()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Begun;
    use crate::record::recorded::told;

    const MS: u64 = 1000;
    const LIMITS: Limits = Limits {
        lease_us: 2_000_000,
        deadline_us: 500_000,
        masks: false,
    };

    fn step(ms: u64, rank: u32, step: u32) -> Record {
        let what = RecordKind::Step {
            step,
            epoch: Some(1),
            tokens: 16,
            lost: 0,
            missing: Vec::new(),
            losses: Some(Vec::new()),
            took_us: 1,
        };
        told(ms * MS, rank, 1, what)
    }

    fn serves(ms: u64, rank: u32, parted: &[(u32, u32)]) -> Record {
        let what = RecordKind::Serves {
            epoch: 1,
            members: vec![0, 1],
            parted: parted.to_vec(),
            commands: 0,
            bytes: 0,
        };
        told(ms * MS, rank, 1, what)
    }

    fn deed(ms: u64, deed: u32, rank: u32) -> Record {
        let begun = Begun {
            deed,
            how: Disturbance::Freeze,
            ranks: vec![rank],
            pairs: Vec::new(),
            words: String::new(),
        };
        told(ms * MS, 0, 0, RecordKind::Deed(begun))
    }

    fn over(ms: u64, deed: u32) -> Record {
        told(ms * MS, 0, 0, RecordKind::DeedOver { deed })
    }

    /// Returns records of two ranks that make a step each 10 ms until 1 s; then rank 1 makes none until 2 s.
    fn begin() -> Vec<Record> {
        let mut story = vec![serves(1, 0, &[]), serves(1, 1, &[])];
        for n in 1..=100 {
            story.push(step(n * 10, 0, u32::try_from(n).unwrap()));
            story.push(step(n * 10, 1, u32::try_from(n).unwrap()));
        }
        for n in 101..=200 {
            story.push(step(n * 10, 0, u32::try_from(n).unwrap()));
        }
        story
    }

    fn spans(mut story: Vec<Record>, rank: u32) -> Vec<[u64; 2]> {
        story.sort_by_key(|record| record.us);
        let away = Away::of(&story, LIMITS);
        let ms = |us: u64| if us == u64::MAX { us } else { us / MS };
        let spans = away.by_deed.get(&rank).into_iter().flatten();
        spans.map(|span| [ms(span.from), ms(span.until)]).collect()
    }

    #[test]
    fn a_rank_that_was_away_has_its_own_pace_and_two_deadlines_to_catch_up() {
        let mut story = begin();
        story.extend([deed(1005, 1, 1), over(2000, 1)]);
        // Rank 1 makes up 100 calls of 10 ms, and has 1 s more.
        assert_eq!(spans(story.clone(), 1), [[1005, 4000]]);
        assert_eq!(spans(story.clone(), 0), [[0; 2]; 0]);
        // Two deeds that overlap the catching up make one span; a later deed makes another.
        story.extend([deed(3000, 2, 1), over(3010, 2), deed(9000, 3, 1)]);
        assert_eq!(
            spans(story, 1),
            [[1005, 5010], [9000, u64::MAX]],
            "100 calls are still missed at 3.01 s"
        );
    }

    #[test]
    fn a_rank_that_catches_up_may_wait_for_another_that_is_disturbed() {
        let mut story = begin();
        // The rank has until 4 s.
        story.extend([deed(1005, 1, 1), over(2000, 1)]);
        let mut later = story.clone();
        story.push(deed(3900, 2, 0));
        assert_eq!(spans(story.clone(), 1), [[1005, 5000]]);
        story.push(deed(4900, 3, 0));
        assert_eq!(spans(story, 1), [[1005, 6000]]);
        later.push(deed(4100, 2, 0));
        assert_eq!(spans(later, 1), [[1005, 4000]], "it has caught up by then");
    }

    #[test]
    fn a_dead_rank_is_away_until_its_next_generation_serves() {
        let mut story = begin();
        story.extend([
            deed(1005, 1, 1),
            told(1005 * MS, 1, 1, RecordKind::Killed),
            over(1200, 1),
            told(1300 * MS, 1, 2, RecordKind::Started),
        ]);
        assert_eq!(spans(story.clone(), 1), [[1005, u64::MAX]]);
        story.push(serves(1800, 1, &[]));
        assert_eq!(spans(story, 1), [[1005, 2800]], "it has missed no call");
    }

    #[test]
    fn a_pair_that_a_cut_has_failed_is_away_until_a_view_unites_it() {
        let mut story = begin();
        story.extend([deed(1005, 1, 1), over(2000, 1), serves(5000, 1, &[(0, 1)])]);
        assert_eq!(spans(story.clone(), 1), [[1005, u64::MAX]]);
        story.push(serves(8000, 1, &[]));
        assert_eq!(spans(story, 1), [[1005, 10_000]]);
        // A view parts a pair that no deed has disturbed: no deed is the cause.
        let mut story = begin();
        story.push(serves(1500, 1, &[(0, 1)]));
        assert_eq!(spans(story, 1), [[0; 2]; 0]);
    }

    #[test]
    fn a_pair_whose_qp_a_deed_has_failed_is_away_until_views_part_and_unite() {
        let fails = |ms: u64, rank: u32, other: u32| {
            let what = RecordKind::Suspects {
                other,
                cause: String::new(),
                qp_failed: true,
            };
            told(ms * MS, rank, 1, what)
        };
        // Either end may report the failed QP. The store is away, so a view comes late.
        for [rank, other] in [[0, 1], [1, 0]] {
            let mut story = begin();
            story.extend([deed(1005, 1, 1), over(2000, 1), fails(2100, rank, other)]);
            assert_eq!(spans(story.clone(), 1), [[1005, u64::MAX]]);
            assert_eq!(spans(story.clone(), 0), [[0; 2]; 0]);
            // This view was proposed before the QP had failed.
            story.push(serves(3000, 1, &[]));
            assert_eq!(spans(story.clone(), 1), [[1005, u64::MAX]]);
            story.push(serves(9000, 1, &[(0, 1)]));
            assert_eq!(spans(story.clone(), 1), [[1005, u64::MAX]]);
            story.push(serves(9500, 1, &[]));
            assert_eq!(spans(story, 1), [[1005, 11_500]]);
        }
        // No view parts the pair in time, so nothing excuses what comes then.
        let mut story = begin();
        story.extend([deed(1005, 1, 1), over(2000, 1), fails(2100, 0, 1)]);
        story.push(step(17_101, 0, 201));
        assert_eq!(spans(story, 1), [[1005, 19_101]], "100 calls are missed");
        // A QP fails while nothing is done to either of its ends.
        let mut story = begin();
        story.extend([deed(1005, 1, 1), over(2000, 1), fails(4001, 0, 1)]);
        assert_eq!(spans(story, 1), [[1005, 4000]]);
    }

    #[test]
    fn a_rank_that_was_away_is_so_while_a_change_holds_its_calls() {
        let promises = |ms: u64, proposal: u64| {
            let what = RecordKind::Promises { proposal };
            told(ms * MS, 1, 1, what)
        };
        let mut story = begin();
        story.extend([deed(1005, 1, 1), over(2000, 1), promises(3900, 1)]);
        // A smaller proposal replaces the one that the rank has promised.
        story.push(promises(5000, 2));
        assert_eq!(spans(story.clone(), 1), [[1005, u64::MAX]]);
        story.push(serves(8900, 1, &[]));
        assert_eq!(spans(story.clone(), 1), [[1005, 10_900]]);
        // Later promises hold a rank that is whole. A disturbance meanwhile lasts until the rank goes on.
        story.extend([promises(10_901, 3), serves(12_000, 1, &[])]);
        assert_eq!(spans(story.clone(), 1), [[1005, 10_900]]);
        story.extend([promises(12_001, 4), deed(12_002, 2, 1), over(12_003, 2)]);
        story.push(serves(15_000, 1, &[]));
        assert_eq!(spans(story, 1), [[1005, 10_900], [12_002, 17_000]]);
    }

    #[test]
    fn a_rank_that_was_told_to_sleep_is_away_until_it_has() {
        let begun = Begun {
            deed: 1,
            how: Disturbance::Late,
            ranks: vec![1],
            pairs: Vec::new(),
            words: String::new(),
        };
        let mut story = begin();
        story.extend([
            told(1005 * MS, 0, 0, RecordKind::Deed(begun)),
            over(1500, 1),
        ]);
        assert_eq!(spans(story.clone(), 1), [[1005, u64::MAX]]);
        // A process that takes the place of the rank was not told to sleep.
        let mut other = story.clone();
        other.extend([
            told(1600 * MS, 1, 2, RecordKind::Started),
            serves(1700, 1, &[]),
        ]);
        assert_eq!(spans(other, 1), [[1005, 2700]]);
        story.push(told(2000 * MS, 1, 1, RecordKind::Slept));
        assert_eq!(spans(story, 1), [[1005, 4000]]);
    }

    #[test]
    fn where_ranks_mask_each_other_a_rank_is_away_until_all_take_it_back() {
        let limits = Limits {
            masks: true,
            ..LIMITS
        };
        let mut story = begin();
        story.extend([deed(1005, 1, 1), over(1100, 1)]);
        let until = |story: &[Record]| {
            let mut story = story.to_vec();
            story.sort_by_key(|record| record.us);
            let away = Away::of(&story, limits);
            away.by_deed[&1].last().unwrap().until
        };
        story.push(told(2001 * MS, 0, 0, RecordKind::TakesBack { step: 230 }));
        story.push(step(2100, 1, 229));
        assert_eq!(until(&story), u64::MAX);
        // The rank has made its own call. It must be whole within two deadlines from then.
        story.push(step(2110, 1, 230));
        assert_eq!(until(&story), 3110 * MS);
    }

    #[test]
    fn a_rank_that_is_dropped_is_away_only_if_a_deed_explains_it() {
        let dropped = |ms: u64| {
            let mut story = begin();
            story.extend([deed(1005, 1, 1), over(2000, 1)]);
            story.push(told(ms * MS, 1, 1, RecordKind::Expelled));
            spans(story, 1)
        };
        assert_eq!(dropped(14_000), [[1005, u64::MAX]]);
        assert_eq!(dropped(14_001), [[1005, 4000]]);
    }

    #[test]
    fn what_the_machine_does_to_a_rank_without_a_deed_is_no_deed() {
        let starved = |rank: u32, ms: u64| {
            let mut story = begin();
            story.extend([deed(1005, 1, 1), over(2000, 1)]);
            story.push(told(1500 * MS, rank, 1, RecordKind::Stood { ms }));
            story.sort_by_key(|record| record.us);
            Away::of(&story, LIMITS).by_machine
        };
        let span = |from: u64, until: u64| Span {
            from: from * MS,
            until: until * MS,
        };
        assert_eq!(starved(1, 130), [], "it has a deed");
        assert_eq!(starved(0, 130), [span(1370, 1500)]);
        // By its steps the rank ran all the time, so it has two deadlines alone.
        assert_eq!(starved(0, 500), [span(1000, 2500)]);
    }
}
