//! `wv chaos`: things go wrong at random, by a seed, while rank processes dispatch and combine.

use std::io::{BufWriter, Write as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::ValueEnum as _;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::super::input::Inputs;
use super::super::{DemoError, DemoOptions, Run, exit_code, member};
use super::acts::Acts;
use super::checker;
use super::deeds::{ALL, Deeds, Kind, SHORTEST_PAUSE};
use super::event::{Record, RecordKind};
use super::fleet::{Fleet, News, milliseconds};
use super::program::{self, Drive};
use super::publish;
use super::verdict;
use super::watch::Watch;
use crate::cmd::etcd::Etcd;
use crate::cmd::time;

/// What happens is judged so much later.
const JUDGE: Duration = Duration::from_secs(2);
/// Between two looks at what is overdue.
const LOOK: Duration = Duration::from_millis(50);
/// Steps that all make together at the end, besides those of [`HEAR`].
const LAST_STEPS: u32 = 50;
/// Time for every rank to hear which step is the last.
const HEAR: f64 = 2.0;
/// Most software HCAs of a rank.
const MOST_RAILS: u32 = 4;
/// Longest run, in minutes.
const MOST_MINUTES: f64 = 24.0 * 60.0;
/// Longest time that all may be asked to stand still, in seconds.
const MOST_PAUSE: f64 = 600.0;
/// Longest time for the last steps.
const LAST: Duration = Duration::from_secs(120);

/// Options of `wv chaos`.
#[derive(clap::Args, Clone, Debug)]
pub struct ChaosOptions {
    /// Rank processes, 3 to 64
    #[arg(long, default_value_t = 6)]
    ranks: u32,
    /// Time in which the command does its deeds, in minutes
    #[arg(long, default_value_t = 1.0)]
    minutes: f64,
    /// End after so many deeds, if that is earlier
    #[arg(long, value_name = "COUNT")]
    deeds: Option<u32>,
    /// Seed of the deeds and of the ranks that they hit
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Packets that are lost, in percent
    #[arg(long, value_name = "PERCENT", default_value_t = 0.0)]
    loss: f64,
    /// Do only deeds of this kind; may be given several times
    #[arg(long, value_enum)]
    only: Vec<Kind>,
    /// Only kill ranks
    #[arg(long, conflicts_with = "only")]
    kills_only: bool,
    /// Most deeds at once, which leave two ranks alone; without it most ranks are always left alone
    #[arg(long, value_name = "COUNT")]
    at_once: Option<u16>,
    /// Longest time in which all processes stand still, at most 600. Times are drawn from 0.1 s on, short and long alike. Without
    /// it they last up to 6 s
    #[arg(long, value_name = "SECONDS")]
    longest_pause: Option<f64>,
    /// Software HCAs of each rank, 1 to 4
    #[arg(long, default_value_t = 1)]
    rails: u32,
    /// Let the ranks meet in an etcd of 1 or 3 servers that the command starts; without it in a directory, which has no server
    #[arg(long, value_name = "SERVERS")]
    etcd: Option<u16>,
    /// The program of those servers
    #[arg(
        long,
        value_name = "PROGRAM",
        default_value = "etcd",
        requires = "etcd"
    )]
    etcd_program: PathBuf,
    /// Longest wait of a device call, in milliseconds, 50 to 60,000
    #[arg(long, default_value_t = 500)]
    deadline: u64,
    /// Longest time without a step of a rank; a longer one fails the run [default: 30; 120 with --program]
    #[arg(long, value_name = "SECONDS", value_parser = time::seconds())]
    patience: Option<u64>,
    /// Tokens of each rank in each step
    #[arg(long, default_value_t = 16)]
    tokens: u32,
    /// BF16 elements of a token, a multiple of 8
    #[arg(long, default_value_t = 128)]
    hidden: u32,
    /// Kill the ranks of this program of Python, one after the other, --deeds times [default with it: 20]. The program must report
    /// what its ranks do as python/examples/elastic.py does
    #[arg(long, value_name = "FILE.py", conflicts_with_all = NOT_OF_PROGRAMS)]
    program: Option<PathBuf>,
    /// The Python that has warpverbs and torch
    #[arg(
        long,
        value_name = "PROGRAM",
        default_value = "python3",
        requires = "program"
    )]
    python: PathBuf,
    /// Draw the state of each rank over time
    #[arg(long, value_name = "FILE.svg")]
    timeline: Option<PathBuf>,
    /// Write every deed and every report of a rank, one JSON object a line. A run that fails writes them in any case, to a new file
    #[arg(long, value_name = "FILE.jsonl")]
    story: Option<PathBuf>,
    /// Judge the story of an earlier run, and do nothing else
    #[arg(long, value_name = "FILE.jsonl", exclusive = true)]
    judge: Option<PathBuf>,
    /// The figures as one JSON object on stdout; everything else goes to stderr
    #[arg(long)]
    json: bool,
}

/// Options of which programs of Python know nothing.
const NOT_OF_PROGRAMS: [&str; 12] = [
    "minutes",
    "only",
    "kills_only",
    "at_once",
    "longest_pause",
    "rails",
    "etcd",
    "deadline",
    "tokens",
    "hidden",
    "timeline",
    "story",
];
/// Longest wait for the next step of a rank, and for that of a program of Python, whose ranks import torch when they come back.
const PATIENCE: u64 = 30;
const PATIENCE_OF_PROGRAMS: u64 = 120;
/// Deaths in a program of Python.
const DEATHS: u32 = 20;

/// Runs it and prints what it cost.
#[must_use]
pub fn run(options: &ChaosOptions) -> std::process::ExitCode {
    if let Some(story) = &options.judge {
        return exit_code("wv chaos", &checker::run(story));
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
    let faults = (options.loss > 0.0).then(|| options.faults());
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
        fleet: Fleet::start(&run, inputs.ranks, faults)?,
        deeds: Deeds::new(options.seed, &options.kinds(), lease, at_once)
            .with_rails(options.rails)
            .with_longest_pause(options.longest_pause.map(Duration::from_secs_f64)),
        acts,
        watch: Watch::new(Duration::from_secs(
            options.patience.unwrap_or(PATIENCE).max(1),
        )),
        addresses: vec![Vec::new(); inputs.ranks as usize],
        seen: (0, 0),
        judge_at: None,
        began: Instant::now(),
        bar: bar(),
    };
    let plan = RecordKind::Plan {
        ranks: inputs.ranks,
        lease_ms: milliseconds(lease),
    };
    chaos.fleet.processes.note_all(plan);
    let ended = chaos.run().and_then(|()| chaos.judge());
    chaos.bar.finish_and_clear();
    let records = chaos.fleet.story();
    match &options.story {
        Some(path) => std::fs::File::create(path)
            .and_then(|file| write_story(file, &records))
            .map_err(|error| DemoError::file(path, &error))?,
        // The same seed meets other times: a run that fails is not had again.
        None if ended.is_err() => keep_story(options.seed, &records)?,
        None => {}
    }
    publish(&records, options.timeline.as_deref(), options.json, ended)
}

impl ChaosOptions {
    fn demo(&self) -> Result<DemoOptions, DemoError> {
        let refused = |words: String| Err(DemoError::Option(words));
        if self.ranks < 3 {
            return refused(format!("--ranks is {}; it must be 3 to 64", self.ranks));
        }
        if !(0.0..=50.0).contains(&self.loss) {
            return refused(format!(
                "--loss is {}; it must be 0 to 50 percent",
                self.loss
            ));
        }
        if !(0.0..=MOST_MINUTES).contains(&self.minutes) {
            let minutes = self.minutes;
            return refused(format!(
                "--minutes is {minutes}; it must be 0 to {MOST_MINUTES}"
            ));
        }
        if self.at_once == Some(0) {
            return refused("--at-once is 0; it must be at least 1".to_owned());
        }
        if let Some(seconds) = self.longest_pause
            && !(SHORTEST_PAUSE.as_secs_f64()..=MOST_PAUSE).contains(&seconds)
        {
            return refused(format!(
                "--longest-pause is {seconds}; it must be 0.1 to {MOST_PAUSE} seconds"
            ));
        }
        if let Some(servers) = self.etcd.filter(|servers| ![1, 3].contains(servers)) {
            return refused(format!("--etcd is {servers}; it must be 1 or 3"));
        }
        if !(1..=MOST_RAILS).contains(&self.rails) {
            let rails = self.rails;
            return refused(format!("--rails is {rails}; it must be 1 to {MOST_RAILS}"));
        }
        if self.rails == 1 && self.only.contains(&Kind::Rail) {
            return refused(
                "--only rail is not possible where ranks have one rail; add --rails 2".to_owned(),
            );
        }
        let has = self.etcd.unwrap_or(0);
        if let Some(kind) = self.only.iter().find(|kind| kind.servers() > has) {
            let name = kind.to_possible_value();
            let name = name.as_ref().map_or("", |name| name.get_name());
            let (store, least) = match has {
                0 => (
                    "in a directory, which has no server".to_owned(),
                    kind.servers(),
                ),
                _ => (format!("in an etcd of {has}"), kind.servers()),
            };
            return refused(format!(
                "--only {name} is not possible where ranks meet {store}; add --etcd {least}"
            ));
        }
        if !(50..=60_000).contains(&self.deadline) {
            let deadline = self.deadline;
            return refused(format!(
                "--deadline is {deadline}; it must be 50 to 60000 ms"
            ));
        }
        Ok(DemoOptions {
            ranks: self.ranks,
            tokens: self.tokens,
            hidden: Some(self.hidden),
            experts: Some(self.ranks * 4),
            top_k: Some(4),
            steps: u32::MAX,
            seed: self.seed,
            // Freezes and partitions are those of the software HCA and of kernels on the CPU.
            device: "sim".to_owned(),
            gpu: "simt".to_owned(),
            ..DemoOptions::default()
        })
    }

    fn drive<'a>(&'a self, program: &'a Path) -> Drive<'a> {
        Drive {
            program,
            python: &self.python,
            ranks: self.ranks,
            deaths: self.deeds.unwrap_or(DEATHS),
            seed: self.seed,
            fault: (self.loss > 0.0).then(|| self.faults()),
            patience: Duration::from_secs(self.patience.unwrap_or(PATIENCE_OF_PROGRAMS).max(1)),
            json: self.json,
        }
    }

    fn kinds(&self) -> Vec<Kind> {
        match self.kills_only {
            true => vec![Kind::Kills],
            false if self.only.is_empty() => {
                let has = self.etcd.unwrap_or(0);
                let may = |kind: &Kind| kind.servers() <= has && kind.rails() <= self.rails;
                ALL.into_iter().filter(may).collect()
            }
            false => self.only.clone(),
        }
    }

    /// What always goes wrong with packets: the loss.
    fn faults(&self) -> String {
        let loss = match self.loss > 0.0 {
            true => format!(",drop={}%", self.loss),
            false => String::new(),
        };
        format!("seed={}{loss}", self.seed)
    }
}

/// A run.
struct Chaos<'a> {
    options: &'a ChaosOptions,
    fleet: Fleet<'a>,
    deeds: Deeds,
    acts: Acts,
    watch: Watch,
    /// Of the HCAs of each rank, by rail.
    addresses: Vec<Vec<String>>,
    /// Records of the ranks, and deeds, that the watch has seen.
    seen: (usize, usize),
    /// When the story so far is to be judged.
    judge_at: Option<Instant>,
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
                if let Some(deed) = self.deeds.next(&calm, ranks, self.acts.under_way()) {
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
            // One that is dropped only now comes back, and then all make some more steps.
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

    /// Nothing is done to anybody any more. How long that takes is bounded by the watch.
    fn until_all_serve(&mut self) -> Result<(), DemoError> {
        while self.watch.calm().len() < self.options.ranks as usize {
            self.turn(Instant::now() + LOOK)?;
        }
        Ok(())
    }

    /// The same, in one view of all in which nothing is parted, and what was done last has no consequences any more.
    fn settle(&mut self) -> Result<(), DemoError> {
        let late = match self.options.kinds()[..] {
            [Kind::Kills] => Duration::ZERO,
            // A rank that waits in vain reports that after a deadline, and five deadlines later the wait counts.
            _ => Duration::from_millis(self.options.deadline * 6),
        };
        let mut since = Instant::now();
        loop {
            self.turn(Instant::now() + LOOK)?;
            let ranks = self.options.ranks;
            let quiet = self.acts.under_way() == 0 && self.watch.calm().len() == ranks as usize;
            if !quiet || !self.watch.is_whole(ranks) {
                since = Instant::now();
                self.judge_at.get_or_insert(since + JUDGE);
            } else if since.elapsed() >= late {
                return Ok(());
            }
        }
    }

    /// A step that no rank has made yet when all ranks have read of it.
    fn last_step(&self) -> u32 {
        let newest = self.watch.newest_step();
        let rate = f64::from(newest) / self.began.elapsed().as_secs_f64().max(0.1);
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "saturates"
        )]
        let more = (rate * HEAR) as u32;
        newest.saturating_add(more).saturating_add(LAST_STEPS)
    }

    /// Listens until something is to be done, at most until `until`, and looks at what may not happen.
    fn turn(&mut self, until: Instant) -> Result<(), DemoError> {
        self.acts.turn(&mut self.fleet)?;
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
            Some(News::Ended(who)) => {
                let back = self.deeds.back();
                self.fleet.rejoin(who, back);
            }
            Some(News::Addresses((rank, _), addresses)) => {
                self.addresses[rank as usize] = addresses;
            }
            _ => {}
        }
        self.look()
    }

    /// What may not have happened ends the run.
    fn judge(&self) -> Result<(), DemoError> {
        let verdicts = verdict::of(&self.fleet.story());
        match verdicts.is_empty() {
            true => Ok(()),
            false => {
                let words = verdicts.iter().map(ToString::to_string);
                Err(self.fleet.judged(&words.collect::<Vec<_>>()))
            }
        }
    }

    /// Shows the watch what is new.
    fn look(&mut self) -> Result<(), DemoError> {
        let now = Instant::now();
        let (records, deeds) = (&self.fleet.records, self.fleet.processes.deeds());
        let new = deeds[self.seen.1..].iter().chain(&records[self.seen.0..]);
        let mut wrong = Vec::new();
        for record in new {
            // Of a generation that is over.
            let stale = self.fleet.is_over(record);
            // Behind a moment in which the others say why.
            if record.what == RecordKind::Expelled {
                self.judge_at.get_or_insert(now + JUDGE);
            }
            if !stale && let Err(words) = self.watch.see(record, now) {
                wrong.push((record.rank, words));
            }
        }
        self.seen = (records.len(), deeds.len());
        // A rank that has made the last step waits for the others.
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
        match wrong.is_empty() {
            true => Ok(()),
            false => {
                for (rank, words) in wrong {
                    self.fleet.fail(rank, words);
                }
                Err(self.fleet.failed())
            }
        }
    }
}

/// Writes the story of a run that has failed to a new file, and says where it is.
fn keep_story(seed: u64, records: &[Record]) -> Result<(), DemoError> {
    let name = format!("warpverbs-chaos-{seed}-{}.jsonl", std::process::id());
    let path = std::env::temp_dir().join(name);
    std::fs::File::create_new(&path)
        .and_then(|file| write_story(file, records))
        .map_err(|error| DemoError::file(&path, &error))?;
    eprintln!("wv chaos: the story of this run is in {}", path.display());
    Ok(())
}

/// One JSON object a line.
fn write_story(file: std::fs::File, records: &[Record]) -> std::io::Result<()> {
    let mut file = BufWriter::new(file);
    for record in records {
        serde_json::to_writer(&mut file, record)?;
        file.write_all(b"\n")?;
    }
    file.flush()
}

/// One line on standard error, if that is a terminal.
fn bar() -> ProgressBar {
    let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
    bar.with_style(ProgressStyle::with_template("{msg}").expect("a valid template"))
}
