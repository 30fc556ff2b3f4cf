//! `wv bench fill`: writes pages to random places of a peer's memory. The peer is another engine of this process or on another machine.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, ValueEnum};
use warpverbs::engine::EngineDevice;
use warpverbs::verbs::{Context, DeviceSelector};

use super::finish::{finish, refuse};
use super::inside;
use super::serve::{MemoryArgs, ServeArgs, named_devices};
use crate::error::BenchError;
use crate::host::fill::{FillOptions, FillReport, measure, measure_faulty, measure_to};
use warpverbs_cli::{number, output, own_faults};

/// Options of `wv bench fill`. Variables of engines say the rest.
#[derive(Args, Debug)]
pub struct FillArgs {
    /// Poster of the WRITEs: a host engine
    #[arg(long, value_enum, default_value_t = Poster::Host)]
    poster: Poster,
    /// Where the engines are: on software HCAs of this process, or on the devices that WARPVERBS_DEVICE names, by the provider that
    /// WARPVERBS_PROVIDER names [default: softhca; configured with --serve and --to]
    #[arg(long, value_enum)]
    device: Option<Devices>,
    #[command(flatten)]
    serve: ServeArgs,
    /// Fill the memory of the process that serves at this address
    #[arg(long, value_name = "HOST:PORT")]
    to: Option<String>,
    #[command(flatten)]
    memory: MemoryArgs,
    /// Software HCAs of each engine, 1 to 8
    #[arg(long, value_name = "COUNT", default_value_t = 1, value_parser = number::within(1_u32..=8))]
    rails: u32,
    /// A fault of packets of the last rail, as delay=1ms..2ms@100%. Beside it: the rate of the other rails, and of the last alone
    #[arg(long, value_name = "FAULT", conflicts_with_all = ["serve", "to"])]
    fault: Option<String>,
    /// Bytes of the memory that is filled [default: 64 MiB on softhca, 1 GiB on a NIC]; with --serve, the most that a run may have
    #[arg(long, value_parser = number::any::<u64>())]
    bytes: Option<u64>,
    /// Bytes of a page
    #[arg(long, default_value_t = 65_536, value_parser = number::any::<u64>())]
    page: u64,
    /// Pages of a repeat [default: 250 on softhca, 1000 on a NIC]
    #[arg(long, value_parser = number::any::<u64>())]
    pages: Option<u64>,
    /// Repeats [default: 20 on softhca, 500 on a NIC]
    #[arg(long, value_parser = number::any::<u32>())]
    repeats: Option<u32>,
    /// Pages of a transfer
    #[arg(long, default_value_t = 16, value_parser = number::any::<u32>())]
    batch: u32,
    /// Transfers at a time
    #[arg(long, default_value_t = 64, value_parser = number::any::<u32>())]
    in_flight: u32,
    /// Seed of places, bytes and the repeats that are compared
    #[arg(long, default_value_t = 1, value_parser = number::any::<u64>())]
    seed: u64,
    /// Where to write the result as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// This process has the software HCAs
    #[arg(long, hide = true)]
    inside: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Poster {
    Host,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Devices {
    Softhca,
    Configured,
}

/// Runs `wv bench fill`.
pub(super) fn run(args: &FillArgs) -> ExitCode {
    let device = match args.device() {
        Ok(device) => device,
        Err(error) => return refuse(&error),
    };
    let options = options(args, device);
    if let Some(code) = args
        .serve
        .run((args.memory.here(), options.bytes), |config| config)
    {
        return code;
    }
    if let Err(error) = options.check() {
        return refuse(&error);
    }
    if device == Devices::Softhca && !args.inside {
        return match inside::start(2 * args.rails) {
            Ok(code) => code,
            Err(error) => refuse(&error),
        };
    }
    finish(measured(args, device, &options), args.json.as_deref())
}

impl FillArgs {
    fn device(&self) -> Result<Devices, BenchError> {
        let is_apart = self.serve.is_wanted() || self.to.is_some();
        match (self.device, is_apart) {
            (Some(Devices::Softhca), true) => Err(BenchError::Option {
                what: "--device",
                value: "softhca".to_owned(),
                limit: "configured with --serve and --to, which may run under `wv sim --ip`"
                    .to_owned(),
            }),
            (Some(device), _) => Ok(device),
            (None, true) => Ok(Devices::Configured),
            (None, false) => Ok(Devices::Softhca),
        }
    }
}

fn options(args: &FillArgs, device: Devices) -> FillOptions {
    let (bytes, pages, repeats) = match device {
        Devices::Softhca => (1 << 26, 250, 20),
        Devices::Configured => (1 << 30, 1000, 500),
    };
    FillOptions {
        bytes: args.bytes.unwrap_or(bytes),
        page: args.page,
        pages: args.pages.unwrap_or(pages),
        repeats: args.repeats.unwrap_or(repeats),
        batch: args.batch,
        in_flight: args.in_flight,
        seed: args.seed,
    }
}

fn measured(
    args: &FillArgs,
    device: Devices,
    options: &FillOptions,
) -> Result<FillReport, BenchError> {
    let tell = |line: &str| output::say(format_args!("{line}"));
    if let Some(place) = &args.to {
        let devices = named_devices()?;
        return measure_to((&devices, args.memory.here()), place, options, tell);
    }
    let devices = match device {
        Devices::Softhca => {
            let devices = inside::devices()?;
            let rails = args.rails as usize;
            if devices.len() != 2 * rails {
                return Err(BenchError::Wrong {
                    case: "software HCAs".to_owned(),
                    detail: format!("{devices:?}; they must be {}", 2 * rails),
                });
            }
            let open = |name: &String| {
                let context = Context::open(&DeviceSelector::Name(name.clone()));
                context.map(EngineDevice::from)
            };
            let mut from = devices.iter().map(open).collect::<Result<Vec<_>, _>>()?;
            let to = from.split_off(rails);
            [from, to]
        }
        Devices::Configured => [named_devices()?, named_devices()?],
    };
    if let Some(fault) = &args.fault {
        let fault = (fault.as_str(), own_faults::set);
        return measure_faulty(devices, args.memory.both(), options, fault, tell);
    }
    measure(devices, args.memory.both(), options, tell)
}
