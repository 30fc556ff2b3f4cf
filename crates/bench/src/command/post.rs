//! `wv bench post`.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, ValueEnum};

use super::finish::finish;
use crate::device::post::{self, Case, PostOptions, Report, Scope, Sharing, all_cases};
use crate::error::BenchError;
use warpverbs::gpu::{self, GpuSelector};
use warpverbs_cli::number;

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
pub(super) enum Memory {
    Device,
    Host,
}

/// The numbers of posters on a GPU: up to one for each multiprocessor of an H100.
const BLOCKS: [u32; 8] = [1, 2, 4, 8, 16, 32, 64, 132];
const BLOCKS_SIMT: [u32; 2] = [1, 4];
pub(super) const CALLS: u32 = 4096;
pub(super) const CALLS_SIMT: u32 = 64;

pub(super) fn run(args: &PostArgs) -> ExitCode {
    finish(measured(args), args.json.as_deref())
}

fn measured(args: &PostArgs) -> Result<Report, BenchError> {
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
