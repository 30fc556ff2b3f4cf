//! `wv bench regions`: registers memory on a device. For a software HCA it starts itself again with one.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, ValueEnum};
use warpverbs::engine::EngineDevice;
use warpverbs::verbs::{Context, DeviceSelector};

use super::finish::{finish, refuse};
use super::inside;
use super::serve::named_devices;
use crate::error::BenchError;
use crate::host::memory::MemoryChoice;
use crate::host::regions::{RegionOptions, RegionReport, measure};
use warpverbs_cli::number;

/// Options of `wv bench regions`.
#[derive(Args, Debug)]
pub struct RegionsArgs {
    /// What registers: a software HCA of this process, or the first device that WARPVERBS_DEVICE names,
    /// by the provider that WARPVERBS_PROVIDER names
    #[arg(long, value_enum, default_value_t = Devices::Softhca)]
    device: Devices,
    /// Memory that is registered: none (the host's), the number of a GPU, auto, or simt and simt-dmabuf, which stand for a GPU with
    /// memory of the process
    #[arg(long, value_name = "GPU", default_value_t)]
    gpu: MemoryChoice,
    /// Bytes of the buffer that is one region
    #[arg(long, value_name = "BYTES", default_value_t = 1 << 26, value_parser = number::within(1_u64..=1 << 40))]
    buffer: u64,
    /// Regions of the engine, 1 to 1,000,000
    #[arg(long, value_name = "COUNT", default_value_t = 10_000, value_parser = number::within(1_u32..=1_000_000))]
    regions: u32,
    /// Rounds of each measurement, at least 1
    #[arg(long, default_value_t = 5, value_parser = number::within(1_u32..=100_000))]
    rounds: u32,
    /// Seed of the addresses that are looked up
    #[arg(long, default_value_t = 1, value_parser = number::any::<u64>())]
    seed: u64,
    /// Where to write the result as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// This process has the software HCA
    #[arg(long, hide = true)]
    inside: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Devices {
    Softhca,
    Configured,
}

/// Runs `wv bench regions`.
pub(super) fn run(args: &RegionsArgs) -> ExitCode {
    if args.device == Devices::Softhca && !args.inside {
        return match inside::start(1) {
            Ok(code) => code,
            Err(error) => refuse(&error),
        };
    }
    finish(measured(args), args.json.as_deref())
}

fn measured(args: &RegionsArgs) -> Result<RegionReport, BenchError> {
    let options = RegionOptions {
        regions: args.regions,
        buffer: args.buffer,
        rounds: args.rounds,
        seed: args.seed,
    };
    let none = || BenchError::Wrong {
        case: "devices".to_owned(),
        detail: "none is listed".to_owned(),
    };
    let device = match args.device {
        Devices::Softhca => {
            let name = inside::devices()?.into_iter().next().ok_or_else(none)?;
            EngineDevice::from(Context::open(&DeviceSelector::Name(name))?)
        }
        Devices::Configured => named_devices()?.into_iter().next().ok_or_else(none)?,
    };
    measure(&device, args.gpu, &options)
}
