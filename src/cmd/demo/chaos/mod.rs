//! `wv demo --kill`: rank processes are killed under running steps, and the others go on; with `--rejoin-after` another process
//! takes the place.
//!
//! Every step of every rank is checked against the reference for what its own report says of the other ranks. What happens to
//! whom is collected as records, which the final table and `--timeline` are made of.

mod event;
mod figures;
mod plan;
mod processes;
mod timeline;

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant, SystemTime};

pub(super) use event::{Record, What};
use figures::Figures;
pub use plan::Kill;
use processes::{Heard, Incarnation, Processes};

use super::input::Inputs;
use super::messages::Message;
use super::{DemoError, DemoOptions, Run};

/// A rank that is done ends within this time.
const ENDING: Duration = Duration::from_secs(10);
/// Longest `--rejoin-after`, in seconds.
const MOST_AFTER: f64 = 3600.0;

/// Microseconds since 1970: the clock that processes of a machine share.
pub(super) fn unix_us() -> u64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    now.map_or(0, |time| {
        u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
    })
}

/// How the ranks are.
struct Ranks<'a> {
    run: &'a Run,
    kills: Vec<Kill>,
    killed: BTreeSet<Incarnation>,
    /// After a death, until its place is taken again.
    rejoin_after: Option<Duration>,
    rejoins: Vec<(Instant, Incarnation)>,
    finished: BTreeSet<u32>,
    /// The first failure of each.
    failures: BTreeMap<u32, String>,
    said: BTreeMap<u32, String>,
    records: Vec<Record>,
}

/// Runs the demo with its kills, and prints what it cost.
pub(super) fn run(options: &DemoOptions, inputs: &Inputs) -> Result<(), DemoError> {
    check(options, inputs)?;
    let run = Run::prepare(options)?;
    run.place.write(&run.spec)?;
    let mut processes = Processes::new(Instant::now());
    let mut ranks = Ranks {
        run: &run,
        kills: options.kill.clone(),
        killed: BTreeSet::new(),
        rejoin_after: options.rejoin_after.map(Duration::from_secs_f64),
        rejoins: Vec::new(),
        finished: BTreeSet::new(),
        failures: BTreeMap::new(),
        said: BTreeMap::new(),
        records: Vec::new(),
    };
    for rank in 0..inputs.ranks {
        ranks.start((rank, 1), &mut processes)?;
    }
    ranks.watch(&mut processes, run.limit)?;
    ranks.end(&mut processes)?;
    let mut records = ranks.records;
    records.extend_from_slice(processes.deeds());
    records.sort_by_key(|record| record.us);
    if let Some(path) = &options.timeline {
        std::fs::write(path, timeline::svg(&records))
            .map_err(|error| DemoError::file(path, &error))?;
    }
    let figures = Figures::of(&records);
    if options.json {
        println!("{}", serde_json::to_string(&figures).expect("numbers"));
    } else {
        print!(
            "every step on every rank equals the scalar reference for who was there, bit for bit\n\n{}",
            figures.table()
        );
    }
    Ok(())
}

/// Refuses a kill of nobody, and one that never comes.
fn check(options: &DemoOptions, inputs: &Inputs) -> Result<(), DemoError> {
    if inputs.config.format != crate::moe::Format::Bf16 {
        let why = "--kill compares bit for bit, and so takes BF16 tokens only";
        return Err(DemoError::Option(why.to_owned()));
    }
    if let Some(after) = options.rejoin_after
        && !(0.0..=MOST_AFTER).contains(&after)
    {
        return Err(DemoError::Option(format!(
            "--rejoin-after {after}: it must be 0 to {MOST_AFTER} seconds"
        )));
    }
    let mut victims = BTreeSet::new();
    for kill in &options.kill {
        let Kill { rank, step } = *kill;
        let (ranks, steps) = (inputs.ranks, options.steps);
        if rank >= ranks || step == 0 || step > steps || !victims.insert(rank) {
            return Err(DemoError::Option(format!(
                "--kill {rank}@{step}: ranks are 0 to {}, each dies once, steps are 1 to {steps}",
                ranks - 1
            )));
        }
    }
    match victims.len() < inputs.ranks as usize {
        true => Ok(()),
        false => Err(DemoError::Option("--kill leaves nobody".to_owned())),
    }
}

impl Ranks<'_> {
    /// Starts a process, which founds the group or, as a later incarnation, joins it.
    fn start(&self, who: Incarnation, processes: &mut Processes) -> Result<(), DemoError> {
        let (rank, generation) = who;
        let mut command = self.run.place.command(rank, self.run.device.preload())?;
        if generation > 1 {
            command.arg("--joins");
        }
        let started = processes.start(who, &mut command);
        started.map_err(|error| DemoError::file(std::path::Path::new("wv"), &error))
    }

    /// Starts those whose time has come, and says when the next comes.
    fn start_again(&mut self, processes: &mut Processes) -> Result<Option<Instant>, DemoError> {
        let now = Instant::now();
        let due = self.rejoins.extract_if(.., |(at, _)| *at <= now);
        for (_, who) in due.collect::<Vec<_>>() {
            self.start(who, processes)?;
        }
        Ok(self.rejoins.iter().map(|(at, _)| *at).min())
    }

    /// Listens, kills and starts again until all that live are done.
    fn watch(&mut self, processes: &mut Processes, limit: Duration) -> Result<(), DemoError> {
        let end = Instant::now() + limit;
        loop {
            let next = self.start_again(processes)?;
            let running = processes.running();
            if next.is_none() && running.iter().all(|rank| self.finished.contains(rank)) {
                return Ok(());
            }
            let until = next.map_or(end, |next| next.min(end));
            let left = until.saturating_duration_since(Instant::now());
            let Some((who, heard)) = processes.next(left) else {
                if Instant::now() < end {
                    continue;
                }
                return Err(DemoError::Timeout {
                    seconds: limit.as_secs(),
                    progress: format!(
                        "ranks {:?} are done, {:?} were killed",
                        self.finished, self.killed
                    ),
                });
            };
            match heard {
                Heard::Told(line) => self.hear(who, &line, processes),
                Heard::Said(line) => {
                    self.said.insert(who.0, line);
                }
                Heard::Closed if !self.killed.contains(&who) => {
                    self.fail(who.0, "its process ended".to_owned());
                }
                Heard::Closed => {}
            }
            if !self.failures.is_empty() {
                return Err(self.failed());
            }
        }
    }

    fn hear(&mut self, who: Incarnation, line: &str, processes: &mut Processes) {
        let (rank, generation) = who;
        match serde_json::from_str(line) {
            Ok(Message::Begins { step }) => {
                let due = |kill: &Kill| kill.rank == rank && kill.step <= step;
                if let Some(place) = self.kills.iter().position(due) {
                    self.kills.swap_remove(place);
                    self.killed.insert(who);
                    processes.kill(rank);
                    if let Some(after) = self.rejoin_after {
                        let next = (rank, generation + 1);
                        self.rejoins.push((Instant::now() + after, next));
                    }
                }
            }
            Ok(Message::Event(record)) => self.records.push(record),
            Ok(Message::Finished) => {
                self.finished.insert(rank);
            }
            Ok(Message::Failed { message, .. }) => self.fail(rank, message),
            Ok(Message::Joined { .. } | Message::Verified { .. } | Message::Done(_)) => {}
            // A rank that was killed may have been cut short.
            Err(_) if self.killed.contains(&who) => {}
            Err(error) => self.fail(
                rank,
                format!("told something that is no message ({error}): {line}"),
            ),
        }
    }

    fn fail(&mut self, rank: u32, message: String) {
        self.failures.entry(rank).or_insert(message);
    }

    fn failed(&self) -> DemoError {
        let words = |(rank, message): (&u32, &String)| match self.said.get(rank) {
            Some(said) => format!("rank {rank}: {message} ({said})"),
            None => format!("rank {rank}: {message}"),
        };
        DemoError::Ranks {
            messages: self.failures.iter().map(words).collect(),
        }
    }

    /// Lets all that are done end.
    fn end(&mut self, processes: &mut Processes) -> Result<(), DemoError> {
        let living = processes.running();
        for &rank in &living {
            processes.close(rank);
        }
        for rank in living {
            match processes.reap(rank, ENDING) {
                Some(status) if status.success() => {}
                Some(status) => self.fail(rank, format!("its process ended: {status}")),
                None => self.fail(rank, "its process did not end".to_owned()),
            }
        }
        // What they told meanwhile.
        while let Some((who, heard)) = processes.next(Duration::ZERO) {
            if let Heard::Told(line) = heard {
                self.hear(who, &line, processes);
            }
        }
        match self.failures.is_empty() {
            true => Ok(()),
            false => Err(self.failed()),
        }
    }
}
