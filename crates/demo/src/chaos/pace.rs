//! How fast survivors step, and how long a disturbance of others keeps them from it.

use std::collections::{BTreeMap, BTreeSet};

use super::times::Times;
use crate::record::{Record, RecordKind};

/// The time after a deed in which steps that begin are not taken for normal ones.
const AFTERMATH_US: u64 = 3_000_000;

/// The pace of all ranks together.
#[derive(Debug, Default)]
pub(super) struct Pace {
    /// The times of steps that no deed has touched.
    pub(super) step: Times,
    /// Times from a death until a survivor begins a step that is as fast as 99 % of the normal ones.
    pub(super) recover: Times,
    /// The longest time between two steps of a survivor while another rank comes back.
    pub(super) gap: Times,
}

/// A step, with the times of its begin and end.
struct Step {
    /// The rank and generation that ran the step.
    who: (u32, u32),
    begin: u64,
    end: u64,
}

impl Pace {
    /// Returns the pace by `records`, which are in the order of their times.
    pub(super) fn of(records: &[Record]) -> Self {
        let steps: Vec<Step> = records.iter().filter_map(Step::of).collect();
        let mut pace = Self::default();
        let deeds: Vec<u64> = records
            .iter()
            .filter(|record| is_deed(&record.what))
            .map(|record| record.us)
            .collect();
        for step in &steps {
            let from = step.begin.saturating_sub(AFTERMATH_US);
            let next = deeds.partition_point(|us| *us < from);
            if deeds.get(next).is_none_or(|us| *us > step.end) {
                pace.step.add(step.end - step.begin);
            }
        }
        pace.step.sort();
        let normal = pace.step.percentile(99).unwrap_or(u64::MAX);
        pace.recoveries(records, &steps, normal);
        pace.gaps(records);
        pace.recover.sort();
        pace.gap.sort();
        pace
    }

    fn recoveries(&mut self, records: &[Record], steps: &[Step], normal: u64) {
        let deaths: Vec<&Record> = records
            .iter()
            .filter(|record| record.what == RecordKind::Killed)
            .collect();
        for death in deaths {
            let first = steps.partition_point(|step| step.end < death.us);
            // A rank recovers when it makes one more step after the one during which the death happened. A rank that dies before that has
            // not recovered.
            let mut waiting: BTreeSet<(u32, u32)> = steps[..first]
                .iter()
                .rev()
                .take(100)
                .map(|step| step.who)
                .filter(|(rank, _)| *rank != death.rank)
                .collect();
            for step in &steps[first..] {
                let fast = step.end - step.begin <= normal;
                if step.begin >= death.us && fast && waiting.remove(&step.who) {
                    self.recover.add(step.begin - death.us);
                }
                if waiting.is_empty() {
                    break;
                }
            }
        }
    }

    fn gaps(&mut self, records: &[Record]) {
        /// A rank that comes back. It has the longest gap of each survivor that has not made a step since the rank serves.
        #[derive(Default)]
        struct Rejoin {
            longest: BTreeMap<u32, u64>,
            serves: bool,
        }
        let mut last: BTreeMap<u32, u64> = BTreeMap::new();
        let mut open: BTreeMap<u32, Rejoin> = BTreeMap::new();
        for record in records {
            let rank = record.rank;
            match &record.what {
                RecordKind::Started if record.generation > 1 => {
                    last.remove(&rank);
                    let longest = last.keys().map(|rank| (*rank, 0)).collect();
                    let serves = false;
                    open.insert(rank, Rejoin { longest, serves });
                }
                RecordKind::Serves { .. } => {
                    if let Some(rejoin) = open.get_mut(&rank) {
                        rejoin.serves = true;
                    }
                }
                // From now on the rank is held up by something other than the rejoin.
                RecordKind::Killed
                | RecordKind::Expelled
                | RecordKind::Disturbed { .. }
                | RecordKind::Calm => {
                    last.remove(&rank);
                    open.remove(&rank);
                    for rejoin in open.values_mut() {
                        rejoin.longest.remove(&rank);
                    }
                }
                RecordKind::Step { .. } => {
                    let gap = last
                        .insert(rank, record.us)
                        .map(|before| record.us.saturating_sub(before));
                    for rejoin in open.values_mut() {
                        if let (Some(longest), Some(gap)) = (rejoin.longest.get_mut(&rank), gap) {
                            *longest = gap.max(*longest);
                            if rejoin.serves {
                                self.gap.add(*longest);
                                rejoin.longest.remove(&rank);
                            }
                        }
                    }
                    open.retain(|_, rejoin| !rejoin.longest.is_empty());
                }
                _ => {}
            }
        }
    }
}

impl Step {
    fn of(record: &Record) -> Option<Self> {
        match record.what {
            RecordKind::Step { took_us, .. } => Some(Self {
                who: (record.rank, record.generation),
                begin: record.us.saturating_sub(took_us),
                end: record.us,
            }),
            _ => None,
        }
    }
}

/// Returns whether this may slow down other ranks.
fn is_deed(what: &RecordKind) -> bool {
    matches!(
        what,
        RecordKind::Started
            | RecordKind::Deed(_)
            | RecordKind::DeedOver { .. }
            | RecordKind::Killed
            | RecordKind::Disturbed { .. }
            | RecordKind::Calm
            | RecordKind::Expelled
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Record;
    use crate::record::recorded::told;

    fn step(us: u64, rank: u32, took_us: u64) -> Record {
        let what = RecordKind::Step {
            step: 1,
            epoch: Some(1),
            tokens: 1,
            lost: 0,
            missing: Vec::new(),
            losses: Some(Vec::new()),
            took_us,
        };
        told(us, rank, 1, what)
    }

    #[test]
    fn a_survivor_has_recovered_when_it_begins_a_step_as_fast_as_before() {
        let begin = 10_000_000;
        let mut records: Vec<Record> = (0..20u64).map(|n| step(begin + n * 1000, 0, 900)).collect();
        // Rank 5 dies as well, and only its next generation makes another step.
        records.push(step(begin + 19_200, 5, 900));
        let death = begin + 19_500;
        records.push(told(death, 1, 1, RecordKind::Killed));
        let mut next = step(death + 30_000, 5, 800);
        next.generation = 2;
        records.push(next);
        records.push(step(death + 40_000, 0, 39_000));
        records.push(step(death + 45_000, 0, 4_000));
        records.push(step(death + 46_000, 0, 800));
        let pace = Pace::of(&records);
        assert_eq!(pace.step.all(), [900; 21]);
        assert_eq!(pace.recover.all(), [45_200]);
    }

    #[test]
    fn a_survivors_longest_gap_counts_until_its_first_step_with_the_newcomer() {
        let serves = RecordKind::Serves {
            epoch: 3,
            members: vec![0, 1, 2],
            parted: Vec::new(),
            commands: 0,
            bytes: 0,
        };
        let records = [
            step(1000, 0, 10),
            step(1100, 1, 10),
            told(1500, 2, 2, RecordKind::Started),
            step(2000, 0, 10),
            step(9000, 0, 10),
            step(9100, 1, 10),
            told(9500, 2, 2, serves),
            step(9600, 0, 10),
            step(19_000, 1, 10),
            step(90_000, 0, 10),
        ];
        // The gap of rank 0 is from 2000 to 9000, and that of rank 1 from 9100 to 19000.
        assert_eq!(Pace::of(&records).gap.all(), [7000, 9900]);
    }
}
