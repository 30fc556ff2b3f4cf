//! `wv bench p2p`: the host engine over a sink, or on two software HCAs of a program that is started again.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, ValueEnum};
use warpverbs::config::EngineConfig;

use super::{finish, inside, refuse};
use crate::bench::BenchError;
use crate::bench::p2p::{P2pOptions, P2pReport, measure_sink, measure_softhca};

/// Options of `wv bench p2p`.
#[derive(Args, Debug)]
pub struct P2pArgs {
    /// What completes: nothing that moves bytes, or software HCAs
    #[arg(long, value_enum, default_value_t = Provider::Sink)]
    provider: Provider,
    /// Threads that post, 1 to 8 [default: what WARPVERBS_ENGINE_WORKERS says]
    #[arg(long)]
    workers: Option<u32>,
    /// QPs of the connection, 1 to 8 [default: what WARPVERBS_ENGINE_QPS says]
    #[arg(long)]
    qps: Option<u32>,
    /// Bytes of a slice [default: what WARPVERBS_ENGINE_SLICE says]
    #[arg(long)]
    slice: Option<u32>,
    /// Rounds of each pattern, at least 1
    #[arg(long, default_value_t = 15, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    rounds: u32,
    /// Where to write the result as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// This process has the software HCAs
    #[arg(long, hide = true)]
    inside: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Provider {
    Sink,
    Softhca,
}

/// Runs it.
pub(super) fn run(args: &P2pArgs) -> ExitCode {
    if args.provider == Provider::Softhca && !args.inside {
        return match inside::start(2) {
            Ok(code) => code,
            Err(error) => refuse(&error),
        };
    }
    finish(measure(args), args.json.as_deref())
}

fn measure(args: &P2pArgs) -> Result<P2pReport, BenchError> {
    let said = EngineConfig::from_env("bench")?;
    let options = P2pOptions {
        workers: args.workers.unwrap_or(said.workers),
        qps: args.qps.unwrap_or(said.qps),
        slice: args.slice.unwrap_or(said.slice),
        rounds: args.rounds,
    };
    match args.provider {
        Provider::Sink => measure_sink(&options),
        Provider::Softhca => {
            let devices = inside::devices()?;
            let [a, b] = devices.as_slice() else {
                return Err(BenchError::Wrong {
                    case: "software HCAs".to_owned(),
                    detail: format!("{devices:?}: expected two"),
                });
            };
            measure_softhca([a, b], &options)
        }
    }
}
