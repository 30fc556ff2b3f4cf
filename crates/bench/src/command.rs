//! `wv bench`: measurements, see [`crate::bench`].

mod device;
mod engine;
mod fill;
mod group;
mod inside;
mod moe;
mod others;
mod p2p;
mod regions;
mod rejoin;
mod serve;

use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use serde::Serialize;

use super::number;
use super::output;
use crate::bench::post::{self, Case, PostOptions, Scope, Sharing, all_cases};
use crate::bench::{BenchError, Report};
use warpverbs::gpu::{self, GpuSelector};

/// What to measure.
#[derive(Subcommand, Debug)]
pub enum BenchCommand {
    /// Measure what a put costs the thread that posts it, and how many puts a second it posts. The rings are in device memory, and
    /// a block of the same kernel answers their doorbells as a NIC would. No NIC is used, and none is measured
    Post(PostArgs),
    /// Measure the same puts by one thread, with this project's headers and with those of other projects. `./x gpu others` compiles
    /// the latter. All post to the same rings and sink
    Others(others::OthersArgs),
    /// Print what a GPU, its driver and its machine report, and what the driver has made of the kernels: registers, spills
    Facts(device::DeviceArgs),
    /// Measure what single operations of a GPU cost: atomics, loads, fences after stores, stores to a register, barriers of a
    /// grid, launches. Print the step of its clock
    Primitives(device::DeviceArgs),
    /// Check that doorbells of a GPU reach a CPU that exchanges the register, for each way to map the register's page
    Registers(device::RegistersArgs),
    /// Count what a MoE step puts on the wire: work requests, doorbells, signals and bytes of dispatch and combine. The counts come
    /// from software HCAs and kernels on the CPU, beside what DeepEP's algorithm needs; they are no times. Then measure how fast
    /// the kernels of one rank move tokens on a GPU, beside a copy. Without a GPU that figure is left out
    Moe(moe::MoeArgs),
    /// Measure what a returning rank costs the others, in commands, memory and time. Its QPs are reset in place, beside all QPs
    /// of all ranks made again. Ranks are threads, on software HCAs
    Rejoin(rejoin::RejoinArgs),
    /// Count what a group of ranks asks of its store, and how long its changes take. Cases: in peace, a death and a join,
    /// bring-up, and a newcomer that dies again and again. Ranks are threads over a simulated fabric; no HCA and no GPU is used,
    /// or measured
    Group(group::GroupArgs),
    /// Measure what the host engine costs: transfers of large blocks, pages and words over lanes without an HCA. Or between two
    /// engines of one process on software HCAs, with every byte compared. What programs move (--pattern) goes to peers of this process,
    /// or of other processes and machines (--serve, --to)
    P2p(p2p::P2pArgs),
    /// Measure what the host engine adds, each rate beside its yardstick in one run: a bare loop on the same software HCAs, one
    /// worker, no idle QPs. And how long a sleeping worker takes, and what an idle engine with 64 peers costs
    Engine(engine::EngineArgs),
    /// Measure how fast a host engine writes pages to random places of a peer's memory, beside the speed of the port. The bytes
    /// of the last repeat and of two others are compared. Both engines are in this process, or one on another machine (--serve, --to)
    Fill(fill::FillArgs),
    /// Measure what it costs a host engine to register memory, one by one and in lists, to make a key for a peer, and to find the
    /// region of an address
    Regions(regions::RegionsArgs),
}

/// Options of `wv bench post`.
#[derive(Args, Debug)]
pub struct PostArgs {
    /// Where kernels run: auto, simt (the CPU: everything runs and is checked, no times), or the number of a GPU
    #[arg(long, default_value = "auto")]
    gpu: String,
    /// One QP for all posters, one for each, or both one after the other
    #[arg(long, value_enum, default_value_t = Mode::All)]
    mode: Mode,
    /// A put for each call by one thread, 32 by a warp, or both one after the other
    #[arg(long, value_enum, default_value_t = Who::All)]
    scope: Who,
    /// With a doorbell record, without, or both one after the other
    #[arg(long, value_enum, default_value_t = Record::Both)]
    record: Record,
    /// Numbers of posters, one block each [default: 1 to 132 on a GPU; 1,4 on simt]
    #[arg(long, value_delimiter = ',', value_parser = number::any::<u32>())]
    blocks: Vec<u32>,
    /// Calls of each poster [default: 4096 on a GPU; 64 on simt]
    #[arg(long, value_parser = number::any::<u32>())]
    calls: Option<u32>,
    /// Ring length in WQEBBs
    #[arg(long, default_value_t = 1024, value_parser = number::any::<u32>())]
    depth: u32,
    /// Bytes that each put names; the sink does not move them
    #[arg(long, default_value_t = 4096, value_parser = number::any::<u32>())]
    bytes: u32,
    /// Calls from one that asks for a completion to the next; 0: only the last asks
    #[arg(long, default_value_t = 16, value_parser = number::any::<u32>())]
    signal_every: u32,
    /// Where the doorbell register is: a word of device memory, or of host memory, so that the store crosses PCIe
    #[arg(long, value_enum, default_value_t = Memory::Host)]
    doorbell: Memory,
    /// Let the sink check every WQE that a doorbell covers: a test of the protocol on this device, slower
    #[arg(long)]
    check: bool,
    /// Bound of each case, in seconds
    #[arg(long, default_value_t = 20, value_parser = number::seconds())]
    timeout: u64,
    /// Where to write the result as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Mode {
    All,
    Exclusive,
    Shared,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Who {
    All,
    Thread,
    Warp,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Record {
    Both,
    Yes,
    No,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Memory {
    Device,
    Host,
}

/// The name of the command in its messages.
const NAME: &str = "wv bench";
/// The numbers of posters on a GPU: up to one for each multiprocessor of an H100.
const BLOCKS: [u32; 8] = [1, 2, 4, 8, 16, 32, 64, 132];
const BLOCKS_SIMT: [u32; 2] = [1, 4];
const CALLS: u32 = 4096;
const CALLS_SIMT: u32 = 64;

/// Runs `wv bench`, whose table goes to standard output.
#[must_use]
pub fn run(command: &BenchCommand) -> ExitCode {
    let args = match command {
        BenchCommand::Post(args) => args,
        BenchCommand::Others(args) => return others::run(args),
        BenchCommand::Facts(args) => return device::facts(args),
        BenchCommand::Primitives(args) => return device::primitives(args),
        BenchCommand::Registers(args) => return device::registers(args),
        BenchCommand::Moe(args) => return moe::run(args),
        BenchCommand::Rejoin(args) => return rejoin::run(args),
        BenchCommand::Group(args) => return group::run(args),
        BenchCommand::P2p(args) => return p2p::run(args),
        BenchCommand::Engine(args) => return engine::run(args),
        BenchCommand::Fill(args) => return fill::run(args),
        BenchCommand::Regions(args) => return regions::run(args),
    };
    finish(run_post(args), args.json.as_deref())
}

/// Ends with the results: prints the table, and writes JSON to the file that `json` names, if any.
fn finish<T: Serialize + Display>(
    measured: Result<T, BenchError>,
    json: Option<&Path>,
) -> ExitCode {
    match written(measured, json) {
        Ok(report) => output::finish(NAME, &report),
        Err(error) => refuse(&error),
    }
}

/// Returns the report, after writing it as JSON to the file that `json` names, if any.
fn written<T: Serialize>(
    measured: Result<T, BenchError>,
    json: Option<&Path>,
) -> Result<T, BenchError> {
    let report = measured?;
    if let Some(path) = json {
        write_json(path, &report)?;
    }
    Ok(report)
}

fn refuse(error: &dyn Display) -> ExitCode {
    output::say(format_args!("{NAME}: {error}"));
    ExitCode::FAILURE
}

/// Writes a report as JSON.
fn write_json(path: &Path, report: &impl Serialize) -> Result<(), BenchError> {
    let refused = |error: &dyn ToString| BenchError::Option {
        what: "--json",
        value: path.display().to_string(),
        limit: format!("a file that can be written: {}", error.to_string()),
    };
    let text = serde_json::to_string_pretty(report).map_err(|error| refused(&error))?;
    std::fs::write(path, text + "\n").map_err(|error| refused(&error))
}

fn run_post(args: &PostArgs) -> Result<Report, BenchError> {
    let gpu = gpu::open(args.gpu.parse::<GpuSelector>()?)?;
    let simt = gpu.label() == "simt";
    let blocks = match (args.blocks.as_slice(), simt) {
        ([], true) => &BLOCKS_SIMT[..],
        ([], false) => &BLOCKS,
        (given, _) => given,
    };
    let options = PostOptions {
        calls: args.calls.unwrap_or(if simt { CALLS_SIMT } else { CALLS }),
        depth: args.depth,
        bytes: args.bytes,
        signal_every: args.signal_every,
        host_doorbell: args.doorbell == Memory::Host,
        check: args.check,
        deadline: Duration::from_secs(args.timeout),
    };
    let mut cases = all_cases(blocks);
    cases.retain(|case| args.wants(case));
    post::measure(&gpu, &options, &cases)
}

impl PostArgs {
    fn wants(&self, case: &Case) -> bool {
        let mode = match self.mode {
            Mode::All => true,
            Mode::Exclusive => case.sharing == Sharing::Exclusive,
            Mode::Shared => case.sharing == Sharing::Shared,
        };
        let scope = match self.scope {
            Who::All => true,
            Who::Thread => case.scope == Scope::Thread,
            Who::Warp => case.scope == Scope::Warp,
        };
        let record = match self.record {
            Record::Both => true,
            Record::Yes => case.record,
            Record::No => !case.record,
        };
        mode && scope && record
    }
}
