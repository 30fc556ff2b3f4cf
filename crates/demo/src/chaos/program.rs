//! `wv chaos --program`: the ranks of a Python program are killed one after another, and come back.
//!
//! Each rank has a torchrun of its own, which starts it again. A rank is killed when all ranks have reported a call with all of them. Then
//! all others must report a call without it. After that all ranks must report a call with all of them again. The program ends by itself.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde::Serialize;

use super::processes::{Heard, Processes};
use super::times::Times;
use super::told::{Line, Standing};
use crate::clock::unix_us;
use crate::error::DemoError;
use crate::launch::Workplace;
use warpverbs_cli::{output, tied};

/// The name of a variable by which the processes of a run are found.
const MARK: &str = "WV_CHAOS_RUN";
/// The longest time for a torchrun to end after its rank.
const ENDING: Duration = Duration::from_secs(30);
/// The number of lines of standard error that a failure shows.
const LINES: usize = 40;

/// The setting of a run: the program, and what is done to it.
#[derive(Clone, Debug)]
pub(super) struct Drive<'a> {
    pub(super) program: &'a Path,
    pub(super) python: &'a Path,
    pub(super) ranks: u32,
    pub(super) deaths: u32,
    pub(super) seed: u64,
    /// The faults of packets, for `wv sim`.
    pub(super) fault: Option<String>,
    /// The longest wait for what has to come next.
    pub(super) patience: Duration,
    pub(super) json: bool,
}

/// The results that are printed.
#[derive(Debug, Serialize)]
struct Found<'a> {
    program: &'a Path,
    ranks: u32,
    seed: u64,
    deaths: u32,
    /// Times from each death until all other ranks have reported a call without the dead rank.
    missed_us: Times,
    /// Times from each death until all ranks have reported a call with all of them.
    back_us: Times,
    /// The number of tokens that lost experts, as told by ranks that were not killed since.
    tokens_lost: u64,
}

/// What the ranks have to report next.
#[derive(Clone, Copy, Debug)]
enum Awaited {
    /// A call with all ranks. If a rank was killed before, this is the time of its death.
    Whole(Option<Instant>),
    /// Calls of all others without this rank, which was killed at this time.
    Missed(u32, Instant),
    /// The end of all ranks.
    End,
}

/// A run under way.
struct Driven<'a> {
    drive: &'a Drive<'a>,
    place: Workplace,
    processes: Processes,
    standing: Standing,
    chance: fastrand::Rng,
    found: Found<'a>,
    awaited: Awaited,
    until: Instant,
    /// The last lines of the ranks' standard error.
    said: Vec<String>,
}

/// Runs the program with its deaths, and prints how long the ranks took.
pub(super) fn run(drive: &Drive<'_>) -> Result<(), DemoError> {
    let place = Workplace::new()?;
    let mut driven = Driven {
        place,
        processes: Processes::new(unix_us()),
        standing: Standing::new(drive.ranks),
        chance: fastrand::Rng::with_seed(drive.seed),
        found: Found {
            program: drive.program,
            ranks: drive.ranks,
            seed: drive.seed,
            deaths: 0,
            missed_us: Times::default(),
            back_us: Times::default(),
            tokens_lost: 0,
        },
        awaited: Awaited::Whole(None),
        until: Instant::now() + drive.patience,
        said: Vec::new(),
        drive,
    };
    let ended = driven.start().and_then(|()| driven.watch());
    let left = driven.take_away();
    ended?;
    if !left.is_empty() {
        let words = format!("processes {left:?} are still there after the end of all ranks");
        return Err(driven.failed(words));
    }
    driven.publish()
}

impl Driven<'_> {
    fn start(&mut self) -> Result<(), DemoError> {
        for rank in 0..self.drive.ranks {
            let mut command = self.command(rank)?;
            tied::tie(&mut command);
            let started = self.processes.start((rank, 1), &mut command);
            started.map_err(|error| DemoError::file(self.drive.python, &error))?;
        }
        Ok(())
    }

    /// Returns the command that starts a rank, and starts it again when it dies.
    fn command(&self, rank: u32) -> Result<Command, DemoError> {
        let drive = self.drive;
        let wv = env::current_exe().map_err(|error| DemoError::file(Path::new("wv"), &error))?;
        let store = format!("file://{}", self.place.store().display());
        let mut command = Command::new(wv);
        command.arg("sim");
        if let Some(fault) = &drive.fault {
            command.args(["--fault", fault]);
        }
        command
            .arg("--")
            .arg(drive.python)
            .args(["-m", "torch.distributed.run", "--standalone"])
            .args(["--max-restarts", &(drive.deaths + 1).to_string()])
            .arg(drive.program)
            .env(MARK, self.place.path())
            .env("WARPVERBS_STORE", store)
            .env("WARPVERBS_RANKS", drive.ranks.to_string())
            .env("WARPVERBS_RANK", rank.to_string())
            .env("OMP_NUM_THREADS", "1");
        if env::var_os("WARPVERBS_GPU").is_none() {
            command.env("WARPVERBS_GPU", "simt");
        }
        Ok(command)
    }

    /// Listens and kills until all ranks have ended.
    fn watch(&mut self) -> Result<(), DemoError> {
        let mut open = self.drive.ranks;
        while open > 0 {
            let left = self.until.saturating_duration_since(Instant::now());
            let Some(((rank, _), heard)) = self.processes.next(left) else {
                let (awaited, seconds) = (self.awaited, self.drive.patience.as_secs());
                let words = format!("nothing came of {awaited:?} for {seconds} s (--patience)");
                return Err(self.failed(words));
            };
            match heard {
                Heard::Told(line) => self.hear(&line)?,
                Heard::Said(line) => {
                    self.said.push(format!("rank {rank}: {line}"));
                    let more = self.said.len().saturating_sub(LINES);
                    self.said.drain(..more);
                }
                Heard::Closed => {
                    self.end(rank)?;
                    open -= 1;
                }
            }
        }
        match self.awaited {
            Awaited::End => Ok(()),
            awaited => Err(self.failed(format!("all ranks have ended before {awaited:?}"))),
        }
    }

    fn hear(&mut self, line: &str) -> Result<(), DemoError> {
        let Some((rank, said)) = Line::parse(line) else {
            return Ok(());
        };
        if rank >= self.drive.ranks {
            return Err(self.failed(format!("the program has no rank {rank}: {line}")));
        }
        if let Err(words) = self.standing.hear(rank, said) {
            return Err(self.failed(format!("rank {rank}: {words}: {line}")));
        }
        let now = Instant::now();
        match self.awaited {
            Awaited::Missed(victim, since) if self.standing.have_missed(victim) => {
                self.found.missed_us.add(us(now - since));
                self.await_next(Awaited::Whole(Some(since)));
            }
            Awaited::Whole(since) if self.standing.is_whole() => {
                if let Some(since) = since {
                    self.found.back_us.add(us(now - since));
                }
                if self.found.deaths < self.drive.deaths {
                    self.kill()?
                } else {
                    self.await_next(Awaited::End)
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn await_next(&mut self, awaited: Awaited) {
        self.awaited = awaited;
        self.until = Instant::now() + self.drive.patience;
    }

    /// Kills a rank that the seed chooses.
    fn kill(&mut self) -> Result<(), DemoError> {
        let victim = self.chance.u32(..self.drive.ranks);
        self.found.deaths += 1;
        let Some((process, generation)) = self.standing.strike(victim) else {
            return Err(self.failed(format!("rank {victim} makes calls and has not said so")));
        };
        if !self.is_own(process) {
            let words = format!("rank {victim} says that it is process {process}, which it is not");
            return Err(self.failed(words));
        }
        output::say(format_args!(
            "death {}: rank {victim}, generation {generation}",
            self.found.deaths
        ));
        self.await_next(Awaited::Missed(victim, Instant::now()));
        let process = i32::try_from(process).ok().and_then(Pid::from_raw);
        let killed = process.is_some_and(|process| kill_process(process, Signal::KILL).is_ok());
        if killed {
            Ok(())
        } else {
            Err(self.failed(format!("rank {victim} has died by itself")))
        }
    }

    /// Takes the end of `rank`, whose torchrun has closed its output.
    fn end(&mut self, rank: u32) -> Result<(), DemoError> {
        let status = self.processes.reap(rank, ENDING);
        let Some(lost) = self.standing.ended().get(&rank) else {
            return Err(self.failed(format!("rank {rank} has ended too early: {status:?}")));
        };
        self.found.tokens_lost += lost;
        match status {
            Some(status) if status.success() => Ok(()),
            status => Err(self.failed(format!("rank {rank} has ended badly: {status:?}"))),
        }
    }

    /// Returns an error with the last lines of the ranks' standard error.
    fn failed(&self, words: String) -> DemoError {
        let mut messages = vec![words];
        messages.extend(self.said.iter().cloned());
        DemoError::Ranks { messages }
    }

    /// Returns whether `process` belongs to this run.
    fn is_own(&self, process: u32) -> bool {
        let mark = format!("{MARK}={}", self.place.path().display());
        let environment = fs::read(format!("/proc/{process}/environ")).unwrap_or_default();
        let mut variables = environment.split(|byte| *byte == 0);
        variables.any(|variable| variable == mark.as_bytes())
    }

    /// Kills all processes of this run that still live, and returns them.
    fn take_away(&mut self) -> Vec<u32> {
        for rank in self.processes.running() {
            self.processes.kill(rank);
        }
        let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
        let numbers = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        let left: Vec<u32> = numbers.filter(|number| self.is_own(*number)).collect();
        for process in &left {
            if let Some(process) = i32::try_from(*process).ok().and_then(Pid::from_raw) {
                let _ = kill_process(process, Signal::KILL);
            }
        }
        left
    }

    fn publish(mut self) -> Result<(), DemoError> {
        let found = &mut self.found;
        found.missed_us.sort();
        found.back_us.sort();
        if self.drive.json {
            let text = serde_json::to_string(found).expect("numbers and words");
            return Ok(output::print(&format_args!("{text}\n"))?);
        }
        let program: PathBuf = found.program.file_name().unwrap_or_default().into();
        let text = format!(
            "{} ranks of {}, {} deaths, seed {}: every sum is right, no rank has hung, no process is left\n\n\
             {:28}{:>8} {:>10} {:>10} {:>10}\n{:28}{}\n{:28}{}\n\n{} tokens lost experts\n",
            found.ranks,
            program.display(),
            found.deaths,
            found.seed,
            "ms from a death until",
            "count",
            "p50",
            "p99",
            "max",
            "all others went on without",
            found.missed_us,
            "all ranks took part again",
            found.back_us,
            found.tokens_lost,
        );
        Ok(output::print(&text)?)
    }
}

fn us(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}
