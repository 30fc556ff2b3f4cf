//! The begin and the end of a run, in whatever way its ranks are started.

use std::process::ExitCode;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::clock::unix_us;
use crate::data::dump;
use crate::devices::{self, Device};
use crate::error::DemoError;
use crate::launch::Workplace;
use crate::messages::Spec;
use crate::options::DemoOptions;
use crate::rank;
use crate::report::Summary;
use warpverbs_cli::output;

/// The shortest time that ranks wait for each other. If the limit of a run is shorter, the run ends by that limit, and says so.
const SHORTEST: Duration = Duration::from_secs(20);

/// Prints why `command` ended, if it failed. Returns its status.
pub(crate) fn exit_code(command: &str, ended: &Result<(), DemoError>) -> ExitCode {
    let error = match ended {
        Ok(()) => return ExitCode::SUCCESS,
        Err(DemoError::Output(error)) => return error.end(command),
        Err(error) => error,
    };
    output::say(format_args!("{command}: {error}"));
    ExitCode::from(error.status())
}

/// Prints the result of a run.
pub(crate) fn show(options: &DemoOptions, summary: &Summary) -> Result<(), DemoError> {
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

/// What every run of rank processes needs at its begin.
pub(crate) struct Run {
    pub(crate) device: Device,
    pub(crate) place: Workplace,
    pub(crate) spec: Spec,
    pub(crate) limit: Duration,
}

impl Run {
    pub(crate) fn prepare(options: &DemoOptions) -> Result<Self, DemoError> {
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
    pub(crate) fn spec(options: &DemoOptions, store: String, device: Option<String>) -> Spec {
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
            began_us: unix_us(),
            dump: options.dump.as_ref().map(|directory| {
                std::path::absolute(directory).unwrap_or_else(|_| directory.clone())
            }),
        }
    }
}

/// Returns a progress bar on standard error, which shows only on a terminal.
pub(crate) fn progress_bar(options: &DemoOptions) -> ProgressBar {
    let length = u64::from(options.steps) * u64::from(options.ranks);
    let bar = ProgressBar::with_draw_target(Some(length), ProgressDrawTarget::stderr());
    let style =
        ProgressStyle::with_template("{bar:40} {pos}/{len} steps of ranks verified, {elapsed}");
    bar.with_style(style.expect("a valid template"))
}
