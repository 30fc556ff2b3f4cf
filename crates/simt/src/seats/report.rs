//! Reports, in words, of what the threads of a worker are doing.

use std::fmt::Write;

use super::seat::{Seat, SeatedWarp};
use crate::warp::Meeting;

/// The most lines of a report. Further lines are only counted.
const LINES: usize = 24;

/// Returns one line per group of threads that have not ended.
pub(crate) fn describe<'a>(seats: impl Iterator<Item = &'a Seat>) -> String {
    let lines: Vec<String> = seats
        .flat_map(|seat| {
            seat.warps()
                .iter()
                .flat_map(|warp| describe_warp(seat, warp))
        })
        .collect();
    let mut text = lines[..lines.len().min(LINES)].join("; ");
    if lines.len() > LINES {
        let _ = write!(text, "; and {} more", lines.len() - LINES);
    }
    text
}

fn describe_warp(seat: &Seat, warp: &SeatedWarp) -> Vec<String> {
    let place = seat.thread_id(warp.index(), 0);
    let place = format!(
        "block ({},{},{}) warp {}",
        place.block.x, place.block.y, place.block.z, place.warp
    );
    let mut lines = Vec::new();
    let mut waiting = warp.at_barrier() | warp.at_grid();
    for Meeting { op, mask, arrived } in warp.meetings() {
        waiting |= arrived;
        let missing = whereabouts(warp, mask & !arrived);
        lines.push(format!(
            "{place}: lanes {arrived:#010x} wait in {} with mask {mask:#010x} for {missing}",
            op.name()
        ));
    }
    if warp.at_barrier() != 0 {
        let (lanes, name) = (warp.at_barrier(), seat.barrier_name());
        lines.push(format!(
            "{place}: lanes {lanes:#010x} wait in {name}, where {} of {} are",
            seat.arrived(),
            seat.live()
        ));
    }
    if warp.at_grid() != 0 {
        lines.push(format!(
            "{place}: lanes {:#010x} wait in simt_grid_sync",
            warp.at_grid()
        ));
    }
    let parts = warp.parts();
    waiting |= parts.entering();
    if parts.entering() != 0 {
        let lanes = parts.entering();
        lines.push(format!(
            "{place}: lanes {lanes:#010x} wait in front of a divergent part"
        ));
    }
    for (lanes, missing) in parts.leaving() {
        waiting |= lanes;
        lines.push(format!(
            "{place}: lanes {lanes:#010x} wait behind a divergent part for lanes {missing:#010x}"
        ));
    }
    let running = warp.alive() & !waiting;
    if running != 0 {
        lines.push(format!("{place}: lanes {running:#010x} run or poll"));
    }
    lines
}

/// Returns where the lanes are that have not come to a meeting.
fn whereabouts(warp: &SeatedWarp, missing: u32) -> String {
    let mut groups = vec![
        (warp.at_barrier(), "at a barrier of the block".to_owned()),
        (warp.at_grid(), "at a barrier of the grid".to_owned()),
    ];
    for Meeting { op, mask, arrived } in warp.meetings() {
        groups.push((arrived, format!("in {} with mask {mask:#010x}", op.name())));
    }
    let accounted = groups.iter().fold(0, |all, (lanes, _)| all | lanes);
    groups.push((!accounted, "running".to_owned()));
    let missed = groups.iter().filter(|(lanes, _)| lanes & missing != 0);
    let parts: Vec<_> = missed
        .map(|(lanes, what)| format!("lanes {:#010x} ({what})", lanes & missing))
        .collect();
    parts.join(", ")
}
