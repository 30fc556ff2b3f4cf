//! `wv bench engine`: starts itself again with software HCAs, and measures the host engine beside its yardsticks.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use warpverbs::config::EngineConfig;

use super::finish::{finish, refuse};
use super::inside;
use crate::error::BenchError;
use crate::host::engine::{EngineOptions, EngineReport, HCAS, measure};
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
    /// QPs that do nothing beside the busy ones
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
    if !args.inside {
        return match inside::start(HCAS) {
            Ok(code) => code,
            Err(error) => refuse(&error),
        };
    }
    finish(measured(args), args.json.as_deref())
}

fn measured(args: &EngineArgs) -> Result<EngineReport, BenchError> {
    let config = EngineConfig::from_env("bench")?;
    let options = EngineOptions {
        qps: config.qps,
        slice: config.slice,
        rounds: args.rounds,
        wakes: args.wakes,
        idle_qps: args.idle_qps,
        idle_ms: args.idle_ms,
    };
    measure(&inside::devices()?, &options)
}
