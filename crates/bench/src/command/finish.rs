//! How the commands of `wv bench` end.

use std::fmt::Display;
use std::path::Path;
use std::process::ExitCode;

use serde::Serialize;

use crate::error::BenchError;
use warpverbs_cli::output;

/// The name of the command in its messages.
pub(super) const NAME: &str = "wv bench";

/// Ends with the results: prints the table, and writes JSON to the file that `json` names, if any.
pub(super) fn finish<T: Serialize + Display>(
    measured: Result<T, BenchError>,
    json: Option<&Path>,
) -> ExitCode {
    match written(measured, json) {
        Ok(report) => output::finish(NAME, &report),
        Err(error) => refuse(&error),
    }
}

/// Returns the report, after writing it as JSON to the file that `json` names, if any.
pub(super) fn written<T: Serialize>(
    measured: Result<T, BenchError>,
    json: Option<&Path>,
) -> Result<T, BenchError> {
    let report = measured?;
    if let Some(path) = json {
        write_json(path, &report)?;
    }
    Ok(report)
}

pub(super) fn refuse(error: &dyn Display) -> ExitCode {
    output::say(format_args!("{NAME}: {error}"));
    ExitCode::FAILURE
}

/// Writes a report as JSON.
fn write_json(path: &Path, report: &impl Serialize) -> Result<(), BenchError> {
    let refused = |error: &dyn ToString| BenchError::Option {
        what: "--json",
        value: path.display().to_string(),
        limit: format!("a file that can be written: {}", error.to_string()),
    };
    let text = serde_json::to_string_pretty(report).map_err(|error| refused(&error))?;
    std::fs::write(path, text + "\n").map_err(|error| refused(&error))
}
