//! `--serve` of `wv bench fill` and `wv bench p2p`: this process is the other end, for runs of other processes and machines.

use std::process::ExitCode;

use clap::Args;
use warpverbs::engine::{Engine, EngineAddress, EngineConfig, EngineDevice};

use super::finish::{NAME, refuse};
use crate::error::BenchError;
use crate::host::memory::MemoryChoice;
use crate::host::served::Served;
use warpverbs_cli::{number, output};

/// Whether this is the other end.
#[derive(Args, Debug)]
pub(super) struct ServeArgs {
    /// Be the other end, for runs of other processes or machines with --to, one after the other. A peer that begins no run within
    /// 10 s is ended, and so is a run of one that tells nothing for 120 s
    #[arg(long, value_name = "IP:PORT|unix:PATH", conflicts_with = "to", value_parser = number::socket())]
    serve: Option<EngineAddress>,
    /// Serve other machines, too, without a key that they must have
    #[arg(long, requires = "serve")]
    insecure: bool,
    /// End after so many runs that were begun
    #[arg(long, value_name = "COUNT", requires = "serve", value_parser = number::any::<u64>())]
    runs: Option<u64>,
}

/// Where memory of the ends is.
#[derive(Args, Debug)]
pub(super) struct MemoryArgs {
    /// Memory of this end, and of its peers in this process: none (the host's), the number of a GPU, auto, or simt and simt-dmabuf,
    /// which stand for a GPU with memory of the process. Ends of other processes say it for themselves
    #[arg(long, value_name = "GPU", default_value_t)]
    gpu: MemoryChoice,
    /// Memory of the peers in this process [default: that of this end]
    #[arg(long, value_name = "GPU", conflicts_with_all = ["serve", "to"])]
    peer_gpu: Option<MemoryChoice>,
}

impl MemoryArgs {
    /// Returns the memory of this end.
    pub(super) fn here(&self) -> MemoryChoice {
        self.gpu
    }

    /// Returns the memory of this end, and of its peers in this process.
    pub(super) fn both(&self) -> [MemoryChoice; 2] {
        [self.gpu, self.peer_gpu.unwrap_or(self.gpu)]
    }

    /// Refuses memory of a GPU. `limit` says what the option may be.
    pub(super) fn refuse(&self, limit: &str) -> Result<(), BenchError> {
        let named = [("--gpu", Some(self.gpu)), ("--peer-gpu", self.peer_gpu)];
        for (what, choice) in named {
            if let Some(gpu @ MemoryChoice::Gpu(_)) = choice {
                return Err(refused(what, gpu, limit));
            }
        }
        Ok(())
    }

    /// Refuses another memory for the peers than for this end. `limit` says what the option may be.
    pub(super) fn refuse_peers(&self, limit: &str) -> Result<(), BenchError> {
        let peers = self.peer_gpu.filter(|gpu| *gpu != self.gpu);
        peers.map_or(Ok(()), |gpu| Err(refused("--peer-gpu", gpu, limit)))
    }
}

fn refused(what: &'static str, gpu: MemoryChoice, limit: &str) -> BenchError {
    BenchError::Option {
        what,
        value: gpu.to_string(),
        limit: limit.to_owned(),
    }
}

impl ServeArgs {
    /// Returns whether this process is to be the other end.
    pub(super) fn is_wanted(&self) -> bool {
        self.serve.is_some()
    }

    /// Serves runs that take at most so many bytes of this memory, on the devices that WARPVERBS_DEVICE names. Returns None if this process
    /// is not to be the other end.
    pub(super) fn run(
        &self,
        memory: (MemoryChoice, u64),
        with: impl FnOnce(EngineConfig) -> EngineConfig,
    ) -> Option<ExitCode> {
        let address = self.serve.clone()?;
        let done = self.serve(address, memory, with);
        Some(match done {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => refuse(&error),
        })
    }

    fn serve(
        &self,
        address: EngineAddress,
        memory: (MemoryChoice, u64),
        with: impl FnOnce(EngineConfig) -> EngineConfig,
    ) -> Result<(), BenchError> {
        // An end that measures may have runs with several servers, so each server has a name of its own.
        let name = format!("serves-{:016x}", fastrand::u64(..));
        let config = with(EngineConfig::from_env(&name)?.with_insecure(self.insecure));
        let devices = Engine::open_nics(&config)?;
        let served = Served::listen(&devices, address, config, memory)?;
        let all: Vec<String> = devices.iter().map(ToString::to_string).collect();
        let (at, on) = (served.address(), all.join(" and "));
        let line = format!("serves runs at {at}\nthe engine is on {on}\n");
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

/// Returns the devices that WARPVERBS_DEVICE names, or that are best, by the provider that WARPVERBS_PROVIDER names.
pub(super) fn named_devices() -> Result<Vec<EngineDevice>, BenchError> {
    Ok(Engine::open_nics(&EngineConfig::from_env("bench")?)?)
}
