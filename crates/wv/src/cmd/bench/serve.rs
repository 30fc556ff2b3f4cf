//! `--serve` of `wv bench fill` and `wv bench p2p`: the other end, for runs of other processes and machines.

use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::Arc;

use clap::Args;
use warpverbs::engine::{Engine, EngineConfig};
use warpverbs::verbs::Context;

use super::{NAME, output, refuse};
use crate::bench::BenchError;
use crate::bench::served::Served;

/// Whether this is the other end.
#[derive(Args, Debug)]
pub(super) struct ServeArgs {
    /// Be the other end, for runs of other processes or machines with --to, one after the other
    #[arg(long, value_name = "IP:PORT", conflicts_with = "to")]
    serve: Option<SocketAddr>,
    /// Serve other machines, too, without a key that they must have
    #[arg(long, requires = "serve")]
    insecure: bool,
    /// End after so many runs
    #[arg(long, value_name = "COUNT", requires = "serve")]
    runs: Option<u64>,
}

impl ServeArgs {
    /// Whether it is.
    pub(super) fn is_wanted(&self) -> bool {
        self.serve.is_some()
    }

    /// Serves runs that take at most so many bytes, on the devices that WARPVERBS_DEVICE names. None: this is not the other end.
    pub(super) fn run(
        &self,
        most: u64,
        with: impl FnOnce(EngineConfig) -> EngineConfig,
    ) -> Option<ExitCode> {
        let address = self.serve?;
        let done = self.serve(address, most, with);
        Some(match done {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => refuse(&error),
        })
    }

    fn serve(
        &self,
        address: SocketAddr,
        most: u64,
        with: impl FnOnce(EngineConfig) -> EngineConfig,
    ) -> Result<(), BenchError> {
        // An end that measures may have runs with several of them.
        let name = format!("serves-{:016x}", fastrand::u64(..));
        let config = with(EngineConfig::from_env(&name)?.with_insecure(self.insecure));
        let served = Served::listen(&Engine::open_devices(&config)?, address, config, most)?;
        let line = format!("serves runs at {}\n", served.address());
        output::print(&line).map_err(|error| BenchError::Wrong {
            case: "standard output".to_owned(),
            detail: error.to_string(),
        })?;
        served.serve(self.runs, |error| {
            output::say(format_args!("{NAME}: {error}"))
        });
        Ok(())
    }
}

/// The devices that WARPVERBS_DEVICE names.
pub(super) fn named_devices() -> Result<Vec<Arc<Context>>, BenchError> {
    Ok(Engine::open_devices(&EngineConfig::from_env("bench")?)?)
}
