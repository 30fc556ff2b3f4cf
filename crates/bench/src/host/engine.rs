//! What the host engine adds to an HCA. Each figure stands beside its yardstick of the same run: the engine beside a bare loop that posts
//! the same WRITEs, two workers beside one worker, and busy QPs with idle QPs beside busy QPs alone. The bench also measures how long a
//! transfer takes that wakes a sleeping worker, and the CPU time of an engine with many peers and no work.
//!
//! All runs on software HCAs of this process and over sinks, so only ratios mean something. Both sides of a ratio take turns, so that other
//! load of the machine falls on both. Engine and loop each write once more at the end, and all bytes are compared.

use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::panic::resume_unwind;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use serde::Serialize;
use warpverbs::config::{CpuList, EngineCpus};
use warpverbs::internal::engine::{Engine, HostError, Outcome, Peer, Prepared, Status};
use warpverbs::internal::provider::{BareLanes, BareWrite};
use warpverbs::verbs::{Context, DeviceSelector};

use super::p2p::{self, Ends, OverSink, P2pOptions, Pair, Pattern, SINK};
use super::spread::spread;
use crate::error::BenchError;

/// Longest wait for a transfer; far more than any takes.
const PATIENCE: Duration = Duration::from_secs(120);
/// The number of software HCAs: one for each of the two ends, and one for the idle peers.
pub(crate) const HCAS: u32 = 3;
/// The most QPs of a connection. Each idle peer has so many.
const QPS_OF_A_PEER: u32 = 8;
/// The number of peers of the engine whose idle time is measured.
const IDLE_PEERS: u32 = 64;
/// The time without a transfer after which a worker sleeps and connections are at rest.
const REST: Duration = Duration::from_millis(4);
/// The number of WQEs for each doorbell of the bare loop, and log2 of the WQEBBs of its QPs. Softhca's own bench has the same values.
const BATCH: usize = 512;
const LOG_DEPTH: u8 = 10;
/// How often idle QPs are added and removed. Rounds with idle QPs and without alternate, so that other load of the machine falls on both.
const PHASES: u32 = 5;
/// The number of transfers of a round over a sink: enough that two workers run at the same time.
const AT_A_TIME: u32 = 32;
/// The most bytes that a WQE of the bare loop carries inline: none, as in softhca's own bench.
const INLINE: u32 = 0;

/// The patterns that are written on software HCAs.
const PATTERNS: [Pattern; 2] = [
    Pattern {
        name: "words",
        operations: 16_384,
        bytes: 8,
        stride: 64,
    },
    Pattern {
        name: "blocks",
        operations: 512,
        bytes: 1 << 16,
        stride: 1 << 16,
    },
];

/// The setting of a run.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct EngineOptions {
    /// The number of QPs of the connection.
    pub(crate) qps: u32,
    /// The number of bytes of a slice.
    pub(crate) slice: u32,
    /// The number of rounds of each figure.
    pub(crate) rounds: u32,
    /// The number of transfers that are timed singly.
    pub(crate) wakes: u32,
    /// The number of idle QPs beside the busy ones, at least 512.
    pub(crate) idle_qps: u32,
    /// Milliseconds for which idle engines are watched.
    pub(crate) idle_ms: u32,
}

/// The results of a run.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct EngineReport {
    /// What completes the WQEs.
    pub(crate) ran_on: &'static str,
    /// The setting of the run.
    pub(crate) options: EngineOptions,
    /// The measured rates, each beside its yardstick.
    pub(crate) rows: Vec<Row>,
    /// Times from submitting a transfer of 8 bytes to its end.
    pub(crate) latencies: Vec<Latency>,
    /// The cost of idle engines.
    pub(crate) idle: Idle,
    /// The number of bytes that were compared.
    pub(crate) compared: u64,
}

/// A measured rate, beside the rate of its yardstick.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Row {
    /// What was measured, in words.
    pub(crate) what: String,
    /// The name of the yardstick.
    pub(crate) beside: &'static str,
    /// The unit of both rates.
    pub(crate) unit: &'static str,
    /// The measured rate: the median, the lowest and the highest.
    pub(crate) rate: [f64; 3],
    /// The rate of the yardstick in the same rounds: the median, the lowest and the highest.
    pub(crate) yardstick: [f64; 3],
    /// The rate divided by the yardstick's rate of the same round: the median of all rounds.
    pub(crate) ratio: f64,
}

/// How long transfers of one kind took.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Latency {
    /// The kind of transfers, in words.
    pub(crate) what: &'static str,
    /// Microseconds within which 50 % of the transfers ended, 99 %, and all.
    pub(crate) microseconds: [f64; 3],
}

/// The cost of idle engines.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Idle {
    /// The number of peers of the engine in the middle.
    pub(crate) peers: u32,
    /// The number of engines of the process, those of the peers included.
    pub(crate) engines: u32,
    /// The number of threads of all these engines.
    pub(crate) threads: usize,
    /// CPU time of all these threads, in percent of a core.
    pub(crate) percent_of_core: f64,
}

/// Runs all measurements on three software HCAs of this process.
///
/// # Errors
/// An option outside its limits, a transfer that does not end well, or bytes that arrived wrong.
pub(crate) fn measure(
    devices: &[String],
    options: &EngineOptions,
) -> Result<EngineReport, BenchError> {
    let open = |name: &String| Context::open(&DeviceSelector::Name(name.clone()));
    let contexts = devices.iter().map(open).collect::<Result<Vec<_>, _>>()?;
    let [here, there, others] = contexts.as_slice() else {
        return Err(wrong(format!("{devices:?}; they must be {HCAS}")));
    };
    let mut rows = beside_one_worker(options)?;
    let latencies = latencies(options)?;
    let mut ends = Both::new([here, there], options)?;
    let any = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 0);
    let place = ends.pair.engines[0].listen(any.into())?.to_string();
    let mut crowd = Crowd {
        connected: Vec::new(),
        place,
        context: others,
        options,
        made: 0,
    };
    // The other end of the pair is one of the peers, too.
    crowd.grow(&ends.pair.engines[0], IDLE_PEERS - 1)?;
    let idle = crowd.idle()?;
    crowd.connected.clear();
    let (mut alone, mut crowded) = Default::default();
    for _ in 0..PHASES {
        ends.rounds(&mut alone)?;
        let peers = options.idle_qps.div_ceil(QPS_OF_A_PEER);
        crowd.grow(&ends.pair.engines[0], peers)?;
        ends.rounds(&mut crowded)?;
        crowd.connected.clear();
    }
    for (pattern, (alone, crowded)) in PATTERNS.iter().zip(alone.iter().zip(&crowded)) {
        let unit = unit(pattern);
        let Pattern { name, bytes, .. } = pattern;
        let writes = format!("{name}: WRITEs of {bytes} bytes");
        let among = format!("{writes}, beside {} idle QPs", options.idle_qps);
        let without = "the same without them";
        rows.push(Row::new(
            writes,
            ("a bare loop", unit),
            &alone.engine,
            &alone.bare,
        ));
        rows.push(Row::new(
            among.clone(),
            (without, unit),
            &crowded.engine,
            &alone.engine,
        ));
        let bare = format!("{among}, by the bare loop");
        rows.push(Row::new(bare, (without, unit), &crowded.bare, &alone.bare));
    }
    Ok(EngineReport {
        ran_on: "softhca and sink (no speed of a NIC)",
        options: *options,
        rows,
        latencies,
        idle,
        compared: ends.compare()?,
    })
}

impl Row {
    /// Returns the row of these rates. Round by round, `rates` and `yardstick` were taken in turn.
    fn new(
        what: String,
        (beside, unit): (&'static str, &'static str),
        rates: &[f64],
        yardstick: &[f64],
    ) -> Self {
        let ratios: Vec<f64> = rates.iter().zip(yardstick).map(|(a, b)| a / b).collect();
        Self {
            what,
            beside,
            unit,
            rate: spread(rates.to_vec()),
            yardstick: spread(yardstick.to_vec()),
            ratio: spread(ratios)[0],
        }
    }
}

fn unit(pattern: &Pattern) -> &'static str {
    if pattern.bytes < 4096 {
        "M WQEs/s"
    } else {
        "GB/s"
    }
}

/// Returns the rate of a round that took `time`, in the unit of the pattern.
#[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
fn rate(pattern: &Pattern, slice: u32, time: Duration) -> f64 {
    let amount = match unit(pattern) {
        "GB/s" => (pattern.operations * pattern.bytes) as f64 / 1e9,
        _ => wqes(pattern, slice),
    };
    amount / time.as_secs_f64()
}

/// Measures two workers over a sink beside one worker. It also measures two engines of one worker each, which share nothing: that shows
/// what the machine has for two. Each of the two workers has a CPU of its own, because the system may otherwise leave both on one CPU for a
/// whole run.
fn beside_one_worker(options: &EngineOptions) -> Result<Vec<Row>, BenchError> {
    let bytes = SINK.iter().map(Pattern::extent).max().unwrap_or(0);
    let own = own_cpus();
    let one_of = |nth: usize| own.get(nth).and_then(|cpu| CpuList::of([*cpu]));
    let both = CpuList::of(own.iter().copied().take(2)).filter(|_| own.len() > 1);
    let engine = |workers: u32, cpus: Option<CpuList>| {
        let options = P2pOptions {
            workers,
            qps: options.qps.max(2),
            ..options.p2p()
        };
        let config = p2p::config("sink", &options)?;
        let cpus = cpus.map_or(EngineCpus::Any, EngineCpus::Listed);
        OverSink::new(config.with_cpus(cpus), bytes).map_err(BenchError::from)
    };
    let engines = [
        engine(1, one_of(0))?,
        engine(2, both)?,
        engine(1, one_of(1))?,
    ];
    let mut rows = Vec::new();
    for pattern in &SINK {
        let mut prepared = Vec::new();
        for engine in &engines {
            prepared.push(Ends::prepare(engine, &pattern.operations(0, 0))?);
        }
        let by = |nth: usize| together(&engines[nth], pattern, &prepared[nth]);
        let wqes = f64::from(AT_A_TIME) * wqes(pattern, options.slice);
        let mut rates = [const { Vec::new() }; 3];
        for round in 0..=options.rounds {
            let one = wqes / by(0)?.as_secs_f64();
            let two = wqes / by(1)?.as_secs_f64();
            let begin = Instant::now();
            thread::scope(|scope| {
                let other = scope.spawn(|| by(2));
                by(0)?;
                other.join().unwrap_or_else(|panic| resume_unwind(panic))
            })?;
            let apart = 2.0 * wqes / begin.elapsed().as_secs_f64();
            // The first round warms up.
            if round > 0 {
                for (rates, rate) in rates.iter_mut().zip([one, two, apart]) {
                    rates.push(rate);
                }
            }
        }
        let [one, two, apart] = &rates;
        for (who, rates) in [("two workers", two), ("two engines apart", apart)] {
            let what = format!("{} over a sink, {who}", pattern.name);
            rows.push(Row::new(what, ("one worker", "M WQEs/s"), rates, one));
        }
    }
    Ok(rows)
}

/// Returns the CPUs that this process may use, or none if the system does not say.
fn own_cpus() -> Vec<u32> {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mut lines = status.lines();
    let list = lines.find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    let list: Option<CpuList> = list.and_then(|list| list.trim().parse().ok());
    list.map_or_else(Vec::new, |list| list.numbers().to_vec())
}

/// Posts `AT_A_TIME` transfers and waits for all of them. Returns how long that took.
fn together(
    engine: &OverSink,
    pattern: &Pattern,
    prepared: &Arc<Prepared>,
) -> Result<Duration, BenchError> {
    let begin = Instant::now();
    let ids = (0..AT_A_TIME).map(|_| Ends::post(engine, prepared));
    let ids = ids.collect::<Result<Vec<_>, _>>()?;
    let mut statuses = Vec::new();
    for id in &ids {
        statuses.push(Ends::wait(engine, *id)?);
    }
    let time = begin.elapsed();
    for (id, status) in ids.into_iter().zip(statuses) {
        if status != Status::Concluded(Outcome::Done) {
            return Err(wrong(format!("{}: {status:?}", pattern.name)));
        }
        Ends::release(engine, id)?;
    }
    Ok(time)
}

/// Returns the WQEs of a round, in millions.
#[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
fn wqes(pattern: &Pattern, slice: u32) -> f64 {
    pattern.slices(slice) as f64 / 1e6
}

/// Measures transfers of one WQE over a sink, where all of the time is the engine's.
fn latencies(options: &EngineOptions) -> Result<Vec<Latency>, BenchError> {
    let engine = OverSink::new(p2p::config("wakes", &options.p2p())?, 1 << 12)?;
    let pattern = Pattern {
        operations: 1,
        ..PATTERNS[0]
    };
    let prepared = Ends::prepare(&engine, &pattern.operations(0, 0))?;
    let mut times = [Vec::new(), Vec::new()];
    for _ in 0..options.wakes {
        thread::sleep(REST);
        for times in &mut times {
            let time = p2p::round(&engine, &pattern, &prepared)?;
            times.push(time.as_secs_f64() * 1e6);
        }
    }
    let names = ["by a worker that slept", "behind it, at once"];
    let latency = |(what, mut times): (_, Vec<f64>)| {
        times.sort_by(f64::total_cmp);
        // The index of the smallest time that is at least as long as `percent` percent of all.
        let at = |percent: usize| times.get((times.len() * percent).div_ceil(100).max(1) - 1);
        let microseconds = [50, 99, 100].map(|percent| at(percent).copied().unwrap_or(f64::NAN));
        Latency { what, microseconds }
    };
    Ok(names.into_iter().zip(times).map(latency).collect())
}

impl EngineOptions {
    /// Returns these options for an engine of one worker.
    fn p2p(&self) -> P2pOptions {
        P2pOptions {
            workers: 1,
            qps: self.qps,
            slice: self.slice,
            rounds: self.rounds,
        }
    }
}

/// Two engines of which one writes to the other, and a bare loop that writes the same.
struct Both {
    options: EngineOptions,
    prepared: [Arc<Prepared>; PATTERNS.len()],
    lanes: BareLanes,
    writes: [Vec<BareWrite>; PATTERNS.len()],
    pair: Pair,
}

/// Rates of a pattern, one for each round.
#[derive(Default)]
struct Rates {
    engine: Vec<f64>,
    bare: Vec<f64>,
}

impl Both {
    fn new(contexts: [&Arc<Context>; 2], options: &EngineOptions) -> Result<Self, BenchError> {
        let extent = PATTERNS.iter().map(Pattern::extent).max().unwrap_or(0);
        // The connection to an idle peer may have more QPs than the one to the other end.
        let most = P2pOptions {
            qps: QPS_OF_A_PEER,
            ..options.p2p()
        };
        let pair = Pair::new(contexts, [&most, &options.p2p()], extent)?;
        pair.fill(extent, 1)?;
        let memories = pair.memories.each_ref();
        let [local, remote] = memories.map(|memory| memory.address());
        let lanes = BareLanes::new(contexts, memories, options.qps, LOG_DEPTH, INLINE);
        let prepare = |pattern: &Pattern| pair.prepare(&pattern.operations(local, remote));
        let [words, blocks] = PATTERNS.each_ref().map(prepare);
        let writes = |pattern: &Pattern| {
            let operations = pattern.operations(local, remote).into_iter();
            let write = |it: warpverbs::engine::Operation| BareWrite {
                local: it.local,
                remote: it.remote,
                bytes: u32::try_from(it.bytes).unwrap_or(u32::MAX),
            };
            operations.map(write).collect()
        };
        Ok(Self {
            options: *options,
            prepared: [words?, blocks?],
            lanes: lanes.map_err(HostError::from)?,
            writes: PATTERNS.each_ref().map(writes),
            pair,
        })
    }

    /// Measures all patterns, in turn by the engine and by the loop.
    fn rounds(&mut self, all: &mut [Rates; PATTERNS.len()]) -> Result<(), BenchError> {
        for round in 0..=self.options.rounds.div_ceil(PHASES) {
            for (nth, rates) in all.iter_mut().enumerate() {
                let engine = self.by_engine(nth)?;
                let bare = self.by_loop(nth)?;
                // The first round warms up.
                if round > 0 {
                    let rate = |time| rate(&PATTERNS[nth], self.options.slice, time);
                    rates.engine.push(rate(engine));
                    rates.bare.push(rate(bare));
                }
            }
        }
        Ok(())
    }

    fn by_engine(&self, nth: usize) -> Result<Duration, BenchError> {
        p2p::round(&self.pair, &PATTERNS[nth], &self.prepared[nth])
    }

    fn by_loop(&mut self, nth: usize) -> Result<Duration, BenchError> {
        let begin = Instant::now();
        let done = self.lanes.run(&self.writes[nth], BATCH);
        let time = begin.elapsed();
        done.map_err(|cause| wrong(format!("a WRITE of the bare loop has failed: {cause}")))?;
        Ok(time)
    }

    /// Lets engine and loop write each pattern once more, over new bytes each time. Returns how many bytes were compared.
    fn compare(&mut self) -> Result<u64, BenchError> {
        let (mut compared, mut seed) = (0, 1);
        for (nth, pattern) in PATTERNS.iter().enumerate() {
            for by in [|it: &mut Self, nth| it.by_engine(nth), Self::by_loop] {
                seed += 1;
                self.pair.fill(pattern.extent(), seed)?;
                by(self, nth)?;
                compared += self.pair.compare(pattern)?;
            }
        }
        Ok(compared)
    }
}

/// Engines that are connected to one engine and do nothing.
struct Crowd<'a> {
    connected: Vec<(Peer, Peer, Engine)>,
    place: String,
    context: &'a Arc<Context>,
    options: &'a EngineOptions,
    /// The number of engines made until now, from which each gets a name of its own.
    made: u32,
}

impl Crowd<'_> {
    /// Connects idle engines to `hub` until there are `count`.
    fn grow(&mut self, hub: &Engine, count: u32) -> Result<(), BenchError> {
        while self.connected.len() < count as usize {
            self.made += 1;
            let nth = self.made;
            let options = P2pOptions {
                qps: QPS_OF_A_PEER,
                ..self.options.p2p()
            };
            let config = p2p::config(&format!("idle-{nth}"), &options)?;
            let engine = Engine::new(self.context, config.with_log_depth(8))?;
            let peer = engine.connect(&self.place)?;
            let back = hub.accept(PATIENCE);
            let back = back.ok_or_else(|| wrong(format!("idle-{nth} did not come")))?;
            if u64::from(QPS_OF_A_PEER) != back.qps() {
                return Err(wrong(format!("idle-{nth} has {} QPs", back.qps())));
            }
            self.connected.push((peer, back, engine));
        }
        Ok(())
    }

    /// Returns what all engines of this process cost now, while they have no work.
    #[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
    fn idle(&self) -> Result<Idle, BenchError> {
        let watched = Duration::from_millis(self.options.idle_ms.into());
        thread::sleep(watched / 4);
        let (begin, (before, _)) = (Instant::now(), ran()?);
        thread::sleep(watched);
        let (after, threads) = ran()?;
        let ran = (after - before) as f64 / 1e9;
        Ok(Idle {
            peers: IDLE_PEERS,
            // The two ends are engines as well.
            engines: u32::try_from(self.connected.len()).unwrap_or(u32::MAX) + 2,
            threads,
            percent_of_core: 100.0 * ran / begin.elapsed().as_secs_f64(),
        })
    }
}

/// Returns for how many nanoseconds the threads of engines ran, and how many such threads there are.
fn ran() -> Result<(u64, usize), BenchError> {
    let of_engine = |task: std::io::Result<std::fs::DirEntry>| {
        let task = task.ok()?.path();
        // The system cuts thread names at 15 bytes.
        let name = std::fs::read_to_string(task.join("comm")).ok()?;
        let times = std::fs::read_to_string(task.join("schedstat")).ok()?;
        let is_own = name.starts_with("wv-engine");
        is_own.then(|| times.split(' ').next()?.parse::<u64>().ok())?
    };
    let tasks = std::fs::read_dir("/proc/self/task");
    let tasks = tasks.map_err(|error| wrong(format!("/proc/self/task: {error}")))?;
    let times: Vec<u64> = tasks.filter_map(of_engine).collect();
    Ok((times.iter().sum(), times.len()))
}

fn wrong(detail: String) -> BenchError {
    BenchError::Wrong {
        case: "engine".to_owned(),
        detail,
    }
}

impl fmt::Display for EngineReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let EngineOptions {
            qps, slice, rounds, ..
        } = self.options;
        writeln!(
            f,
            "{}: {qps} QPs, slices of {slice} bytes, {rounds} rounds",
            self.ran_on
        )?;
        writeln!(
            f,
            "{:76} {:>24} {:>24}  {:24} {:>6}",
            "rate: median (spread)", "", "yardstick", "", "of it"
        )?;
        for row in &self.rows {
            let [rate, yardstick] = [&row.rate, &row.yardstick]
                .map(|[median, least, most]| format!("{median:.2} ({least:.2}..{most:.2})"));
            let what = format!("{}, {}", row.what, row.unit);
            writeln!(
                f,
                "{what:76} {rate:>24} {yardstick:>24}  {:24} {:>5.0}%",
                row.beside,
                100.0 * row.ratio
            )?;
        }
        for Latency { what, microseconds } in &self.latencies {
            let [half, most, all] = microseconds;
            writeln!(
                f,
                "8 bytes over a sink, {what}: {half:.1} us, 99% in {most:.1} us, all in {all:.1} us"
            )?;
        }
        let Idle {
            peers,
            engines,
            threads,
            percent_of_core,
        } = &self.idle;
        writeln!(
            f,
            "an idle engine with {peers} peers, and these: {threads} threads of {engines} engines take {percent_of_core:.2}% of a core"
        )?;
        writeln!(f, "{} bytes compared", self.compared)
    }
}
