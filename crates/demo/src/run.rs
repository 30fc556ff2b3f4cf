//! `wv demo`: rank processes dispatch and combine tokens, and check every step against the scalar reference implementation.
//!
//! The ranks are processes of this program (`wv demo-rank`). On software HCAs each has `libsofthca.so` preloaded, so its host code is the
//! code that would drive a ConnectX. They meet in a directory of the demo, tell the demo on their standard output how they get on, and end
//! when it ends.

mod chaos;
mod check;
mod counters;
mod devices;
mod disturbed_store;
mod dump;
mod error;
mod experts;
mod explain;
mod generate;
mod input;
mod instructions;
mod launch;
mod launched;
mod member;
mod messages;
mod npy;
mod one_process;
mod options;
mod rank;
mod reference;
mod report;

use std::process::ExitCode;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

pub use chaos::{ChaosOptions, Kill, run_chaos};
use devices::Device;
pub use error::DemoError;
use input::Inputs;
use launch::{Ranks, Workplace};
use messages::{Message, Spec};
pub use options::{DemoOptions, LayoutKind, RoutingKind, TokenFormat};
pub use rank::{RankOptions, run_rank};
use report::{RanOn, Summary};

use crate::cmd::output;

/// The shortest time that ranks wait for each other. If the limit of a run is shorter, the run ends by that limit, and says so.
const SHORTEST: Duration = Duration::from_secs(20);

/// Runs the demo and prints its result.
#[must_use]
pub fn run(options: &DemoOptions) -> ExitCode {
    if options.launched {
        return launched::run(options);
    }
    if options.device == one_process::DEVICE && !options.inside && !options.explain {
        return match one_process::start(options) {
            Ok(code) => code,
            Err(error) => exit_code("wv demo", &Err(error)),
        };
    }
    exit_code("wv demo", &run_to_the_end(options))
}

/// Prints why `command` ended, if it failed. Returns its status.
fn exit_code(command: &str, ended: &Result<(), DemoError>) -> ExitCode {
    let error = match ended {
        Ok(()) => return ExitCode::SUCCESS,
        Err(DemoError::Output(error)) => return error.end(command),
        Err(error) => error,
    };
    output::say(format_args!("{command}: {error}"));
    ExitCode::from(error.status())
}

fn run_to_the_end(options: &DemoOptions) -> Result<(), DemoError> {
    let inputs = Inputs::load(options)?;
    if options.explain {
        return Ok(output::print(&explain::explain(&inputs)?)?);
    }
    if !options.kill.is_empty() {
        return chaos::run_kills(options, &inputs);
    }
    let summary = if options.inside {
        one_process::run(options, &inputs)?
    } else {
        run_ranks(options, &inputs)?
    };
    show(options, &summary)
}

/// Prints the result of a run.
fn show(options: &DemoOptions, summary: &Summary) -> Result<(), DemoError> {
    if options.json {
        let text = serde_json::to_string(summary).expect("numbers and strings");
        output::print(&format_args!("{text}\n"))?;
    } else {
        output::print(&summary.table())?;
    }
    match summary.findings() {
        0 => Ok(()),
        count => Err(DemoError::Findings { count }),
    }
}

fn run_ranks(options: &DemoOptions, inputs: &Inputs) -> Result<Summary, DemoError> {
    let Run {
        device,
        place,
        spec,
        limit,
    } = Run::prepare(options)?;
    let start = Instant::now();
    let bar = progress_bar(options);
    let ranks = Ranks::start(&place, &spec, device.preload())?;
    let mut ran_on = RanOn::default();
    let mut joined = start.elapsed();
    let results = ranks.finish(limit, |_, message| match message {
        Message::Joined {
            device,
            soft,
            gpu,
            paths,
            ..
        } => {
            for path in paths {
                output::say(format_args!("{path}"));
            }
            joined = start.elapsed();
            ran_on = RanOn {
                device: device.clone(),
                soft: *soft,
                gpu: gpu.clone(),
                executor: None,
            };
        }
        Message::Verified { .. } => bar.inc(1),
        Message::Done(_)
        | Message::Failed { .. }
        | Message::Begins { .. }
        | Message::Event(_)
        | Message::Finished { .. } => {}
    });
    bar.finish_and_clear();
    let times = [start.elapsed(), joined].map(|time| time.as_secs_f64());
    Ok(Summary::new(inputs, options.steps, times, ran_on, results?))
}

/// What every run of rank processes needs at its begin.
struct Run {
    device: Device,
    place: Workplace,
    spec: Spec,
    limit: Duration,
}

impl Run {
    fn prepare(options: &DemoOptions) -> Result<Self, DemoError> {
        let limit = Duration::from_secs(options.timeout.max(1));
        devices::check_gpus(&options.gpu, options.ranks)?;
        if let Some(directory) = &options.dump {
            dump::prepare(directory)?;
        }
        // The ranks read these variables, too. Reading them here reports a wrong one once.
        rank::modes()?;
        let device = Device::choose(&options.device, options.ranks)?;
        output::say(format_args!("wv demo: {}", device.in_words()));
        let place = Workplace::new()?;
        let spec = Self::spec(options, place.store_url(), device.option());
        Ok(Self {
            device,
            place,
            spec,
            limit,
        })
    }

    /// Returns the spec of ranks on RDMA devices that `--device` names, or on software HCAs.
    fn spec(options: &DemoOptions, store: String, device: Option<String>) -> Spec {
        let limit = Duration::from_secs(options.timeout.max(1));
        let milliseconds = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        Spec {
            options: options.clone(),
            device,
            rails: 1,
            store,
            run_id: format!("{:016x}", fastrand::u64(..)),
            join_timeout_ms: milliseconds(limit.clamp(SHORTEST, Duration::from_secs(60))),
            // A call that waits longer has lost a peer. The HCA gives up well before.
            deadline_ms: milliseconds((limit / 2).clamp(SHORTEST, Duration::from_secs(30))),
            membership: false,
            began_us: chaos::unix_us(),
            dump: options.dump.as_ref().map(|directory| {
                std::path::absolute(directory).unwrap_or_else(|_| directory.clone())
            }),
        }
    }
}

/// Returns a progress bar on standard error, which shows only on a terminal.
fn progress_bar(options: &DemoOptions) -> ProgressBar {
    let length = u64::from(options.steps) * u64::from(options.ranks);
    let bar = ProgressBar::with_draw_target(Some(length), ProgressDrawTarget::stderr());
    let style =
        ProgressStyle::with_template("{bar:40} {pos}/{len} steps of ranks verified, {elapsed}");
    bar.with_style(style.expect("a valid template"))
}
