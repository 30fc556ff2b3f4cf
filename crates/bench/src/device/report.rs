//! Results as a table and as JSON.
//!
//! The tables of `wv` are format strings, because comfy-table is no better here. It fits columns to the contents of one table, so tables of
//! two cases or runs would have equal columns only if each width were set again. It has no header over a group of columns. It costs three
//! crates, 3 s of one core, and about as many lines as it saves in four tables.

use std::fmt;

use serde::Serialize;

use super::case::{Case, PostOptions, Scope};
use crate::device::abi::BenchTime;

/// What one run of a measurement found.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// What the numbers were taken on: `sink+` and the device.
    pub ran_on: String,
    /// True if times are those of hardware. If not, they only show that everything runs.
    pub speed: bool,
    /// The memory of the doorbell register, `device` or `host`.
    pub doorbell: &'static str,
    /// The length of a ring in WQEBBs.
    pub depth: u32,
    /// The number of calls of each poster.
    pub calls: u32,
    /// The number of bytes that each WQE named.
    pub bytes: u32,
    /// How many calls shared one completion.
    pub signal_every: u32,
    /// True if the sink looked at every WQE.
    pub checked: bool,
    /// The rows, one for each case.
    pub rows: Vec<Row>,
}

/// The result for one case.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// The sharing of QPs: `exclusive` or `shared`.
    pub sharing: &'static str,
    /// The threads that post together: `thread` or `warp`.
    pub scope: &'static str,
    /// True if the QP had a doorbell record.
    pub record: bool,
    /// The number of posters.
    pub blocks: u32,
    /// The number of puts of all posters.
    pub puts: u64,
    /// The number of doorbells rung.
    pub doorbells: u64,
    /// The times; None where they are not those of hardware.
    pub times: Option<Times>,
}

/// The times of one case.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Times {
    /// The time from a poster's first call to the return of its last, divided by its puts; mean of the posters, ns.
    pub ns_per_put: f64,
    /// Puts of all posters divided by the time from the first start to the last completion, in millions per second.
    pub mputs_per_s: f64,
    /// The part of the posters' time that was spent waiting for ring space, 0 to 1, because the sink was slower. Only this library counts
    /// it.
    pub full_ring: Option<f64>,
}

impl Times {
    #[expect(
        clippy::cast_precision_loss,
        reason = "measured times and counts, far below 2^52"
    )]
    pub(super) fn of(times: &[BenchTime], puts: u64, full_ring_ns: Option<u64>) -> Self {
        let posting: u64 = times
            .iter()
            .map(|time| time.posted_ns.saturating_sub(time.start_ns))
            .sum();
        let start = times.iter().map(|time| time.start_ns).min().unwrap_or(0);
        let end = times.iter().map(|time| time.done_ns).max().unwrap_or(0);
        let whole = end.saturating_sub(start).max(1);
        Self {
            ns_per_put: posting as f64 / puts as f64,
            mputs_per_s: puts as f64 * 1e3 / whole as f64,
            full_ring: full_ring_ns.map(|waited| waited as f64 / posting.max(1) as f64),
        }
    }
}

impl Row {
    pub(super) fn new(
        case: Case,
        times: &[BenchTime],
        puts: u64,
        doorbells: u64,
        full_ring_ns: u64,
    ) -> Self {
        Self {
            sharing: case.sharing.name(),
            scope: match case.scope {
                Scope::Thread => "thread",
                Scope::Warp => "warp",
            },
            record: case.record,
            blocks: case.blocks,
            puts,
            doorbells,
            times: Some(Times::of(times, puts, Some(full_ring_ns))),
        }
    }
}

impl Report {
    pub(super) fn new(device: String, options: &PostOptions, mut rows: Vec<Row>) -> Self {
        let speed = device != "simt";
        if !speed {
            rows.iter_mut().for_each(|row| row.times = None);
        }
        Self {
            speed,
            ran_on: format!("sink+{device}"),
            doorbell: options.doorbell(),
            depth: options.depth,
            calls: options.calls,
            bytes: options.bytes,
            signal_every: options.signal_every,
            checked: options.check,
            rows,
        }
    }
}

/// Prints the report as a table.
impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "posting on {}: doorbell register in {} memory, depth {}, {} calls of each poster, {} bytes, a completion every {} \
             calls{}",
            self.ran_on,
            self.doorbell,
            self.depth,
            self.calls,
            self.bytes,
            self.signal_every,
            if self.checked {
                ", every WQE looked at by the sink"
            } else {
                ""
            },
        )?;
        if !self.speed {
            writeln!(
                f,
                "kernels ran on the CPU: counts are real, times are a simulation's and not shown"
            )?;
        }
        writeln!(
            f,
            "{:<10} {:<7} {:<7} {:>6} {:>9} {:>10} {:>9} {:>10} {:>11}",
            "QPs",
            "scope",
            "record",
            "blocks",
            "puts",
            "doorbells",
            "ns/put",
            "M puts/s",
            "full ring %"
        )?;
        for row in &self.rows {
            let time = |digits: usize, value: fn(&Times) -> f64| match &row.times {
                Some(times) => format!("{:.digits$}", value(times)),
                None => "-".to_owned(),
            };
            writeln!(
                f,
                "{:<10} {:<7} {:<7} {:>6} {:>9} {:>10} {:>9} {:>10} {:>11}",
                row.sharing,
                row.scope,
                if row.record { "yes" } else { "no" },
                row.blocks,
                row.puts,
                row.doorbells,
                time(1, |times| times.ns_per_put),
                time(2, |times| times.mputs_per_s),
                time(0, |times| 100.0 * times.full_ring.unwrap_or(0.0)),
            )?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::case::Sharing;
    use super::*;

    const CASE: Case = Case {
        sharing: Sharing::Shared,
        scope: Scope::Warp,
        blocks: 2,
        record: true,
    };

    fn row() -> Row {
        let time = |start_ns, posted_ns, done_ns| BenchTime {
            start_ns,
            posted_ns,
            done_ns,
            ..BenchTime::default()
        };
        Row::new(
            CASE,
            &[time(100, 300, 350), time(120, 320, 500)],
            64,
            5,
            100,
        )
    }

    fn options() -> PostOptions {
        PostOptions {
            calls: 1,
            depth: 256,
            bytes: 8,
            signal_every: 0,
            host_doorbell: true,
            check: false,
            deadline: std::time::Duration::from_secs(1),
        }
    }

    #[test]
    fn a_put_costs_the_mean_of_the_posters_and_the_rate_spans_all_of_them() {
        let times = row().times.unwrap();
        assert_eq!(times.ns_per_put, 400.0 / 64.0);
        assert_eq!(times.mputs_per_s, 64.0 * 1e3 / 400.0);
        assert_eq!(times.full_ring, Some(0.25));
    }

    #[test]
    fn times_of_a_simulation_are_neither_shown_nor_written() {
        let simt = Report::new("simt".to_owned(), &options(), vec![row()]);
        assert!(simt.rows[0].times.is_none() && !simt.speed);
        let text = simt.to_string();
        assert!(
            text.contains("sink+simt") && text.contains("kernels ran on the CPU"),
            "{text}"
        );
        let gpu = Report::new("NVIDIA H100".to_owned(), &options(), vec![row()]);
        let text = gpu.to_string();
        assert!(
            text.contains("sink+NVIDIA H100") && text.contains("160.00"),
            "{text}"
        );
        assert!(!text.contains("ran on the CPU"), "{text}");
    }
}
