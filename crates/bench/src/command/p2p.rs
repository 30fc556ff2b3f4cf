//! `wv bench p2p`: the host engine over a sink, or on two software HCAs of a second process of this program. It also measures the engine's
//! copies within a machine, to such a process. Patterns of real programs go to engines of such a process, or of other processes that serve.

use std::env;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

use clap::{Args, ValueEnum};
use warpverbs::config::EngineConfig;

use super::finish::{finish, refuse};
use super::inside;
use super::serve::{MemoryArgs, ServeArgs, named_devices};
use crate::error::BenchError;
use crate::host::local::{self, LocalReport};
use crate::host::p2p::{P2pOptions, P2pReport, measure_sink, measure_softhca};
use crate::host::patterns::{self, MOST_PEERS, PatternOptions, PatternReport, Shape};
use warpverbs_cli::number;

/// Options of `wv bench p2p`.
#[derive(Args, Debug)]
pub struct P2pArgs {
    /// Lanes of the engine: sink, which completes slices and moves no bytes, or software HCAs
    #[arg(long, value_enum, default_value_t = Devices::Sink)]
    device: Devices,
    /// Measure the local path: copies to another process of this machine, mapped, by the kernel and by a GPU (--gpu). Beside them: memcpy, a
    /// bare loop of the kernel's calls
    #[arg(long, value_enum)]
    path: Option<Path>,
    /// Measure what programs move, on software HCAs: scattered pages, tensors for several peers, or large blocks. Every byte of every
    /// peer is compared
    #[arg(long, value_enum, conflicts_with_all = ["path", "device"])]
    pattern: Option<Pattern>,
    /// Move it to the processes that serve at these addresses, from the devices that WARPVERBS_DEVICE names, by the provider that
    /// WARPVERBS_PROVIDER names
    #[arg(
        long,
        value_name = "HOST:PORT",
        value_delimiter = ',',
        requires = "pattern"
    )]
    to: Vec<String>,
    #[command(flatten)]
    serve: ServeArgs,
    #[command(flatten)]
    memory: MemoryArgs,
    /// Read the pattern from the peers, in place of writing it to them
    #[arg(long, requires = "pattern")]
    read: bool,
    /// Bytes of the memory of each engine, of which a pattern moves about half; with --serve, the most that a run may have
    /// [default: 64 MiB; 8 GiB with --serve]
    #[arg(long, value_parser = number::any::<u64>())]
    bytes: Option<u64>,
    /// Bytes of a block of the pattern fill
    #[arg(long, default_value_t = 1 << 22, requires = "pattern", value_parser = number::any::<u64>())]
    block: u64,
    /// Engines of this process that get the pattern [default: 3 of weights, 1 of others]
    #[arg(long, value_name = "N", requires = "pattern", conflicts_with = "to", value_parser = number::within(1..=MOST_PEERS))]
    peers: Option<u32>,
    /// Seed of the pattern's lengths and places
    #[arg(long, default_value_t = 1, requires = "pattern", value_parser = number::any::<u64>())]
    seed: u64,
    /// Threads that post, 1 to 8 [default: what WARPVERBS_ENGINE_WORKERS says]
    #[arg(long, value_parser = number::any::<u32>())]
    workers: Option<u32>,
    /// QPs of the connection, 1 to 8 [default: what WARPVERBS_ENGINE_QPS says]
    #[arg(long, value_parser = number::any::<u32>())]
    qps: Option<u32>,
    /// Bytes of a slice [default: what WARPVERBS_ENGINE_SLICE says]
    #[arg(long, value_parser = number::any::<u32>())]
    slice: Option<u32>,
    /// Rounds of each pattern, at least 1
    #[arg(long, default_value_t = 15, value_parser = number::within(1_u32..=100_000))]
    rounds: u32,
    /// Where to write the result as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// This process has the software HCAs
    #[arg(long, hide = true)]
    inside: bool,
    /// This process is the other one of the local path
    #[arg(long, hide = true)]
    other: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Path {
    Local,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Pattern {
    Kv,
    Weights,
    Fill,
}

impl Pattern {
    fn shape(self) -> Shape {
        match self {
            Self::Kv => Shape::Kv,
            Self::Weights => Shape::Weights,
            Self::Fill => Shape::Fill,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Devices {
    Sink,
    Softhca,
}

/// Runs `wv bench p2p`.
pub(super) fn run(args: &P2pArgs) -> ExitCode {
    let most = args.bytes.unwrap_or(8 << 30);
    let memory = (args.memory.here(), most);
    if let Some(code) = args.serve.run(memory, |config| args.set(config)) {
        return code;
    }
    if let Err(error) = args.check_memory() {
        return refuse(&error);
    }
    if let (Some(pattern), false) = (args.pattern, args.to.is_empty()) {
        return finish(measure_to(args, pattern), args.json.as_deref());
    }
    let is_soft = args.device == Devices::Softhca;
    if (is_soft || args.path.is_some() || args.pattern.is_some()) && !args.inside {
        let peers = args.pattern.map_or(1, |pattern| args.peers(pattern));
        return match inside::start(1 + peers) {
            Ok(code) => code,
            Err(error) => refuse(&error),
        };
    }
    if let Some(pattern) = args.pattern {
        return finish(measure_pattern(args, pattern), args.json.as_deref());
    }
    match (args.path, args.other) {
        (None, _) => finish(measure(args), args.json.as_deref()),
        (Some(Path::Local), false) => finish(measure_local(args), args.json.as_deref()),
        (Some(Path::Local), true) => {
            match first_device().and_then(|device| local::serve(&device, args.memory.here())) {
                Ok(()) => ExitCode::SUCCESS,
                Err(error) => refuse(&error),
            }
        }
    }
}

impl P2pArgs {
    fn peers(&self, pattern: Pattern) -> u32 {
        let by_pattern = if pattern == Pattern::Weights { 3 } else { 1 };
        self.peers.unwrap_or(by_pattern)
    }

    /// Refuses memory of a GPU where nothing moves it.
    fn check_memory(&self) -> Result<(), BenchError> {
        match (self.pattern, self.path, self.device) {
            (Some(_), ..) => Ok(()),
            (None, Some(Path::Local), _) => self
                .memory
                .refuse_peers("as --gpu with --path local, whose two ends have memory of one GPU"),
            (None, None, Devices::Sink) => self.memory.refuse(
                "none with --device sink, which moves no bytes; a --pattern moves memory of a GPU",
            ),
            (None, None, Devices::Softhca) => self
                .memory
                .refuse("none without --pattern, which moves memory of a GPU"),
        }
    }

    /// Returns `config` with the values that these options give.
    fn set(&self, config: EngineConfig) -> EngineConfig {
        let (workers, qps, slice) = (config.workers, config.qps, config.slice);
        config
            .with_workers(self.workers.unwrap_or(workers))
            .with_qps(self.qps.unwrap_or(qps))
            .with_slice(self.slice.unwrap_or(slice))
    }

    fn pattern_options(&self, pattern: Pattern, peers: u32) -> Result<PatternOptions, BenchError> {
        let config = self.set(EngineConfig::from_env("bench")?);
        Ok(PatternOptions {
            pattern: pattern.shape(),
            reads: self.read,
            peers,
            bytes: self.bytes.unwrap_or(1 << 26),
            block: self.block,
            workers: config.workers,
            qps: config.qps,
            slice: config.slice,
            rounds: self.rounds,
            seed: self.seed,
        })
    }
}

/// Measures a pattern between engines of this process.
fn measure_pattern(args: &P2pArgs, pattern: Pattern) -> Result<PatternReport, BenchError> {
    let options = args.pattern_options(pattern, args.peers(pattern))?;
    patterns::measure(&inside::devices()?, args.memory.both(), &options)
}

/// Measures a pattern to engines of other processes.
fn measure_to(args: &P2pArgs, pattern: Pattern) -> Result<PatternReport, BenchError> {
    let peers = u32::try_from(args.to.len()).unwrap_or(u32::MAX);
    let options = args.pattern_options(pattern, peers)?;
    let devices = named_devices()?;
    patterns::measure_to((&devices, args.memory.here()), &args.to, &options)
}

/// Measures between this process and another process of this program, each with software HCAs of its own.
fn measure_local(args: &P2pArgs) -> Result<LocalReport, BenchError> {
    let program = env::current_exe().map_err(|error| BenchError::Wrong {
        case: "this program".to_owned(),
        detail: error.to_string(),
    })?;
    let mut other = Command::new(program);
    other.args(["bench", "p2p", "--path", "local", "--inside", "--other"]);
    let gpu = args.memory.here();
    other.args(["--gpu", &gpu.to_string()]);
    local::measure((&first_device()?, gpu), other, args.rounds)
}

fn first_device() -> Result<String, BenchError> {
    let first = inside::devices()?.into_iter().next();
    first.ok_or_else(|| BenchError::Wrong {
        case: "software HCAs".to_owned(),
        detail: "none is listed".to_owned(),
    })
}

fn measure(args: &P2pArgs) -> Result<P2pReport, BenchError> {
    let config = args.set(EngineConfig::from_env("bench")?);
    let options = P2pOptions {
        workers: config.workers,
        qps: config.qps,
        slice: config.slice,
        rounds: args.rounds,
    };
    match args.device {
        Devices::Sink => measure_sink(&options),
        Devices::Softhca => {
            let devices = inside::devices()?;
            let [a, b] = devices.as_slice() else {
                return Err(BenchError::Wrong {
                    case: "software HCAs".to_owned(),
                    detail: format!("{devices:?}; they must be two"),
                });
            };
            measure_softhca([a, b], &options)
        }
    }
}
