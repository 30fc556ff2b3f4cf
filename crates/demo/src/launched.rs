//! `wv demo --launched`: this process is one rank of a launcher's job.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::data::dump;
use crate::data::input::Inputs;
use crate::devices::{self, GPUHCA};
use crate::error::DemoError;
use crate::messages::{self, RankResult};
use crate::options::DemoOptions;
use crate::rank::{Rank, is_remote};
use crate::report::{RanOn, Summary};
use crate::run::{Run, exit_code, show};
use warpverbs::moe::MoeError;
use warpverbs::team::TeamError;
use warpverbs::verbs::VerbsError;
use warpverbs_cli::launched::{Cause, Job, on_software_hca};
use warpverbs_cli::output;

/// The name of the command in its messages.
const NAME: &str = "wv demo";
/// The topic under which ranks tell what they have done.
const TOPIC: &str = "result";
/// The option with which a rank starts itself again with a software HCA of its own.
const INSIDE: &str = "--inside";

/// What each rank tells rank 0.
#[derive(Serialize, Deserialize)]
struct Told {
    result: RankResult,
    /// The way of its traffic, one line for each rail.
    paths: Vec<String>,
    bring_up_seconds: f64,
}

/// Runs this rank. Rank 0 also prints what all ranks have done.
pub(crate) fn run(options: &DemoOptions) -> ExitCode {
    if options.device == GPUHCA {
        let why = "--device gpuhca has all ranks in one process, and --launched one in each";
        return exit_code(NAME, &Err(DemoError::Option(why.to_owned())));
    }
    if options.device == "sim" && !options.inside {
        return on_software_hca(NAME, INSIDE);
    }
    let job = match Job::of_this_process(NAME) {
        Ok(job) => job,
        Err(code) => return code,
    };
    let options = DemoOptions {
        ranks: job.config.ranks,
        ..options.clone()
    };
    // Every rank reads the same command line, so only rank 0 prints its errors.
    let inputs = match Inputs::load(&options) {
        Ok(inputs) => inputs,
        Err(error) if job.prints() => return exit_code(NAME, &Err(error)),
        Err(_) => return ExitCode::from(2),
    };
    let devices = devices::open_launched(&options, &job);
    if let Err(DemoError::Device(error)) = &devices
        && options.device == "auto"
        && !options.inside
        && let Some(VerbsError::NoDevice { found, .. }) = error.downcast_ref()
    {
        for reason in found.iter().filter(|_| job.prints()) {
            output::say(format_args!("{NAME}: passes over {reason}"));
        }
        return on_software_hca(NAME, INSIDE);
    }
    let ran = devices.and_then(|devices| one_rank(&job, &options, inputs, &devices));
    match ran {
        Ok(()) => ExitCode::SUCCESS,
        Err(DemoError::Output(error)) => error.end(NAME),
        Err(error) => job.fail(&cause(&error)),
    }
}

fn cause(error: &DemoError) -> Cause {
    let team = match error {
        DemoError::Team(error) | DemoError::Moe(MoeError::Team(error)) => Some(error),
        _ => None,
    };
    Cause {
        message: error.to_string(),
        is_remote: is_remote(error),
        is_taken: matches!(team, Some(TeamError::RankTaken { .. })),
    }
}

fn one_rank(
    job: &Job,
    options: &DemoOptions,
    inputs: Inputs,
    devices: &warpverbs::team::RankDevices,
) -> Result<(), DemoError> {
    let begin = Instant::now();
    if let Some(directory) = &options.dump {
        dump::prepare(directory)?;
    }
    messages::nobody_listens();
    let spec = Run::spec(options, job.config.store.clone(), None);
    let own = Inputs::load(options)?;
    let parts = (devices.contexts.as_slice(), &devices.gpu);
    let rank = Rank::on(spec, inputs, (job.rank(), false), parts, job.store.clone())?;
    let bring_up_seconds = begin.elapsed().as_secs_f64();
    let paths = rank.paths();
    let result = rank.finish()?;
    job.tell(
        TOPIC,
        &Told {
            result,
            paths,
            bring_up_seconds,
        },
    )?;
    if !job.prints() {
        return Ok(());
    }
    let limit = Duration::from_secs(options.timeout.max(1));
    let told: Vec<Option<Told>> = job.hear(TOPIC, limit)?;
    let missing = (0..).zip(&told).find(|(_, told)| told.is_none());
    if let Some((rank, _)) = missing {
        let messages = match job.failures()? {
            failures if failures.is_empty() => vec![format!("no result from rank {rank}")],
            failures => failures,
        };
        return Err(DemoError::Ranks { messages });
    }
    let told: Vec<Told> = told.into_iter().flatten().collect();
    for path in told.iter().flat_map(|told| &told.paths) {
        output::say(format_args!("{path}"));
    }
    let joined = told
        .iter()
        .map(|told| told.bring_up_seconds)
        .fold(0.0, f64::max);
    let first = &devices.contexts[0];
    let ran_on = RanOn {
        device: first.name().to_owned(),
        soft: first.info().is_soft(),
        gpu: devices.gpu.label(),
        executor: None,
    };
    let results = told.into_iter().map(|told| told.result).collect();
    let times = [begin.elapsed().as_secs_f64(), joined];
    show(
        options,
        &Summary::new(&own, options.steps, times, ran_on, results),
    )
}
