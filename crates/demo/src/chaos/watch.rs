//! Watches a running fleet. It finds members of one view that run a step in different views, a rank that hangs, and a rank that
//! never comes back.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::record::{Record, RecordKind};

/// The number of views that are kept.
const KEPT: usize = 20;

/// What the watch knows of all ranks.
#[derive(Debug)]
pub(super) struct Watch {
    /// The longest time between two steps of an undisturbed rank.
    patience: Duration,
    /// The first step that a rank reported to have run in a view, by epoch.
    firsts: BTreeMap<u32, u32>,
    /// The runs by slot and generation.
    runs: BTreeMap<(u32, u32), Run>,
    ranks: BTreeMap<u32, Rank>,
}

/// The steps and views of one generation.
#[derive(Debug, Default)]
struct Run {
    /// The last step of the generation in each view.
    last: BTreeMap<u32, u32>,
    /// The newest view in which the generation served.
    served: u32,
}

#[derive(Debug)]
struct Rank {
    /// The time of the last sign of life, or of the end of the last disturbance.
    since: Instant,
    serves: bool,
    step: u32,
    epoch: u32,
    /// The number of members of its view, or 0 if the view parts some of them.
    whole: usize,
    /// True if something is done to the rank.
    disturbed: bool,
}

impl Watch {
    /// Returns a watch with this patience for a step. From the start of a process until it serves the patience is three times as long.
    pub(super) fn new(patience: Duration) -> Self {
        Self {
            patience,
            firsts: BTreeMap::new(),
            runs: BTreeMap::new(),
            ranks: BTreeMap::new(),
        }
    }

    /// Takes note of a record.
    ///
    /// # Errors
    /// A step that a member of a view has run in an earlier view, in words.
    pub(super) fn see(&mut self, record: &Record, now: Instant) -> Result<(), String> {
        if let RecordKind::Plan { .. }
        | RecordKind::TakesBack { .. }
        | RecordKind::Deed(_)
        | RecordKind::DeedOver { .. } = &record.what
        {
            return Ok(());
        }
        let rank = self.ranks.entry(record.rank).or_insert(Rank {
            since: now,
            serves: false,
            step: 0,
            epoch: 0,
            whole: 0,
            disturbed: false,
        });
        match &record.what {
            RecordKind::Started => {
                *rank = Rank {
                    since: now,
                    serves: false,
                    step: 0,
                    epoch: rank.epoch,
                    whole: 0,
                    disturbed: false,
                };
            }
            RecordKind::Killed => {
                self.ranks.remove(&record.rank);
            }
            RecordKind::Expelled | RecordKind::GaveUp { .. } => {
                rank.serves = false;
                rank.since = now;
            }
            RecordKind::Disturbed { .. } => rank.disturbed = true,
            RecordKind::Calm => {
                rank.disturbed = false;
                rank.since = now;
            }
            RecordKind::Serves {
                epoch,
                members,
                parted,
                ..
            } => {
                rank.serves = true;
                rank.whole = if parted.is_empty() { members.len() } else { 0 };
                rank.epoch = *epoch;
                rank.since = now;
                let who = (record.rank, record.generation);
                self.runs.entry(who).or_default().served = *epoch;
                return self.check_views();
            }
            RecordKind::Step { step, epoch, .. } => {
                rank.since = now;
                rank.step = *step;
                if let Some(epoch) = epoch {
                    let run = self.runs.entry((record.rank, record.generation));
                    let last = run.or_default().last.entry(*epoch).or_insert(*step);
                    let behind = self
                        .firsts
                        .range(epoch + 1..)
                        .any(|(_, first)| step >= first);
                    *last = (*last).max(*step);
                    let first = self.firsts.entry(*epoch).or_insert(u32::MAX);
                    let earlier = *step < *first;
                    *first = (*first).min(*step);
                    if self.firsts.len() > KEPT {
                        self.firsts.pop_first();
                    }
                    if behind || earlier {
                        return self.check_views();
                    }
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Checks that calls from the first call of a view on ran in that view, or a later one, at each of its members. Only a rank that the
    /// view has dropped may run such a call in an earlier view.
    fn check_views(&self) -> Result<(), String> {
        for (&(rank, _), ran) in &self.runs {
            for (&epoch, first) in &self.firsts {
                let older = ran.last.range(..epoch).next_back();
                if let Some((&before, &step)) = older
                    && ran.served >= epoch
                    && step >= *first
                {
                    return Err(format!(
                        "it ran step {step} in view {before}, and step {first} was in view {epoch}, in which it is (rank {rank})"
                    ));
                }
            }
        }
        Ok(())
    }

    /// Returns a rank that has shown no sign of life for too long, and what is wrong, in words.
    pub(super) fn overdue(&self, now: Instant) -> Option<(u32, String)> {
        let overdue = |(&number, rank): (&u32, &Rank)| {
            let quiet = now.duration_since(rank.since);
            let bound = self.patience * if rank.serves { 1 } else { 3 };
            if rank.disturbed || quiet < bound {
                return None;
            }
            let what = if rank.serves {
                format!("hangs after step {}", rank.step)
            } else {
                "does not come back".to_owned()
            };
            Some((
                number,
                format!("it {what}: nothing for {} s", bound.as_secs()),
            ))
        };
        self.ranks.iter().find_map(overdue)
    }

    /// Returns the ranks that serve and that no deed disturbs.
    pub(super) fn calm(&self) -> Vec<u32> {
        let calm = self
            .ranks
            .iter()
            .filter(|(_, rank)| rank.serves && !rank.disturbed);
        calm.map(|(number, _)| *number).collect()
    }

    /// Returns whether all of `ranks` serve in one view of all, which parts no pair.
    pub(super) fn is_whole(&self, ranks: u32) -> bool {
        let epoch = self.ranks.values().next().map(|rank| rank.epoch);
        let whole =
            |rank: &Rank| rank.serves && rank.whole == ranks as usize && Some(rank.epoch) == epoch;
        self.ranks.len() == ranks as usize && self.ranks.values().all(whole)
    }

    /// Returns the newest step of all ranks.
    pub(super) fn newest_step(&self) -> u32 {
        self.ranks.values().map(|rank| rank.step).max().unwrap_or(0)
    }

    /// Returns the step of the rank that is behind all others.
    pub(super) fn oldest_step(&self) -> u32 {
        self.ranks.values().map(|rank| rank.step).min().unwrap_or(0)
    }

    /// Returns the newest step and view, then a letter for the state of each rank: `.` absent, `-` on its way in, `!` disturbed.
    pub(super) fn line(&self, ranks: u32) -> String {
        let letter = |number: u32| match self.ranks.get(&number) {
            None => ".".to_owned(),
            Some(rank) if rank.disturbed => "!".to_owned(),
            Some(rank) if !rank.serves => "-".to_owned(),
            Some(_) => number.to_string(),
        };
        let all: Vec<String> = (0..ranks).map(letter).collect();
        let epoch = self
            .ranks
            .values()
            .map(|rank| rank.epoch)
            .max()
            .unwrap_or(0);
        format!(
            "step {}  view {epoch}  ranks {}",
            self.newest_step(),
            all.join(" ")
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Disturbance;

    const STEP: Duration = Duration::from_secs(30);
    const BACK: Duration = Duration::from_secs(90);

    fn record(rank: u32, what: RecordKind) -> Record {
        Record {
            us: 0,
            rank,
            generation: 1,
            what,
        }
    }

    fn step(step: u32, epoch: Option<u32>) -> RecordKind {
        RecordKind::Step {
            step,
            epoch,
            tokens: 1,
            lost: 0,
            missing: Vec::new(),
            losses: Some(Vec::new()),
            took_us: 1,
        }
    }

    fn serves(epoch: u32) -> RecordKind {
        RecordKind::Serves {
            epoch,
            members: vec![0, 1],
            parted: Vec::new(),
            commands: 0,
            bytes: 0,
        }
    }

    #[test]
    fn a_member_that_runs_a_step_in_an_earlier_view_is_named_unless_dropped() {
        let (mut watch, now) = (Watch::new(STEP), Instant::now());
        for rank in 0..3 {
            watch.see(&record(rank, serves(3)), now).unwrap();
            watch.see(&record(rank, step(6, Some(3))), now).unwrap();
        }
        watch.see(&record(0, serves(4)), now).unwrap();
        watch.see(&record(0, step(7, Some(4))), now).unwrap();
        // Rank 2 was dropped and does not know it yet. A call in no view says nothing.
        watch.see(&record(2, step(7, Some(3))), now).unwrap();
        watch.see(&record(1, step(7, None)), now).unwrap();
        watch.see(&record(2, step(9, Some(3))), now).unwrap();
        // Rank 1 is a member of view 4, and reports that late.
        watch.see(&record(1, step(8, Some(3))), now).unwrap();
        let error = watch.see(&record(1, serves(4)), now).unwrap_err();
        assert!(
            error.starts_with("it ran step 8 in view 3, and step 7 was in view 4"),
            "{error}"
        );
    }

    #[test]
    fn a_rank_that_hangs_or_stays_away_is_named_unless_it_is_disturbed() {
        let (mut watch, now) = (Watch::new(STEP), Instant::now());
        for rank in 0..2 {
            watch.see(&record(rank, RecordKind::Started), now).unwrap();
        }
        watch.see(&record(0, serves(1)), now).unwrap();
        watch.see(&record(0, step(5, Some(1))), now).unwrap();
        assert_eq!(watch.calm(), [0]);
        assert_eq!(watch.line(3), "step 5  view 1  ranks 0 - .");
        assert_eq!(watch.overdue(now + STEP / 2), None);
        let (rank, why) = watch.overdue(now + STEP).unwrap();
        assert_eq!(
            (rank, &why[..]),
            (0, "it hangs after step 5: nothing for 30 s")
        );
        let how = Disturbance::Freeze;
        watch
            .see(&record(0, RecordKind::Disturbed { how }), now)
            .unwrap();
        assert_eq!((watch.overdue(now + STEP), watch.calm()), (None, vec![]));
        let (rank, why) = watch.overdue(now + BACK).unwrap();
        assert_eq!(
            (rank, &why[..]),
            (1, "it does not come back: nothing for 90 s")
        );
        watch.see(&record(1, RecordKind::Killed), now).unwrap();
        assert_eq!(watch.overdue(now + BACK), None);
        watch.see(&record(0, RecordKind::Calm), now + BACK).unwrap();
        assert_eq!(watch.overdue(now + BACK + STEP / 2), None);
        assert!(watch.overdue(now + BACK + STEP).is_some());
    }
}
