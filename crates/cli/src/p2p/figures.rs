//! What an engine has done, as text and as JSON.

use std::fmt;

use serde::Serialize;
use warpverbs::engine::{Engine, SliceCounts, Statistics};

/// What an engine has done since its start.
#[derive(Clone, Debug, Serialize)]
pub(super) struct EngineFigures {
    transfers: Transfers,
    slices: Slices,
    rails: Vec<Rail>,
}

#[derive(Clone, Debug, Serialize)]
struct Transfers {
    submitted: u64,
    refused: u64,
    done: u64,
    failed: u64,
    cancelled: u64,
    timed_out: u64,
    done_bytes: u64,
}

#[derive(Clone, Debug, Serialize)]
struct Slices {
    queued: u64,
    retried: u64,
    not_posted: u64,
    #[serde(flatten)]
    counts: Counts,
}

#[derive(Clone, Debug, Serialize)]
struct Counts {
    posted: u64,
    posted_bytes: u64,
    completed: u64,
    failed: u64,
    stalled_seconds: f64,
}

#[derive(Clone, Debug, Serialize)]
struct Rail {
    device: String,
    port: u8,
    state: String,
    rests: u64,
    #[serde(flatten)]
    counts: Counts,
}

impl EngineFigures {
    /// Returns what `engine` has done until now.
    #[must_use]
    pub(super) fn of(engine: &Engine) -> Self {
        let all = engine.statistics();
        let rails = engine.rails().into_iter();
        let rails = rails.map(|rail| Rail {
            device: rail.device,
            port: rail.port,
            state: rail.state.to_string(),
            rests: rail.rests,
            counts: Counts::of(&rail.slices),
        });
        Self {
            transfers: Transfers::of(&all),
            slices: Slices {
                queued: all.queued,
                retried: all.retried,
                not_posted: all.not_posted,
                counts: Counts::of(&all.slices),
            },
            rails: rails.collect(),
        }
    }
}

impl Transfers {
    fn of(all: &Statistics) -> Self {
        Self {
            submitted: all.submitted,
            refused: all.refused,
            done: all.done,
            failed: all.failed,
            cancelled: all.cancelled,
            timed_out: all.timed_out,
            done_bytes: all.done_bytes,
        }
    }
}

impl Counts {
    fn of(counts: &SliceCounts) -> Self {
        Self {
            posted: counts.posted,
            posted_bytes: counts.posted_bytes,
            completed: counts.completed,
            failed: counts.failed,
            stalled_seconds: counts.stalled.as_secs_f64(),
        }
    }
}

impl fmt::Display for EngineFigures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            transfers,
            slices,
            rails,
        } = self;
        writeln!(
            f,
            "transfers: {} submitted, {} refused, {} done ({} bytes), {} failed, {} cancelled, {} timed out",
            transfers.submitted,
            transfers.refused,
            transfers.done,
            transfers.done_bytes,
            transfers.failed,
            transfers.cancelled,
            transfers.timed_out
        )?;
        writeln!(
            f,
            "slices: {} queued, {} retried, {} not posted, {}",
            slices.queued, slices.retried, slices.not_posted, slices.counts
        )?;
        for rail in rails {
            let Rail {
                device,
                port,
                state,
                rests,
                counts,
            } = rail;
            writeln!(
                f,
                "{device} port {port}: {state}, {rests} rests, slices: {counts}"
            )?;
        }
        Ok(())
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} posted ({} bytes), {} completed, {} failed, stalled {:.3} s",
            self.posted, self.posted_bytes, self.completed, self.failed, self.stalled_seconds
        )
    }
}
