//! `wv demo --device gpuhca`: the ranks are threads of one process, whose WQEs a kernel of the same GPU executes.
//!
//! The command starts itself again with software HCAs that leave execution to `gpuhca`, one for each rank. In it the kernel is
//! started, and each rank runs as it would in a process of its own.

use std::env;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Instant;

use gpuhca::{Gpuhca, Options, Softhca};

use super::input::Inputs;
use super::launch::Workplace;
use super::messages::{self, RankResult};
use super::rank::{Rank, RankOptions, is_remote};
use super::report::{RanOn, Summary};
use super::{DemoError, DemoOptions, Run, dump};
use crate::cmd::sim::{self, SimArgs};
use warpverbs::error::ThreadPanicked;
use warpverbs::gpu::{self, GpuSelector};

/// What `--device` says.
pub(super) const DEVICE: &str = "gpuhca";

/// Most ranks: HCAs of a process.
const MOST: u32 = 64;

/// The same command inside, with an HCA for each rank.
pub(super) fn start(options: &DemoOptions) -> Result<ExitCode, DemoError> {
    if !(1..=MOST).contains(&options.ranks) {
        let ranks = options.ranks;
        let why = format!(
            "--ranks is {ranks}; with --device gpuhca it must be 1 to {MOST}, all in one process"
        );
        return Err(DemoError::Option(why));
    }
    if !options.kill.is_empty() {
        let why = "--kill ends a process, and with --device gpuhca all ranks are threads of one";
        return Err(DemoError::Option(why.to_owned()));
    }
    let program = env::current_exe().map_err(|error| DemoError::file("wv".as_ref(), &error))?;
    let mut command = vec![program.into_os_string()];
    command.extend(env::args_os().skip(1));
    command.push("--inside".into());
    Ok(sim::run(&SimArgs::external(options.ranks, command))?)
}

/// Runs all ranks in this process, which has the HCAs.
pub(super) fn run(options: &DemoOptions, inputs: &Inputs) -> Result<Summary, DemoError> {
    let begin = Instant::now();
    if let Some(directory) = &options.dump {
        dump::prepare(directory)?;
    }
    let place = Workplace::new()?;
    let spec = Run::spec(options, place.store_url(), None);
    place.write(&spec)?;
    messages::nobody_listens();
    let gpu = gpu::open(options.gpu.parse::<GpuSelector>()?)?;
    let of_gpu = Options::on(gpu.as_ref());
    let hca = Gpuhca::start(Arc::clone(&gpu), Softhca::preloaded()?, &of_gpu)?;
    let ran_on = RanOn {
        device: "mlx5_0".to_owned(),
        soft: true,
        gpu: gpu.label(),
        executor: Some(DEVICE),
    };
    let failures = Mutex::new(Vec::new());
    let results: Vec<RankResult> = thread::scope(|scope| {
        let one = |rank| {
            let (place, hca, failures) = (&place, &hca, &failures);
            scope.spawn(move || {
                let options = RankOptions::of_thread(place.spec(), rank);
                let run = || Rank::run(&options, Some(hca));
                let failed = match ThreadPanicked::catch("rank", run) {
                    Ok(Ok(result)) => return Some(result),
                    Ok(Err(error)) => (is_remote(&error), format!("rank {rank}: {error}")),
                    Err(panicked) => (false, format!("rank {rank}: {panicked}")),
                };
                failures
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .push(failed);
                None
            })
        };
        let ranks: Vec<_> = (0..options.ranks).map(one).collect();
        ranks
            .into_iter()
            .filter_map(|rank| rank.join().ok().flatten())
            .collect()
    });
    let mut failures = failures
        .into_inner()
        .unwrap_or_else(PoisonError::into_inner);
    // Causes first.
    failures.sort();
    if !failures.is_empty() {
        let messages = failures.into_iter().map(|(_, words)| words).collect();
        return Err(DemoError::Ranks { messages });
    }
    hca.stop()?;
    let times = [begin.elapsed().as_secs_f64(), 0.0];
    Ok(Summary::new(inputs, options.steps, times, ran_on, results))
}
