//! What the local path of the host engine costs: transfers between two processes of this machine. In the same run a yardstick moves the
//! same bytes: a memcpy, or a bare loop of the system calls by which the kernel copies. For memory of a GPU the yardstick is a copy by that
//! GPU within this process.
//!
//! The other process is this program again: it has one region that both map, one that the kernel copies, and one of the GPU's memory.
//! Engine and yardstick take turns, so that other load of the machine falls on both. The written bytes are read back and compared.

// UNSAFETY: the two system calls that are the yardstick, and the copy by a GPU that is.
#![expect(unsafe_code, reason = "process_vm_readv, process_vm_writev, Gpu::copy")]

use std::fmt;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::Serialize;
use warpverbs::gpu::CopyPiece;
use warpverbs::internal::engine::{
    DESCRIPTOR_BYTES, Descriptor, Engine, EngineConfig, EnginePath, HostError, HostMemory, Kind,
    Operation, Options, Outcome, Peer, PeerPath, Prepared, Status,
};

use super::memory::{EndMemory, MemoryChoice};
use super::spread::spread;
use crate::error::BenchError;

/// Longest wait for a transfer; far more than any takes.
const PATIENCE: Duration = Duration::from_secs(120);
/// The number of bytes of each memory, and of all transfers of a round.
const BYTES: u64 = 1 << 25;
/// The number of bytes that one call of the bare loop copies. The engine's calls copy as many.
const CALL: usize = 1 << 20;
/// The numbers of bytes of a transfer.
const SIZES: [u64; 2] = [1 << 20, 1 << 24];

/// The results of a run.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct LocalReport {
    /// The number of threads that copy.
    pub(crate) workers: u32,
    /// The number of bytes of a slice.
    pub(crate) slice: u32,
    /// The number of rounds of each row.
    pub(crate) rounds: u32,
    /// The GPU whose memory is copied; None if no GPU was chosen.
    pub(crate) gpu: Option<String>,
    /// The rows, one for each way, direction and length.
    pub(crate) rows: Vec<LocalRow>,
}

/// The rates of transfers of one kind.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct LocalRow {
    /// The way of the bytes: `mapped`, `process_vm` or `gpu`.
    pub(crate) way: &'static str,
    /// The direction: `write` or `read`.
    pub(crate) kind: &'static str,
    /// The number of bytes of a transfer.
    pub(crate) bytes: u64,
    /// The rate of the engine, GB/s: the median, the lowest and the highest.
    pub(crate) engine: [f64; 3],
    /// The rate of the yardstick (memcpy, the bare loop, or the copy of the GPU), GB/s: the median, the lowest and the highest.
    pub(crate) bare: [f64; 3],
    /// The engine's median divided by the yardstick's.
    pub(crate) ratio: f64,
    /// The number of bytes that were compared.
    pub(crate) compared: u64,
}

/// The other process, with which this one measures.
struct Other {
    child: Child,
    /// The address of its engine, and the descriptors of its regions.
    address: String,
    regions: Vec<Descriptor>,
}

impl Drop for Other {
    fn drop(&mut self) {
        // The other process ends when its input ends.
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}

/// Runs the other process: offers its regions until its input ends.
///
/// # Errors
/// What the engine refuses.
pub(crate) fn serve(device: &str, gpu: MemoryChoice) -> Result<(), BenchError> {
    let engine = Engine::start(config("other", device)?)?;
    let host = [HostMemory::shared(BYTES), HostMemory::new(BYTES)];
    let host: Result<Vec<_>, _> = host.into_iter().collect();
    let host = host.map_err(HostError::from)?.into_iter();
    let memories = host.map(|memory| EndMemory::Host(Arc::new(memory)));
    let mut line = String::new();
    for memory in memories.chain(of_gpu(&engine, gpu)?) {
        let (region, _) = memory.register(&engine)?;
        for byte in engine.descriptor(region)?.to_bytes() {
            line += &format!("{byte:02x}");
        }
    }
    let address = engine.listen(SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 0).into())?;
    let told = writeln!(std::io::stdout(), "{address} {line}");
    told.map_err(|error| wrong("the other process", error.to_string()))?;
    // Wait until the input ends.
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
    Ok(())
}

/// Measures between this process and `other`, which runs [`serve`].
///
/// # Errors
/// A value outside its limits, a peer that is not reached within the machine, or bytes that arrived wrong.
pub(crate) fn measure(
    (device, gpu): (&str, MemoryChoice),
    other: Command,
    rounds: u32,
) -> Result<LocalReport, BenchError> {
    let other = Other::start(other)?;
    let config = config("bench", device)?.with_engine_path(EnginePath::Local);
    let (workers, slice) = (config.workers, config.slice);
    let engine = Engine::start(config)?;
    let here = EndMemory::new(&engine, MemoryChoice::Host, BYTES)?;
    here.register(&engine)?;
    let gpu = of_gpu(&engine, gpu)?;
    let label = match &gpu {
        Some(memory) => Some(memory.register(&engine)?.1.to_string()),
        None => None,
    };
    let peer = engine.connect(&other.address)?;
    for region in &other.regions {
        peer.import(region).map_err(HostError::from)?;
    }
    if peer.path() != PeerPath::Machine {
        return Err(wrong(
            "the other process",
            format!("its path is {}", peer.path()),
        ));
    }
    let ends = Ends {
        engine,
        peer,
        here,
        gpu,
        other,
    };
    let mut rows = Vec::new();
    let ways = ["mapped", "process_vm", "gpu"].into_iter().enumerate();
    for (number, way) in ways.take(ends.other.regions.len()) {
        let compared = ends.compare(number)?;
        for kind in [Kind::Write, Kind::Read] {
            for bytes in SIZES {
                rows.push(ends.row((number, way), kind, bytes, rounds, compared)?);
            }
        }
    }
    Ok(LocalReport {
        workers,
        slice,
        rounds,
        gpu: label,
        rows,
    })
}

struct Ends {
    engine: Engine,
    peer: Peer,
    here: EndMemory,
    gpu: Option<EndMemory>,
    /// The last field, because the other process must be dropped last.
    other: Other,
}

impl Ends {
    fn row(
        &self,
        (number, way): (usize, &'static str),
        kind: Kind,
        bytes: u64,
        rounds: u32,
        compared: u64,
    ) -> Result<LocalRow, BenchError> {
        let region = &self.other.regions[number];
        let prepared = self.prepare(kind, (number, region.address), bytes)?;
        let apart = match (way, &self.gpu) {
            ("gpu", Some(EndMemory::Gpu(gpu, _))) => Some(EndMemory::of(Arc::clone(gpu), BYTES)?),
            _ => None,
        };
        let mut buffers = [0, 1].map(|_| vec![1u8; usize::try_from(BYTES).unwrap_or(0)]);
        let bare = |buffers: &mut [Vec<u8>; 2]| match way {
            "mapped" => Ok(copy(buffers)),
            "gpu" => self.copy_of_gpu(apart.as_ref()),
            _ => self.loop_of_calls(kind, region.address),
        };
        // This round touches every page before a clock starts.
        self.round(&prepared)?;
        bare(&mut buffers)?;
        let (mut engine, mut yardstick) = (Vec::new(), Vec::new());
        for _ in 0..rounds {
            engine.push(self.round(&prepared)?);
            yardstick.push(bare(&mut buffers)?);
        }
        let (engine, bare) = (rates(engine), rates(yardstick));
        Ok(LocalRow {
            way,
            kind: match kind {
                Kind::Write => "write",
                Kind::Read => "read",
            },
            bytes,
            engine,
            bare,
            ratio: engine[0] / bare[0],
            compared,
        })
    }

    /// Prepares all transfers of a round.
    fn prepare(
        &self,
        kind: Kind,
        (number, at): (usize, u64),
        bytes: u64,
    ) -> Result<Vec<Arc<Prepared>>, BenchError> {
        let one = |nth: u64| {
            let operation = Operation {
                kind,
                local: self.local(number).address() + nth * bytes,
                remote: at + nth * bytes,
                bytes,
            };
            Ok(self.peer.prepare(&[operation]).map_err(HostError::from)?)
        };
        (0..BYTES / bytes).map(one).collect()
    }

    fn round(&self, prepared: &[Arc<Prepared>]) -> Result<Duration, BenchError> {
        let begin = Instant::now();
        let post = |it| self.peer.post(it, &Options::default());
        let ids: Result<Vec<_>, _> = prepared.iter().map(post).collect();
        let ids = ids.map_err(HostError::from)?;
        for id in &ids {
            let status = self.engine.wait(*id, PATIENCE).map_err(HostError::from)?;
            if status != Status::Concluded(Outcome::Done) {
                return Err(wrong("a transfer", format!("{status:?}")));
            }
        }
        let time = begin.elapsed();
        for id in ids {
            self.engine.release(id).map_err(HostError::from)?;
        }
        Ok(time)
    }

    /// Returns the memory of this process that is copied to and from region `number` of the other process.
    fn local(&self, number: usize) -> &EndMemory {
        self.gpu
            .as_ref()
            .filter(|_| number == 2)
            .unwrap_or(&self.here)
    }

    /// Lets the GPU copy the bytes to other memory of the GPU in this process. Returns how long that took.
    fn copy_of_gpu(&self, apart: Option<&EndMemory>) -> Result<Duration, BenchError> {
        let (Some(EndMemory::Gpu(gpu, memory)), Some(apart)) = (&self.gpu, apart) else {
            return Err(wrong("the GPU", "it has no memory here".to_owned()));
        };
        let whole = CopyPiece {
            to: apart.address(),
            from: memory.address(),
            bytes: BYTES,
        };
        let begin = Instant::now();
        // SAFETY: both are memory of this GPU, of BYTES bytes, to which no Rust reference exists.
        unsafe { gpu.copy(&[whole]) }?;
        Ok(begin.elapsed())
    }

    /// Copies the bytes in a bare loop of the system calls that the engine makes. Returns how long that took.
    fn loop_of_calls(&self, kind: Kind, remote: u64) -> Result<Duration, BenchError> {
        let pid = libc::pid_t::try_from(self.other.child.id());
        let pid = pid.map_err(|error| wrong("the other process", error.to_string()))?;
        let begin = Instant::now();
        for offset in (0..BYTES).step_by(CALL) {
            let span = |first: u64| libc::iovec {
                iov_base: std::ptr::with_exposed_provenance_mut(
                    usize::try_from(first + offset).unwrap_or(0),
                ),
                iov_len: CALL,
            };
            let (local, remote) = (span(self.here.address()), span(remote));
            // SAFETY: the local range is of `here`, to which no Rust reference exists; the kernel checks both.
            let copied = unsafe {
                match kind {
                    Kind::Write => {
                        libc::process_vm_writev(pid, &raw const local, 1, &raw const remote, 1, 0)
                    }
                    Kind::Read => {
                        libc::process_vm_readv(pid, &raw const local, 1, &raw const remote, 1, 0)
                    }
                }
            };
            if usize::try_from(copied) != Ok(CALL) {
                let error = std::io::Error::last_os_error();
                return Err(wrong("the bare loop", format!("{copied} bytes: {error}")));
            }
        }
        Ok(begin.elapsed())
    }

    /// Writes random bytes to a region and reads them back. Returns how many bytes it compared.
    fn compare(&self, number: usize) -> Result<u64, BenchError> {
        let at = self.other.regions[number].address;
        let mut sent = vec![0; usize::try_from(BYTES).unwrap_or(0)];
        fastrand::Rng::with_seed(number as u64).fill(&mut sent);
        let local = self.local(number);
        local.write(0, &sent)?;
        self.round(&self.prepare(Kind::Write, (number, at), BYTES)?)?;
        let mut came = vec![0; sent.len()];
        local.write(0, &came)?;
        self.round(&self.prepare(Kind::Read, (number, at), BYTES)?)?;
        local.read(0, &mut came)?;
        if sent == came {
            Ok(BYTES)
        } else {
            Err(wrong("what was written", "came back otherwise".to_owned()))
        }
    }
}

impl Other {
    fn start(mut command: Command) -> Result<Self, BenchError> {
        let failed = |detail: String| wrong("the other process", detail);
        let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut child = child.map_err(|error| failed(error.to_string()))?;
        let mut line = String::new();
        if let Some(output) = child.stdout.take() {
            let read = BufReader::new(output).read_line(&mut line);
            read.map_err(|error| failed(error.to_string()))?;
        }
        let other = |address: &str, regions| Self {
            child,
            address: address.to_owned(),
            regions,
        };
        let words = line.trim().split_once(' ');
        let parsed = words.and_then(|(address, hex)| {
            let each = hex.as_bytes().chunks(2 * DESCRIPTOR_BYTES);
            let each = each.map(|hex| descriptor(std::str::from_utf8(hex).ok()?));
            let regions: Vec<Descriptor> = each.collect::<Option<_>>()?;
            (2..=3)
                .contains(&regions.len())
                .then_some((address, regions))
        });
        match parsed {
            Some((address, regions)) => Ok(other(address, regions)),
            None => Err(failed(format!("it has said {line:?}"))),
        }
    }
}

/// Returns memory of the GPU that other processes can open, or None if no GPU is chosen.
fn of_gpu(engine: &Engine, choice: MemoryChoice) -> Result<Option<EndMemory>, BenchError> {
    match choice {
        MemoryChoice::Host => Ok(None),
        MemoryChoice::Gpu(selector) => EndMemory::shared(engine.gpu(selector)?, BYTES).map(Some),
    }
}

fn descriptor(hex: &str) -> Option<Descriptor> {
    let digits = hex.as_bytes().chunks(2);
    let byte = |digits: &[u8]| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok();
    let bytes: Vec<u8> = digits.map(byte).collect::<Option<_>>()?;
    Descriptor::from_bytes(&bytes).ok()
}

/// Copies all bytes by memcpy. Returns how long that took.
fn copy([from, to]: &mut [Vec<u8>; 2]) -> Duration {
    let begin = Instant::now();
    to.copy_from_slice(std::hint::black_box(from));
    std::hint::black_box(&to);
    begin.elapsed()
}

/// Returns rates in GB/s: the median, the lowest and the highest.
fn rates(times: Vec<Duration>) -> [f64; 3] {
    #[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
    let rate = |time: &Duration| BYTES as f64 / time.as_secs_f64() / 1e9;
    spread(times.iter().map(rate).collect())
}

/// Returns the engine's configuration by the variables of this process, except for device and path.
fn config(name: &str, device: &str) -> Result<EngineConfig, BenchError> {
    let device = |variable: &str| match variable {
        "WARPVERBS_DEVICE" => Some(device.into()),
        "WARPVERBS_ENGINE_PATH" => None,
        _ => std::env::var_os(variable),
    };
    Ok(EngineConfig::from_variables(name, device)?)
}

fn wrong(case: &str, detail: String) -> BenchError {
    BenchError::Wrong {
        case: case.to_owned(),
        detail,
    }
}

impl fmt::Display for LocalReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            workers,
            slice,
            rounds,
            gpu,
            rows,
        } = self;
        writeln!(
            f,
            "local path: {workers} workers, slices of {slice} bytes, {rounds} rounds of {BYTES} bytes; beside memcpy (mapped) and a bare loop of calls of {CALL} bytes (process_vm)"
        )?;
        if let Some(gpu) = gpu {
            writeln!(
                f,
                "memory of {gpu}; beside a copy by the GPU within this process (gpu)"
            )?;
        }
        writeln!(
            f,
            "{:10} {:6} {:>10} {:>22} {:>22} {:>7} {:>10}",
            "way", "kind", "bytes each", "GB/s (spread)", "bare GB/s (spread)", "ratio", "compared"
        )?;
        for row in rows {
            let told =
                |[median, least, most]: [f64; 3]| format!("{median:.2} ({least:.2}..{most:.2})");
            writeln!(
                f,
                "{:10} {:6} {:>10} {:>22} {:>22} {:>7.3} {:>10}",
                row.way,
                row.kind,
                row.bytes,
                told(row.engine),
                told(row.bare),
                row.ratio,
                row.compared
            )?;
        }
        Ok(())
    }
}
