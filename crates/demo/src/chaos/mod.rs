//! Ranks that die, stand still, lose each other and come back under running steps: `wv demo --kill` and `wv chaos`, which also
//! drives programs of Python.
//!
//! Every step of every rank is checked against the reference implementation (crate `moe-reference`), with the ranks masked that the rank
//! itself reported. Deeds and reports are collected as records, from which the final table and `--timeline` are made.

mod acts;
mod away;
mod checker;
mod command;
mod deeds;
mod event;
mod figures;
mod fleet;
mod garbage;
mod kills;
mod options;
mod pace;
mod plan;
mod processes;
mod program;
mod spaces;
mod table;
mod timeline;
mod times;
mod tokens;
mod told;
mod verdict;
mod watch;

use std::path::Path;
use std::time::SystemTime;

pub use command::run as run_chaos;

pub(super) use event::{Loss, Record, RecordKind};
use figures::Figures;
pub(super) use kills::run as run_kills;
pub use options::ChaosOptions;
pub use plan::Kill;

use super::DemoError;
use super::input::Inputs;
use crate::cmd::output;

/// Returns the microseconds since 1970, by the clock that all processes of a machine share.
pub(super) fn unix_us() -> u64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    now.map_or(0, |time| {
        u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
    })
}

/// Refuses token formats other than BF16, because sums over the ranks that took part are compared bit for bit.
fn check_format(inputs: &Inputs, option: &str) -> Result<(), DemoError> {
    match inputs.config.format {
        warpverbs::moe::Format::Bf16 => Ok(()),
        _ => Err(DemoError::Option(format!(
            "{option} compares bit for bit, and so takes BF16 tokens only"
        ))),
    }
}

/// Writes the picture, if it is wanted, and prints the table of a run that has ended with `ended`.
fn publish(
    records: &[Record],
    timeline: Option<&Path>,
    json: bool,
    ended: Result<(), DemoError>,
) -> Result<(), DemoError> {
    if let Some(path) = timeline {
        std::fs::write(path, timeline::svg(records))
            .map_err(|error| DemoError::file(path, &error))?;
    }
    let figures = Figures::of(records);
    let written = if json {
        let text = serde_json::to_string(&figures).expect("numbers");
        output::print(&format_args!("{text}\n"))
    } else {
        let verdict = match &ended {
            Ok(()) => "equals the scalar reference for the ranks that took part, bit for bit",
            Err(_) => "was checked until one rank failed, see below",
        };
        let table = figures.table();
        output::print(&format_args!(
            "every step on every rank {verdict}\n\n{table}"
        ))
    };
    ended?;
    Ok(written?)
}
