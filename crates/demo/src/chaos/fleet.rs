//! The rank processes of a run with membership. They are started, listened to, replaced when they are over, and ended.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;
use std::time::{Duration, Instant};

use super::deeds::has_own_space;
use super::processes::{Heard, Processes, RankGeneration};
use super::spaces;
use crate::clock::unix_us;
use crate::error::DemoError;
use crate::launch::Buffers;
use crate::messages::Message;
use crate::rank::disturbed_store::StoreFault;
use crate::rank::instructions::Instruction;
use crate::record::{Record, RecordKind};
use crate::run::Run;
use warpverbs_cli::log;

/// The longest time for a rank that is done to end.
const ENDING: Duration = Duration::from_secs(10);

/// How long after a disturbance of the store a newcomer may fail because of it: twice the patience of its first calls.
const LENIENCE: Duration = Duration::from_secs(10);

/// The number of the newest process of each rank that was started, or is to be. No two processes of a rank have the same number, in
/// whatever order they start.
#[derive(Default)]
struct Numbers(BTreeMap<u32, u32>);

impl Numbers {
    fn newest(&self, rank: u32) -> u32 {
        self.0.get(&rank).copied().unwrap_or(1)
    }

    /// Notes that a process of this number starts.
    fn take(&mut self, (rank, number): RankGeneration) {
        let newest = self.0.entry(rank).or_default();
        *newest = (*newest).max(number);
    }

    /// Draws the number of a process that comes after `before`, and returns it with the rank.
    fn draw(&mut self, before: RankGeneration) -> RankGeneration {
        self.take((before.0, self.newest(before.0).max(before.1) + 1));
        (before.0, self.newest(before.0))
    }
}

/// The rank processes and their records.
pub(super) struct Fleet<'a> {
    run: &'a Run,
    pub(super) processes: Processes,
    ranks: Ranks,
    /// Until when the processes of each rank have no link.
    links: BTreeMap<u32, Instant>,
    numbers: Numbers,
    /// The generations whose end is no failure, because they were killed or the others dropped them.
    over: BTreeSet<RankGeneration>,
    rejoins: Vec<(Instant, RankGeneration)>,
    /// The last step of each rank that has made its last step.
    pub(super) finished: BTreeMap<u32, u32>,
    /// The members of the view in which each generation serves.
    views: BTreeMap<RankGeneration, Vec<u32>>,
    /// The generation under which the newest process of each rank is in its group. A process that dies early has drawn none.
    generations: BTreeMap<u32, u32>,
    /// The last step, as it was sent to each rank.
    last: Option<u32>,
    /// The disturbances of every rank's store, and until when they last.
    store_faults: Vec<(Instant, StoreFault)>,
    excuses: Excuses,
    /// The first failure of each rank.
    failures: BTreeMap<u32, String>,
    said: BTreeMap<u32, String>,
    pub(super) records: Vec<Record>,
}

/// How rank processes are started.
#[derive(Clone, Debug, Default)]
pub(super) struct Ranks {
    /// The `SOFTHCA_FAULT` of every rank.
    pub(super) faults: Option<String>,
    /// True if the ranks of [`has_own_space`] live in PID namespaces of their own.
    pub(super) spaces: bool,
    /// The program of Python that the ranks run, instead of the demo.
    pub(super) buffers: Option<Buffers>,
}

/// Reasons that keep newcomers out, and so excuse their end.
#[derive(Debug, Default)]
struct Excuses {
    /// Until when the store may keep newcomers out.
    store: Option<Instant>,
    /// The processes from which a deed takes the port. A process that has just started may find the port down when it opens its HCA.
    ports: BTreeSet<RankGeneration>,
    /// The processes without a link, and both of two processes for one rank.
    processes: BTreeSet<RankGeneration>,
}

impl Excuses {
    fn store_until(&mut self, until: Instant) {
        self.store = self.store.max(Some(until));
    }

    /// Returns whether an excuse holds for `who`. Founders have none, because nothing is done before they serve.
    fn hold(&self, who: RankGeneration, now: Instant) -> bool {
        let store = self.store.is_some_and(|until| now <= until);
        let process = self.ports.contains(&who) || self.processes.contains(&who);
        who.1 > 1 && (store || process)
    }
}

/// What a rank has told that the starting process needs.
#[derive(Debug, PartialEq)]
pub(super) enum News {
    /// A rank begins a step.
    Begins(RankGeneration, u32),
    /// A rank has started, and the HCAs of its rails have these addresses.
    Addresses(RankGeneration, Vec<String>),
    /// A rank that the others have dropped has ended.
    Ended(RankGeneration),
    /// Anything else.
    Other,
}

pub(super) fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

impl<'a> Fleet<'a> {
    /// Starts all ranks of `run`.
    pub(super) fn start(run: &'a Run, count: u32, ranks: Ranks) -> Result<Self, DemoError> {
        run.place.write(&run.spec)?;
        let mut fleet = Self {
            run,
            processes: Processes::new(run.spec.began_us),
            ranks,
            links: BTreeMap::new(),
            numbers: Numbers::default(),
            over: BTreeSet::new(),
            rejoins: Vec::new(),
            finished: BTreeMap::new(),
            views: BTreeMap::new(),
            generations: BTreeMap::new(),
            last: None,
            store_faults: Vec::new(),
            excuses: Excuses::default(),
            failures: BTreeMap::new(),
            said: BTreeMap::new(),
            records: Vec::new(),
        };
        for rank in 0..count {
            fleet.start_rank((rank, 1))?;
        }
        Ok(fleet)
    }

    /// Starts a process of a rank. The first generation founds the group, and a later one joins it.
    fn start_rank(&mut self, who: RankGeneration) -> Result<(), DemoError> {
        let rank = who.0;
        let mut command = self.command(who)?;
        let started = self.processes.start(who, &mut command);
        started.map_err(|error| DemoError::file(std::path::Path::new("wv"), &error))?;
        if !self.link_fault(rank).is_empty() {
            self.excuses.processes.insert(who);
        }
        self.told_to_newcomer(rank);
        Ok(())
    }

    /// Returns the command that starts a process.
    fn command(&mut self, who: RankGeneration) -> Result<Command, DemoError> {
        let (rank, generation) = who;
        let (place, preload) = (&self.run.place, self.run.device.preload());
        let rails = self.run.spec.rails;
        let mut command = match &self.ranks.buffers {
            Some(buffers) => place.python(rank, rails, preload, buffers),
            None => place.command((rank, rails), preload)?,
        };
        if generation > 1 {
            command.arg("--joins");
        }
        let faults = self.ranks.faults.clone().unwrap_or_default() + &self.link_fault(rank);
        if !faults.is_empty() {
            command.env("SOFTHCA_FAULT", faults.trim_start_matches(','));
        }
        self.numbers.take(who);
        Ok(if self.ranks.spaces && has_own_space(rank) {
            spaces::in_own(&command)
        } else {
            command
        })
    }

    /// Tells a new process what the other processes have been told.
    fn told_to_newcomer(&mut self, rank: u32) {
        self.finished.remove(&rank);
        if let Some(last) = self.last {
            self.processes.instruct(rank, &Instruction::Last(last));
        }
        let now = Instant::now();
        self.store_faults.retain(|(until, _)| *until > now);
        for (until, fault) in self.store_faults.clone() {
            let ms = milliseconds(until.saturating_duration_since(now));
            let fault = StoreFault { ms, ..fault };
            self.processes.instruct(rank, &Instruction::Store(fault));
        }
    }

    /// Lets no packet pass to and from processes of `rank` until then.
    pub(super) fn loses_link(&mut self, rank: u32, until: Instant) {
        self.links.insert(rank, until);
    }

    /// Returns an item for `SOFTHCA_FAULT` if processes of `rank` have no link now, else an empty text.
    pub(super) fn link_fault(&self, rank: u32) -> String {
        let until = self.links.get(&rank);
        let left = until.map(|until| until.saturating_duration_since(Instant::now()));
        match left.map_or(0, milliseconds) {
            0 => String::new(),
            ms => format!(",partition=*@..{ms}ms"),
        }
    }

    /// Starts another process for `rank`, beside the one that runs.
    pub(super) fn start_rival(&mut self, rank: u32) -> Result<(), DemoError> {
        let before = self.numbers.newest(rank);
        let who = self.numbers.draw((rank, before));
        self.excuses.processes.extend([(rank, before), who]);
        let mut command = self.command(who)?;
        let started = self.processes.start_rival(who, &mut command);
        started.map_err(|error| DemoError::file(std::path::Path::new("wv"), &error))
    }

    /// Returns whether at most one process stands for `rank` now. If there are two, this ends the one that does not serve. If neither
    /// serves, with `at_last` it ends the second.
    pub(super) fn keeps_one(&mut self, rank: u32, at_last: bool) -> bool {
        let Some(rival) = self.processes.rival(rank) else {
            return true;
        };
        let first = self.processes.generation(rank);
        let serves = |generation: u32| self.views.contains_key(&(rank, generation));
        match first {
            Some(first) if serves(first) || at_last => {
                self.over.insert((rank, rival));
                self.processes.end_rival((rank, rival));
                true
            }
            Some(first) if serves(rival) => {
                self.over.insert((rank, first));
                self.processes.end_for_rival(rank);
                true
            }
            _ => false,
        }
    }

    /// Makes the rival of `rank`, if there is one, the process of the rank.
    pub(super) fn promote(&mut self, rank: u32) -> Option<RankGeneration> {
        let generation = self.processes.promote(rank)?;
        self.told_to_newcomer(rank);
        Some((rank, generation))
    }

    /// Tells programs of Python to take back the ranks that they mask before this call.
    pub(super) fn take_back(&mut self, step: u32) {
        self.processes.note_all(RecordKind::TakesBack { step });
        for rank in self.processes.running() {
            self.processes.instruct(rank, &Instruction::TakeBack(step));
        }
    }

    /// Disturbs the store of every rank, and of ranks that start meanwhile.
    pub(super) fn disturb_store(&mut self, fault: StoreFault) {
        let until = Instant::now() + Duration::from_millis(fault.ms);
        self.store_faults.push((until, fault));
        for rank in self.processes.running() {
            self.processes.instruct(rank, &Instruction::Store(fault));
        }
        self.be_lenient(until);
    }

    /// Excuses newcomers that end until a little after `until`, because the store keeps them out.
    pub(super) fn be_lenient(&mut self, until: Instant) {
        self.excuses.store_until(until + LENIENCE);
    }

    /// Excuses `who`, whose port goes down, perhaps before it has opened its HCA.
    pub(super) fn loses_port(&mut self, who: RankGeneration) {
        self.excuses.ports.insert(who);
    }

    /// Returns whether the end of `who` is no failure: it has not served yet, and a deed keeps it out.
    fn is_kept_out(&self, who: RankGeneration) -> bool {
        !self.views.contains_key(&who) && self.excuses.hold(who, Instant::now())
    }

    fn gives_up(&mut self, who: RankGeneration, message: String) {
        if self.over.insert(who) {
            let what = RecordKind::GaveUp { message };
            self.processes.note_of(unix_us(), who, what);
        }
    }

    /// Tells all ranks that this step is the last. Ranks that start later are told, too.
    pub(super) fn set_last(&mut self, step: u32) {
        self.last = Some(step);
        for rank in self.processes.running() {
            self.processes.instruct(rank, &Instruction::Last(step));
        }
    }

    /// Returns whether each of `ranks` has come to the last step.
    pub(super) fn all_at_last(&self, ranks: u32) -> bool {
        (0..ranks).all(|rank| self.finished.get(&rank).copied() == self.last)
    }

    /// Sends SIGKILL. Returns whether a process ran as `rank`.
    pub(super) fn kill(&mut self, rank: u32) -> bool {
        if let Some(generation) = self.processes.generation(rank) {
            self.over.insert((rank, generation));
        }
        self.processes.kill(rank)
    }

    /// Lets the next generation of a rank that is over start after `after`.
    pub(super) fn rejoin(&mut self, over: RankGeneration, after: Duration) {
        let who = self.numbers.draw(over);
        self.rejoins.push((Instant::now() + after, who));
    }

    /// Starts the processes whose time has come. Returns when the next is due.
    pub(super) fn start_again(&mut self) -> Result<Option<Instant>, DemoError> {
        let now = Instant::now();
        let due = self.rejoins.extract_if(.., |(at, _)| *at <= now);
        for (_, who) in due.collect::<Vec<_>>() {
            self.start_rank(who)?;
        }
        Ok(self.rejoins.iter().map(|(at, _)| *at).min())
    }

    /// Returns whether all living ranks are done and serve in a view of just them, and no rank is to come back. Ranks may be done before
    /// they have dropped a rank that died after its last step.
    pub(super) fn is_done(&self) -> bool {
        let living = self.processes.running();
        let done = |rank: &u32| {
            let generation = self.processes.generation(*rank);
            let view = generation.and_then(|generation| self.views.get(&(*rank, generation)));
            self.finished.contains_key(rank) && view == Some(&living)
        };
        self.rejoins.is_empty() && living.iter().all(done)
    }

    /// Returns the next news before `until`, or None if there is none.
    ///
    /// # Errors
    /// The failure of a rank, or its end when it should not end.
    pub(super) fn listen(&mut self, until: Instant) -> Result<Option<News>, DemoError> {
        let left = until.saturating_duration_since(Instant::now());
        let Some((who, heard)) = self.processes.next(left) else {
            return Ok(None);
        };
        let news = self.hear(who, heard);
        if self.failures.is_empty() {
            Ok(Some(news))
        } else {
            Err(self.failed())
        }
    }

    fn hear(&mut self, who: RankGeneration, heard: Heard) -> News {
        match heard {
            Heard::Told(line) => return self.told(who, &line),
            Heard::Said(line) => {
                log::pass_on(who.0, &line);
                self.said.insert(who.0, line);
            }
            Heard::Closed if self.processes.rival(who.0) == Some(who.1) => {
                self.over.insert(who);
                self.processes.end_rival(who);
            }
            Heard::Closed if !self.over.contains(&who) && self.is_kept_out(who) => {
                self.gives_up(who, "its process ended".to_owned());
                self.processes.reap(who.0, ENDING);
                return News::Ended(who);
            }
            Heard::Closed if !self.over.contains(&who) => {
                let status = self.processes.reap(who.0, ENDING);
                let status = status.map_or_else(String::new, |status| format!(": {status}"));
                self.fail(who.0, format!("its process ended{status}"));
            }
            Heard::Closed if self.processes.generation(who.0) == Some(who.1) => {
                if self.processes.reap(who.0, ENDING).is_none() {
                    self.fail(who.0, "its process was dropped and did not end".to_owned());
                }
                return News::Ended(who);
            }
            Heard::Closed => {}
        }
        News::Other
    }

    fn told(&mut self, who: RankGeneration, line: &str) -> News {
        let rank = who.0;
        match serde_json::from_str(line) {
            Ok(Message::Begins { step }) => return News::Begins(who, step),
            Ok(Message::Event(mut record)) => {
                self.generations.insert(rank, record.generation);
                // The story gives each process the number that it was started with.
                record.generation = who.1;
                match &record.what {
                    RecordKind::Expelled => drop(self.over.insert(who)),
                    RecordKind::Serves { members, .. } => {
                        drop(self.views.insert(who, members.clone()))
                    }
                    _ => {}
                }
                self.records.push(record);
            }
            Ok(Message::Finished { step }) => {
                self.finished.insert(rank, step);
            }
            Ok(Message::Failed { message, .. }) if self.is_kept_out(who) => {
                self.gives_up(who, message);
            }
            Ok(Message::Failed { .. }) if self.over.contains(&who) => {}
            Ok(Message::Failed { message, .. }) => self.fail(rank, message),
            Ok(Message::Joined { addresses, .. }) => return News::Addresses(who, addresses),
            Ok(Message::Verified { .. } | Message::Done(_)) => {}
            // The last line of a rank that was killed may be cut short.
            Err(_) if self.over.contains(&who) => {}
            Err(error) => self.fail(
                rank,
                format!("wrote a line that is no message ({error}): {line}"),
            ),
        }
        News::Other
    }

    /// Returns the newest generation under which `rank` was heard of in its group.
    pub(super) fn group_generation(&self, rank: u32) -> u32 {
        self.generations.get(&rank).copied().unwrap_or(1)
    }

    /// Returns whether `record` is of another generation than the one that runs.
    pub(super) fn is_over(&self, record: &Record) -> bool {
        !record.what.is_done_to()
            && self.processes.generation(record.rank) != Some(record.generation)
    }

    /// Notes why a rank has failed. Only its first failure counts.
    pub(super) fn fail(&mut self, rank: u32, message: String) {
        if let Entry::Vacant(first) = self.failures.entry(rank) {
            let what = RecordKind::Failed {
                message: message.clone(),
            };
            first.insert(message);
            self.processes.note(rank, what);
        }
    }

    /// Returns the error that ends the run: these verdicts, and the failures of ranks.
    pub(super) fn judged(&self, verdicts: &[String]) -> DemoError {
        let words = |(rank, message): (&u32, &String)| format!("rank {rank}: {message}");
        let mut messages = verdicts.to_vec();
        messages.extend(self.failures.iter().map(words));
        DemoError::Ranks { messages }
    }

    /// Returns the error of all failures so far.
    pub(super) fn failed(&self) -> DemoError {
        let words = |(rank, message): (&u32, &String)| match self.said.get(rank) {
            Some(said) => format!("rank {rank}: {message} ({said})"),
            None => format!("rank {rank}: {message}"),
        };
        DemoError::Ranks {
            messages: self.failures.iter().map(words).collect(),
        }
    }

    /// Lets all ranks that live end, because they are done.
    pub(super) fn end(&mut self) -> Result<(), DemoError> {
        let living = self.processes.running();
        for &rank in &living {
            self.processes.close(rank);
        }
        for rank in living {
            match self.processes.reap(rank, ENDING) {
                Some(status) if status.success() => {}
                Some(status) => self.fail(rank, format!("its process ended: {status}")),
                None => self.fail(rank, "its process did not end".to_owned()),
            }
        }
        // These records came while the ranks ended.
        while let Some((who, heard)) = self.processes.next(Duration::ZERO) {
            if let Heard::Told(line) = heard {
                self.told(who, &line);
            }
        }
        if self.failures.is_empty() {
            Ok(())
        } else {
            Err(self.failed())
        }
    }

    /// Returns all deeds and records so far, in the order of their times.
    pub(super) fn story(&self) -> Vec<Record> {
        let mut records = self.records.clone();
        records.extend_from_slice(self.processes.deeds());
        records.sort_by_key(|record| record.us);
        records
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_processes_for_one_place_have_two_numbers_whichever_starts_first() {
        let mut numbers = Numbers::default();
        numbers.take((4, 1));
        let comes_back = numbers.draw((4, 1));
        let rival = numbers.draw((4, numbers.newest(4)));
        assert_eq!([comes_back, rival], [(4, 2), (4, 3)]);
        numbers.take(rival);
        numbers.take(comes_back);
        assert_eq!(numbers.draw(comes_back), (4, 4));
        // A rank of which no number is known is a founder.
        assert_eq!(numbers.draw((1, numbers.newest(1))), (1, 2));
    }

    #[test]
    fn a_newcomer_is_excused_by_the_store_for_a_time_and_by_its_own_port() {
        let (mut excuses, now) = (Excuses::default(), Instant::now());
        assert!(!excuses.hold((2, 5), now));
        excuses.ports.insert((2, 5));
        assert!(excuses.hold((2, 5), now));
        assert!(!excuses.hold((1, 5), now) && !excuses.hold((2, 6), now));
        excuses.store_until(now + LENIENCE);
        excuses.store_until(now);
        assert!(excuses.hold((1, 5), now + LENIENCE));
        assert!(!excuses.hold((1, 5), now + 2 * LENIENCE));
        // No excuse holds for a founder, which has served.
        assert!(!excuses.hold((1, 1), now));
    }
}
