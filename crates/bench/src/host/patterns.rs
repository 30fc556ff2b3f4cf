//! Patterns of real programs, moved by a host engine: pages of KV caches, weights for several peers, large blocks. The peers are engines of
//! this process on software HCAs, one HCA for each, or engines of other processes and machines ([`Served`]).
//!
//! One transfer writes all pieces to a peer, at other places than they come from, or reads them from the peer. After the rounds this end
//! gets new bytes and the pattern runs once more. Then all bytes of the memory that was written to are compared, also those between the
//! pieces. A peer compares what was written to it. The memory of each end is the host's or a GPU's.

use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use warpverbs::engine::{
    Engine, EngineConfig, EnginePath, HostError, Kind, Operation, Options, Outcome, Prepared,
    Status,
};
use warpverbs::verbs::{Context, DeviceSelector};

use super::BenchError;
use super::fill::ran_on;
use super::memory::{EndMemory, Memories, MemoryChoice, PIECE};
use super::served::{Others, PATIENCE, Served, Server, Setting, written};
use super::spread::spread;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
/// The most peers of one source.
pub const MOST_PEERS: u32 = 7;
/// The range of bytes of an engine's memory. It has room for the longest tensors, and no more pages than a transfer has operations.
const BYTES: std::ops::RangeInclusive<u64> = 4 * MIB..=8 << 30;

/// The kind of pieces that are moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Shape {
    /// Pages of 16, 32 and 64 KiB, scattered at both ends.
    Kv,
    /// Tensors of 4 KiB to 2 MiB, one after the other at the source and in another order at its peers.
    Weights,
    /// Blocks of one length.
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

/// Returns pieces that begin at frames of a memory. Half of the frames are used at each end, chosen and ordered at random.
fn frames(
    random: &mut fastrand::Rng,
    (memory, frame): (u64, u64),
    length: impl Fn(&mut fastrand::Rng) -> u64,
) -> Vec<Piece> {
    let mut shuffled = || {
        let mut places: Vec<u64> = (0..memory / frame).map(|nth| nth * frame).collect();
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

/// Returns pieces as the tensors of a model: most of them short, most bytes in long ones.
fn tensors(random: &mut fastrand::Rng, memory: u64) -> Vec<Piece> {
    let mut lengths = Vec::new();
    while lengths.iter().sum::<u64>() < memory / 2 {
        let log = if random.u32(0..4) == 0 {
            21
        } else {
            random.u32(12..18)
        };
        lengths.push(1 << log);
    }
    let (mut from, mut end) = (0, memory);
    let pieces = lengths.into_iter().map(|bytes| {
        let to = end - bytes;
        let piece = Piece { from, to, bytes };
        (from, end) = (from + bytes, to);
        piece
    });
    pieces.collect()
}

/// The setting of a run.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct PatternOptions {
    /// The kind of pieces that are moved.
    pub pattern: Shape,
    /// True if the pieces are read from the peers. Otherwise they are written to them.
    pub reads: bool,
    /// The number of peers.
    pub peers: u32,
    /// The number of bytes of an engine's memory.
    pub bytes: u64,
    /// The number of bytes of a block of [`Shape::Fill`].
    pub block: u64,
    /// The number of threads that post.
    pub workers: u32,
    /// The number of QPs of a connection.
    pub qps: u32,
    /// The number of bytes of a slice.
    pub slice: u32,
    /// The number of rounds of the pattern.
    pub rounds: u32,
    /// The seed of lengths, places and bytes.
    pub seed: u64,
}

/// What the bytes of a memory are: those of this end at first, those of a peer, or those of the round that is compared.
#[derive(Clone, Copy)]
enum Contents {
    AtFirst = 1,
    AtThePeer,
    Compared,
}

impl PatternOptions {
    /// Refuses options out of their ranges.
    ///
    /// # Errors
    /// The option that is out of its range, with what it may be.
    pub fn check(&self) -> Result<(), BenchError> {
        let most = self.bytes / 2;
        let least = most.div_ceil(warpverbs::engine::MOST_OPERATIONS as u64);
        for (what, value, range) in [
            ("--bytes", self.bytes, BYTES),
            ("--block", self.block, least..=most),
        ] {
            if !range.contains(&value) {
                return Err(BenchError::Option {
                    what,
                    value: value.to_string(),
                    limit: format!("{} to {}", range.start(), range.end()),
                });
            }
        }
        Ok(())
    }

    fn pieces(&self) -> Vec<Piece> {
        let random = &mut fastrand::Rng::with_seed(self.seed);
        match self.pattern {
            Shape::Kv => {
                let lengths = [16 * KIB, 32 * KIB, 64 * KIB];
                frames(random, (self.bytes, 64 * KIB), |random| {
                    lengths[random.usize(..3)]
                })
            }
            Shape::Weights => tensors(random, self.bytes),
            Shape::Fill => frames(random, (self.bytes, self.block), |_| self.block),
        }
    }

    fn contents(&self, which: Contents) -> Vec<u8> {
        let mut seeds = fastrand::Rng::with_seed(self.seed ^ (which as u64) << 32);
        let mut bytes = vec![0; range(0, self.bytes).end];
        fastrand::Rng::with_seed(seeds.u64(..)).fill(&mut bytes);
        bytes
    }

    /// Fills the memory of a peer with its bytes.
    pub(super) fn prepare(&self, memory: &EndMemory) -> Result<(), BenchError> {
        self.fill(memory, Contents::AtThePeer)
    }

    fn fill(&self, memory: &EndMemory, which: Contents) -> Result<(), BenchError> {
        memory.write(0, &self.contents(which))
    }

    /// Compares all bytes of the end that was written to, after the last round. Returns how many it compared.
    pub(super) fn compare(&self, memory: &EndMemory) -> Result<u64, BenchError> {
        let (had, came) = if self.reads {
            (Contents::Compared, Contents::AtThePeer)
        } else {
            (Contents::AtThePeer, Contents::Compared)
        };
        let (mut wanted, came) = (self.contents(had), self.contents(came));
        for piece in self.pieces() {
            let [from, to] = match self.reads {
                true => [piece.to, piece.from],
                false => [piece.from, piece.to],
            }
            .map(|at| range(at, piece.bytes));
            wanted[to].copy_from_slice(&came[from]);
        }
        let mut found = vec![0; PIECE.min(wanted.len())];
        for (piece, wanted) in (0..).step_by(PIECE).zip(wanted.chunks(PIECE)) {
            let found = &mut found[..wanted.len()];
            memory.read(piece, found)?;
            if let Some(at) = (0..wanted.len()).find(|at| found[*at] != wanted[*at]) {
                let (is, due, seed) = (found[at], wanted[at], self.seed);
                let at = piece + at as u64;
                let detail = format!("byte {at} is {is:#x}; it must be {due:#x} (seed {seed})");
                return Err(self.wrong(detail));
            }
        }
        Ok(self.bytes)
    }

    fn wrong(&self, detail: String) -> BenchError {
        let case = self.pattern.to_string();
        BenchError::Wrong { case, detail }
    }
}

/// The results of a run.
#[derive(Clone, Debug, Serialize)]
pub struct PatternReport {
    /// The names of the devices, or that they are software, and the GPUs whose memory an end uses.
    pub ran_on: String,
    /// The memory of this end and of its peers.
    pub memory: Memories,
    /// The setting of the run.
    pub options: PatternOptions,
    /// The number of operations of a transfer. Each peer gets one transfer.
    pub operations: u64,
    /// The number of bytes of a round, to all peers.
    pub bytes: u64,
    /// Seconds of a round: the median, the shortest and the longest.
    pub seconds: [f64; 3],
    /// Seconds of all rounds.
    pub total_seconds: f64,
    /// The rate of the median round, GB/s.
    pub gigabytes_per_second: f64,
    /// The number of bytes that were compared, of all peers.
    pub compared: u64,
}

/// Measures between engines of this process on these software HCAs: one for this end, and one for each peer. The two choices of memory are
/// for this end and for the peers.
///
/// # Errors
/// A value outside its limits, memory that an end cannot have, a transfer that does not end well, or bytes that are not what they must be.
pub fn measure(
    devices: &[String],
    [here, there]: [MemoryChoice; 2],
    options: &PatternOptions,
) -> Result<PatternReport, BenchError> {
    options.check()?;
    if devices.len() != options.peers as usize + 1 {
        let (found, peers) = (devices.len(), options.peers);
        return Err(options.wrong(format!("{found} HCAs for this end and {peers} peers")));
    }
    let open = |name: &String| Context::open(&DeviceSelector::Name(name.clone()));
    let contexts = devices.iter().map(open).collect::<Result<Vec<_>, _>>()?;
    let (source, others) = contexts.split_at(1);
    let any = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 0);
    let serve = |(nth, context): (usize, &Arc<Context>)| {
        let config = config(&format!("peer-{nth}"), options)?;
        let memory = (there, options.bytes);
        Served::listen(&[Arc::clone(context)], any.into(), config, memory)
    };
    let served: Result<Vec<_>, BenchError> = others.iter().enumerate().map(serve).collect();
    let served = served?;
    thread::scope(|scope| {
        for end in &served {
            scope.spawn(|| end.serve(Some(1), |_| {}));
        }
        let places: Vec<_> = served.iter().map(|it| it.address().to_string()).collect();
        let report = measure_to((source, here), &places, options);
        served.iter().for_each(Served::close);
        report
    })
}

/// Measures from an engine on these devices, with such memory, to engines that listen at `places`, as `host:port`.
///
/// # Errors
/// The errors of [`measure`].
pub fn measure_to(
    (source, memory): (&[Arc<Context>], MemoryChoice),
    places: &[String],
    options: &PatternOptions,
) -> Result<PatternReport, BenchError> {
    options.check()?;
    let mut run = Run::new((source, memory), places, options)?;
    // After this round every QP has sent, before a clock starts.
    run.round(None)?;
    let mut times = Vec::new();
    for _ in 0..options.rounds {
        times.push(run.round(None)?.as_secs_f64());
    }
    let total_seconds = times.iter().sum();
    let seconds = spread(times);
    let pieces: u64 = run.pieces.iter().map(|piece| piece.bytes).sum();
    let bytes = pieces * u64::from(options.peers);
    #[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
    let gigabytes_per_second = bytes as f64 / seconds[0] / 1e9;
    Ok(PatternReport {
        ran_on: ran_on(source, &run.memories),
        memory: run.memories.clone(),
        options: *options,
        operations: run.pieces.len() as u64,
        bytes,
        seconds,
        total_seconds,
        gigabytes_per_second,
        compared: run.compare()?,
    })
}

/// Returns the engine's configuration by the options, and by the variables of this process where the options say nothing.
fn config(name: &str, options: &PatternOptions) -> Result<EngineConfig, BenchError> {
    let config = EngineConfig::from_env(name)?
        .with_workers(options.workers)
        .with_qps(options.qps)
        .with_slice(options.slice)
        .with_engine_path(EnginePath::Nic);
    Ok(config)
}

/// This end of a run, with the prepared transfer of each peer.
struct Run {
    options: PatternOptions,
    pieces: Vec<Piece>,
    memory: EndMemory,
    memories: Memories,
    targets: Vec<(Server, Arc<Prepared>)>,
    /// Notices of peers that nobody has asked for yet.
    notices: Others,
    engine: Engine,
}

impl Run {
    fn new(
        (source, choice): (&[Arc<Context>], MemoryChoice),
        places: &[String],
        options: &PatternOptions,
    ) -> Result<Self, BenchError> {
        // Several engines may run with one peer in turn, so each has a name of its own.
        let name = format!("moves-{:016x}", fastrand::u64(..));
        let engine = Engine::on(source, config(&name, options)?)?;
        let memory = EndMemory::new(&engine, choice, options.bytes)?;
        options.fill(&memory, Contents::AtFirst)?;
        let (_, here) = memory.register(&engine)?;
        let (pieces, mut notices) = (options.pieces(), Others::default());
        let (local, mut targets, mut peers) = (memory.address(), Vec::new(), Vec::new());
        for place in places {
            let setting = Setting::Pattern(*options);
            let server = Server::begin((&engine, &mut notices), place, setting)?;
            let operation = |piece: &Piece| Operation {
                kind: if options.reads {
                    Kind::Read
                } else {
                    Kind::Write
                },
                local: local + piece.from,
                remote: server.address + piece.to,
                bytes: piece.bytes,
            };
            let operations: Vec<Operation> = pieces.iter().map(operation).collect();
            let prepared = server.peer.prepare(&operations).map_err(HostError::from)?;
            peers.push(server.memory.clone());
            targets.push((server, prepared));
        }
        Ok(Self {
            options: *options,
            pieces,
            memory,
            memories: Memories { here, peers },
            targets,
            notices,
            engine,
        })
    }

    /// Posts the transfers of all peers, each with `notice` after its last byte, and waits for all. Returns how long that took.
    fn round(&self, notice: Option<&[u8]>) -> Result<Duration, BenchError> {
        let begin = Instant::now();
        let post = |(server, prepared): &(Server, Arc<Prepared>)| {
            let options = Options::default().with_notice(notice);
            server.peer.post(prepared, &options)
        };
        let posted = self.targets.iter().map(post);
        let ids: Vec<_> = posted.collect::<Result<_, _>>().map_err(HostError::from)?;
        for id in &ids {
            let status = self.engine.wait(*id, PATIENCE).map_err(HostError::from)?;
            if status != Status::Concluded(Outcome::Done) {
                let report = self.engine.report(*id);
                return Err(self.options.wrong(format!("{status:?}: {report:?}")));
            }
        }
        let time = begin.elapsed();
        for id in ids {
            self.engine.release(id).map_err(HostError::from)?;
        }
        Ok(time)
    }

    /// Gives this end new bytes, runs the pattern once more, and has what was written compared. Returns how many bytes were compared.
    fn compare(&mut self) -> Result<u64, BenchError> {
        if self.options.reads {
            // One peer is read after another, because all of them are read to the same places.
            let mut compared = 0;
            let targets = std::mem::take(&mut self.targets);
            for target in targets {
                self.targets = vec![target];
                self.options.fill(&self.memory, Contents::Compared)?;
                self.round(None)?;
                compared += self.options.compare(&self.memory)?;
            }
            return Ok(compared);
        }
        self.options.fill(&self.memory, Contents::Compared)?;
        self.round(Some(&written(0)?))?;
        let mut compared = 0;
        for (server, _) in &self.targets {
            compared += server.compared(&self.engine, &mut self.notices)?;
        }
        Ok(compared)
    }
}

fn range(at: u64, bytes: u64) -> std::ops::Range<usize> {
    let [first, end] = [at, at + bytes].map(|it| usize::try_from(it).unwrap_or(usize::MAX));
    first..end
}

impl fmt::Display for PatternReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let PatternOptions {
            pattern,
            reads,
            peers,
            workers,
            qps,
            slice,
            rounds,
            seed,
            ..
        } = self.options;
        writeln!(
            f,
            "{}: {workers} workers, {qps} QPs, slices of {slice} bytes, {rounds} rounds, seed {seed}",
            self.ran_on
        )?;
        writeln!(f, "{}", self.memory)?;
        let [median, least, most] = self.seconds.map(|seconds| seconds * 1e3);
        let way = if reads { "from" } else { "to" };
        writeln!(
            f,
            "{pattern}: {} operations {way} each of {peers} peers, {} bytes in all, {median:.2} ms ({least:.2}..{most:.2}), {:.2} GB/s; {} bytes compared",
            self.operations, self.bytes, self.gigabytes_per_second, self.compared
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    #[cfg(feature = "cuda")]
    use crate::bench::memory::of_tests::cuda;
    use crate::bench::memory::of_tests::{host, simt};
    #[cfg(feature = "cuda")]
    use test_support::fake_cuda::FakeDriver;

    fn options(pattern: Shape, seed: u64) -> PatternOptions {
        PatternOptions {
            pattern,
            reads: false,
            peers: 1,
            bytes: 64 * MIB,
            block: 4 * MIB,
            workers: 1,
            qps: 4,
            slice: 1 << 16,
            rounds: 1,
            seed,
        }
    }

    #[test]
    fn pieces_lie_in_the_memory_and_overlap_at_no_end() {
        for pattern in [Shape::Kv, Shape::Weights, Shape::Fill] {
            for (seed, bytes) in (0..20).zip([*BYTES.start(), 64 * MIB, 100_000_000].iter().cycle())
            {
                let options = PatternOptions {
                    bytes: *bytes,
                    block: MIB + 3,
                    ..options(pattern, seed)
                };
                options.check().unwrap();
                let pieces = options.pieces();
                assert!(!pieces.is_empty());
                for place in [|it: &Piece| it.from, |it: &Piece| it.to] {
                    let mut ranges: Vec<_> =
                        pieces.iter().map(|it| (place(it), it.bytes)).collect();
                    ranges.sort_unstable();
                    let mut end = 0;
                    for (at, bytes) in ranges {
                        assert!(at >= end && bytes > 0, "{pattern} {seed}");
                        end = at + bytes;
                    }
                    assert!(end <= options.bytes, "{pattern} {seed}");
                }
            }
        }
    }

    #[test]
    fn blocks_are_no_more_than_a_transfer_has_operations() {
        let of = |bytes, block| PatternOptions {
            bytes,
            block,
            ..options(Shape::Fill, 1)
        };
        let least = of(8 << 30, 65_536);
        least.check().unwrap();
        assert_eq!(least.pieces().len(), 65_536);
        for (options, reason) in [
            (
                of(64 * MIB, 511),
                "--block is 511; it must be 512 to 33554432",
            ),
            (
                of(4 * MIB, 4 * MIB),
                "--block is 4194304; it must be 32 to 2097152",
            ),
            (
                of(MIB, MIB / 2),
                "--bytes is 1048576; it must be 4194304 to 8589934592",
            ),
        ] {
            assert_eq!(options.check().unwrap_err().to_string(), reason);
        }
    }

    /// Checks that wrong bytes are found in memory that `memory` makes. The memory is longer than one copy.
    fn wrong_bytes_are_found(memory: impl Fn(u64) -> EndMemory) {
        for reads in [false, true] {
            let options = PatternOptions {
                reads,
                bytes: 4 * MIB + 4096,
                block: 2 * MIB,
                ..options(Shape::Fill, 5)
            };
            let [had, came] = if reads {
                [Contents::Compared, Contents::AtThePeer]
            } else {
                [Contents::AtThePeer, Contents::Compared]
            };
            let (mut bytes, came) = (options.contents(had), options.contents(came));
            for piece in options.pieces() {
                let (from, to) = if reads {
                    (piece.to, piece.from)
                } else {
                    (piece.from, piece.to)
                };
                bytes[range(to, piece.bytes)].copy_from_slice(&came[range(from, piece.bytes)]);
            }
            let memory = memory(options.bytes);
            memory.write(0, &bytes).unwrap();
            assert_eq!(options.compare(&memory).unwrap(), options.bytes);
            for at in [0, 2 * MIB, PIECE as u64, options.bytes - 1] {
                let was = bytes[range(at, 1)][0];
                memory.write(at, &[!was]).unwrap();
                let said = options.compare(&memory).unwrap_err().to_string();
                assert!(said.starts_with(&format!("fill: byte {at} is")), "{said}");
                memory.write(at, &[was]).unwrap();
            }
            assert_eq!(options.compare(&memory).unwrap(), options.bytes);
        }
    }

    #[test]
    fn every_byte_that_came_otherwise_is_found() {
        for memory in [host, simt] {
            wrong_bytes_are_found(memory);
        }
    }

    #[cfg(feature = "cuda")]
    #[test]
    fn every_byte_that_came_otherwise_is_found_in_memory_of_a_gpu() {
        FakeDriver::new("").run(|_| wrong_bytes_are_found(cuda));
    }
}
