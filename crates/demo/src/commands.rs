//! `wv demo`: which way a run takes.

use std::process::ExitCode;

use crate::chaos::run_kills;
use crate::data::input::Inputs;
use crate::devices::GPUHCA;
use crate::error::DemoError;
use crate::options::DemoOptions;
use crate::run::{exit_code, show};
use crate::{explain, launched, one_process, processes};
use warpverbs_cli::output;

/// Runs the demo and prints its result.
#[must_use]
pub fn run(options: &DemoOptions) -> ExitCode {
    if options.launched {
        return launched::run(options);
    }
    if options.device == GPUHCA && !options.inside && !options.explain {
        return match one_process::start(options) {
            Ok(code) => code,
            Err(error) => exit_code("wv demo", &Err(error)),
        };
    }
    exit_code("wv demo", &run_to_the_end(options))
}

fn run_to_the_end(options: &DemoOptions) -> Result<(), DemoError> {
    let inputs = Inputs::load(options)?;
    if options.explain {
        return Ok(output::print(&explain::explain(&inputs)?)?);
    }
    if !options.kill.is_empty() {
        return run_kills(options, &inputs);
    }
    let summary = if options.inside {
        one_process::run(options, &inputs)?
    } else {
        processes::run(options, &inputs)?
    };
    show(options, &summary)
}
