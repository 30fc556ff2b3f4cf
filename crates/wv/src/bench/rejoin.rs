//! What a returning rank costs the others: replacing that one peer, beside rebuilding all QPs.
//!
//! Ranks are threads of this process, each with a software HCA and a simt device of its own. In each round the last rank is gone, and a new
//! generation of it has joined alone and published its record. Then all ranks connect. Commands and memory are those of the other ranks,
//! counted by their teams. Times run from the call that connects until a rank can send to the newcomer. They are of the transport only,
//! without the start of a process. On `softhca+simt` a command takes microseconds; on a NIC it takes some hundred.

use std::fmt;
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use serde::Serialize;

use super::BenchError;
use super::ranks::{devices_of, together};
use warpverbs::deadline::Looks;
use warpverbs::gpu::{self, GpuSelector};
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
    /// They reset the QPs to the rank in place.
    Replace,
    /// All ranks destroy all their QPs and make them again.
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
    let devices = devices_of(case.ranks, devices)?;
    let mut rows = Vec::new();
    for way in [RejoinMethod::Replace, RejoinMethod::Rebuild] {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
        let config = |rank| {
            TeamConfig::new(rank, case.ranks)
                .with_qps_per_peer(case.qps_per_peer)
                .with_log_depth(8)
                .with_join_timeout(LONG)
        };
        let join = |rank: u32| start(config(rank), &devices[rank as usize], &store);
        let founders = (0..case.ranks).map(|rank| {
            let join = &join;
            move || join(rank)
        });
        let mut teams = together(founders.collect(), &format!("{case:?}"))?;
        let mut samples = Vec::new();
        for round in 0..case.rounds {
            samples.extend(come_back(
                case,
                way,
                round,
                &mut teams,
                &|rank, generation| {
                    let members = RankSet::first(case.ranks).without(rank);
                    let config = config(rank).joining(generation, members);
                    start(config, &devices[rank as usize], &store)
                },
            )?);
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

/// Joins the team and makes three windows, as a MoE layer does.
fn start(
    config: TeamConfig,
    device: &str,
    store: &Arc<dyn Store>,
) -> Result<Arc<Team>, BenchError> {
    let context = Context::open(&DeviceSelector::Name(device.to_owned()))?;
    let gpu = gpu::open_for(GpuSelector::Simt, context.info().is_soft())?;
    let team = JoinOptions::new(config)
        .with_contexts([&context])
        .with_gpu(&gpu)
        .with_store(Arc::clone(store))
        .join()?;
    team.data_window(WINDOW)?;
    team.send_window(WINDOW)?;
    team.window(WINDOW)?;
    team.hello()?;
    Ok(team)
}

/// Gives up the last rank, lets its next generation join, and connects with it. Returns a sample of each other rank.
fn come_back(
    case: &RejoinCase,
    way: RejoinMethod,
    round: u32,
    teams: &mut Vec<Arc<Team>>,
    join: &dyn Fn(u32, u32) -> Result<Arc<Team>, BenchError>,
) -> Result<Vec<Sample>, BenchError> {
    let (last, generation) = (case.ranks - 1, round + 2);
    teams.truncate(last as usize);
    let before: Vec<(u64, u64)> = teams
        .iter()
        .map(|team| (team.commands(), team.bytes_allocated()))
        .collect();
    for team in teams.iter() {
        team.fail_peer(last)?;
    }
    teams.push(join(last, generation)?);
    let peers_of = |own: u32| -> Vec<(u32, u32)> {
        let others = RankSet::first(case.ranks).without(own);
        others
            .iter()
            .filter(|peer| way == RejoinMethod::Rebuild || own == last || *peer == last)
            .map(|peer| (peer, if peer == last { generation } else { 1 }))
            .collect()
    };
    for team in teams.iter() {
        for (peer, generation) in peers_of(team.rank()) {
            team.resolve_peer(peer, generation, LONG)?;
        }
    }
    let start = Barrier::new(teams.len());
    let one = |team: &Arc<Team>| -> Result<(Duration, Duration), TeamError> {
        let peers = peers_of(team.rank());
        start.wait();
        let began = Instant::now();
        let stall = match way {
            RejoinMethod::Rebuild => team.rebuild(&peers, round)?,
            RejoinMethod::Replace => {
                connect(team, peers)?;
                Duration::ZERO
            }
        };
        Ok((began.elapsed(), stall))
    };
    let runs = teams.iter().map(|team| || Ok(one(team)?)).collect();
    let times = together(runs, &format!("{case:?}"))?;
    let of_others = teams.iter().zip(before).zip(times);
    let sample = of_others.map(|((team, (commands, bytes)), (took, stall))| Sample {
        commands: team.commands() - commands,
        bytes: team.bytes_allocated().saturating_sub(bytes),
        took,
        stall,
    });
    Ok(sample.collect())
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
