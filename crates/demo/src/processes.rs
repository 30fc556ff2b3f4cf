//! `wv demo` with a process for each rank.

use std::time::Instant;

use crate::data::input::Inputs;
use crate::error::DemoError;
use crate::launch::Ranks;
use crate::messages::Message;
use crate::options::DemoOptions;
use crate::report::{RanOn, Summary};
use crate::run::{Run, progress_bar};
use warpverbs_cli::output;

/// Starts a process for each rank, and returns what they have done.
pub(crate) fn run(options: &DemoOptions, inputs: &Inputs) -> Result<Summary, DemoError> {
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
