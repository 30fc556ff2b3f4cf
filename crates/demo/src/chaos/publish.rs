//! The end of a run: its picture, and its table or JSON.

use std::path::Path;

use super::figures::Figures;
use super::timeline;
use crate::error::DemoError;
use crate::record::Record;
use warpverbs_cli::output;

/// Writes the picture, if it is wanted, and prints the table of a run that has ended with `ended`.
pub(super) fn publish(
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
