//! `wv bench facts`, `primitives` and `registers`: a device without any HCA.

use std::fmt::Display;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use serde::Serialize;

use super::finish::finish;
use crate::device::primitives::{self, PrimitiveOptions};
use crate::device::{facts as said, registers as ways};
use crate::error::BenchError;
use warpverbs::gpu::{self, Gpu, GpuSelector};
use warpverbs_cli::number;

/// Options of what measures a device.
#[derive(Args, Debug)]
pub struct DeviceArgs {
    /// Where kernels run: auto, simt (the CPU: everything runs and is checked, no times), or the number of a GPU
    #[arg(long, default_value = "auto")]
    gpu: String,
    /// Where to write the result as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// Options of `wv bench registers`.
#[derive(Args, Debug)]
pub struct RegistersArgs {
    #[command(flatten)]
    device: DeviceArgs,
    /// Doorbells of each way [default: 1000000 on a GPU; 1000 on simt]
    #[arg(long, value_parser = number::within(1..=u32::MAX))]
    doorbells: Option<u32>,
    /// Bound of each way, in seconds
    #[arg(long, default_value_t = 15, value_parser = number::seconds())]
    timeout: u64,
}

pub(super) fn facts(args: &DeviceArgs) -> ExitCode {
    run(args, |gpu| said::of(gpu.as_ref()))
}

pub(super) fn primitives(args: &DeviceArgs) -> ExitCode {
    run(args, |gpu| {
        primitives::measure(gpu, &PrimitiveOptions::on(gpu.as_ref()))
    })
}

/// Runs `wv bench registers`. A way that loses doorbells is a finding of the table, not an error: the user asked for it.
pub(super) fn registers(args: &RegistersArgs) -> ExitCode {
    run(&args.device, |gpu| {
        let simt = gpu.label() == "simt";
        let doorbells = args
            .doorbells
            .unwrap_or(if simt { 1000 } else { 1_000_000 });
        ways::measure(gpu, doorbells, Duration::from_secs(args.timeout))
    })
}

fn run<T: Serialize + Display>(
    args: &DeviceArgs,
    measure: impl FnOnce(&Arc<dyn Gpu>) -> Result<T, BenchError>,
) -> ExitCode {
    let measured = || measure(&gpu::open(args.gpu.parse::<GpuSelector>()?)?);
    finish(measured(), args.json.as_deref())
}
