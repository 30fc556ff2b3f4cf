//! How fast the kernels of a MoE step move tokens inside one GPU. Beside it stands a plain copy of as many bytes on the same
//! device in the same run. The layer has one rank, so no kernel waits for a network.
//!
//! Times are those of the device. Between the launches of a stream one thread stores the device's clock, and the host waits only after the
//! last of them. The time of a phase is the mean of all its launches, at least `LEAST_LAUNCHES`. Each time includes the launch of the
//! kernel that stores the clock, which is already in the queue.
//!
//! The bytes that a phase must move are computed. Each token goes once into a slot and once out of it, and each choice has one
//! row at the experts. On simt the phases run and the bytes are the same, but simt has no hardware whose speed could be measured.

// UNSAFETY: launches kernels on buffers of this module.
#![expect(unsafe_code, reason = "launches of the MoE and copy kernels")]

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytemuck::bytes_of;
use serde::Serialize;

use super::buffers::Buffers;
use super::case::MoeCase;
use super::routing::Routing;
use crate::device::abi::CopyBenchParams;
use crate::device::clock::Clock;
use crate::device::kernels::KERNELS;
use crate::error::BenchError;
use warpverbs::abi::DevicePtr;
use warpverbs::gpu::{DeviceMemory, Gpu, Launch, Stream};
use warpverbs::moe::{
    CombineInput, CombineOutput, DispatchInput, Format, Moe, MoeCall, MoeConfig, Scales,
};
use warpverbs::team::{JoinOptions, Matter, MemoryStore, Team, TeamConfig};
use warpverbs::verbs::Context;

/// The bound of every wait.
const LONG: Duration = Duration::from_secs(120);
/// The least number of timed launches of a phase on a GPU.
const LEAST_LAUNCHES: u32 = 20;
/// The number of blocks of the copy on a GPU: two for each multiprocessor of an H100.
const COPY_BLOCKS: u32 = 264;

/// The step that is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BandwidthCase {
    /// The number of tokens of the rank.
    pub tokens: u32,
    /// The number of BF16 elements of a token.
    pub hidden: u32,
    /// The number of experts of the rank.
    pub experts: u32,
    /// The number of experts that each token chooses.
    pub top_k: u32,
    /// The number of calls that are timed; on a GPU at least 20 are.
    pub calls: u32,
}

/// The results for the phases of all formats.
#[derive(Clone, Debug, Serialize)]
pub struct Bandwidth {
    /// The GPU on which kernels ran.
    pub gpu: String,
    /// How the HCA reaches the windows. This tells where they lie: `by address` is in the memory of the device.
    pub windows: String,
    /// The number of tokens of the rank.
    pub tokens: u32,
    /// The rows, four for each format.
    pub rows: Vec<BandwidthRow>,
}

/// The results for one phase.
#[derive(Clone, Debug, Serialize)]
pub struct BandwidthRow {
    /// The names of format and phase.
    pub what: String,
    /// The number of bytes that the phase must read and write.
    pub bytes: u64,
    /// The mean time of the launches, and of copies that read and write as many bytes; None on simt.
    pub seconds: Option<[f64; 2]>,
}

impl BandwidthRow {
    /// Returns the bytes in a second of the phase and of the copy.
    #[must_use]
    pub fn rates(&self) -> Option<[f64; 2]> {
        #[expect(clippy::cast_precision_loss, reason = "far below 2^52 bytes")]
        let bytes = self.bytes as f64;
        Some(self.seconds?.map(|seconds| bytes / seconds))
    }

    /// Returns the speed of the phase in percent of the copy's.
    #[must_use]
    pub fn percent(&self) -> Option<f64> {
        let [phase, copy] = self.rates()?;
        Some(100.0 * phase / copy)
    }
}

/// Runs all phases on `gpu`. The team of one rank needs the device `context`, but sends nothing over it.
///
/// # Errors
/// A shape beyond the limits; what device and layer refuse; a call that is not complete.
pub fn measure(
    case: &BandwidthCase,
    context: &Arc<Context>,
    gpu: &Arc<dyn Gpu>,
) -> Result<Bandwidth, BenchError> {
    let config = TeamConfig::new(0, 1).with_deadline(LONG);
    gpu.add_kernels(&KERNELS)?;
    let team = JoinOptions::new(config)
        .with_contexts([context])
        .with_gpu(gpu)
        .with_store(Arc::new(MemoryStore::new()))
        .join()?;
    let mut rows = Vec::new();
    for (name, format) in [("BF16", Format::Bf16), ("FP8", Format::Fp8(Scales::F32))] {
        let layer = MoeCase {
            ranks: 1,
            config: MoeConfig::BF16
                .with_hidden(case.hidden)
                .with_experts(case.experts)
                .with_top_k(case.top_k)
                .with_max_tokens(case.tokens)
                .with_format(format),
            routing: Routing::Uniform,
            seed: 1,
        };
        let bench = Bench::new(&layer, &team, name)?;
        let found = bench.run(name, case.calls);
        if matches!(found, Err(BenchError::Gpu(_))) {
            // A kernel that has not ended still uses the buffers.
            std::mem::forget(bench);
        }
        rows.extend(found?);
    }
    Ok(Bandwidth {
        gpu: gpu.label(),
        windows: windows_of(&team),
        tokens: case.tokens,
        rows,
    })
}

/// Returns how the team has chosen to let the HCA reach its windows.
fn windows_of(team: &Team) -> String {
    let choices = team.choices();
    let windows = choices
        .iter()
        .find(|choice| choice.matter == Matter::Windows);
    windows.map_or_else(String::new, |choice| choice.step.to_string())
}

/// The names of the phases.
const PHASES: [&str; 4] = [
    "pack (dispatch send)",
    "unpack (dispatch receive)",
    "sum at the expert (combine send)",
    "sum at the source (combine receive)",
];

/// Returns the number of bytes that each phase reads and writes in a call of `max_tokens`.
fn bytes_of_phases(moe: &Moe) -> [u64; 4] {
    let (layout, config) = (moe.layout(), moe.config());
    let (tokens, choices) = (u64::from(config.max_tokens), u64::from(config.top_k));
    let given = u64::from(config.hidden) * 2;
    let row = layout.row_bytes + layout.scale_bytes;
    let back = layout.combine_row_bytes;
    [
        tokens * (given + row),
        tokens * (row + choices * row),
        tokens * (choices * back + back),
        tokens * (back + back),
    ]
}

/// A layer of one rank, with its buffers.
struct Bench {
    gpu: Arc<dyn Gpu>,
    moe: Arc<Moe>,
    call: MoeCall,
    buffers: Buffers,
    y: DeviceMemory,
    /// The buffers of the copy, each as long as half of what the largest phase moves.
    copied: [DeviceMemory; 2],
    stream: Stream,
    tokens: u32,
}

impl Bench {
    fn new(case: &MoeCase, team: &Arc<Team>, name: &str) -> Result<Self, BenchError> {
        let gpu = Arc::clone(team.gpu());
        let moe = Moe::new(team, name, case.config)?;
        let buffers = Buffers::new(case, &gpu)?;
        buffers.fill(case, &gpu, 0)?;
        let rows = u64::from(case.config.experts) * u64::from(case.config.max_tokens);
        let alloc = |bytes: u64| gpu.alloc(usize::try_from(bytes).unwrap_or(usize::MAX), 128);
        let half = bytes_of_phases(&moe).into_iter().max().unwrap_or(0) / 2;
        Ok(Self {
            y: alloc(rows * moe.layout().combine_row_bytes)?,
            copied: [alloc(half)?, alloc(half)?],
            stream: gpu.default_stream(),
            call: moe.call()?,
            tokens: case.config.max_tokens,
            gpu,
            moe,
            buffers,
        })
    }

    fn run(&self, name: &str, calls: u32) -> Result<Vec<BandwidthRow>, BenchError> {
        let on_simt = self.gpu.label() == "simt";
        let calls = if on_simt {
            calls.max(1)
        } else {
            calls.max(LEAST_LAUNCHES)
        };
        self.phases(1)?; // the first calls after a start take longer
        let means = self.phases(calls)?;
        let row = |((phase, bytes), mean): ((&str, u64), f64)| {
            let copy = self.copy(bytes, calls)?;
            Ok(BandwidthRow {
                what: format!("{name}, {phase}"),
                bytes,
                seconds: (!on_simt).then_some([mean, copy]),
            })
        };
        PHASES
            .into_iter()
            .zip(bytes_of_phases(&self.moe))
            .zip(means)
            .map(row)
            .collect()
    }

    /// Launches `calls` calls one after another in the stream. Returns the mean time of each phase, in seconds.
    fn phases(&self, calls: u32) -> Result<[f64; 4], BenchError> {
        let (moe, stream, buffers) = (&self.moe, &self.stream, &self.buffers);
        let call = &self.call;
        let input = DispatchInput::default()
            .with_x(buffers.x.addr())
            .with_experts(buffers.experts.addr())
            .with_weights(buffers.weights.addr())
            .with_tokens(self.tokens);
        let output = buffers.output(moe.config().layout);
        let back = CombineInput::default().with_y(self.y.addr());
        let sums = CombineOutput::default()
            .with_out(buffers.out.addr())
            .with_token_valid(buffers.valid.addr());
        let mut clock = Clock::new(self.gpu.as_ref(), &self.stream, 5 * calls)?;
        for _ in 0..calls {
            clock.stamp()?;
            // SAFETY: the buffers have the sizes of the shape. They, handle and layer live until after the wait of `clock`, or are
            // never freed. No other code uses them.
            unsafe { moe.dispatch_send(stream, call, &input) }?;
            clock.stamp()?;
            // SAFETY: as above.
            unsafe { moe.dispatch_receive(stream, call, &output) }?;
            clock.stamp()?;
            // SAFETY: as above.
            unsafe { moe.combine_send(stream, call, &back) }?;
            clock.stamp()?;
            // SAFETY: as above.
            unsafe { moe.combine_receive(stream, call, &sums) }?;
            clock.stamp()?;
        }
        let times = clock.read(LONG)?;
        call.check()?;
        let phase = |phase: usize| {
            times
                .chunks(5)
                .map(move |call| call[phase + 1] - call[phase])
        };
        Ok(std::array::from_fn(|number| mean(phase(number), calls)))
    }

    /// Returns the mean time of `times` copies that each read and write `bytes` in all, in seconds.
    fn copy(&self, bytes: u64, times: u32) -> Result<f64, BenchError> {
        let half = bytes / 2;
        let [from, to] = &self.copied;
        let params = CopyBenchParams {
            from: DevicePtr::new(from.addr()),
            to: DevicePtr::new(to.addr()),
            vectors: half / 16,
        };
        let blocks = if self.gpu.label() == "simt" {
            self.moe.grid().blocks
        } else {
            COPY_BLOCKS
        };
        let launch = Launch::new("wv_bench_copy", blocks, self.moe.grid().threads)
            .with_stream(Some(&self.stream));
        let mut clock = Clock::new(self.gpu.as_ref(), &self.stream, times + 1)?;
        clock.stamp()?;
        for _ in 0..times {
            // SAFETY: both have `half` bytes or more and live after the wait of `clock`, or are never freed; no other code uses
            // them.
            unsafe { self.gpu.launch(&launch, bytes_of(&params)) }?;
            clock.stamp()?;
        }
        let ends = clock.read(LONG)?;
        Ok(mean(ends.windows(2).map(|pair| pair[1] - pair[0]), times))
    }
}

/// Returns the mean of `count` times: the sum of `times`, which are in ns, divided by `count`, in seconds.
fn mean(times: impl Iterator<Item = u64>, count: u32) -> f64 {
    let sum: u64 = times.sum();
    #[expect(clippy::cast_precision_loss, reason = "far below 2^52 ns")]
    let sum = sum as f64;
    sum / f64::from(count.max(1)) / 1e9
}

impl fmt::Display for Bandwidth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (gpu, tokens, windows) = (&self.gpu, self.tokens, &self.windows);
        writeln!(
            f,
            "\nkernels of one rank alone on {gpu}, {tokens} tokens, windows {windows}, beside a copy of as many bytes on it"
        )?;
        writeln!(
            f,
            "{:<45} {:>13} {:>8} {:>9} {:>9} {:>8}",
            "phase", "bytes", "us", "GB/s", "copy", "of copy"
        )?;
        for row in &self.rows {
            write!(f, "{:<45} {:>13}", row.what, row.bytes)?;
            match (row.seconds, row.rates(), row.percent()) {
                (Some([took, _]), Some([phase, copy]), Some(percent)) => writeln!(
                    f,
                    " {:>8.1} {:>9.1} {:>9.1} {percent:>7.1}%",
                    took * 1e6,
                    phase / 1e9,
                    copy / 1e9
                )?,
                _ => writeln!(f, " {:>8} {:>9} {:>9} {:>8}", "-", "-", "-", "-")?,
            }
        }
        if self.rows.iter().all(|row| row.seconds.is_none()) {
            writeln!(f, "simt is no hardware, so its speed has no figure")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn result(seconds: Option<[f64; 2]>) -> Bandwidth {
        Bandwidth {
            gpu: "H100".to_owned(),
            windows: "by address".to_owned(),
            tokens: 4096,
            rows: vec![BandwidthRow {
                what: "BF16, pack".to_owned(),
                bytes: 3_000_000_000,
                seconds,
            }],
        }
    }

    #[test]
    fn a_rate_is_bytes_in_a_second_and_stands_beside_that_of_the_copy() {
        let fast = result(Some([0.002, 0.0018]));
        assert_eq!(
            fast.rows[0].rates().map(|rates| rates[0].round()),
            Some(1.5e12)
        );
        let text = fast.to_string();
        for figure in ["2000.0", "1500.0", "90.0%"] {
            assert!(text.contains(figure), "{figure}: {text}");
        }
    }

    #[test]
    fn without_hardware_no_phase_has_a_figure() {
        let none = result(None);
        assert_eq!(none.rows[0].rates(), None);
        assert!(none.to_string().contains("simt is no hardware"), "{none}");
    }
}
