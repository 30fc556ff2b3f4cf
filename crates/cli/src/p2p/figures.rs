//! What an engine has done, as text and as JSON.

use std::fmt;

use serde::Serialize;
use warpverbs::engine::{Engine, EngineDevice, SliceCounts, Statistics};

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
    /// The provider that drives the device.
    provider: &'static str,
    /// The provider of libfabric and the fabric; None of other providers.
    libfabric: Option<Libfabric>,
    state: String,
    rests: u64,
    /// How often the provider has refused an operation, which was tried again.
    refusals: u64,
    /// The device and its provider in words.
    #[serde(skip)]
    words: String,
    #[serde(flatten)]
    counts: Counts,
}

#[derive(Clone, Debug, Serialize)]
struct Libfabric {
    provider: String,
    fabric: String,
    library: String,
}

impl EngineFigures {
    /// Returns what `engine`, which is on `devices`, has done until now.
    #[must_use]
    pub(super) fn of(engine: &Engine, devices: &[EngineDevice]) -> Self {
        let all = engine.statistics();
        // The rails of an engine are its devices, in their order.
        let rails = engine.rails().into_iter().zip(devices);
        let rails = rails.map(|(rail, device)| Rail {
            words: device.to_string(),
            provider: device.provider(),
            libfabric: device.domain().map(|domain| Libfabric {
                provider: domain.provider().to_owned(),
                fabric: domain.fabric().to_owned(),
                library: domain.library(),
            }),
            refusals: rail.refusals,
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

/// Returns a line that says on which devices an engine is, and which provider drives each.
pub(super) fn devices_line(devices: &[EngineDevice]) -> String {
    let all: Vec<String> = devices.iter().map(ToString::to_string).collect();
    format!("the engine is on {}\n", all.join(" and "))
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
                refusals,
                words,
                counts,
                ..
            } = rail;
            writeln!(
                f,
                "{device} port {port}: {state}, {rests} rests, slices: {counts}; {words}, {refusals} operations tried again"
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
