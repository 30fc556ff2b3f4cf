//! The final table: what was done to the ranks, and what it cost the others.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::Serialize;

use super::event::{Record, What};

/// All of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(super) struct Figures {
    /// Processes killed.
    pub(super) deaths: u32,
    /// Ranks dropped that were not killed.
    pub(super) expelled: u32,
    /// Times that a living rank was suspected.
    pub(super) false_suspicions: u32,
    pub(super) steps: u64,
    /// Steps some token of which has lost an expert, and those tokens.
    pub(super) steps_with_losses: u64,
    pub(super) tokens: u64,
    pub(super) tokens_lost: u64,
    /// From a death, at each survivor: until it suspects the rank, until its kernels wait for it no more, until it serves
    /// in a view without it.
    pub(super) detect: Times,
    pub(super) mask: Times,
    pub(super) resume: Times,
    /// From the start of a later incarnation's process until it serves.
    pub(super) rejoin: Times,
    /// Most of one survivor from one view to the next.
    pub(super) commands: u64,
    pub(super) bytes: u64,
}

/// Durations in microseconds, ascending.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(super) struct Times(Vec<u64>);

impl Times {
    fn add(&mut self, us: u64) {
        let place = self.0.partition_point(|&other| other <= us);
        self.0.insert(place, us);
    }

    /// The smallest that `percent` of all do not exceed.
    fn percentile(&self, percent: usize) -> Option<u64> {
        let place = (self.0.len() * percent).div_ceil(100).max(1);
        self.0.get(place - 1).copied()
    }
}

impl fmt::Display for Times {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ms = |us: Option<u64>| {
            us.map_or_else(
                || "-".to_owned(),
                |us| format!("{}.{}", us / 1000, us % 1000 / 100),
            )
        };
        let [half, most, all] = [50, 99, 100].map(|percent| ms(self.percentile(percent)));
        write!(f, "{:>8} {half:>10} {most:>10} {all:>10}", self.0.len())
    }
}

/// A rank that is dead and still a member somewhere.
#[derive(Debug, Default)]
struct Dead {
    at: u64,
    /// Survivors that have not yet...
    undetected: BTreeSet<u32>,
    unmasked: BTreeSet<u32>,
    waiting: BTreeSet<u32>,
}

impl Figures {
    /// What `records`, in the order of their times, add up to.
    pub(super) fn of(records: &[Record]) -> Self {
        let mut figures = Self::default();
        let mut dead: BTreeMap<u32, Dead> = BTreeMap::new();
        let mut serving: BTreeMap<u32, u32> = BTreeMap::new();
        let mut suspected: BTreeMap<u32, BTreeSet<u32>> = BTreeMap::new();
        let mut started: BTreeMap<u32, u64> = BTreeMap::new();
        for record in records {
            let (us, rank) = (record.us, record.rank);
            match &record.what {
                What::Started => {
                    started.insert(rank, us);
                }
                What::Killed => {
                    figures.deaths += 1;
                    serving.remove(&rank);
                    for other in dead.values_mut() {
                        other.forget(rank);
                    }
                    for suspects in suspected.values_mut() {
                        suspects.remove(&rank);
                    }
                    let survivors: BTreeSet<u32> = serving.keys().copied().collect();
                    let of = Dead {
                        at: us,
                        undetected: survivors.clone(),
                        unmasked: survivors.clone(),
                        waiting: survivors,
                    };
                    dead.insert(rank, of);
                }
                What::Suspects { other, .. } => {
                    let new = suspected.entry(*other).or_default();
                    let first = new.is_empty();
                    new.insert(rank);
                    let of = dead.get_mut(other);
                    match of {
                        Some(of) => {
                            if of.undetected.remove(&rank) {
                                figures.detect.add(us - of.at);
                            }
                        }
                        None => figures.false_suspicions += u32::from(first),
                    }
                }
                What::Trusts { other } => {
                    suspected.entry(*other).or_default().remove(&rank);
                }
                What::Masked { others } => {
                    for of in others {
                        if let Some(of) = dead.get_mut(of)
                            && of.unmasked.remove(&rank)
                        {
                            figures.mask.add(us - of.at);
                        }
                    }
                }
                What::Serves {
                    members,
                    commands,
                    bytes,
                    ..
                } => {
                    match started.remove(&rank) {
                        Some(begun) if record.generation > 1 => figures.rejoin.add(us - begun),
                        Some(_) => {}
                        None => {
                            figures.commands = figures.commands.max(*commands);
                            figures.bytes = figures.bytes.max(*bytes);
                        }
                    }
                    serving.insert(rank, record.generation);
                    for (_, of) in dead.iter_mut().filter(|(of, _)| !members.contains(of)) {
                        if of.waiting.remove(&rank) {
                            figures.resume.add(us - of.at);
                        }
                    }
                    for (_, suspects) in
                        suspected.iter_mut().filter(|(of, _)| !members.contains(of))
                    {
                        suspects.remove(&rank);
                    }
                    dead.retain(|_, of| !of.waiting.is_empty());
                }
                What::Step { tokens, lost, .. } => {
                    figures.steps += 1;
                    figures.steps_with_losses += u64::from(*lost > 0);
                    figures.tokens += u64::from(*tokens);
                    figures.tokens_lost += u64::from(*lost);
                }
                What::Expelled => {
                    figures.expelled += 1;
                    serving.remove(&rank);
                    for other in dead.values_mut() {
                        other.forget(rank);
                    }
                }
            }
        }
        figures
    }

    /// The table.
    pub(super) fn table(&self) -> String {
        format!(
            "{} deaths, {} expelled alive, {} false suspicions\n\
             {} steps checked, {} of them with lost tokens: {} of {} tokens\n\
             at most {} commands and {} bytes allocated at a survivor from one view to the next\n\n\
             {:<10} {:>8} {:>10} {:>10} {:>10}\n{:<10} {}\n{:<10} {}\n{:<10} {}\n{:<10} {}\n",
            self.deaths,
            self.expelled,
            self.false_suspicions,
            self.steps,
            self.steps_with_losses,
            self.tokens_lost,
            self.tokens,
            self.commands,
            self.bytes,
            "ms",
            "times",
            "p50",
            "p99",
            "max",
            "detect",
            self.detect,
            "mask",
            self.mask,
            "resume",
            self.resume,
            "rejoin",
            self.rejoin,
        )
    }
}

impl Dead {
    /// `rank` has gone as well.
    fn forget(&mut self, rank: u32) {
        for set in [&mut self.undetected, &mut self.unmasked, &mut self.waiting] {
            set.remove(&rank);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::event::recorded::records;
    use super::*;

    #[test]
    fn a_death_a_rejoin_and_false_suspicions_are_counted_and_timed() {
        let figures = Figures::of(&records());
        assert_eq!((figures.deaths, figures.expelled), (1, 0));
        assert_eq!(figures.false_suspicions, 2);
        assert_eq!((figures.steps, figures.steps_with_losses), (3, 1));
        assert_eq!((figures.tokens, figures.tokens_lost), (48, 5));
        assert_eq!(figures.detect.0, [4000, 6000]);
        assert_eq!(figures.mask.0, [5000, 7000]);
        assert_eq!(figures.resume.0, [30_000, 40_000]);
        assert_eq!(figures.rejoin.0, [150_000]);
        assert_eq!((figures.commands, figures.bytes), (12, 0));
        let table = figures.table();
        assert!(
            table.contains("detect            2        4.0        6.0        6.0\n"),
            "{table}"
        );
    }

    #[test]
    fn percentiles_are_times_that_were_measured() {
        let mut times = Times::default();
        assert_eq!(times.percentile(50), None);
        for us in (1..=200).rev() {
            times.add(us);
        }
        assert_eq!(
            [1, 50, 99, 100].map(|p| times.percentile(p)),
            [2, 100, 198, 200].map(Some)
        );
        assert_eq!(
            Times::default().to_string(),
            "       0          -          -          -"
        );
    }

    #[test]
    fn a_survivor_that_dies_before_it_has_resumed_is_waited_for_no_more() {
        let mut records = records();
        records.truncate(10);
        let killed = Record {
            us: 206_000,
            rank: 1,
            generation: 1,
            what: What::Killed,
        };
        records.push(killed);
        let serves = What::Serves {
            epoch: 2,
            members: vec![0],
            commands: 9,
            bytes: 4096,
        };
        records.push(Record {
            us: 300_000,
            rank: 0,
            generation: 1,
            what: serves,
        });
        let figures = Figures::of(&records);
        assert_eq!(figures.deaths, 2);
        assert_eq!(figures.detect.0, [4000]);
        assert_eq!(figures.resume.0, [94_000, 100_000]);
        assert_eq!((figures.commands, figures.bytes), (9, 4096));
    }
}
