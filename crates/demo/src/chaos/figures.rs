//! The final table: what was done to the ranks, and what it cost the others.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use serde::Serialize;

use super::pace::Pace;
use super::table;
use super::times::Times;
use super::tokens::Tokens;
use crate::record::{Disturbance, Record, RecordKind};

/// For how long after the end of a disturbance it counts as the cause of what others find.
const AFTERMATH_US: u64 = 2_000_000;

/// The figures of a whole run.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(super) struct Figures {
    /// The number of processes killed.
    pub(super) deaths: u32,
    /// The number of all disturbances, kills included.
    pub(super) deeds: u32,
    /// The number of disturbances other than kills, by their names.
    pub(super) disturbed: BTreeMap<&'static str, u32>,
    /// The number of ranks dropped that were not killed.
    pub(super) expelled: u32,
    /// The number of pairs that views have parted. A pair that is parted again counts again.
    pub(super) parted: u32,
    /// The number of proposals that were put into the store.
    pub(super) proposals: u32,
    /// How often a rank was suspected by another while nothing was done to either of them.
    pub(super) false_suspicions: u32,
    pub(super) steps: u64,
    /// The number of steps in which some token lost an expert, of all tokens, and of the lost tokens.
    pub(super) steps_with_losses: u64,
    pub(super) tokens: u64,
    pub(super) tokens_lost: u64,
    /// The number of steps in which rows of a member did not come while nothing was done to any rank. If two ranks miss rows of each other
    /// in one call, that is judged once, when the first of them goes on without the other.
    pub(super) steps_failed: u64,
    /// The number of steps that missed rows because a deed disturbed a third rank. If a rank may have to send rows again to a rank that
    /// stands still, it sends nothing new from that memory to any rank.
    pub(super) steps_held_up: u64,
    /// The number of steps that no view covers, so that nothing was sent.
    pub(super) steps_aborted: u64,
    /// Times from a deed, at each of the other ranks. `detect` lasts until that rank suspects the hit rank, and `mask` until its kernels
    /// stop waiting for the hit rank. `resume` lasts until it serves in a view without the hit rank.
    pub(super) detect: Times,
    pub(super) mask: Times,
    pub(super) resume: Times,
    /// Times from a death until a survivor begins a step of normal length.
    pub(super) recover: Times,
    /// Times of later generations: `rejoin` lasts from the start of the process until it serves, and `join` from its question to be taken
    /// in until it serves. `connect` is the part of `join` in which each member connects.
    pub(super) rejoin: Times,
    pub(super) join: Times,
    pub(super) connect: Times,
    /// The times of `connect` while no rank stands still or is cut off, and none was shortly before.
    pub(super) connect_in_peace: Times,
    /// The longest time between two steps of each member while another rank comes back.
    pub(super) gap: Times,
    /// The times of steps while nothing is done to any rank.
    #[serde(skip)]
    pub(super) step: Times,
    /// `commands` is the most that one survivor gave to its HCA from one view to the next. `commands_per_rank` is all commands of a
    /// survivor, for each rank that went, came, or did both. `bytes` is what a survivor allocated.
    pub(super) commands: u64,
    pub(super) commands_per_rank: u64,
    pub(super) bytes: u64,
    /// The tokens that undisturbed ranks lost of undisturbed ranks. None for a run without deeds of chaos.
    pub(super) undisturbed: Option<Tokens>,
}

/// A rank to which something was done, and what the others know of it.
#[derive(Debug, Default)]
struct Victim {
    at: u64,
    /// When the disturbance ended; None if it has not.
    until: Option<u64>,
    /// True if the rank lives, and stands still or is cut off.
    lives: bool,
    /// The others that have not yet suspected it, masked it, or gone on without it.
    undetected: BTreeSet<u32>,
    unmasked: BTreeSet<u32>,
    waiting: BTreeSet<u32>,
}

impl Victim {
    /// Returns whether the disturbance of the rank explains what is found of the rank at `us`.
    fn is_one(&self, us: u64) -> bool {
        self.until.is_none_or(|until| us <= until)
    }
}

/// The figures of the records that were added so far.
#[derive(Default)]
struct Tally {
    figures: Figures,
    victims: BTreeMap<u32, Victim>,
    /// The members of the view of each rank that serves.
    serving: BTreeMap<u32, Vec<u32>>,
    /// The pairs that the newest view of each rank parts.
    parts: BTreeMap<u32, Vec<(u32, u32)>>,
    /// The number of the newest view of all, and the pairs that it parts.
    newest: (u32, Vec<(u32, u32)>),
    suspected: BTreeMap<u32, BTreeSet<u32>>,
    started: BTreeMap<u32, u64>,
    asked: BTreeMap<u32, u64>,
    /// What each generation of each slot has spent.
    spent: BTreeMap<(u32, u32), Spent>,
    /// By call and rank, the ranks from which the rank missed rows for a known reason.
    excused: BTreeMap<(u32, u32), Vec<u32>>,
}

/// The commands of a generation since it serves, and the ranks for which it gave them.
#[derive(Default)]
struct Spent {
    commands: u64,
    went: u64,
    came: u64,
    /// The number of ranks connected. It is more than `came` if a view was skipped in which one of these ranks had gone.
    connected: u64,
}

impl Spent {
    /// Returns for how many ranks the commands were, each of which went, came, or did both.
    fn ranks(&self) -> u64 {
        self.went.max(self.came).max(self.connected).max(1)
    }
}

impl Figures {
    /// Returns the figures of `records`, which are in the order of their times.
    pub(super) fn of(records: &[Record]) -> Self {
        let mut tally = Tally::default();
        for record in records {
            tally.add(record);
        }
        let pace = Pace::of(records);
        let spent = tally.spent.values();
        let for_each = |of: &Spent| of.commands.div_ceil(of.ranks());
        let commands_per_rank = spent.map(for_each).max().unwrap_or(0);
        let mut figures = Self {
            commands_per_rank,
            step: pace.step,
            recover: pace.recover,
            gap: pace.gap,
            undisturbed: Tokens::of(records),
            ..tally.figures
        };
        for times in [
            &mut figures.detect,
            &mut figures.mask,
            &mut figures.resume,
            &mut figures.rejoin,
            &mut figures.join,
            &mut figures.connect,
            &mut figures.connect_in_peace,
        ] {
            times.sort();
        }
        figures
    }

    /// Returns the table.
    pub(super) fn table(&self) -> String {
        let disturbed: String = self
            .disturbed
            .iter()
            .map(|(name, count)| format!(", {count} x {name}"))
            .collect();
        let mut out = format!(
            "{} deaths{disturbed}; {} expelled alive, {} false suspicions, {} pairs parted, {} proposals\n\
             {} steps checked, {} of them with lost tokens: {} of {} tokens\n\
             {} steps lack a member for no reason, {} because of what was done to another, {} were in no view\n\
             at a survivor from one view to the next: at most {} commands ({} for each rank that went and came back), {} bytes allocated\n\n\
             {:<10} {:>8} {:>10} {:>10} {:>10}\n",
            self.deaths,
            self.expelled,
            self.false_suspicions,
            self.parted,
            self.proposals,
            self.steps,
            self.steps_with_losses,
            self.tokens_lost,
            self.tokens,
            self.steps_failed,
            self.steps_held_up,
            self.steps_aborted,
            self.commands,
            self.commands_per_rank,
            self.bytes,
            "ms",
            "times",
            "p50",
            "p99",
            "max",
        );
        for (name, times) in [
            ("step", &self.step),
            ("detect", &self.detect),
            ("mask", &self.mask),
            ("resume", &self.resume),
            ("recover", &self.recover),
            ("rejoin", &self.rejoin),
            ("join", &self.join),
            ("connect", &self.connect),
            ("- in peace", &self.connect_in_peace),
            ("gap", &self.gap),
        ] {
            let _ = writeln!(out, "{name:<10} {times}");
        }
        if let Some(tokens) = &self.undisturbed {
            out += &table::of(tokens);
        }
        out
    }
}

impl Tally {
    fn add(&mut self, record: &Record) {
        let (us, rank) = (record.us, record.rank);
        match &record.what {
            RecordKind::Started => {
                self.started.insert(rank, us);
            }
            RecordKind::Asks => {
                self.asked.insert(rank, us);
            }
            RecordKind::Connected { took_us, .. } => {
                self.figures.connect.add(*took_us);
                if !self
                    .victims
                    .values()
                    .any(|victim| victim.lives && victim.is_one(us))
                {
                    self.figures.connect_in_peace.add(*took_us);
                }
                if !self.started.contains_key(&rank) {
                    let who = (rank, record.generation);
                    self.spent.entry(who).or_default().connected += 1;
                }
            }
            RecordKind::Killed => {
                self.figures.deaths += 1;
                self.gone(rank);
                self.victim(rank, us, false);
            }
            RecordKind::Deed(begun) => {
                self.figures.deeds += 1;
                if begun.how != Disturbance::Kill {
                    *self.figures.disturbed.entry(begun.how.name()).or_default() += 1;
                }
            }
            RecordKind::Disturbed { .. } => self.victim(rank, us, true),
            RecordKind::Calm => {
                if let Some(victim) = self.victims.get_mut(&rank) {
                    victim.until = Some(us + AFTERMATH_US);
                }
            }
            RecordKind::Suspects { other, .. } => self.suspects(us, rank, *other),
            RecordKind::Trusts { other } => {
                self.suspected.entry(*other).or_default().remove(&rank);
            }
            RecordKind::Masked { others } => {
                for of in others {
                    if let Some(of) = self.victims.get_mut(of)
                        && of.is_one(us)
                        && of.unmasked.remove(&rank)
                    {
                        self.figures.mask.add(us - of.at);
                    }
                }
            }
            RecordKind::Proposes { .. } => self.figures.proposals += 1,
            RecordKind::Serves {
                epoch,
                members,
                parted,
                commands,
                bytes,
            } => {
                self.parts(*epoch, rank, parted);
                self.serves(record, members, (*commands, *bytes));
            }
            RecordKind::Step {
                step,
                epoch,
                tokens,
                lost,
                missing,
                ..
            } => {
                let figures = &mut self.figures;
                figures.steps += 1;
                figures.steps_with_losses += u64::from(*lost > 0);
                figures.steps_aborted += u64::from(epoch.is_none());
                figures.tokens += u64::from(*tokens);
                figures.tokens_lost += u64::from(*lost);
                let free = |of: &u32| !self.is_victim(*of, us);
                // The pairs that a view parts exchange nothing.
                let parts = self.parts.get(&rank);
                let united = |of: &u32| {
                    let pair = (rank.min(*of), rank.max(*of));
                    parts.is_none_or(|parts| !parts.contains(&pair))
                };
                let missing: Vec<u32> = missing.iter().copied().filter(united).collect();
                let lacks = epoch.is_some() && free(&rank) && missing.iter().any(free);
                let without = |of: &u32| self.excused.get(&(*step, *of));
                let judged = |of: &u32| without(of).is_some_and(|by| by.contains(&rank));
                let peace = self.victims.keys().all(free);
                let new = missing.iter().any(|of| free(of) && !judged(of));
                let failed = lacks && peace && new;
                self.figures.steps_failed += u64::from(failed);
                self.figures.steps_held_up += u64::from(lacks && !failed);
                if !failed && !missing.is_empty() {
                    self.excused.insert((*step, rank), missing);
                }
            }
            RecordKind::Plan { .. }
            | RecordKind::TakesBack { .. }
            | RecordKind::DeedOver { .. }
            | RecordKind::GaveUp { .. }
            | RecordKind::Failed { .. }
            | RecordKind::Stood { .. }
            | RecordKind::Rival
            | RecordKind::Slept
            | RecordKind::Promises { .. }
            | RecordKind::Notes { .. } => {}
            RecordKind::Expelled => {
                self.figures.expelled += 1;
                self.gone(rank);
                // What the others find of the rank from now on is because it has ended.
                let ended = |at| Victim {
                    at,
                    ..Victim::default()
                };
                let victim = self.victims.entry(rank).or_insert_with(|| ended(us));
                if !victim.is_one(us) {
                    *victim = ended(us);
                }
                (victim.until, victim.lives) = (Some(u64::MAX), false);
            }
        }
    }

    /// Notes the pairs that the view of `epoch`, in which `rank` serves, parts.
    fn parts(&mut self, epoch: u32, rank: u32, parted: &[(u32, u32)]) {
        let (newest, before) = &self.newest;
        if epoch > *newest {
            let new = parted.iter().filter(|pair| !before.contains(pair));
            self.figures.parted += u32::try_from(new.count()).unwrap_or(u32::MAX);
            self.newest = (epoch, parted.to_vec());
        }
        self.parts.insert(rank, parted.to_vec());
    }

    /// Notes that something is done to `rank`.
    fn victim(&mut self, rank: u32, us: u64, lives: bool) {
        let others = self.serving.keys().copied().filter(|other| *other != rank);
        let others: BTreeSet<u32> = others.collect();
        let victim = Victim {
            at: us,
            until: None,
            lives,
            undetected: others.clone(),
            unmasked: others.clone(),
            waiting: others,
        };
        self.victims.insert(rank, victim);
    }

    fn is_victim(&self, rank: u32, us: u64) -> bool {
        let victim = self.victims.get(&rank);
        victim.is_some_and(|victim| victim.is_one(us))
    }

    /// Notes that `rank` serves no more, so that no disturbance waits for it.
    fn gone(&mut self, rank: u32) {
        self.serving.remove(&rank);
        self.parts.remove(&rank);
        for victim in self.victims.values_mut() {
            for set in [
                &mut victim.undetected,
                &mut victim.unmasked,
                &mut victim.waiting,
            ] {
                set.remove(&rank);
            }
        }
        for suspects in self.suspected.values_mut() {
            suspects.remove(&rank);
        }
    }

    fn suspects(&mut self, us: u64, rank: u32, other: u32) {
        let justified = self.is_victim(rank, us) || self.is_victim(other, us);
        let new = self.suspected.entry(other).or_default();
        let first = new.is_empty();
        new.insert(rank);
        self.figures.false_suspicions += u32::from(first && !justified);
        if let Some(of) = self.victims.get_mut(&other)
            && of.is_one(us)
            && of.undetected.remove(&rank)
        {
            self.figures.detect.add(us - of.at);
        }
    }

    fn serves(&mut self, record: &Record, members: &[u32], (commands, bytes): (u64, u64)) {
        let (us, rank) = (record.us, record.rank);
        match self.started.remove(&rank) {
            // The rank serves for the first time.
            Some(begun) => {
                self.victims.remove(&rank);
                let asked = self.asked.remove(&rank);
                if record.generation > 1 {
                    self.figures.rejoin.add(us - begun);
                    self.figures.join.add(us - asked.unwrap_or(us));
                }
            }
            None => {
                let before = self.serving.get(&rank).map_or(&[][..], Vec::as_slice);
                let count = |of: &[u32], not: &[u32]| {
                    of.iter().filter(|other| !not.contains(other)).count() as u64
                };
                let spent = self.spent.entry((rank, record.generation)).or_default();
                spent.commands += commands;
                spent.went += count(before, members);
                spent.came += count(members, before);
                let figures = &mut self.figures;
                figures.commands = figures.commands.max(commands);
                figures.bytes = figures.bytes.max(bytes);
            }
        }
        self.serving.insert(rank, members.to_vec());
        let out = |of: &u32| !members.contains(of);
        for (_, victim) in self.victims.iter_mut().filter(|(of, _)| out(of)) {
            if victim.is_one(us) && victim.waiting.remove(&rank) {
                self.figures.resume.add(us - victim.at);
            }
        }
        for (_, suspects) in self.suspected.iter_mut().filter(|(of, _)| out(of)) {
            suspects.remove(&rank);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::recorded::{records, told};

    #[test]
    fn a_death_a_rejoin_and_false_suspicions_are_counted_and_timed() {
        let figures = Figures::of(&records());
        assert_eq!((figures.deaths, figures.expelled), (1, 0));
        assert_eq!(figures.false_suspicions, 2);
        assert_eq!((figures.steps, figures.steps_with_losses), (3, 1));
        assert_eq!((figures.tokens, figures.tokens_lost), (48, 5));
        assert_eq!(figures.detect.all(), [4000, 6000]);
        assert_eq!(figures.mask.all(), [5000, 7000]);
        assert_eq!(figures.resume.all(), [30_000, 40_000]);
        assert_eq!(figures.rejoin.all(), [150_000]);
        assert_eq!((figures.commands, figures.bytes), (12, 0));
        assert_eq!(figures.commands_per_rank, 20, "8 and 12 of rank 1");
        let table = figures.table();
        assert!(
            table.contains("detect            2        4.0        6.0        6.0\n"),
            "{table}"
        );
    }

    #[test]
    fn commands_for_a_rank_that_went_and_came_between_views_count_for_it() {
        let mut records = records();
        records.truncate(6);
        for us in [200_000, 300_000] {
            let (other, took_us) = (2, 5000);
            records.push(told(us, 0, 1, RecordKind::Connected { other, took_us }));
        }
        let members = vec![0, 1, 2];
        let (epoch, commands, bytes) = (5, 56, 0);
        let serves = RecordKind::Serves {
            epoch,
            members,
            parted: Vec::new(),
            commands,
            bytes,
        };
        records.push(told(400_000, 0, 1, serves));
        assert_eq!(Figures::of(&records).commands_per_rank, 28);
    }

    #[test]
    fn what_two_have_not_had_of_each_other_is_judged_when_the_first_went_on() {
        let step = |us, rank, step, of| {
            let missing = vec![of];
            let (epoch, tokens, lost, took_us) = (Some(1), 16, 1, 500);
            let what = RecordKind::Step {
                step,
                epoch,
                tokens,
                lost,
                missing,
                losses: Some(Vec::new()),
                took_us,
            };
            told(us, rank, 1, what)
        };
        let how = Disturbance::Freeze;
        let mut records = vec![
            told(1_000_000, 2, 1, RecordKind::Disturbed { how }),
            step(1_500_000, 0, 7, 1),
            told(1_600_000, 2, 1, RecordKind::Calm),
        ];
        let of = |records: &[Record]| {
            let figures = Figures::of(records);
            (figures.steps_failed, figures.steps_held_up)
        };
        let later = 1_600_000 + AFTERMATH_US + 1;
        records.push(step(later, 1, 7, 0));
        assert_eq!(of(&records), (0, 2));
        records.push(step(later, 1, 8, 0));
        records.push(step(later, 0, 8, 1));
        assert_eq!(of(&records), (2, 2));
    }

    #[test]
    fn what_a_rank_lacks_of_one_from_which_its_view_parts_it_is_explained() {
        let serves = |us, rank, epoch, parted: &[(u32, u32)]| {
            let (members, parted) = (vec![0, 1, 2], parted.to_vec());
            let (commands, bytes) = (0, 0);
            let what = RecordKind::Serves {
                epoch,
                members,
                parted,
                commands,
                bytes,
            };
            told(us, rank, 1, what)
        };
        let step = |us, step, missing| {
            let (epoch, tokens, lost, took_us) = (Some(2), 16, 1, 500);
            let what = RecordKind::Step {
                step,
                epoch,
                tokens,
                lost,
                missing,
                losses: Some(Vec::new()),
                took_us,
            };
            told(us, 2, 1, what)
        };
        let mut records: Vec<Record> = (0..3).map(|rank| serves(1, rank, 1, &[])).collect();
        records.extend((0..3).map(|rank| serves(2, rank, 2, &[(0, 2)])));
        let failed = |more: Record| {
            let records: Vec<Record> = records.iter().cloned().chain([more]).collect();
            let figures = Figures::of(&records);
            assert_eq!(figures.parted, 1);
            figures.steps_failed
        };
        assert_eq!(failed(step(3, 1, vec![0])), 0);
        assert_eq!(failed(step(3, 1, vec![1])), 1, "of one with which it meets");
        assert_eq!(failed(step(3, 1, vec![0, 1])), 1);
        let united = [serves(4, 2, 3, &[]), step(5, 2, vec![0])];
        let all: Vec<Record> = records.iter().cloned().chain(united).collect();
        assert_eq!(Figures::of(&all).steps_failed, 1, "they are united again");
    }

    #[test]
    fn a_survivor_that_dies_before_it_has_resumed_is_waited_for_no_more() {
        let mut records = records();
        records.truncate(10);
        records.push(told(206_000, 1, 1, RecordKind::Killed));
        let serves = RecordKind::Serves {
            epoch: 2,
            members: vec![0],
            parted: Vec::new(),
            commands: 9,
            bytes: 4096,
        };
        records.push(told(300_000, 0, 1, serves));
        let figures = Figures::of(&records);
        assert_eq!(figures.deaths, 2);
        assert_eq!(figures.detect.all(), [4000]);
        assert_eq!(figures.resume.all(), [94_000, 100_000]);
        assert_eq!((figures.commands, figures.bytes), (9, 4096));
    }
}
