//! The measured counts beside the computed ones, as a table and as JSON.

use std::fmt;

use serde::Serialize;

use warpverbs::gpu::simt::{KernelCounts, SimtGpu};

use super::bandwidth::Bandwidth;
use super::case::{HcaCounts, MoeCase};
use super::need::{Need, deepep, lower_bound};

/// The counts of one phase, of one rank or of all together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
    /// The number of work requests that the HCA counted.
    pub wqes: u64,
    /// The number of doorbells rung, as the QPs in device memory count them.
    pub doorbells: u64,
    /// The number of signals and control words that the HCA counted.
    pub signals: u64,
    /// The number of bytes sent, as the HCA counts them: payload, headers of rows, signals.
    pub bytes: u64,
    /// The number of work requests that the QPs in device memory counted.
    pub qp_wqes: u64,
    /// The number of doorbells that the HCA found. It may miss a doorbell if a later one replaces it before the HCA looks.
    pub hca_doorbells: u64,
    /// What the kernels did; None where they do not run on simt, because only simt counts that.
    pub kernels: Option<KernelWork>,
}

/// What kernels did on simt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct KernelWork {
    /// The number of barriers of the grid.
    pub grid_syncs: u64,
    /// The number of fences wider than a block, of all threads.
    pub fences: u64,
    /// The number of 16-byte loads of rows, of all threads.
    pub loads: u64,
    /// The number of rounds in which threads issued these loads: a thread waits for memory once in a round.
    pub load_rounds: u64,
}

impl KernelWork {
    fn of(gpu: &SimtGpu) -> Self {
        let sum = |count: fn(&KernelCounts) -> u64| gpu.counts().values().map(count).sum();
        Self {
            grid_syncs: sum(|kernel| kernel.grid_syncs),
            fences: sum(|kernel| kernel.fences),
            loads: sum(|kernel| kernel.loads),
            load_rounds: sum(|kernel| kernel.load_rounds),
        }
    }

    fn both(&self, other: &Self, f: &impl Fn(u64, u64) -> u64) -> Self {
        Self {
            grid_syncs: f(self.grid_syncs, other.grid_syncs),
            fences: f(self.fences, other.fences),
            loads: f(self.loads, other.loads),
            load_rounds: f(self.load_rounds, other.load_rounds),
        }
    }
}

impl Counts {
    pub(super) fn new(
        hca: HcaCounts,
        qp_wqes: u64,
        doorbells: u64,
        simt: Option<&SimtGpu>,
    ) -> Self {
        Self {
            wqes: hca.wqes,
            doorbells,
            signals: hca.signals,
            bytes: hca.bytes,
            qp_wqes,
            hca_doorbells: hca.doorbells,
            kernels: simt.map(KernelWork::of),
        }
    }

    fn both(&self, other: &Self, f: impl Fn(u64, u64) -> u64) -> Self {
        Self {
            wqes: f(self.wqes, other.wqes),
            doorbells: f(self.doorbells, other.doorbells),
            signals: f(self.signals, other.signals),
            bytes: f(self.bytes, other.bytes),
            qp_wqes: f(self.qp_wqes, other.qp_wqes),
            hca_doorbells: f(self.hca_doorbells, other.hca_doorbells),
            kernels: match (&self.kernels, &other.kernels) {
                (Some(own), Some(theirs)) => Some(own.both(theirs, &f)),
                (own, theirs) => own.or(*theirs),
            },
        }
    }

    pub(super) fn since(&self, before: &Self) -> Self {
        self.both(before, u64::saturating_sub)
    }

    pub(super) fn add(&mut self, other: &Self) {
        *self = self.both(other, |a, b| a + b);
    }
}

/// The results for one phase of one case, summed over the ranks.
#[derive(Clone, Debug, Serialize)]
pub struct MoeRow {
    /// Number of ranks.
    pub ranks: u32,
    /// The number of elements of a token.
    pub hidden: u32,
    /// How tokens chose, and how they were laid out.
    pub case: String,
    /// `dispatch` or `combine`.
    pub phase: &'static str,
    /// The counts that were measured.
    pub counted: Counts,
    /// What DeepEP's algorithm posts, computed.
    pub deepep: Need,
    /// The least payload bytes, computed.
    pub least_bytes: u64,
}

/// How many percent more bytes than the least may be sent, where a token is not small.
const PERCENT: u64 = 3;
/// The number of elements from which on a token is not small, so that its header counts little.
const LARGE: u32 = 4096;

impl MoeRow {
    pub(super) fn new(case: &MoeCase, phase: &'static str, counted: Counts) -> Self {
        Self {
            ranks: case.ranks,
            hidden: case.config.hidden,
            case: case.to_string(),
            phase,
            counted,
            deepep: deepep(case),
            least_bytes: lower_bound(case, phase == "combine"),
        }
    }

    /// Returns the counts that are higher than they should be, in sentences.
    #[must_use]
    pub fn objections(&self) -> Vec<String> {
        let mut found = Vec::new();
        let counted = &self.counted;
        if counted.qp_wqes != counted.wqes || counted.hca_doorbells > counted.doorbells {
            found.push(format!(
                "the HCAs count {} work requests and {} doorbells, the QPs {} and {}",
                counted.wqes, counted.hca_doorbells, counted.qp_wqes, counted.doorbells
            ));
        }
        if self.hidden >= LARGE && counted.bytes * 100 > self.least_bytes * (100 + PERCENT) {
            found.push(format!(
                "{} bytes are more than {PERCENT}% above {}",
                counted.bytes, self.least_bytes
            ));
        }
        let times = match self.ranks {
            0..=1 => 0,
            2..=8 => 8,
            _ => 3,
        };
        if counted.doorbells * times > self.deepep.doorbells {
            found.push(format!(
                "{} doorbells are not {times} times fewer than {}",
                counted.doorbells, self.deepep.doorbells
            ));
        }
        let named = |what: String| format!("{}, {}: {what}", self.case, self.phase);
        found.into_iter().map(named).collect()
    }
}

/// The results for all cases.
#[derive(Clone, Debug, Serialize)]
pub struct MoeReport {
    /// What the counts were taken on. With `softhca+simt` the counts are real, and nothing was timed.
    pub ran_on: String,
    /// Largest resident memory of the process, bytes.
    pub peak_rss_bytes: u64,
    /// The rows, two for each case.
    pub rows: Vec<MoeRow>,
    /// How fast the kernels of one rank move tokens alone.
    pub bandwidth: Vec<Bandwidth>,
    /// The counts that are higher than they should be, in sentences.
    pub objections: Vec<String>,
}

/// The number of threads of a warp.
const WARP_LANES: u32 = 32;

/// The most bytes of memory that the process may have.
const MOST_RSS: u64 = 12 << 30;

impl MoeReport {
    /// Returns a report of `rows`, with the peak memory of this process until now.
    #[must_use]
    pub fn new(rows: Vec<MoeRow>) -> Self {
        let peak_rss_bytes = peak_rss().unwrap_or(0);
        let mut objections: Vec<String> = rows.iter().flat_map(MoeRow::objections).collect();
        if peak_rss_bytes == 0 || peak_rss_bytes > MOST_RSS {
            objections.push(format!(
                "peak memory is {peak_rss_bytes} of at most {MOST_RSS} bytes"
            ));
        }
        Self {
            ran_on: "softhca+simt".to_owned(),
            peak_rss_bytes,
            rows,
            bandwidth: Vec::new(),
            objections,
        }
    }

    /// Replaces the label that says what the counts were taken on.
    #[must_use]
    pub fn ran_on(mut self, label: &str) -> Self {
        label.clone_into(&mut self.ran_on);
        self
    }

    /// Adds how fast the kernels of one rank move tokens alone.
    #[must_use]
    pub fn with_bandwidth(mut self, bandwidth: Vec<Bandwidth>) -> Self {
        self.bandwidth = bandwidth;
        self
    }

    fn print_counts(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "one MoE step on {}: counts of one rank (mean), nothing was timed; DeepEP: what its algorithm needs, computed",
            self.ran_on
        )?;
        let mut case = "";
        for row in &self.rows {
            if row.case != case {
                case = &row.case;
                writeln!(f, "\n{case}, BF16")?;
                writeln!(
                    f,
                    "{:<9} {:>8} {:>9} {:>8} {:>12} {:>8} | DeepEP {:>8} {:>9} {:>8} {:>12} | {:>9}",
                    "phase",
                    "WQEs",
                    "doorbells",
                    "signals",
                    "bytes",
                    "of least",
                    "WQEs",
                    "doorbells",
                    "signals",
                    "bytes",
                    "doorbells"
                )?;
            }
            let of = |value| per_rank(value, row.ranks);
            let share = |value, base: u64| per_rank(value, 1) / per_rank(base.max(1), 1);
            writeln!(
                f,
                "{:<9} {:>8.1} {:>9.1} {:>8.1} {:>12.0} {:>7.1}% |        {:>8.1} {:>9.1} {:>8.1} {:>12.0} | {:>5.1} x fewer",
                row.phase,
                of(row.counted.wqes),
                of(row.counted.doorbells),
                of(row.counted.signals),
                of(row.counted.bytes),
                100.0 * share(row.counted.bytes, row.least_bytes),
                of(row.deepep.wqes),
                of(row.deepep.doorbells),
                of(row.deepep.signals),
                of(row.deepep.bytes),
                share(row.deepep.doorbells, row.counted.doorbells),
            )?;
        }
        self.print_kernels(f)
    }

    fn print_kernels(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let with_kernels = |row: &MoeRow| Some((row.phase, row.ranks, row.counted.kernels?));
        let counted: Vec<_> = self.rows.iter().filter_map(with_kernels).collect();
        if counted.is_empty() {
            return Ok(());
        }
        writeln!(
            f,
            "\nkernels of both phases of each, one rank (mean): 16-byte loads of rows by a warp, and rounds in which it waits for them"
        )?;
        writeln!(
            f,
            "{:<9} {:>6} {:>9} {:>7} {:>11} {:>11}",
            "phase", "ranks", "barriers", "fences", "loads", "rounds"
        )?;
        for (phase, ranks, kernels) in counted {
            let of = |value| per_rank(value, ranks);
            writeln!(
                f,
                "{:<9} {:>6} {:>9.1} {:>7.1} {:>11.1} {:>11.1}",
                phase,
                ranks,
                of(kernels.grid_syncs),
                of(kernels.fences),
                of(kernels.loads) / f64::from(WARP_LANES),
                of(kernels.load_rounds) / f64::from(WARP_LANES),
            )?;
        }
        Ok(())
    }
}

/// Returns `VmHWM` of this process, its largest resident memory, in bytes.
fn peak_rss() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}

#[expect(clippy::cast_precision_loss, reason = "counts, far below 2^52")]
fn per_rank(value: u64, ranks: u32) -> f64 {
    value as f64 / f64::from(ranks)
}

/// Prints the report as a table.
impl fmt::Display for MoeReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.rows.is_empty() {
            self.print_counts(f)?;
        }
        writeln!(
            f,
            "\npeak memory of the process: {:.2} GiB",
            per_rank(self.peak_rss_bytes, 1) / f64::from(1 << 30)
        )?;
        for bandwidth in &self.bandwidth {
            write!(f, "{bandwidth}")?;
        }
        for objection in &self.objections {
            writeln!(f, "not as it should be: {objection}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ranks::moe::Routing;
    use warpverbs::moe::MoeConfig;

    fn row(change: impl FnOnce(&mut Counts)) -> MoeRow {
        let case = MoeCase {
            ranks: 8,
            config: MoeConfig::BF16
                .with_hidden(7168)
                .with_experts(256)
                .with_top_k(8)
                .with_max_tokens(128),
            routing: Routing::Uniform,
            seed: 1,
        };
        let mut counts = Counts {
            wqes: 5000,
            doorbells: 200,
            signals: 56,
            bytes: lower_bound(&case, false) * 102 / 100,
            qp_wqes: 5000,
            hca_doorbells: 190,
            kernels: Some(KernelWork {
                grid_syncs: 40,
                fences: 80,
                loads: 6400,
                load_rounds: 1600,
            }),
        };
        change(&mut counts);
        MoeRow::new(&case, "dispatch", counts)
    }

    #[test]
    fn what_is_cheap_enough_is_not_objected_to() {
        let rows = vec![row(|_| ())];
        let report = MoeReport::new(rows);
        assert_eq!(report.objections, Vec::<String>::new());
        let text = report.to_string();
        assert!(
            text.contains("softhca+simt") && text.contains("nothing was timed"),
            "{text}"
        );
        let kernels = text.lines().find(|line| line.ends_with("6.2"));
        let kernels = kernels.expect("a line of the kernels' counts");
        let words: Vec<&str> = kernels.split_whitespace().collect();
        assert_eq!(words, ["dispatch", "8", "5.0", "10.0", "25.0", "6.2"]);
        assert!(report.peak_rss_bytes > 1 << 20);
    }

    #[test]
    fn each_limit_is_objected_to_by_its_figures() {
        let objection = |change: fn(&mut Counts)| row(change).objections().join("; ");
        assert!(objection(|c| c.bytes = c.bytes * 104 / 102).contains("3% above"));
        let found = objection(|c| c.doorbells = 400);
        assert!(
            found.contains("400 doorbells are not 8 times fewer"),
            "{found}"
        );
        assert!(objection(|c| c.qp_wqes -= 1).contains("the QPs 4999"));
        assert!(objection(|c| c.hca_doorbells = 201).contains("201 doorbells, the QPs"));
    }
}
