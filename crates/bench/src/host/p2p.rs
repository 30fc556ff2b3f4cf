//! What the host engine costs: transfers over lanes without an HCA, or between two engines of this process on software HCAs.
//!
//! Over a sink no byte moves, so the cost is that of all but the NIC. On software HCAs every byte that has moved is compared. Rounds of all
//! patterns take turns, so that other load of the machine falls on all of them.

use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::Serialize;
use warpverbs::config::ConfigError;
use warpverbs::engine::EngineDevice;
use warpverbs::internal::engine::{
    Engine, EngineConfig, EnginePath, HostError, HostMemory, Kind, Operation, Options, Outcome,
    Peer, Prepared, Status, TransferId, over,
};
use warpverbs::internal::provider::Sink;
use warpverbs::verbs::{Context, DeviceSelector};

use super::spread::spread;
use crate::error::BenchError;

/// Longest wait for a transfer; far more than any takes.
const PATIENCE: Duration = Duration::from_secs(120);

/// The setting of a run.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct P2pOptions {
    /// The number of threads that post.
    pub(crate) workers: u32,
    /// The number of QPs of the connection.
    pub(crate) qps: u32,
    /// The number of bytes of a slice.
    pub(crate) slice: u32,
    /// The number of rounds of each pattern.
    pub(crate) rounds: u32,
}

/// A vector of operations that is posted in each round.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Pattern {
    /// The name of the pattern in the table.
    pub(crate) name: &'static str,
    /// The number of operations of the vector.
    pub(crate) operations: u64,
    /// The number of bytes of each operation.
    pub(crate) bytes: u64,
    /// The distance in bytes from one operation to the next, here. At the peer it is twice as much, so that no two operations are adjacent
    /// at both ends.
    pub(crate) stride: u64,
}

/// The patterns over a sink: one large block, pages of a KV cache, words.
pub(crate) const SINK: [Pattern; 3] = [
    Pattern {
        name: "block",
        operations: 1,
        bytes: 1 << 32,
        stride: 1 << 32,
    },
    Pattern {
        name: "pages",
        operations: 16_384,
        bytes: 1 << 14,
        stride: 1 << 15,
    },
    Pattern {
        name: "words",
        operations: 16_384,
        bytes: 8,
        stride: 64,
    },
];

/// The patterns on software HCAs: those of `SINK`, but smaller.
pub(crate) const SOFTHCA: [Pattern; 3] = [
    Pattern {
        name: "block",
        operations: 1,
        bytes: 1 << 26,
        stride: 1 << 26,
    },
    Pattern {
        name: "pages",
        operations: 1024,
        bytes: 1 << 14,
        stride: 1 << 15,
    },
    Pattern {
        name: "words",
        operations: 16_384,
        bytes: 8,
        stride: 64,
    },
];

impl Pattern {
    pub(super) fn operations(&self, local: u64, remote: u64) -> Vec<Operation> {
        let of = |nth| Operation {
            kind: Kind::Write,
            local: local + nth * self.stride,
            remote: remote + 2 * nth * self.stride,
            bytes: self.bytes,
        };
        (0..self.operations).map(of).collect()
    }

    /// Returns the number of bytes that a peer needs for the pattern.
    pub(super) fn extent(&self) -> u64 {
        2 * self.operations * self.stride
    }

    /// Returns the number of WQEs of a round.
    pub(super) fn slices(&self, slice: u32) -> u64 {
        self.operations * self.bytes.div_ceil(slice.into())
    }
}

/// The results of a run.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct P2pReport {
    /// What completes the WQEs.
    pub(crate) ran_on: &'static str,
    /// The setting of the run.
    pub(crate) options: P2pOptions,
    /// The rows, one for each pattern.
    pub(crate) rows: Vec<Row>,
}

/// The results for one pattern.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Row {
    /// The posted operations.
    pub(crate) pattern: Pattern,
    /// The number of WQEs of a round.
    pub(crate) slices: u64,
    /// Seconds of a round: the median, the shortest and the longest.
    pub(crate) seconds: [f64; 3],
    /// WQEs in a second, at the median.
    pub(crate) slices_per_second: f64,
    /// The number of bytes that were compared after the last round; 0 over a sink, where none move.
    pub(crate) compared: u64,
}

/// An end that posts prepared operations to its peer, and can wait for them.
pub(super) trait Ends {
    fn engine(&self) -> &Engine;
    fn peer(&self) -> &Peer;

    fn prepare(&self, operations: &[Operation]) -> Result<Arc<Prepared>, HostError> {
        Ok(self.peer().prepare(operations)?)
    }

    fn post(&self, prepared: &Arc<Prepared>) -> Result<TransferId, HostError> {
        Ok(self.peer().post(prepared, &Options::default())?)
    }

    fn wait(&self, id: TransferId) -> Result<Status, HostError> {
        Ok(self.engine().wait(id, PATIENCE)?)
    }

    fn release(&self, id: TransferId) -> Result<(), HostError> {
        Ok(self.engine().release(id)?)
    }
}

/// An engine over lanes without an HCA, and its peer.
pub(super) struct OverSink {
    peer: Peer,
    engine: Engine,
}

impl OverSink {
    /// Returns such an engine. All addresses below `bytes` are registered at both ends.
    pub(super) fn new(config: EngineConfig, bytes: u64) -> Result<Self, HostError> {
        let (engine, peer) = over(config, bytes, |config| Sink::lanes(config, None))?;
        Ok(Self { peer, engine })
    }
}

impl Ends for OverSink {
    fn engine(&self) -> &Engine {
        &self.engine
    }

    fn peer(&self) -> &Peer {
        &self.peer
    }
}

/// Two engines of this process.
pub(super) struct Pair {
    peer: Peer,
    pub(super) memories: [Arc<HostMemory>; 2],
    pub(super) engines: [Engine; 2],
}

impl Ends for Pair {
    fn engine(&self) -> &Engine {
        &self.engines[0]
    }

    fn peer(&self) -> &Peer {
        &self.peer
    }
}

impl Pair {
    /// Returns two connected engines on these devices. The first engine has the first options.
    pub(super) fn new(
        devices: [&EngineDevice; 2],
        [first, second]: [&P2pOptions; 2],
        bytes: u64,
    ) -> Result<Self, BenchError> {
        let make = |device: &EngineDevice, name: &str, options| -> Result<_, BenchError> {
            let engine = Engine::new(device, config(name, options)?)?;
            let memory = Arc::new(HostMemory::new(bytes).map_err(HostError::from)?);
            let region = engine.register(&memory)?;
            Ok((engine, memory, region))
        };
        let (a, here, _) = make(devices[0], "a", first)?;
        let (b, there, region) = make(devices[1], "b", second)?;
        let address = b.listen(SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 0).into())?;
        let peer = a.connect(&address.to_string())?;
        let descriptor = b.descriptor(region)?;
        peer.import(&descriptor).map_err(HostError::from)?;
        Ok(Self {
            peer,
            memories: [here, there],
            engines: [a, b],
        })
    }

    /// Compares what a pattern has moved. Returns how many bytes it compared.
    pub(super) fn compare(&self, pattern: &Pattern) -> Result<u64, BenchError> {
        let length = usize::try_from(pattern.bytes).unwrap_or_default();
        let (mut sent, mut came) = (vec![0; length], vec![0; length]);
        for nth in 0..pattern.operations {
            let from = nth * pattern.stride;
            let [here, there] = &self.memories;
            here.read(from, &mut sent).map_err(HostError::from)?;
            there.read(2 * from, &mut came).map_err(HostError::from)?;
            if sent != came {
                return Err(wrong(pattern, format!("operation {nth} came otherwise")));
            }
        }
        Ok(pattern.operations * pattern.bytes)
    }

    /// Fills `extent` bytes of each end with random bytes, other ones at each end.
    pub(super) fn fill(&self, extent: u64, seed: u64) -> Result<(), BenchError> {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut bytes = vec![0; 1 << 16];
        for offset in (0..extent).step_by(bytes.len()) {
            random.fill(&mut bytes);
            let length = bytes
                .len()
                .min(usize::try_from(extent - offset).unwrap_or(0));
            for memory in &self.memories {
                memory
                    .write(offset, &bytes[..length])
                    .map_err(HostError::from)?;
                bytes.reverse();
            }
        }
        Ok(())
    }
}

/// Returns the engine's configuration by the options, and by the variables of this process where the options say nothing.
pub(super) fn config(name: &str, options: &P2pOptions) -> Result<EngineConfig, ConfigError> {
    let config = EngineConfig::from_env(name)?
        .with_workers(options.workers)
        .with_qps(options.qps)
        .with_slice(options.slice)
        .with_gather(1)
        .with_engine_path(EnginePath::Nic);
    Ok(config)
}

/// Measures over a sink.
///
/// # Errors
/// A value outside its limits, or a transfer that does not end well.
pub(crate) fn measure_sink(options: &P2pOptions) -> Result<P2pReport, BenchError> {
    let bytes = SINK.iter().map(Pattern::extent).max().unwrap_or(0);
    let engine = OverSink::new(config("sink", options)?, bytes)?;
    let times = rounds(&engine, &SINK, [0, 0], options)?;
    Ok(report("sink", options, &SINK, times, &[0; 3]))
}

/// Measures between two software HCAs of this process.
///
/// # Errors
/// The errors of [`measure_sink`], and bytes that did not arrive.
pub(crate) fn measure_softhca(
    devices: [&str; 2],
    options: &P2pOptions,
) -> Result<P2pReport, BenchError> {
    let extent = SOFTHCA.iter().map(Pattern::extent).max().unwrap_or(0);
    let open = |name: &str| {
        let context = Context::open(&DeviceSelector::Name(name.to_owned()));
        context.map(EngineDevice::from)
    };
    let [a, b] = devices.map(open);
    let pair = Pair::new([&a?, &b?], [options; 2], extent)?;
    let places = [0, 1].map(|end: usize| pair.memories[end].address());
    pair.fill(extent, 1)?;
    let times = rounds(&pair, &SOFTHCA, places, options)?;
    let mut compared = Vec::new();
    for (seed, pattern) in (2..).zip(&SOFTHCA) {
        // Each pattern runs once more alone, over new bytes, because the patterns write over each other.
        pair.fill(extent, seed)?;
        let prepared = pair.prepare(&pattern.operations(places[0], places[1]))?;
        round(&pair, pattern, &prepared)?;
        compared.push(pair.compare(pattern)?);
    }
    Ok(report("softhca", options, &SOFTHCA, times, &compared))
}

/// Returns the seconds of each round, by pattern.
fn rounds(
    ends: &impl Ends,
    patterns: &[Pattern],
    [local, remote]: [u64; 2],
    options: &P2pOptions,
) -> Result<Vec<Vec<f64>>, BenchError> {
    let mut prepared = Vec::new();
    for pattern in patterns {
        prepared.push(ends.prepare(&pattern.operations(local, remote))?);
        // Every QP has sent before a clock starts.
        round(ends, pattern, &prepared[prepared.len() - 1])?;
    }
    let mut times = vec![Vec::new(); patterns.len()];
    for _ in 0..options.rounds {
        for ((pattern, prepared), times) in patterns.iter().zip(&prepared).zip(&mut times) {
            times.push(round(ends, pattern, prepared)?.as_secs_f64());
        }
    }
    Ok(times)
}

pub(super) fn round(
    ends: &impl Ends,
    pattern: &Pattern,
    prepared: &Arc<Prepared>,
) -> Result<Duration, BenchError> {
    let begin = Instant::now();
    let id = ends.post(prepared)?;
    let status = ends.wait(id)?;
    let time = begin.elapsed();
    if status != Status::Concluded(Outcome::Done) {
        return Err(wrong(pattern, format!("{status:?}")));
    }
    ends.release(id)?;
    Ok(time)
}

fn wrong(pattern: &Pattern, detail: String) -> BenchError {
    BenchError::Wrong {
        case: pattern.name.to_owned(),
        detail,
    }
}

fn report(
    ran_on: &'static str,
    options: &P2pOptions,
    patterns: &[Pattern],
    times: Vec<Vec<f64>>,
    compared: &[u64],
) -> P2pReport {
    let row = |((pattern, times), compared): ((&Pattern, Vec<f64>), &u64)| {
        let seconds = spread(times);
        let slices = pattern.slices(options.slice);
        #[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
        let slices_per_second = slices as f64 / seconds[0];
        Row {
            pattern: *pattern,
            slices,
            seconds,
            slices_per_second,
            compared: *compared,
        }
    };
    P2pReport {
        ran_on,
        options: *options,
        rows: patterns.iter().zip(times).zip(compared).map(row).collect(),
    }
}

impl fmt::Display for P2pReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let P2pOptions {
            workers,
            qps,
            slice,
            rounds,
        } = self.options;
        writeln!(
            f,
            "{}: {workers} workers, {qps} QPs, slices of {slice} bytes, {rounds} rounds (no speed of a NIC)",
            self.ran_on
        )?;
        writeln!(
            f,
            "{:8} {:>10} {:>12} {:>10} {:>12} {:>20} {:>14}",
            "pattern",
            "operations",
            "bytes each",
            "WQEs",
            "M WQEs/s",
            "ms: median (spread)",
            "compared"
        )?;
        for row in &self.rows {
            let [median, least, most] = row.seconds.map(|seconds| seconds * 1e3);
            writeln!(
                f,
                "{:8} {:>10} {:>12} {:>10} {:>12.2} {:>20} {:>14}",
                row.pattern.name,
                row.pattern.operations,
                row.pattern.bytes,
                row.slices,
                row.slices_per_second / 1e6,
                format!("{median:.2} ({least:.2}..{most:.2})"),
                row.compared
            )?;
        }
        Ok(())
    }
}
