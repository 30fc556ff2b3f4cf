//! The options of `wv chaos`, and which of them exclude each other.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::ValueEnum as _;

use warpverbs::moe::MAX_FAILING_LINKS;

use super::deeds::{ALL, Kind, SHORTEST_PAUSE};
use super::program::Drive;
use super::spaces;
use crate::error::DemoError;
use crate::options::DemoOptions;
use warpverbs_cli::{number, output};

/// The options of runs. With `--judge`, which judges an earlier run, they are refused.
const OF_RUNS: [&str; 21] = [
    "ranks",
    "minutes",
    "deeds",
    "seed",
    "loss",
    "only",
    "kills_only",
    "at_once",
    "longest_pause",
    "rails",
    "etcd",
    "etcd_program",
    "deadline",
    "patience",
    "tokens",
    "hidden",
    "program",
    "buffer",
    "python",
    "timeline",
    "story",
];

/// The most software HCAs of a rank.
const MOST_RAILS: u32 = 4;
/// The longest run, in minutes.
const MOST_MINUTES: f64 = 24.0 * 60.0;
/// The longest time that all ranks may be asked to stand still, in seconds.
const MOST_PAUSE: f64 = 600.0;

/// Options of `wv chaos`.
#[derive(clap::Args, Clone, Debug)]
pub struct ChaosOptions {
    /// Rank processes, 3 to 64
    #[arg(long, default_value_t = 6, value_parser = number::any::<u32>())]
    pub(super) ranks: u32,
    /// Time in which the command does its deeds, in minutes
    #[arg(long, default_value_t = 1.0, value_parser = number::fraction())]
    pub(super) minutes: f64,
    /// End after so many deeds, if that is earlier
    #[arg(long, value_name = "COUNT", value_parser = number::any::<u32>())]
    pub(super) deeds: Option<u32>,
    /// Seed of the deeds and of the ranks that they hit
    #[arg(long, default_value_t = 1, value_parser = number::any::<u64>())]
    pub(super) seed: u64,
    /// Packets that are lost, in percent
    #[arg(long, value_name = "PERCENT", default_value_t = 0.0, value_parser = number::fraction())]
    pub(super) loss: f64,
    /// Do only deeds of this kind; may be given several times
    #[arg(long, value_enum)]
    pub(super) only: Vec<Kind>,
    /// Count the tokens that undisturbed ranks lose, and do not judge them: what else may not be is judged all the same
    #[arg(long)]
    pub(super) tokens_not_judged: bool,
    /// Only kill ranks
    #[arg(long, conflicts_with = "only")]
    pub(super) kills_only: bool,
    /// Most deeds at once, which leave two ranks alone; without it most ranks are always left alone
    #[arg(long, value_name = "COUNT", value_parser = number::any::<u16>())]
    pub(super) at_once: Option<u16>,
    /// Longest time in which all processes stand still, at most 600. Times are drawn from 0.1 s on, short and long alike. Without
    /// it they last up to 6 s
    #[arg(long, value_name = "SECONDS", value_parser = number::fraction())]
    pub(super) longest_pause: Option<f64>,
    /// Software HCAs of each rank, 1 to 4
    #[arg(long, default_value_t = 1, value_parser = number::any::<u32>())]
    pub(super) rails: u32,
    /// Let the ranks meet in an etcd of 1 or 3 servers that the command starts; without it in a directory, which has no server
    #[arg(long, value_name = "SERVERS", value_parser = number::any::<u16>())]
    pub(super) etcd: Option<u16>,
    /// The program of those servers
    #[arg(
        long,
        value_name = "PROGRAM",
        default_value = "etcd",
        requires = "etcd"
    )]
    pub(super) etcd_program: PathBuf,
    /// Longest wait of a device call, in milliseconds, 50 to 60,000
    #[arg(long, default_value_t = 500, value_parser = number::any::<u64>())]
    pub(super) deadline: u64,
    /// Longest time without a step of a rank; a longer one fails the run [default: 30; 120 with --program or
    /// --buffer]
    #[arg(long, value_name = "SECONDS", value_parser = number::seconds())]
    pub(super) patience: Option<u64>,
    /// Tokens of each rank in each step
    #[arg(long, default_value_t = 16, value_parser = number::any::<u32>())]
    pub(super) tokens: u32,
    /// BF16 elements of a token, a multiple of 8
    #[arg(long, default_value_t = 128, value_parser = number::any::<u32>())]
    pub(super) hidden: u32,
    /// Kill the ranks of this program of Python, one after the other, --deeds times [default with it: 20]. The program must report
    /// what its ranks do as python/examples/elastic.py does
    #[arg(long, value_name = "FILE.py", conflicts_with_all = NOT_OF_PROGRAMS)]
    pub(super) program: Option<PathBuf>,
    /// Let the ranks be programs of Python that drive a Buffer of these names with masks, and form no group
    #[arg(long, value_enum, value_name = "NAMES", conflicts_with_all = ["program", "kills_only", "rails", "etcd"])]
    pub(super) buffer: Option<BufferKind>,
    /// The Python that has warpverbs and torch, for --program and --buffer
    #[arg(long, value_name = "PROGRAM", default_value = "python3")]
    pub(super) python: PathBuf,
    /// Draw the state of each rank over time
    #[arg(long, value_name = "FILE.svg")]
    pub(super) timeline: Option<PathBuf>,
    /// Write every deed and every report of a rank, one JSON object a line. A run that fails writes them in any case, to a new file
    #[arg(long, value_name = "FILE.jsonl")]
    pub(super) story: Option<PathBuf>,
    /// Judge the story of an earlier run, and do nothing else
    #[arg(long, value_name = "FILE.jsonl", conflicts_with_all = OF_RUNS)]
    pub(super) judge: Option<PathBuf>,
    /// The figures as one JSON object on stdout; everything else goes to stderr
    #[arg(long)]
    pub(super) json: bool,
}

/// Whose names the Buffer of the ranks has.
#[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BufferKind {
    /// `deep_ep.Buffer(enable_shrink=True)`
    DeepEp,
    /// `mooncake_ep.Buffer` with `active_ranks`
    MooncakeEp,
}

impl BufferKind {
    /// Returns the name of the module in the Python package warpverbs.
    pub(super) fn module(self) -> &'static str {
        match self {
            Self::DeepEp => "deep_ep",
            Self::MooncakeEp => "mooncake_ep",
        }
    }
}

/// The options that do not apply to programs of Python.
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
/// The longest wait for the next step of a rank, in seconds. A program of Python has more, because its ranks import torch when they come
/// back.
const PATIENCE: u64 = 30;
const PATIENCE_OF_PROGRAMS: u64 = 120;
/// The number of deaths in a run of a Python program.
const DEATHS: u32 = 20;

impl ChaosOptions {
    pub(super) fn demo(&self) -> Result<DemoOptions, DemoError> {
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
        let named = |kind: &Kind| {
            let value = kind.to_possible_value();
            value.map_or_else(String::new, |value| value.get_name().to_owned())
        };
        if let Some(kind) = self.only.iter().find(|kind| kind.ranks() > self.ranks) {
            return refused(format!(
                "--only {} is not possible among {} ranks; add --ranks {}",
                named(kind),
                self.ranks,
                kind.ranks()
            ));
        }
        if let Some(kind) = self.only.iter().find(|kind| !self.is_of_ranks(**kind)) {
            let how = match self.buffer {
                Some(_) => "where programs drive Buffers; leave out --buffer",
                None => "to the ranks of the demo; add --buffer deep-ep or --buffer mooncake-ep",
            };
            return refused(format!("--only {} is not possible {how}", named(kind)));
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
            // Deeds leave more than half of the ranks alone. A link that a deed has failed may still be failing when the next deed begins.
            failing_links: (self.ranks / 2).min(MAX_FAILING_LINKS),
            steps: u32::MAX,
            seed: self.seed,
            // Freezes and partitions need the software HCA, and kernels on the CPU.
            device: "sim".to_owned(),
            gpu: "simt".to_owned(),
            ..DemoOptions::default()
        })
    }

    pub(super) fn drive<'a>(&'a self, program: &'a Path) -> Drive<'a> {
        Drive {
            program,
            python: &self.python,
            ranks: self.ranks,
            deaths: self.deeds.unwrap_or(DEATHS),
            seed: self.seed,
            fault: (self.loss > 0.0).then(|| self.faults()),
            patience: self.patience(),
            json: self.json,
        }
    }

    pub(super) fn kinds(&self) -> Vec<Kind> {
        match self.kills_only {
            true => vec![Kind::Kills],
            false if self.only.is_empty() => {
                let has = self.etcd.unwrap_or(0);
                let may = |kind: &Kind| {
                    kind.servers() <= has
                        && kind.rails() <= self.rails
                        && kind.ranks() <= self.ranks
                        && self.is_of_ranks(*kind)
                };
                ALL.into_iter().filter(may).collect()
            }
            false => self.only.clone(),
        }
    }

    /// Returns the longest time without a step of a rank. Programs of Python take long to start.
    pub(super) fn patience(&self) -> Duration {
        let usual = if self.program.is_some() || self.buffer.is_some() {
            PATIENCE_OF_PROGRAMS
        } else {
            PATIENCE
        };
        Duration::from_secs(self.patience.unwrap_or(usual).max(1))
    }

    /// Returns whether a deed of this kind can be done to the ranks of this run.
    fn is_of_ranks(&self, kind: Kind) -> bool {
        match self.buffer {
            Some(_) => kind.is_of_buffers(),
            None => kind.is_of_demo(),
        }
    }

    /// Returns the kinds of deeds that this machine can do, and whether some ranks live in PID namespaces of their own.
    pub(super) fn possible(&self) -> Result<(Vec<Kind>, bool), DemoError> {
        let mut kinds = self.kinds();
        if !kinds.contains(&Kind::NoPidfd) {
            return Ok((kinds, false));
        }
        let Some(why) = spaces::refused() else {
            return Ok((kinds, true));
        };
        output::say(format_args!(
            "wv chaos: no-pidfd is skipped, since no PID namespace can be made: {why}"
        ));
        kinds.retain(|kind| *kind != Kind::NoPidfd);
        if kinds.is_empty() {
            Err(DemoError::Option(
                "--only no-pidfd is not possible here; choose other kinds, or run as a user that may make namespaces".to_owned(),
            ))
        } else {
            Ok((kinds, false))
        }
    }

    /// Returns the spec of packet faults that last for the whole run: the loss.
    pub(super) fn faults(&self) -> String {
        let loss = if self.loss > 0.0 {
            format!(",drop={}%", self.loss)
        } else {
            String::new()
        };
        format!("seed={}{loss}", self.seed)
    }
}
