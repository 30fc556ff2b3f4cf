//! What programs move by a host engine: pages of KV caches, weights for several peers, large blocks. Between engines of this process on
//! software HCAs, one for each: the bytes are real, and the speed is that of the software.
//!
//! Each peer gets all pieces in one transfer, at other places than they come from. After the rounds all ends are filled anew and
//! the pattern runs once more. Then every byte of every peer is compared, also the bytes between the pieces.

use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::Serialize;
use warpverbs::internal::engine::{
    Engine, EngineConfig, EnginePath, HostError, HostMemory, Kind, Operation, Options, Outcome,
    Peer, Prepared, Status,
};
use warpverbs::verbs::{Context, DeviceSelector};

use super::BenchError;

/// Nothing takes so long.
const PATIENCE: Duration = Duration::from_secs(120);
/// Bytes of the memory of an engine.
const MEMORY: u64 = 1 << 26;
const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
/// A source and its peers.
pub const MOST_PEERS: u32 = 7;

/// What is moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Shape {
    /// Pages of 16, 32 and 64 KiB, scattered at both ends.
    Kv,
    /// Tensors of 4 KiB to 2 MiB, one behind the other at the source and in another order at its peers.
    Weights,
    /// Blocks of 4 MiB.
    Fill,
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Kv => "kv",
            Self::Weights => "weights",
            Self::Fill => "fill",
        })
    }
}

/// A piece of memory that is moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Piece {
    from: u64,
    to: u64,
    bytes: u64,
}

impl Shape {
    fn pieces(self, random: &mut fastrand::Rng) -> Vec<Piece> {
        match self {
            Self::Kv => {
                let lengths = [16 * KIB, 32 * KIB, 64 * KIB];
                frames(random, 64 * KIB, |random| lengths[random.usize(..3)])
            }
            Self::Weights => tensors(random),
            Self::Fill => frames(random, 4 * MIB, |_| 4 * MIB),
        }
    }
}

/// One piece at the begin of every second frame, in no order at both ends.
fn frames(
    random: &mut fastrand::Rng,
    frame: u64,
    length: impl Fn(&mut fastrand::Rng) -> u64,
) -> Vec<Piece> {
    let mut shuffled = || {
        let mut places: Vec<u64> = (0..MEMORY / frame).map(|nth| nth * frame).collect();
        random.shuffle(&mut places);
        places.truncate(places.len() / 2);
        places
    };
    let (from, to) = (shuffled(), shuffled());
    let places = from.into_iter().zip(to);
    let pieces = places.map(|(from, to)| Piece {
        from,
        to,
        bytes: length(random),
    });
    pieces.collect()
}

/// As a model has them: most of them short, most bytes in long ones.
fn tensors(random: &mut fastrand::Rng) -> Vec<Piece> {
    let mut lengths = Vec::new();
    while lengths.iter().sum::<u64>() < MEMORY / 2 {
        let log = if random.u32(0..4) == 0 {
            21
        } else {
            random.u32(12..18)
        };
        lengths.push(1 << log);
    }
    let (mut from, mut end) = (0, MEMORY);
    let pieces = lengths.into_iter().map(|bytes| {
        let to = end - bytes;
        let piece = Piece { from, to, bytes };
        (from, end) = (from + bytes, to);
        piece
    });
    pieces.collect()
}

/// Setting of a run.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct PatternOptions {
    /// What is moved.
    pub pattern: Shape,
    /// Engines that get it.
    pub peers: u32,
    /// Threads that post.
    pub workers: u32,
    /// QPs of a connection.
    pub qps: u32,
    /// Bytes of a slice.
    pub slice: u32,
    /// Rounds of the pattern.
    pub rounds: u32,
    /// Of lengths and places.
    pub seed: u64,
}

/// The results.
#[derive(Clone, Debug, Serialize)]
pub struct PatternReport {
    /// What completes.
    pub ran_on: &'static str,
    /// Its setting.
    pub options: PatternOptions,
    /// Operations of a transfer, one of which goes to each peer.
    pub operations: u64,
    /// Bytes of a round, to all peers.
    pub bytes: u64,
    /// Seconds of a round: the median, and the shortest and longest.
    pub seconds: [f64; 3],
    /// GB/s at the median.
    pub gigabytes_per_second: f64,
    /// Bytes that were compared, at all peers.
    pub compared: u64,
}

/// One that gets it.
struct Target {
    peer: Peer,
    prepared: Arc<Prepared>,
    memory: Arc<HostMemory>,
    #[expect(dead_code, reason = "held for its drop")]
    engine: Engine,
}

struct Run {
    options: PatternOptions,
    pieces: Vec<Piece>,
    memory: Arc<HostMemory>,
    targets: Vec<Target>,
    engine: Engine,
}

/// Measures between software HCAs of this process: one for this end, and one for each peer.
///
/// # Errors
/// A value outside its limits, a transfer that is not done, bytes that are not what they must be.
pub fn measure(devices: &[String], options: &PatternOptions) -> Result<PatternReport, BenchError> {
    let run = Run::new(devices, options)?;
    // Every QP has sent before a clock starts.
    run.round()?;
    let mut times = Vec::new();
    for _ in 0..options.rounds {
        times.push(run.round()?.as_secs_f64());
    }
    times.sort_by(f64::total_cmp);
    let at = |nth: usize| times.get(nth).copied().unwrap_or(0.0);
    let bytes = run.bytes() * u64::from(options.peers);
    let median = at(times.len() / 2);
    #[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
    let gigabytes_per_second = bytes as f64 / median / 1e9;
    Ok(PatternReport {
        ran_on: "softhca",
        options: *options,
        operations: run.pieces.len() as u64,
        bytes,
        seconds: [median, at(0), at(times.len() - 1)],
        gigabytes_per_second,
        compared: run.compare()?,
    })
}

fn start(
    device: &str,
    name: &str,
    options: &PatternOptions,
) -> Result<(Engine, Arc<HostMemory>), BenchError> {
    let context = Context::open(&DeviceSelector::Name(device.to_owned()))?;
    let config = EngineConfig::from_env(name)?
        .with_workers(options.workers)
        .with_qps(options.qps)
        .with_slice(options.slice)
        .with_engine_path(EnginePath::Nic);
    let engine = Engine::new(&context, config)?;
    let memory = HostMemory::new(MEMORY).map_err(HostError::from)?;
    Ok((engine, Arc::new(memory)))
}

impl Run {
    fn new(devices: &[String], options: &PatternOptions) -> Result<Self, BenchError> {
        let [source, others @ ..] = devices else {
            return Err(wrong(options, "no software HCA is listed".to_owned()));
        };
        if others.len() != options.peers as usize {
            let found = others.len();
            let detail = format!("{found} HCAs for {} peers", options.peers);
            return Err(wrong(options, detail));
        }
        let (engine, memory) = start(source, "source", options)?;
        engine.register(&memory)?;
        let pieces = options
            .pattern
            .pieces(&mut fastrand::Rng::with_seed(options.seed));
        let mut targets = Vec::new();
        for (nth, device) in others.iter().enumerate() {
            let (other, there) = start(device, &format!("peer-{nth}"), options)?;
            let region = other.register(&there)?;
            let address = other.listen(SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 0))?;
            let peer = engine.connect(&address.to_string())?;
            let descriptor = other.descriptor(region)?;
            peer.import(&descriptor).map_err(HostError::from)?;
            let operations: Vec<Operation> = pieces
                .iter()
                .map(|piece| Operation {
                    kind: Kind::Write,
                    local: memory.address() + piece.from,
                    remote: there.address() + piece.to,
                    bytes: piece.bytes,
                })
                .collect();
            targets.push(Target {
                prepared: peer.prepare(&operations).map_err(HostError::from)?,
                peer,
                memory: there,
                engine: other,
            });
        }
        Ok(Self {
            options: *options,
            pieces,
            memory,
            targets,
            engine,
        })
    }

    /// Bytes that one peer gets.
    fn bytes(&self) -> u64 {
        self.pieces.iter().map(|piece| piece.bytes).sum()
    }

    fn round(&self) -> Result<Duration, BenchError> {
        let begin = Instant::now();
        let posted = self
            .targets
            .iter()
            .map(|it| it.peer.post(&it.prepared, &Options::default()));
        let ids: Vec<_> = posted.collect::<Result<_, _>>().map_err(HostError::from)?;
        for id in &ids {
            let status = self.engine.wait(*id, PATIENCE).map_err(HostError::from)?;
            if status != Status::Concluded(Outcome::Done) {
                return Err(wrong(&self.options, format!("{status:?}")));
            }
        }
        let time = begin.elapsed();
        for id in ids {
            self.engine.release(id).map_err(HostError::from)?;
        }
        Ok(time)
    }

    /// Fills all ends, moves once more, and compares all that the peers have. How many bytes.
    fn compare(&self) -> Result<u64, BenchError> {
        let sent = filled(&self.memory, 1)?;
        let mut wanted = Vec::new();
        for (seed, target) in (2..).zip(&self.targets) {
            let mut bytes = filled(&target.memory, seed)?;
            for piece in &self.pieces {
                let [from, to] = [piece.from, piece.to].map(|at| range(at, piece.bytes));
                bytes[to].copy_from_slice(&sent[from]);
            }
            wanted.push(bytes);
        }
        self.round()?;
        let mut compared = 0;
        for (nth, (target, wanted)) in self.targets.iter().zip(wanted).enumerate() {
            let mut found = vec![0; wanted.len()];
            target.memory.read(0, &mut found).map_err(HostError::from)?;
            if let Some(at) = found.iter().zip(&wanted).position(|(a, b)| a != b) {
                let detail = format!("byte {at} of peer {nth} is another");
                return Err(wrong(&self.options, detail));
            }
            compared += found.len() as u64;
        }
        Ok(compared)
    }
}

fn range(at: u64, bytes: u64) -> std::ops::Range<usize> {
    let [first, end] = [at, at + bytes].map(|it| usize::try_from(it).unwrap_or(usize::MAX));
    first..end
}

/// The bytes of all of it, which are new.
fn filled(memory: &HostMemory, seed: u64) -> Result<Vec<u8>, BenchError> {
    let mut bytes = vec![0; usize::try_from(MEMORY).unwrap_or_default()];
    fastrand::Rng::with_seed(seed).fill(&mut bytes);
    memory.write(0, &bytes).map_err(HostError::from)?;
    Ok(bytes)
}

fn wrong(options: &PatternOptions, detail: String) -> BenchError {
    let case = options.pattern.to_string();
    BenchError::Wrong { case, detail }
}

impl fmt::Display for PatternReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let PatternOptions {
            pattern,
            peers,
            workers,
            qps,
            slice,
            rounds,
            seed,
        } = self.options;
        writeln!(
            f,
            "{}: {workers} workers, {qps} QPs, slices of {slice} bytes, {rounds} rounds, seed {seed} (no speed of a NIC)",
            self.ran_on
        )?;
        let [median, least, most] = self.seconds.map(|seconds| seconds * 1e3);
        writeln!(
            f,
            "{pattern}: {} operations to each of {peers} peers, {} bytes in all, {median:.2} ms ({least:.2}..{most:.2}), {:.2} GB/s; {} bytes compared",
            self.operations, self.bytes, self.gigabytes_per_second, self.compared
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_lie_in_the_memory_and_overlap_at_no_end() {
        for shape in [Shape::Kv, Shape::Weights, Shape::Fill] {
            for seed in 0..20 {
                let pieces = shape.pieces(&mut fastrand::Rng::with_seed(seed));
                assert!(!pieces.is_empty());
                for place in [|it: &Piece| it.from, |it: &Piece| it.to] {
                    let mut ranges: Vec<_> =
                        pieces.iter().map(|it| (place(it), it.bytes)).collect();
                    ranges.sort_unstable();
                    let mut end = 0;
                    for (at, bytes) in ranges {
                        assert!(at >= end && bytes > 0, "{shape} {seed}");
                        end = at + bytes;
                    }
                    assert!(end <= MEMORY, "{shape} {seed}");
                }
            }
        }
    }
}
