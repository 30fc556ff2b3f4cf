//! `wv bench others`.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;

use super::finish::{NAME, refuse, written};
use super::post::{CALLS, CALLS_SIMT, Memory};
use crate::device::others::{self, Others, Puts};
use crate::device::post::PostOptions;
use crate::error::BenchError;
use warpverbs::gpu::{self, GpuSelector};
use warpverbs_cli::{number, output};

/// Options of `wv bench others`.
#[derive(Args, Debug)]
pub struct OthersArgs {
    /// Where kernels run: auto, simt (the CPU: this project's alone, no times), or the number of a GPU
    #[arg(long, default_value = "auto")]
    gpu: String,
    /// The adapters that `./x gpu others` has compiled, sm_NN/NAME.ptx; without, only this project is measured
    #[arg(long, value_name = "FOLDER")]
    kernels: Option<PathBuf>,
    /// Bytes that each put names; the sink does not move them
    #[arg(long, value_delimiter = ',', default_values_t = [8, 4096], value_parser = number::any::<u32>())]
    bytes: Vec<u32>,
    /// Numbers of posters, one block each [default: 1,8,132 on a GPU; 1,4 on simt]
    #[arg(long, value_delimiter = ',', value_parser = number::any::<u32>())]
    blocks: Vec<u32>,
    /// Calls of each poster [default: 4096 on a GPU; 64 on simt]
    #[arg(long, value_parser = number::any::<u32>())]
    calls: Option<u32>,
    /// Ring length in WQEBBs
    #[arg(long, default_value_t = 1024, value_parser = number::any::<u32>())]
    depth: u32,
    /// Where the doorbell register is: a word of device memory, or of host memory, so that the store crosses PCIe
    #[arg(long, value_enum, default_value_t = Memory::Host)]
    doorbell: Memory,
    /// Let the sink check every WQE that a doorbell covers: a test of the adapters on this device, slower
    #[arg(long)]
    check: bool,
    /// Bound of each case, in seconds
    #[arg(long, default_value_t = 20, value_parser = number::seconds())]
    timeout: u64,
    /// Where to write the result as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// The numbers of posters: one, some, and one for each multiprocessor of an H100.
const BLOCKS: [u32; 3] = [1, 8, 132];
const BLOCKS_SIMT: [u32; 2] = [1, 4];

/// Runs `wv bench others`. A refusal for another project is a finding of the table, not an error.
pub(super) fn run(args: &OthersArgs) -> ExitCode {
    match written(measured(args), args.json.as_deref()) {
        Ok(report) => {
            let shown = output::finish(NAME, &report);
            report.failure().map_or(shown, |why| refuse(&why))
        }
        Err(error) => refuse(&error),
    }
}

fn measured(args: &OthersArgs) -> Result<Others, BenchError> {
    let gpu = gpu::open(args.gpu.parse::<GpuSelector>()?)?;
    let simt = gpu.label() == "simt";
    let blocks = match (args.blocks.as_slice(), simt) {
        ([], true) => &BLOCKS_SIMT[..],
        ([], false) => &BLOCKS,
        (given, _) => given,
    };
    let puts = Puts {
        bytes: args.bytes.clone(),
        blocks: blocks.to_vec(),
    };
    let options = PostOptions {
        calls: args.calls.unwrap_or(if simt { CALLS_SIMT } else { CALLS }),
        depth: args.depth,
        bytes: 8,
        signal_every: 16,
        host_doorbell: args.doorbell == Memory::Host,
        check: args.check,
        deadline: Duration::from_secs(args.timeout),
    };
    others::measure(&gpu, &options, &puts, args.kernels.as_deref())
}
