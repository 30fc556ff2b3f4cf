//! The results of `wv bench engine`, as a table and as JSON.

use std::fmt;

use serde::Serialize;

use super::options::EngineOptions;
use crate::host::spread::spread;

/// The results of a run.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct EngineReport {
    /// What completes the WQEs.
    pub(crate) ran_on: String,
    /// The device of the end that writes, with its provider; of libfabric with its fabric, too.
    pub(crate) device: String,
    /// The setting of the run.
    pub(crate) options: EngineOptions,
    /// The measured rates, each beside its yardstick.
    pub(crate) rows: Vec<Row>,
    /// Times from submitting a transfer of 8 bytes to its end.
    pub(crate) latencies: Vec<Latency>,
    /// The cost of a worker that has a connection and nothing to do.
    pub(crate) idle_worker: IdleWorker,
    /// The cost of idle engines; None over libfabric.
    pub(crate) idle: Option<Idle>,
    /// The number of bytes that were compared.
    pub(crate) compared: u64,
}

/// A measured rate, beside the rate of its yardstick.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Row {
    /// What was measured, in words.
    pub(crate) what: String,
    /// The name of the yardstick.
    pub(crate) beside: &'static str,
    /// The unit of both rates.
    pub(crate) unit: &'static str,
    /// The measured rate: the median, the lowest and the highest.
    pub(crate) rate: [f64; 3],
    /// The rate of the yardstick in the same rounds: the median, the lowest and the highest.
    pub(crate) yardstick: [f64; 3],
    /// The rate divided by the yardstick's rate of the same round: the median of all rounds.
    pub(crate) ratio: f64,
}

/// How long transfers of one kind took.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Latency {
    /// The kind of transfers, in words.
    pub(crate) what: &'static str,
    /// Microseconds within which 50 % of the transfers ended, 99 %, and all.
    pub(crate) microseconds: [f64; 3],
}

/// The cost of idle engines.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Idle {
    /// The number of peers of the engine in the middle.
    pub(crate) peers: u32,
    /// The number of engines of the process, those of the peers included.
    pub(crate) engines: u32,
    /// The number of threads of all these engines.
    pub(crate) threads: usize,
    /// CPU time of all these threads, in percent of a core.
    pub(crate) percent_of_core: f64,
}

/// The cost of a worker that has a connection and nothing to do.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct IdleWorker {
    /// The number of workers that were watched. Each has one connection.
    pub(crate) workers: usize,
    /// CPU time of one of them, in percent of a core.
    pub(crate) percent_of_core: f64,
    /// What it sleeps on, in words.
    pub(crate) sleeps_on: &'static str,
}

impl Row {
    /// Returns the row of these rates. Round by round, `rates` and `yardstick` were taken in turn.
    pub(super) fn new(
        what: String,
        beside: &'static str,
        unit: &'static str,
        rates: &[f64],
        yardstick: &[f64],
    ) -> Self {
        let ratios: Vec<f64> = rates.iter().zip(yardstick).map(|(a, b)| a / b).collect();
        Self {
            what,
            beside,
            unit,
            rate: spread(rates.to_vec()),
            yardstick: spread(yardstick.to_vec()),
            ratio: spread(ratios)[0],
        }
    }
}

impl fmt::Display for EngineReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let EngineOptions {
            qps, slice, rounds, ..
        } = self.options;
        writeln!(
            f,
            "{}: {qps} QPs, slices of {slice} bytes, {rounds} rounds",
            self.ran_on
        )?;
        writeln!(
            f,
            "{:76} {:>24} {:>24}  {:24} {:>6}",
            "rate: median (spread)", "", "yardstick", "", "of it"
        )?;
        for row in &self.rows {
            let [rate, yardstick] = [&row.rate, &row.yardstick]
                .map(|[median, least, most]| format!("{median:.2} ({least:.2}..{most:.2})"));
            let what = format!("{}, {}", row.what, row.unit);
            writeln!(
                f,
                "{what:76} {rate:>24} {yardstick:>24}  {:24} {:>5.0}%",
                row.beside,
                100.0 * row.ratio
            )?;
        }
        for Latency { what, microseconds } in &self.latencies {
            let [half, most, all] = microseconds;
            writeln!(
                f,
                "8 bytes over a sink, {what}: {half:.1} us, 99% in {most:.1} us, all in {all:.1} us"
            )?;
        }
        let IdleWorker {
            percent_of_core,
            sleeps_on,
            ..
        } = &self.idle_worker;
        writeln!(
            f,
            "an idle worker with an open connection takes {percent_of_core:.2}% of a core; it sleeps on {sleeps_on}"
        )?;
        match &self.idle {
            Some(Idle {
                peers,
                engines,
                threads,
                percent_of_core,
            }) => writeln!(
                f,
                "an idle engine with {peers} peers, and these: {threads} threads of {engines} engines take {percent_of_core:.2}% of a core"
            )?,
            None => writeln!(
                f,
                "left out: idle peers and QPs, since over libfabric each takes an endpoint with descriptors of its own"
            )?,
        }
        writeln!(f, "{} bytes compared", self.compared)
    }
}
