//! `wv demo --device gpuhca`: the ranks are threads of one process, whose WQEs a kernel of the same GPU executes.
//!
//! The command starts itself again with software HCAs that leave execution to `gpuhca`, one for each rank. The new process starts the
//! kernel, and runs each rank as it would run in a process of its own.

// UNSAFETY: ends the process without its handlers.
#![expect(unsafe_code, reason = "_exit of a process whose driver may hang")]

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use gpuhca::{Gpuhca, Options, Softhca};
use indicatif::ProgressBar;

use crate::data::dump;
use crate::data::input::Inputs;
use crate::devices::GPUHCA;
use crate::error::DemoError;
use crate::launch::{Workplace, progress_in_words};
use crate::messages::{self, Message, RankResult};
use crate::options::DemoOptions;
use crate::rank::{Rank, RankOptions, is_remote};
use crate::report::{RanOn, Summary};
use crate::run::{Run, progress_bar};
use warpverbs::error::ThreadPanicked;
use warpverbs::gpu::{self, GpuSelector};
use warpverbs_cli::output;
use warpverbs_cli::sim::{self, SimArgs};

/// The most ranks, which is the most HCAs of a process.
const MOST: u32 = 64;

/// Starts this command again with `--inside` and an HCA for each rank.
pub(crate) fn start(options: &DemoOptions) -> Result<ExitCode, DemoError> {
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
pub(crate) fn run(options: &DemoOptions, inputs: &Inputs) -> Result<Summary, DemoError> {
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
        executor: Some(GPUHCA),
    };
    let (failures, verified) = (Mutex::new(Vec::new()), Verified::of(options));
    let limit = Duration::from_secs(options.timeout.max(1));
    let bound = verified.bound(limit, place.path().to_owned());
    let results: Vec<RankResult> = thread::scope(|scope| {
        let one = |rank| {
            let (place, hca, failures) = (&place, &hca, &failures);
            let listener = verified.listener(rank);
            scope.spawn(move || {
                messages::heard_by(listener);
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
    // The failures that are causes come first.
    failures.sort();
    if !failures.is_empty() {
        let messages = failures.into_iter().map(|(_, words)| words).collect();
        return Err(DemoError::Ranks { messages });
    }
    hca.stop()?;
    drop(bound);
    let times = [begin.elapsed().as_secs_f64(), 0.0];
    Ok(Summary::new(inputs, options.steps, times, ran_on, results))
}

/// The number of steps that each rank has verified.
#[derive(Clone)]
struct Verified {
    steps: Arc<[AtomicU32]>,
    bar: ProgressBar,
}

impl Verified {
    fn of(options: &DemoOptions) -> Self {
        Self {
            steps: (0..options.ranks).map(|_| AtomicU32::new(0)).collect(),
            bar: progress_bar(options),
        }
    }

    /// Returns the function that gets the messages of `rank`.
    fn listener(&self, rank: u32) -> impl Fn(&Message) + Send + 'static {
        let this = self.clone();
        move |message| {
            if let Message::Verified { step } = message {
                this.steps[rank as usize].store(step + 1, Ordering::Relaxed);
                this.bar.inc(1);
            }
        }
    }

    /// Ends this process, whose files are at `place`, if the returned sender is not dropped within `limit`.
    fn bound(&self, limit: Duration, place: PathBuf) -> Sender<()> {
        let (running, ended) = channel();
        let this = self.clone();
        thread::spawn(move || {
            if ended.recv_timeout(limit) == Err(RecvTimeoutError::Timeout) {
                this.give_up(limit, &place);
            }
        });
        running
    }

    /// Prints how far the ranks are, and ends this process without its handlers. A rank may wait inside the driver for a kernel that does
    /// not end, and the driver's handlers at exit might wait, too.
    fn give_up(&self, limit: Duration, place: &Path) -> ! {
        self.bar.finish_and_clear();
        let steps = self.steps.iter().map(|steps| steps.load(Ordering::Relaxed));
        let error = DemoError::Timeout {
            seconds: limit.as_secs(),
            progress: progress_in_words(steps),
        };
        output::say(format_args!("wv demo: {error}"));
        // If this fails, the next run removes the rest.
        let _ = fs::remove_dir_all(place);
        // SAFETY: it runs no handler and no destructor, and nothing of this process is used after it.
        unsafe { libc::_exit(1) }
    }
}
