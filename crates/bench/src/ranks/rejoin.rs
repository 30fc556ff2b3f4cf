//! What a returning rank costs the others: replacing that one peer, beside making another team of all.
//!
//! Ranks are threads of this process, each with a software HCA and a simt device of its own. In each round the last rank is gone, and a
//! new process of it comes. Commands and memory are those of the other ranks, counted by their teams. Times run from the call that connects,
//! or ends the team, until a rank can send to the newcomer. They are of the transport only, without the start of a process. On
//! `softhca+simt` a command takes microseconds; on a NIC it takes some hundred.

use std::fmt;
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use serde::Serialize;

use super::together::{devices_of, together};
use crate::error::BenchError;
use warpverbs::deadline::Looks;
use warpverbs::gpu::{self, Gpu, GpuSelector};
use warpverbs::team::{JoinOptions, MemoryStore, RankSet, Store, Team, TeamConfig, TeamError};
use warpverbs::verbs::{Context, DeviceSelector};

/// The bound of every wait. It is long, because many ranks may share two cores.
const LONG: Duration = Duration::from_secs(120);
/// The number of bytes of each window; their contents do not count.
const WINDOW: u64 = 1 << 16;

/// The setting of one case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RejoinCase {
    /// The number of ranks, the returning one included; at least 3.
    pub ranks: u32,
    /// The number of QPs to each peer.
    pub qps_per_peer: u32,
    /// How often the last rank returns in each way.
    pub rounds: u32,
}

/// How the others take a rank back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum RejoinMethod {
    /// They reset the QPs to the rank in place. The new process has joined alone before.
    Replace,
    /// All ranks end the team, and make another one on the same devices: other QPs, windows and keys.
    Rebuild,
}

/// What one return cost each of the others, by one way.
#[derive(Clone, Debug, Serialize)]
pub struct RejoinRow {
    /// Number of ranks.
    pub ranks: u32,
    /// The number of QPs to each peer.
    pub qps_per_peer: u32,
    /// The way the rank was taken back.
    pub way: RejoinMethod,
    /// The most commands to the HCA, those included that ended the QPs when the rank was given up.
    pub commands: u64,
    /// The most bytes of device and pinned host memory taken.
    pub bytes: u64,
    /// Times to connect, of all others in all rounds, ms: p50, p99 and the longest.
    pub ms: [f64; 3],
    /// Longest time in which one of the others could not reach another one of them, ms.
    pub stall_ms: f64,
}

/// The rows of several cases.
#[derive(Clone, Debug, Serialize)]
pub struct RejoinReport {
    /// The label of what the ranks ran on.
    pub ran_on: &'static str,
    /// The rows, two for each case.
    pub rows: Vec<RejoinRow>,
}

/// Runs one case on the first devices of `devices`, one for each rank.
///
/// # Errors
/// Too few devices; what team and device refuse.
pub fn measure(case: &RejoinCase, devices: &[String]) -> Result<Vec<RejoinRow>, BenchError> {
    let names = devices_of(case.ranks, devices)?;
    let mut rows = Vec::new();
    for way in [RejoinMethod::Replace, RejoinMethod::Rebuild] {
        let mut job = Job::found(case, names)?;
        let mut samples = Vec::new();
        for round in 0..case.rounds {
            samples.extend(match way {
                RejoinMethod::Replace => job.replace(round + 2)?,
                RejoinMethod::Rebuild => job.rebuild()?,
            });
        }
        rows.push(RejoinRow::new(case, way, &samples));
    }
    Ok(rows)
}

/// What one of the others did in one return of the last rank.
#[derive(Clone, Copy, Debug)]
struct Sample {
    commands: u64,
    bytes: u64,
    took: Duration,
    stall: Duration,
}

/// What the team of a rank has counted so far.
#[derive(Clone, Copy, Debug)]
struct Counted {
    commands: u64,
    bytes: u64,
}

impl Counted {
    fn of(team: &Team) -> Self {
        Self {
            commands: team.commands(),
            bytes: team.bytes_allocated(),
        }
    }
}

/// The devices that the process of a rank has opened.
struct Devices {
    context: Arc<Context>,
    gpu: Arc<dyn Gpu>,
}

impl Devices {
    fn open(name: &str) -> Result<Self, BenchError> {
        let context = Context::open(&DeviceSelector::Name(name.to_owned()))?;
        let gpu = gpu::open_for(GpuSelector::Simt, context.info().is_soft())?;
        Ok(Self { context, gpu })
    }

    /// Joins the team and makes three windows, as a MoE layer does.
    fn join(&self, config: TeamConfig, store: &Arc<dyn Store>) -> Result<Arc<Team>, BenchError> {
        let team = JoinOptions::new(config)
            .with_contexts([&self.context])
            .with_gpu(&self.gpu)
            .with_store(Arc::clone(store))
            .join()?;
        team.data_window(WINDOW)?;
        team.send_window(WINDOW)?;
        team.window(WINDOW)?;
        team.hello()?;
        Ok(team)
    }
}

/// A rank of a case.
struct Rank {
    // Dropped before the devices that it was made on.
    team: Arc<Team>,
    devices: Devices,
}

/// The ranks of a case, and the store in which they have met.
struct Job<'a> {
    case: &'a RejoinCase,
    /// The names of the HCAs, by rank.
    names: &'a [String],
    store: Arc<dyn Store>,
    ranks: Vec<Rank>,
}

impl<'a> Job<'a> {
    fn found(case: &'a RejoinCase, names: &'a [String]) -> Result<Self, BenchError> {
        let mut job = Self {
            case,
            names,
            store: Arc::new(MemoryStore::new()),
            ranks: Vec::new(),
        };
        let of = &job;
        let founders = (0..case.ranks).map(|rank| move || of.start(of.config(rank)));
        job.ranks = together(founders.collect(), &of.name())?;
        Ok(job)
    }

    fn name(&self) -> String {
        format!("{:?}", self.case)
    }

    /// Returns how a founder joins.
    fn config(&self, rank: u32) -> TeamConfig {
        TeamConfig::new(rank, self.case.ranks)
            .with_qps_per_peer(self.case.qps_per_peer)
            .with_log_depth(8)
            .with_join_timeout(LONG)
    }

    fn start(&self, config: TeamConfig) -> Result<Rank, BenchError> {
        let devices = Devices::open(&self.names[config.rank as usize])?;
        let team = devices.join(config, &self.store)?;
        Ok(Rank { team, devices })
    }

    /// The last rank goes, and the others give it up. Returns its number, and what the others had counted before.
    fn lose_last(&mut self) -> Result<(u32, Vec<Counted>), BenchError> {
        let last = self.case.ranks - 1;
        self.ranks.truncate(last as usize);
        let teams = || self.ranks.iter().map(|rank| &rank.team);
        let before = teams().map(|team| Counted::of(team)).collect();
        teams().try_for_each(|team| team.fail_peer(last))?;
        Ok((last, before))
    }

    /// Takes `generation` of the last rank in place of the one before.
    fn replace(&mut self, generation: u32) -> Result<Vec<Sample>, BenchError> {
        let (last, before) = self.lose_last()?;
        let config = self.config(last);
        let newcomer = config.joining(generation, RankSet::first(last));
        self.ranks.push(self.start(newcomer)?);
        let peers_of = |own: u32| -> Vec<(u32, u32)> {
            if own == last {
                (0..last).map(|peer| (peer, 1)).collect()
            } else {
                vec![(last, generation)]
            }
        };
        for rank in &self.ranks {
            for (peer, generation) in peers_of(rank.team.rank()) {
                rank.team.resolve_peer(peer, generation, LONG)?;
            }
        }
        let start = Barrier::new(self.ranks.len());
        let one = |team: &Team| -> Result<Duration, TeamError> {
            let peers = peers_of(team.rank());
            start.wait();
            let began = Instant::now();
            connect(team, peers)?;
            Ok(began.elapsed())
        };
        let one = &one;
        let runs = self.ranks.iter().map(|rank| move || Ok(one(&rank.team)?));
        let times = together(runs.collect(), &self.name())?;
        Ok(self.samples(before, times, |_| Duration::ZERO))
    }

    /// Ends the team at all ranks, and makes another one with a new process of the last rank.
    fn rebuild(&mut self) -> Result<Vec<Sample>, BenchError> {
        let (last, before) = self.lose_last()?;
        self.store = Arc::new(MemoryStore::new());
        let leavers = self.ranks.drain(..);
        let mut processes: Vec<(Devices, Option<Arc<Team>>)> = leavers
            .map(|rank| (rank.devices, Some(rank.team)))
            .collect();
        processes.push((Devices::open(&self.names[last as usize])?, None));
        let start = Barrier::new(processes.len());
        let again = |rank: u32,
                     devices: Devices,
                     team: Option<Arc<Team>>|
         -> Result<(Rank, Duration), BenchError> {
            start.wait();
            let began = Instant::now();
            drop(team);
            let team = devices.join(self.config(rank), &self.store)?;
            Ok((Rank { team, devices }, began.elapsed()))
        };
        let again = &again;
        let processes = (0..).zip(processes);
        let runs = processes.map(|(rank, (devices, team))| move || again(rank, devices, team));
        let made = together(runs.collect(), &self.name())?;
        let (ranks, times) = made.into_iter().unzip();
        self.ranks = ranks;
        Ok(self.samples(before, times, |took| took))
    }

    /// Returns the samples of the others: what they had counted before, how long they took, and which part of it they could not
    /// reach each other.
    fn samples(
        &self,
        before: Vec<Counted>,
        times: Vec<Duration>,
        stall: impl Fn(Duration) -> Duration,
    ) -> Vec<Sample> {
        let of_others = self.ranks.iter().zip(before).zip(times);
        let sample = of_others.map(|((rank, before), took)| {
            let now = Counted::of(&rank.team);
            Sample {
                commands: now.commands - before.commands,
                bytes: now.bytes.saturating_sub(before.bytes),
                took,
                stall: stall(took),
            }
        });
        sample.collect()
    }
}

/// Connects with all of `peers`, in the order in which they are ready.
fn connect(team: &Team, mut peers: Vec<(u32, u32)>) -> Result<(), TeamError> {
    let mut looks = Looks::within(LONG);
    while !peers.is_empty() {
        let left = looks.next().unwrap_or(Duration::ZERO);
        let mut later = Vec::new();
        for (peer, generation) in peers {
            match team.connect_peer(peer, generation, Duration::from_micros(200)) {
                Ok(()) => team.open_peer(peer)?,
                Err(TeamError::Absent { .. }) if !left.is_zero() => {
                    later.push((peer, generation));
                }
                Err(error) => return Err(error),
            }
        }
        peers = later;
    }
    Ok(())
}

impl RejoinRow {
    fn new(case: &RejoinCase, way: RejoinMethod, samples: &[Sample]) -> Self {
        let ms = |time: Duration| time.as_secs_f64() * 1e3;
        let mut times: Vec<f64> = samples.iter().map(|sample| ms(sample.took)).collect();
        times.sort_by(f64::total_cmp);
        let at = |per_cent: usize| times[(times.len() - 1) * per_cent / 100];
        let most = |of: fn(&Sample) -> u64| samples.iter().map(of).max().unwrap_or(0);
        let stall = samples.iter().map(|sample| sample.stall).max();
        Self {
            ranks: case.ranks,
            qps_per_peer: case.qps_per_peer,
            way,
            commands: most(|sample| sample.commands),
            bytes: most(|sample| sample.bytes),
            ms: [at(50), at(99), at(100)],
            stall_ms: ms(stall.unwrap_or_default()),
        }
    }
}

impl fmt::Display for RejoinReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "return of one rank, cost for each of the others ({})",
            self.ran_on
        )?;
        writeln!(
            f,
            "ranks  QPs/peer  way      commands  bytes  ms p50     p99     max  stall ms"
        )?;
        for row in &self.rows {
            let [p50, p99, max] = row.ms;
            writeln!(
                f,
                "{:5}  {:8}  {:7}  {:8}  {:5}  {p50:6.2}  {p99:6.2}  {max:6.2}  {:8.2}",
                row.ranks,
                row.qps_per_peer,
                format!("{:?}", row.way).to_lowercase(),
                row.commands,
                row.bytes,
                row.stall_ms
            )?;
        }
        for pair in self.rows.chunks_exact(2) {
            let [replace, rebuild] = pair else { continue };
            writeln!(
                f,
                "{} ranks: rebuilding everything takes {:.1} times the commands and {:.1} times the time (p50)",
                replace.ranks,
                ratio(rebuild.commands, replace.commands),
                rebuild.ms[0] / replace.ms[0].max(f64::MIN_POSITIVE)
            )?;
        }
        Ok(())
    }
}

fn ratio(a: u64, b: u64) -> f64 {
    let exact = |count: u64| f64::from(u32::try_from(count).unwrap_or(u32::MAX));
    exact(a) / exact(b).max(1.0)
}
