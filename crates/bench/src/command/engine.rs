//! `wv bench engine`: starts itself again with software HCAs, or takes a domain of libfabric, and measures the host engine beside its
//! yardsticks.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use warpverbs::engine::{EngineConfig, ProviderChoice};

use super::finish::{finish, refuse};
use super::inside;
use super::serve::named_devices;
use crate::error::BenchError;
use crate::host::engine::{Devices, EngineOptions, EngineReport, HCAS, measure};
use warpverbs_cli::number;

/// Options of `wv bench engine`.
#[derive(Args, Debug)]
pub struct EngineArgs {
    /// Rounds of each rate, at least 1
    #[arg(long, default_value_t = 15, value_parser = number::within(1_u32..=100_000))]
    rounds: u32,
    /// Transfers that are timed one by one
    #[arg(long, default_value_t = 500, value_parser = number::within(1_u32..=1_000_000))]
    wakes: u32,
    /// QPs that do nothing beside the busy ones. Over libfabric there are none
    #[arg(long, value_name = "COUNT", default_value_t = 1000, value_parser = number::within(512_u32..=8192))]
    idle_qps: u32,
    /// Milliseconds for which engines are watched that have nothing to do
    #[arg(long, default_value_t = 3000, value_parser = number::within(1_u32..=600_000))]
    idle_ms: u32,
    /// Where to write the result as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// This process has the software HCAs
    #[arg(long, hide = true)]
    inside: bool,
}

/// Runs `wv bench engine`.
pub(super) fn run(args: &EngineArgs) -> ExitCode {
    let config = match EngineConfig::from_env("bench") {
        Ok(config) => config,
        Err(error) => return refuse(&error),
    };
    let is_soft = !matches!(config.provider, ProviderChoice::Ofi(_));
    if is_soft && !args.inside {
        return match inside::start(HCAS) {
            Ok(code) => code,
            Err(error) => refuse(&error),
        };
    }
    finish(measured(args, &config), args.json.as_deref())
}

fn measured(args: &EngineArgs, config: &EngineConfig) -> Result<EngineReport, BenchError> {
    let options = EngineOptions {
        qps: config.qps,
        slice: config.slice,
        rounds: args.rounds,
        wakes: args.wakes,
        idle_qps: args.idle_qps,
        idle_ms: args.idle_ms,
    };
    measure(&devices(config)?, &options)
}

/// Opens a domain where libfabric is named, and else the software HCAs.
fn devices(config: &EngineConfig) -> Result<Devices, BenchError> {
    if !matches!(config.provider, ProviderChoice::Ofi(_)) {
        return Devices::soft(&inside::devices()?, config);
    }
    let found = named_devices()?;
    let first = found.first().ok_or_else(|| BenchError::Wrong {
        case: "domains of libfabric".to_owned(),
        detail: "none is listed".to_owned(),
    })?;
    Ok(Devices::domain(first))
}
