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

use serde::Serialize;
use warpverbs::engine::{
    Engine, EngineConfig, EngineDevice, EnginePath, HostError, Kind, Operation, Options, Outcome,
    Prepared, Status,
};
use warpverbs::verbs::{Context, DeviceSelector};

use super::memory::{EndMemory, Memories, MemoryChoice, ran_on};
use super::pieces::{Contents, Piece};
pub(crate) use super::pieces::{MOST_PEERS, PatternOptions, Shape};
use super::served::{Others, PATIENCE, Served, Server, Setting, written};
use super::spread::spread;
use crate::error::BenchError;

/// The results of a run.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct PatternReport {
    /// The names of the devices, or that they are software, and the GPUs whose memory an end uses.
    pub(crate) ran_on: String,
    /// The devices of this end, each with its provider, and of libfabric with its fabric.
    pub(crate) devices: Vec<String>,
    /// How often each device has refused an operation, which was tried again.
    pub(crate) refusals: Vec<u64>,
    /// The memory of this end and of its peers.
    pub(crate) memory: Memories,
    /// The setting of the run.
    pub(crate) options: PatternOptions,
    /// The number of operations of a transfer. Each peer gets one transfer.
    pub(crate) operations: u64,
    /// The number of bytes of a round, to all peers.
    pub(crate) bytes: u64,
    /// Seconds of a round: the median, the shortest and the longest.
    pub(crate) seconds: [f64; 3],
    /// Seconds of all rounds.
    pub(crate) total_seconds: f64,
    /// The rate of the median round, GB/s.
    pub(crate) gigabytes_per_second: f64,
    /// The number of bytes that were compared, of all peers.
    pub(crate) compared: u64,
}

/// Measures between engines of this process on these software HCAs: one for this end, and one for each peer. The two choices of memory are
/// for this end and for the peers.
///
/// # Errors
/// A value outside its limits, memory that an end cannot have, a transfer that does not end well, or bytes that are not what they must be.
pub(crate) fn measure(
    devices: &[String],
    [here, there]: [MemoryChoice; 2],
    options: &PatternOptions,
) -> Result<PatternReport, BenchError> {
    options.check()?;
    if devices.len() != options.peers as usize + 1 {
        let (found, peers) = (devices.len(), options.peers);
        return Err(options.wrong(format!("{found} HCAs for this end and {peers} peers")));
    }
    let open = |name: &String| {
        let context = Context::open(&DeviceSelector::Name(name.clone()));
        context.map(EngineDevice::from)
    };
    let opened = devices.iter().map(open).collect::<Result<Vec<_>, _>>()?;
    let (source, others) = opened.split_at(1);
    let any = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 0);
    let serve = |(nth, device): (usize, &EngineDevice)| {
        let config = config(&format!("peer-{nth}"), options)?;
        let memory = (there, options.bytes);
        Served::listen(std::slice::from_ref(device), any.into(), config, memory)
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
pub(crate) fn measure_to(
    (source, memory): (&[EngineDevice], MemoryChoice),
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
        devices: source.iter().map(ToString::to_string).collect(),
        refusals: run.engine.rails().iter().map(|it| it.refusals).collect(),
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
        (source, choice): (&[EngineDevice], MemoryChoice),
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
        for (device, refusals) in self.devices.iter().zip(&self.refusals) {
            writeln!(f, "from {device}, {refusals} operations tried again")?;
        }
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
