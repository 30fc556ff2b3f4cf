//! Two engines of which one writes to the other, a bare loop that writes the same, and where another provider drives the HCAs, two engines by
//! mlx5. All take turns.

use std::sync::Arc;
use std::time::{Duration, Instant};

use warpverbs::engine::{EngineDevice, Operation};
use warpverbs::internal::engine::{Engine, HostError, Prepared};
use warpverbs::internal::provider::{BareLanes, BareWrite};

use super::idle::QPS_OF_A_PEER;
use super::options::{EngineOptions, wrong};
use super::report::Row;
use crate::error::BenchError;
use crate::host::p2p::{self, Ends, P2pOptions, Pair, Pattern};

/// How often idle QPs are added and removed. Rounds with idle QPs and without alternate, so that other load of the machine falls on both.
pub(super) const PHASES: u32 = 5;
/// The number of WQEs for each doorbell of the bare loop, and log2 of the WQEBBs of its QPs. Softhca's own bench has the same values.
const BATCH: usize = 512;
const LOG_DEPTH: u8 = 10;
/// The most bytes that a WQE of the bare loop carries inline: none, as in softhca's own bench.
const INLINE: u32 = 0;

/// The patterns that are written from one end to the other.
pub(super) const PATTERNS: [Pattern; 3] = [
    Pattern {
        name: "words",
        operations: 16_384,
        bytes: 8,
        stride: 64,
    },
    Pattern {
        name: "pages",
        operations: 4096,
        bytes: 1 << 12,
        stride: 1 << 12,
    },
    Pattern {
        name: "blocks",
        operations: 512,
        bytes: 1 << 16,
        stride: 1 << 16,
    },
];

/// Rates of a pattern, one for each round.
#[derive(Default)]
pub(super) struct Rates {
    engine: Vec<f64>,
    bare: Vec<f64>,
    /// The rates of engines by mlx5, if there are such.
    by_mlx5: Vec<f64>,
}

/// Two engines of which one writes to the other.
struct Engines {
    prepared: [Arc<Prepared>; PATTERNS.len()],
    pair: Pair,
}

/// Two engines of which one writes to the other, and a bare loop that writes the same.
pub(super) struct Both {
    options: EngineOptions,
    engines: Engines,
    lanes: BareLanes,
    writes: [Vec<BareWrite>; PATTERNS.len()],
    by_mlx5: Option<Engines>,
}

/// Returns two connected engines on these devices.
pub(super) fn connected(
    [here, there]: &[EngineDevice; 2],
    options: &EngineOptions,
) -> Result<Pair, BenchError> {
    // The connection to an idle peer may have more QPs than the one to the other end.
    let most = P2pOptions {
        qps: QPS_OF_A_PEER,
        ..options.p2p()
    };
    Pair::new([here, there], [&most, &options.p2p()], extent())
}

impl Engines {
    fn new(pair: Pair) -> Result<Self, BenchError> {
        pair.fill(extent(), 1)?;
        let [local, remote] = addresses(&pair);
        let prepare = |pattern: &Pattern| pair.prepare(&pattern.operations(local, remote));
        let [words, pages, blocks] = PATTERNS.each_ref().map(prepare);
        Ok(Self {
            prepared: [words?, pages?, blocks?],
            pair,
        })
    }

    /// Writes a pattern once. Returns how long that took.
    fn round(&self, nth: usize) -> Result<Duration, BenchError> {
        p2p::round(&self.pair, &PATTERNS[nth], &self.prepared[nth])
    }
}

impl Both {
    /// Adds a bare loop to two engines that are on these devices.
    pub(super) fn new(
        [here, there]: &[EngineDevice; 2],
        pair: Pair,
        options: &EngineOptions,
    ) -> Result<Self, BenchError> {
        let [local, remote] = addresses(&pair);
        let memories = pair.memories.each_ref();
        let lanes = BareLanes::new([here, there], memories, options.qps, LOG_DEPTH, INLINE);
        let write = |it: Operation| BareWrite {
            local: it.local,
            remote: it.remote,
            bytes: u32::try_from(it.bytes).unwrap_or(u32::MAX),
        };
        let writes = |pattern: &Pattern| {
            let operations = pattern.operations(local, remote).into_iter();
            operations.map(write).collect()
        };
        Ok(Self {
            options: *options,
            lanes: lanes.map_err(HostError::from)?,
            writes: PATTERNS.each_ref().map(writes),
            engines: Engines::new(pair)?,
            by_mlx5: None,
        })
    }

    /// Adds two engines on the same HCAs, which mlx5 drives.
    pub(super) fn add_mlx5(&mut self, devices: &[EngineDevice; 2]) -> Result<(), BenchError> {
        let pair = connected(devices, &self.options)?;
        self.by_mlx5 = Some(Engines::new(pair)?);
        Ok(())
    }

    /// Returns the engine that writes.
    pub(super) fn hub(&self) -> &Engine {
        &self.engines.pair.engines[0]
    }

    /// Measures all patterns, in turn by the engine, by the loop, and by the engine of mlx5.
    pub(super) fn rounds(&mut self, all: &mut [Rates; PATTERNS.len()]) -> Result<(), BenchError> {
        for round in 0..=self.options.rounds.div_ceil(PHASES) {
            for (nth, rates) in all.iter_mut().enumerate() {
                let engine = self.engines.round(nth)?;
                let bare = self.by_loop(nth)?;
                let by_mlx5 = self.by_mlx5.as_ref().map(|engines| engines.round(nth));
                let by_mlx5 = by_mlx5.transpose()?;
                // The first round warms up.
                if round > 0 {
                    let rate = |time| rate(&PATTERNS[nth], self.options.slice, time);
                    rates.engine.push(rate(engine));
                    rates.bare.push(rate(bare));
                    rates.by_mlx5.extend(by_mlx5.map(rate));
                }
            }
        }
        Ok(())
    }

    fn by_loop(&mut self, nth: usize) -> Result<Duration, BenchError> {
        let begin = Instant::now();
        let done = self.lanes.run(&self.writes[nth], BATCH);
        let time = begin.elapsed();
        done.map_err(|cause| wrong(format!("a WRITE of the bare loop has failed: {cause}")))?;
        Ok(time)
    }

    /// Lets engine and loop write each pattern once more, over new bytes each time. Returns how many bytes were compared.
    pub(super) fn compare(&mut self) -> Result<u64, BenchError> {
        let (mut compared, mut seed) = (0, 1);
        for (nth, pattern) in PATTERNS.iter().enumerate() {
            for by in [|it: &mut Self, nth| it.engines.round(nth), Self::by_loop] {
                seed += 1;
                self.engines.pair.fill(pattern.extent(), seed)?;
                by(self, nth)?;
                compared += self.engines.pair.compare(pattern)?;
            }
        }
        Ok(compared)
    }
}

/// Returns the number of bytes that each end needs.
fn extent() -> u64 {
    PATTERNS.iter().map(Pattern::extent).max().unwrap_or(0)
}

/// Returns the addresses of the memories of both ends.
fn addresses(pair: &Pair) -> [u64; 2] {
    pair.memories.each_ref().map(|memory| memory.address())
}

/// Returns the rows of all patterns. `crowded` has the rates beside idle QPs. None: there were none.
pub(super) fn rows(
    options: &EngineOptions,
    alone: &[Rates; PATTERNS.len()],
    crowded: Option<&[Rates; PATTERNS.len()]>,
) -> Vec<Row> {
    let mut rows = Vec::new();
    for (nth, (pattern, alone)) in PATTERNS.iter().zip(alone).enumerate() {
        let unit = unit(pattern);
        let Pattern { name, bytes, .. } = pattern;
        let writes = format!("{name}: WRITEs of {bytes} bytes");
        let row = |what: String, beside, rates: &[f64], yardstick: &[f64]| {
            Row::new(what, beside, unit, rates, yardstick)
        };
        rows.push(row(
            writes.clone(),
            "a bare loop",
            &alone.engine,
            &alone.bare,
        ));
        if !alone.by_mlx5.is_empty() {
            rows.push(row(writes.clone(), "mlx5", &alone.engine, &alone.by_mlx5));
        }
        let Some(crowded) = crowded.map(|all| &all[nth]) else {
            continue;
        };
        let among = format!("{writes}, beside {} idle QPs", options.idle_qps);
        let without = "the same without them";
        rows.push(row(among.clone(), without, &crowded.engine, &alone.engine));
        let bare = format!("{among}, by the bare loop");
        rows.push(row(bare, without, &crowded.bare, &alone.bare));
    }
    rows
}

fn unit(pattern: &Pattern) -> &'static str {
    if pattern.bytes < 4096 {
        "M WQEs/s"
    } else {
        "GB/s"
    }
}

/// Returns the rate of a round that took `time`, in the unit of the pattern.
#[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
fn rate(pattern: &Pattern, slice: u32, time: Duration) -> f64 {
    let amount = match unit(pattern) {
        "GB/s" => (pattern.operations * pattern.bytes) as f64 / 1e9,
        _ => wqes(pattern, slice),
    };
    amount / time.as_secs_f64()
}

/// Returns the WQEs of a round, in millions.
#[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
pub(super) fn wqes(pattern: &Pattern, slice: u32) -> f64 {
    pattern.slices(slice) as f64 / 1e6
}
