//! What registering memory costs a host engine, and what it costs to find the region of an address.
//!
//! Registering asks an HCA, and so does making a key for a peer. On a software HCA the times show what the engine adds, and no speed of a
//! NIC or of pinning. Finding a region asks no HCA. Each registration of memory of a GPU has a DMA-BUF of its own while it lasts.

use std::fmt;
use std::hint::black_box;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use serde::Serialize;
use warpverbs::internal::engine::{
    AnyMemory, Engine, EngineConfig, EngineDevice, HostError, RegionId, RegionTable, Regions,
    Rights,
};

use super::memory::{EndMemory, Memories, MemoryChoice, MemoryKind, ran_on};
use super::spread::spread;
use crate::error::BenchError;

/// The number of tensors of a model whose buffer is one region.
const TENSORS: u32 = 1265;
/// The number of bytes of a region, and from one region to the next in tables.
const BYTES: u64 = 4096;
/// The number of keys that a peer gets in a round.
const KEYS: u32 = 100;
/// The number of lookups of a round.
const LOOKUPS: u32 = 200_000;

/// The setting of a run.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct RegionOptions {
    /// The number of regions of the engine, and of the table.
    pub(crate) regions: u32,
    /// The number of bytes of the buffer that is one region.
    pub(crate) buffer: u64,
    /// The number of rounds of each measurement.
    pub(crate) rounds: u32,
    /// The seed of the addresses that are looked up.
    pub(crate) seed: u64,
}

/// The results of a run.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct RegionReport {
    /// The name of the device, or that it is software, and the GPU that has the memory.
    pub(crate) ran_on: String,
    /// The device with its provider, and of libfabric with its fabric.
    pub(crate) device: String,
    /// The memory that was registered, and how it was.
    pub(crate) memory: MemoryKind,
    /// The setting of the run.
    pub(crate) options: RegionOptions,
    /// The rows, one for each way to register.
    pub(crate) rows: Vec<Row>,
    /// Microseconds to make a key for a peer over a part of a region, and to end a key: the median round, the shortest and the longest.
    pub(crate) key_us: [[f64; 3]; 2],
    /// Nanoseconds to find the region of an address among all: the median round, the shortest and the longest.
    pub(crate) lookup_ns: [f64; 3],
}

/// The result for one way to register.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Row {
    /// The way, in words.
    pub(crate) what: &'static str,
    /// The number of regions that were registered in a round.
    pub(crate) regions: usize,
    /// The number of bytes that are registered then. Bytes of several regions count once.
    pub(crate) bytes: u64,
    /// The number of registrations of these regions, as descriptors tell them apart.
    pub(crate) registrations: usize,
    /// Milliseconds of a round: the median, the shortest and the longest.
    pub(crate) milliseconds: [f64; 3],
}

/// Measures what it costs to register regions and to find them, on `device` with memory of the kind `memory`.
///
/// # Errors
/// The engine refuses a call, or the memory cannot be had.
pub(crate) fn measure(
    device: &EngineDevice,
    memory: MemoryChoice,
    options: &RegionOptions,
) -> Result<RegionReport, BenchError> {
    let engine = Engine::new(device, EngineConfig::from_env("regions")?)?;
    let [apart, tensors, buffer] = [
        u64::from(options.regions) * 2 * BYTES,
        u64::from(TENSORS) * BYTES,
        options.buffer,
    ]
    .map(|bytes| EndMemory::new(&engine, memory, bytes));
    let (apart, tensors, buffer) = (apart?, tensors?, buffer?);
    let (first, kind) = buffer.register(&engine)?;
    engine.deregister(first)?;
    let apart = parts(&apart, options.regions, 2 * BYTES)?;
    let mut of_one = parts(&tensors, TENSORS, BYTES)?;
    let one = |memory: &AnyMemory| engine.register(memory);
    let one_by_one = |memories: &[AnyMemory]| memories.iter().map(one).collect();
    let in_a_list = |memories: &[AnyMemory]| engine.register_all(memories);
    let row =
        |what, memories: &[AnyMemory], register| row(&engine, (what, memories), options, register);
    let mut rows = vec![
        row("one buffer", &[buffer.any()], &in_a_list)?,
        row("one by one", &apart, &one_by_one)?,
        row("in one list", &apart, &in_a_list)?,
        row("apart, in one list", &of_one, &in_a_list)?,
    ];
    // The list begins with the buffer in which the tensors lie.
    of_one.insert(0, tensors.any());
    rows.push(row("of one buffer, in one list", &of_one, &in_a_list)?);
    let memories = Memories {
        here: kind.clone(),
        peers: Vec::new(),
    };
    Ok(RegionReport {
        ran_on: ran_on(std::slice::from_ref(device), &memories),
        device: device.to_string(),
        memory: kind,
        options: *options,
        key_us: keys(device, (&engine, &tensors), options)?,
        rows,
        lookup_ns: lookups(options)?,
    })
}

/// Returns `count` parts of memory that is in no region, each [`BYTES`] long.
fn parts(whole: &EndMemory, count: u32, stride: u64) -> Result<Vec<AnyMemory>, BenchError> {
    let part = |nth| whole.part(u64::from(nth) * stride, BYTES);
    (0..count).map(part).collect()
}

/// A function that registers memories.
type Register<'a> = &'a dyn Fn(&[AnyMemory]) -> Result<Vec<RegionId>, HostError>;

/// Registers these memories again and again, and returns the row of that.
fn row(
    engine: &Engine,
    (what, memories): (&'static str, &[AnyMemory]),
    options: &RegionOptions,
    register: Register<'_>,
) -> Result<Row, BenchError> {
    let (mut times, mut registered) = (Vec::new(), Vec::new());
    for _ in 0..options.rounds {
        let begin = Instant::now();
        let regions = register(memories)?;
        times.push(begin.elapsed().as_secs_f64() * 1e3);
        registered.clear();
        for region in &regions {
            let of = engine.descriptor(*region)?;
            registered.push((of.address, of.bytes));
        }
        registered.sort_unstable();
        registered.dedup();
        for region in regions {
            engine.deregister(region)?;
        }
    }
    Ok(Row {
        what,
        regions: memories.len(),
        bytes: registered.iter().map(|(_, bytes)| bytes).sum(),
        registrations: registered.len(),
        milliseconds: spread(times),
    })
}

/// Makes keys for a peer, which is an engine on this device too, and ends them.
fn keys(
    device: &EngineDevice,
    (engine, memory): (&Engine, &EndMemory),
    options: &RegionOptions,
) -> Result<[[f64; 3]; 2], BenchError> {
    let other = Engine::new(device, EngineConfig::from_env("peer")?)?;
    let place = other.listen(SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 0).into())?;
    let peer = engine.connect(&place.to_string())?;
    let (region, _) = memory.register(engine)?;
    let mut times = [Vec::new(), Vec::new()];
    let each = |time: Duration| time.as_secs_f64() * 1e6 / f64::from(KEYS);
    for _ in 0..options.rounds {
        let begin = Instant::now();
        let grant = |nth| {
            let address = memory.address() + u64::from(nth) * BYTES;
            peer.grant(address, BYTES, Rights::Both, None)
        };
        let grants = (0..KEYS).map(grant).collect::<Result<Vec<_>, _>>()?;
        times[0].push(each(begin.elapsed()));
        let begin = Instant::now();
        for grant in &grants {
            engine.revoke(grant)?;
        }
        times[1].push(each(begin.elapsed()));
    }
    engine.deregister(region)?;
    Ok(times.map(spread))
}

/// Looks random addresses up in a table of regions. Each region reaches up to the begin of the next, less one byte.
fn lookups(options: &RegionOptions) -> Result<[f64; 3], BenchError> {
    let wrong = |detail: String| BenchError::Wrong {
        case: "table of regions".to_owned(),
        detail,
    };
    let mut table = RegionTable::default();
    for nth in 0..u64::from(options.regions) {
        if !table.insert(nth * BYTES, BYTES - 1) {
            return Err(wrong(format!("region {nth} overlaps another")));
        }
    }
    let mut random = fastrand::Rng::with_seed(options.seed);
    let span = u64::from(options.regions) * BYTES;
    let addresses: Vec<u64> = (0..LOOKUPS).map(|_| random.u64(..span)).collect();
    for address in &addresses {
        let found = table.region_of(*address).map(|region| region.address);
        let is_inside = address % BYTES < BYTES - 1;
        if found != is_inside.then_some(address / BYTES * BYTES) {
            return Err(wrong(format!("{address:#x} is found at {found:?}")));
        }
    }
    let mut times = Vec::new();
    for _ in 0..options.rounds {
        let begin = Instant::now();
        for address in &addresses {
            black_box(table.region_of(black_box(*address)));
        }
        times.push(begin.elapsed().as_secs_f64() * 1e9 / f64::from(LOOKUPS));
    }
    Ok(spread(times))
}

impl fmt::Display for RegionReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rounds = self.options.rounds;
        writeln!(f, "{}: {rounds} rounds", self.ran_on)?;
        writeln!(f, "on {}", self.device)?;
        writeln!(f, "memory: {}", self.memory)?;
        writeln!(
            f,
            "{:28} {:>10} {:>14} {:>14} {:>26}",
            "registered", "regions", "bytes", "registrations", "ms: median (spread)"
        )?;
        for row in &self.rows {
            let [median, least, most] = row.milliseconds;
            writeln!(
                f,
                "{:28} {:>10} {:>14} {:>14} {:>26}",
                row.what,
                row.regions,
                row.bytes,
                row.registrations,
                format!("{median:.2} ({least:.2}..{most:.2})")
            )?;
        }
        let [make, end] = self
            .key_us
            .map(|[median, least, most]| format!("{median:.2} us ({least:.2}..{most:.2})"));
        writeln!(f, "a key for a peer is made in {make} and ended in {end}")?;
        let [median, least, most] = self.lookup_ns;
        writeln!(
            f,
            "one of {} regions is found in {median:.1} ns ({least:.1}..{most:.1})",
            self.options.regions
        )
    }
}
