//! `wv chaos`: deeds are done at random, by a seed, to rank processes that dispatch and combine.

use std::collections::BTreeMap;
use std::io::{BufWriter, Write as _};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::acts::Acts;
use super::checker;
use super::deeds::{Deeds, Kind};
use super::fleet::{Fleet, News, Ranks, milliseconds};
use super::options::ChaosOptions;
use super::processes::RankGeneration;
use super::program;
use super::publish::publish;
use super::tokens::{Judged, Tokens};
use super::verdict;
use super::watch::Watch;
use crate::data::input::Inputs;
use crate::error::DemoError;
use crate::launch::Buffers;
use crate::rank::member;
use crate::record::{Record, RecordKind};
use crate::run::{Run, exit_code};
use warpverbs_cli::etcd::Etcd;

/// How long after a rank was dropped the story is judged.
const JUDGE: Duration = Duration::from_secs(2);
/// The time between two looks at what is overdue.
const LOOK: Duration = Duration::from_millis(50);
/// The number of steps that all ranks make together at the end, besides those of [`HEAR`].
const LAST_STEPS: u32 = 50;
/// The time for every rank to hear which step is the last, in seconds.
const HEAR: f64 = 2.0;
/// As `HEAR`, while no rank is away.
const HEAR_SOON: f64 = 0.5;
/// The most calls by which ranks may differ to take each other back, and how long a rank that is further behind may take to catch up.
const NEAR: u32 = 20;
const CATCH_UP: Duration = Duration::from_secs(10);
/// The longest time for the last steps.
const LAST: Duration = Duration::from_secs(120);

/// Runs `wv chaos` and prints what the deeds cost.
#[must_use]
pub fn run(options: &ChaosOptions) -> std::process::ExitCode {
    if let Some(story) = &options.judge {
        return exit_code("wv chaos", &checker::run(story, !options.tokens_not_judged));
    }
    let ended = run_to_the_end(options);
    exit_code(&format!("wv chaos: seed {}", options.seed), &ended)
}

fn run_to_the_end(options: &ChaosOptions) -> Result<(), DemoError> {
    let demo = options.demo()?;
    if let Some(program) = &options.program {
        return program::run(&options.drive(program));
    }
    let inputs = Inputs::load(&demo)?;
    let mut run = Run::prepare(&demo)?;
    run.spec.membership = true;
    run.spec.deadline_ms = options.deadline;
    run.spec.rails = options.rails;
    let (kinds, spaces) = options.possible()?;
    let ranks = Ranks {
        faults: (options.loss > 0.0).then(|| options.faults()),
        spaces,
        buffers: options.buffer.map(|kind| Buffers {
            python: options.python.clone(),
            name: kind.module().to_owned(),
        }),
    };
    let lease = member::lease(options.deadline);
    let at_once = options.at_once.map(usize::from);
    let etcd = options
        .etcd
        .map(|servers| Etcd::start(&options.etcd_program, servers, run.place.path()));
    let etcd = etcd.transpose()?;
    if let Some(etcd) = &etcd {
        run.spec.store = etcd.url();
    }
    let acts = Acts::new(&run, etcd, options.faults())?;
    let mut chaos = Chaos {
        options,
        fleet: Fleet::start(&run, inputs.ranks, ranks)?,
        deeds: Deeds::new(options.seed, &kinds, lease, at_once)
            .with_deadline(Duration::from_millis(options.deadline))
            .with_rails(options.rails)
            .with_longest_pause(options.longest_pause.map(Duration::from_secs_f64)),
        acts,
        watch: Watch::new(options.patience()),
        addresses: vec![Vec::new(); inputs.ranks as usize],
        rivals: BTreeMap::new(),
        seen: (0, 0),
        judge_at: None,
        masks: Masks::default(),
        began: Instant::now(),
        bar: bar(),
    };
    let plan = RecordKind::Plan {
        ranks: inputs.ranks,
        lease_ms: milliseconds(lease),
        deadline_ms: options.deadline,
        masks: options.buffer.is_some(),
    };
    chaos.fleet.processes.note_all(plan);
    let ended = chaos.run().and_then(|()| chaos.judge());
    chaos.bar.finish_and_clear();
    let records = chaos.fleet.story();
    let judged = if options.tokens_not_judged {
        Ok(())
    } else {
        judged(&records)
    };
    match &options.story {
        Some(path) => std::fs::File::create(path)
            .and_then(|file| write_story(file, &records))
            .map_err(|error| DemoError::file(path, &error))?,
        // The seed alone does not bring a failed run back, because the times differ. So its story is kept.
        None if ended.is_err() || judged.is_err() => keep_story(options.seed, &records)?,
        None => {}
    }
    publish(&records, options.timeline.as_deref(), options.json, ended)?;
    judged
}

/// Judges the tokens of a whole run.
fn judged(records: &[Record]) -> Result<(), DemoError> {
    match Tokens::of(records).map(|tokens| tokens.judged()) {
        None | Some(Judged::Good) => Ok(()),
        Some(Judged::Starved { calls, of }) => Err(DemoError::NotJudged { calls, of }),
        Some(Judged::Lost(lost)) => Err(DemoError::Ranks {
            messages: verdict::of_tokens(&lost)
                .iter()
                .map(ToString::to_string)
                .collect(),
        }),
    }
}

/// When ranks that mask each other last took their masked ranks back.
#[derive(Debug, Default)]
struct Masks {
    /// The number of deeds that were done by then.
    deeds: u32,
    /// The call before which they took them back.
    back_at: u32,
    /// The time since which no deed is under way and no rank is behind.
    since: Option<Instant>,
}

/// A run of `wv chaos`.
struct Chaos<'a> {
    options: &'a ChaosOptions,
    fleet: Fleet<'a>,
    deeds: Deeds,
    acts: Acts,
    watch: Watch,
    /// The addresses of each rank's HCAs, by rail.
    addresses: Vec<Vec<String>>,
    /// The addresses of second processes for a rank, which may become the rank.
    rivals: BTreeMap<RankGeneration, Vec<String>>,
    /// How many records of the ranks, and how many deeds, the watch has seen.
    seen: (usize, usize),
    /// The time at which the story so far is to be judged.
    judge_at: Option<Instant>,
    masks: Masks,
    began: Instant,
    bar: ProgressBar,
}

impl Chaos<'_> {
    fn run(&mut self) -> Result<(), DemoError> {
        let ranks = self.options.ranks;
        // All ranks must serve before the first deed.
        self.until_all_serve()?;
        self.began = Instant::now();
        let end = self.began + Duration::from_secs_f64(self.options.minutes * 60.0);
        let mut next = self.began + self.deeds.pause();
        while Instant::now() < end && self.options.deeds.is_none_or(|most| self.acts.done < most) {
            if Instant::now() >= next {
                let calm = self.watch.calm().into_iter();
                let calm: Vec<u32> = calm.filter(|rank| !self.acts.is_looping(*rank)).collect();
                if self.are_masked() {
                    // With a Buffer, a deed begins only when all ranks are whole.
                } else if let Some(deed) = self.deeds.next(&calm, ranks, self.acts.under_way()) {
                    let acts = &mut self.acts;
                    acts.begin(&mut self.fleet, &self.addresses, ranks, deed)?;
                }
                next = Instant::now() + self.deeds.pause();
            }
            self.turn(next.min(end))?;
        }
        let end = Instant::now() + LAST;
        loop {
            self.settle()?;
            let last = self.last_step();
            self.fleet.set_last(last);
            // A rank that is dropped only now comes back, and then all make some more steps.
            while self.watch.calm().len() == ranks as usize {
                if self.fleet.all_at_last(ranks) {
                    return self.fleet.end();
                }
                self.turn(end)?;
                if Instant::now() >= end {
                    let finished = self.fleet.finished.clone();
                    let late = (0..ranks).find(|rank| finished.get(rank) != Some(&last));
                    let words = format!("it does not come to step {last}");
                    self.fleet.fail(late.unwrap_or(0), words);
                    return Err(self.fleet.failed());
                }
            }
        }
    }

    /// Waits without new deeds until all ranks serve. The watch bounds how long that takes.
    fn until_all_serve(&mut self) -> Result<(), DemoError> {
        while self.watch.calm().len() < self.options.ranks as usize {
            self.turn(Instant::now() + LOOK)?;
        }
        Ok(())
    }

    /// Waits until all ranks serve in one view that parts none of them, and the last deed has no consequences any more.
    fn settle(&mut self) -> Result<(), DemoError> {
        let late = match self.options.kinds()[..] {
            [Kind::Kills] => Duration::ZERO,
            // A rank that waits in vain reports that after a deadline. After five more deadlines the wait counts.
            _ => Duration::from_millis(self.options.deadline * 6),
        };
        let mut since = Instant::now();
        loop {
            self.turn(Instant::now() + LOOK)?;
            let ranks = self.options.ranks;
            let calm = self.watch.calm().len() == ranks as usize;
            let quiet = self.acts.under_way() == 0 && calm && !self.are_masked();
            if !quiet || !self.watch.is_whole(ranks) {
                since = Instant::now();
                self.judge_at.get_or_insert(since + JUDGE);
            } else if since.elapsed() >= late {
                return Ok(());
            }
        }
    }

    /// Returns whether some ranks may mask others: a deed was done, and the ranks have not taken all back since.
    fn are_masked(&self) -> bool {
        let back = self.masks.back_at;
        let open = self.masks.deeds < self.acts.done || self.watch.oldest_step() < back;
        self.options.buffer.is_some() && open
    }

    /// Tells programs of Python to take back the ranks that they mask, all before one call, once no deed is under way and no rank is
    /// behind.
    fn take_back(&mut self) {
        if self.options.buffer.is_none() || self.masks.deeds == self.acts.done {
            return;
        }
        let ranks = self.options.ranks as usize;
        if self.acts.under_way() > 0 || self.watch.calm().len() < ranks {
            self.masks.since = None;
            return;
        }
        let since = *self.masks.since.get_or_insert_with(Instant::now);
        let behind = self.watch.newest_step() - self.watch.oldest_step();
        if behind > NEAR && since.elapsed() < CATCH_UP {
            return;
        }
        self.masks = Masks {
            deeds: self.acts.done,
            back_at: self.step_in(HEAR_SOON, NEAR),
            since: None,
        };
        self.fleet.take_back(self.masks.back_at);
    }

    /// Returns a step that no rank will have made by the time that all ranks have heard of it.
    fn last_step(&self) -> u32 {
        self.step_in(HEAR, LAST_STEPS)
    }

    /// Returns the step that is `steps` steps after the one that ranks will have made in `seconds` seconds.
    fn step_in(&self, seconds: f64, steps: u32) -> u32 {
        let newest = self.watch.newest_step();
        let rate = f64::from(newest) / self.began.elapsed().as_secs_f64().max(0.1);
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "saturates"
        )]
        let more = (rate * seconds) as u32;
        newest.saturating_add(more).saturating_add(steps)
    }

    /// Listens until something is to be done, at most until `until`, and checks that nothing forbidden has happened.
    fn turn(&mut self, until: Instant) -> Result<(), DemoError> {
        self.acts.turn(&mut self.fleet)?;
        self.take_back();
        let rejoin = self.fleet.start_again()?;
        let now = Instant::now();
        if self.judge_at.is_some_and(|at| at <= now) {
            self.judge_at = None;
            self.judge()?;
        }
        let next = [rejoin, self.acts.next(), Some(now + LOOK)]
            .into_iter()
            .flatten();
        let next = next.fold(until, Instant::min);
        match self.fleet.listen(next)? {
            Some(News::Ended(who)) => match self.fleet.promote(who.0) {
                Some(rival) => {
                    if let Some(addresses) = self.rivals.remove(&rival) {
                        self.addresses[rival.0 as usize] = addresses;
                    }
                    self.replay(rival)?;
                }
                None => {
                    let back = self.deeds.back();
                    self.fleet.rejoin(who, back);
                }
            },
            Some(News::Addresses(who, addresses)) => {
                if self.fleet.processes.generation(who.0) == Some(who.1) {
                    self.addresses[who.0 as usize] = addresses
                } else {
                    drop(self.rivals.insert(who, addresses))
                }
            }
            _ => {}
        }
        self.look()
    }

    /// Shows the watch the records of a process from before it became the rank.
    fn replay(&mut self, who: RankGeneration) -> Result<(), DemoError> {
        self.look()?;
        let said = |record: &&Record| (record.rank, record.generation) == who;
        for record in self.fleet.records.iter().filter(said) {
            // The views of these steps were checked with the others' steps, or are checked with the next step of the process.
            let _ = self.watch.see(record, Instant::now());
        }
        Ok(())
    }

    /// Judges the story so far, and ends the run if it has something forbidden.
    fn judge(&self) -> Result<(), DemoError> {
        let verdicts = verdict::of(&self.fleet.story());
        if verdicts.is_empty() {
            Ok(())
        } else {
            let words = verdicts.iter().map(ToString::to_string);
            Err(self.fleet.judged(&words.collect::<Vec<_>>()))
        }
    }

    /// Shows the watch the new records and deeds.
    fn look(&mut self) -> Result<(), DemoError> {
        let now = Instant::now();
        let (records, deeds) = (&self.fleet.records, self.fleet.processes.deeds());
        let new = deeds[self.seen.1..].iter().chain(&records[self.seen.0..]);
        let mut wrong = Vec::new();
        for record in new {
            // True if the record is of a generation that is over.
            let stale = self.fleet.is_over(record);
            // The judgement waits a moment, in which the others say why they dropped the rank.
            if record.what == RecordKind::Expelled {
                self.judge_at.get_or_insert(now + JUDGE);
            }
            if !stale && let Err(words) = self.watch.see(record, now) {
                wrong.push((record.rank, words));
            }
        }
        self.seen = (records.len(), deeds.len());
        // A rank that has made the last step waits for the others, and so is not overdue.
        let overdue = self.watch.overdue(now);
        if let Some((rank, words)) =
            overdue.filter(|(rank, _)| !self.fleet.finished.contains_key(rank))
        {
            let threads = self.fleet.processes.threads(rank);
            wrong.push((rank, format!("{words}; its threads: {threads}")));
        }
        let time = self.began.elapsed().as_secs();
        let line = self.watch.line(self.options.ranks);
        self.bar
            .set_message(format!("{time} s  {line}  done {}", self.acts.done));
        if wrong.is_empty() {
            Ok(())
        } else {
            for (rank, words) in wrong {
                self.fleet.fail(rank, words);
            }
            Err(self.fleet.failed())
        }
    }
}

/// Writes the story of a failed run to a new file, and prints where it is.
fn keep_story(seed: u64, records: &[Record]) -> Result<(), DemoError> {
    let name = format!("warpverbs-chaos-{seed}-{}.jsonl", std::process::id());
    let path = std::env::temp_dir().join(name);
    std::fs::File::create_new(&path)
        .and_then(|file| write_story(file, records))
        .map_err(|error| DemoError::file(&path, &error))?;
    eprintln!("wv chaos: the story of this run is in {}", path.display());
    Ok(())
}

/// Writes the records, one JSON object a line.
fn write_story(file: std::fs::File, records: &[Record]) -> std::io::Result<()> {
    let mut file = BufWriter::new(file);
    for record in records {
        serde_json::to_writer(&mut file, record)?;
        file.write_all(b"\n")?;
    }
    file.flush()
}

/// Returns a progress bar of one line on standard error, which shows only on a terminal.
fn bar() -> ProgressBar {
    let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
    bar.with_style(ProgressStyle::with_template("{msg}").expect("a valid template"))
}
