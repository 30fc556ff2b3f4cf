//! The result of a demo: a table for people, or one JSON object for programs.

use std::fmt::Write;

use serde::Serialize;

use crate::counters::Counters;
use crate::data::input::Inputs;
use crate::messages::RankResult;
use crate::options::format_in_words;
use crate::rank::check;
use warpverbs::moe::RowLayout;

/// The most ranks with columns of their own. If there are more, the table has only their sum.
const MOST_COLUMNS: usize = 8;

/// All results of a run.
#[derive(Debug, Serialize)]
pub(crate) struct Summary {
    /// True if every step on every rank equals the reference implementation.
    pub(crate) verified: bool,
    /// The label of what the run ran on, such as `softhca+simt`.
    pub(crate) label: String,
    pub(crate) device: String,
    pub(crate) gpu: String,
    pub(crate) input: String,
    pub(crate) ranks: u32,
    pub(crate) tokens_per_rank: u32,
    pub(crate) hidden: u32,
    pub(crate) experts: u32,
    pub(crate) top_k: u32,
    /// The format of tokens on their way.
    pub(crate) format: &'static str,
    pub(crate) layout: &'static str,
    /// The largest distance of sums from those that the reference makes of BF16 tokens, and the largest that is allowed. 0 means bit for
    /// bit.
    pub(crate) difference: f64,
    pub(crate) difference_limit: f64,
    pub(crate) steps: u32,
    /// The time from the start of the rank processes to the end of the last one.
    pub(crate) seconds: f64,
    /// The part of that time until every rank had joined.
    pub(crate) bring_up_seconds: f64,
    /// The mean time of dispatch, experts and combine over ranks and steps, without the checks.
    pub(crate) step_seconds: f64,
    /// The bytes of the control heap for one QP.
    pub(crate) control_bytes_per_qp: u64,
    /// The bytes of device memory of the layer at one rank, without the caller's buffers.
    pub(crate) layer_bytes_per_rank: u64,
    /// The ways in which the HCAs reach device memory.
    pub(crate) memory_by: Vec<String>,
    pub(crate) per_rank: Vec<RankResult>,
}

impl Summary {
    pub(crate) fn new(
        inputs: &Inputs,
        steps: u32,
        times: [f64; 2],
        ran_on: RanOn,
        ranks: Vec<RankResult>,
    ) -> Self {
        let seconds: Vec<f64> = ranks
            .iter()
            .flat_map(|rank| rank.step_seconds.clone())
            .collect();
        #[expect(clippy::cast_precision_loss, reason = "a number of steps")]
        let mean = seconds.iter().sum::<f64>() / seconds.len().max(1) as f64;
        let first = ranks.first().cloned().unwrap_or_default();
        Self {
            verified: true,
            label: ran_on.label(),
            device: ran_on.device,
            gpu: ran_on.gpu,
            input: inputs.description.clone(),
            ranks: inputs.ranks,
            tokens_per_rank: inputs.config.max_tokens,
            hidden: inputs.config.hidden,
            experts: inputs.config.experts,
            top_k: inputs.config.top_k,
            format: format_in_words(inputs.config.format),
            layout: match inputs.config.layout {
                RowLayout::ExpertMajor => "by expert",
                RowLayout::RankMajor => "by rank",
            },
            difference: ranks.iter().map(|rank| rank.difference).fold(0.0, f64::max),
            difference_limit: check::limit(inputs.config.format),
            steps,
            seconds: times[0],
            bring_up_seconds: times[1],
            step_seconds: mean,
            control_bytes_per_qp: first.control_bytes.checked_div(first.qps).unwrap_or(0),
            layer_bytes_per_rank: first.layer_bytes,
            memory_by: first.memory_by,
            per_rank: ranks,
        }
    }

    /// Returns the table.
    pub(crate) fn table(&self) -> String {
        let mut out = format!(
            "{} on {}: {} ranks, {} tokens of {} each, {}, laid out {}, {} experts, top-{}, {} steps\n\
             {}\n\
             every step on every rank equals the scalar reference, bit for bit\n",
            self.label,
            self.device,
            self.ranks,
            self.tokens_per_rank,
            self.hidden,
            self.format,
            self.layout,
            self.experts,
            self.top_k,
            self.steps,
            self.input,
        );
        if self.difference_limit > 0.0 {
            let _ = writeln!(
                out,
                "the cast to FP8 moved the sums by {:.1e} of what BF16 tokens give; it may by {:.0e}",
                self.difference, self.difference_limit
            );
        }
        out.push('\n');
        let columns = if self.per_rank.len() > MOST_COLUMNS {
            &[]
        } else {
            &self.per_rank[..]
        };
        let mut line = |name: &str, cells: Vec<String>| {
            let _ = write!(out, "{name:<16}");
            for cell in cells {
                let _ = write!(out, " {cell:>13}");
            }
            out.push('\n');
        };
        let mut heads: Vec<String> = columns
            .iter()
            .map(|rank| format!("rank {}", rank.rank))
            .collect();
        heads.push("all".to_owned());
        line("", heads);
        for (name, value) in LINES {
            let sum: Option<u64> = self.per_rank.iter().map(value).sum();
            if OF_A_BOND.contains(&name) && sum.unwrap_or(0) == 0 {
                continue;
            }
            let cell = |rank: &RankResult| value(rank).map_or_else(|| "-".to_owned(), grouped);
            let mut cells: Vec<String> = columns.iter().map(cell).collect();
            cells.push(sum.map_or_else(|| "-".to_owned(), grouped));
            line(name, cells);
        }
        let _ = write!(
            out,
            "\n{:.2} s in all, {:.2} s of it bring-up; a step took {:.1} ms (mean; {}: not a GPU's or a NIC's speed)\n\
             {} bytes of control heap per QP, {} bytes of device memory per rank, registered by {}\n",
            self.seconds,
            self.bring_up_seconds,
            self.step_seconds * 1e3,
            self.label,
            grouped(self.control_bytes_per_qp),
            grouped(self.layer_bytes_per_rank),
            self.memory_by.join(" and "),
        );
        out
    }

    /// Returns the number of findings of all ranks' checkers.
    pub(crate) fn findings(&self) -> u64 {
        let of = |rank: &RankResult| rank.counters.get("findings").copied().unwrap_or(0);
        self.per_rank.iter().map(of).sum()
    }
}

/// The device and GPU of the ranks.
#[derive(Clone, Debug, Default)]
pub(crate) struct RanOn {
    pub(crate) device: String,
    pub(crate) soft: bool,
    pub(crate) gpu: String,
    /// What runs the WQEs in place of the HCA; None if the HCA does.
    pub(crate) executor: Option<&'static str>,
}

impl RanOn {
    fn label(&self) -> String {
        if let Some(executor) = self.executor {
            return format!("{executor}+{}", self.gpu);
        }
        let device = if self.soft { "softhca" } else { &self.device };
        format!("{device}+{}", self.gpu)
    }
}

type Value = fn(&RankResult) -> Option<u64>;

/// The names of rows that a table has only where QPs name a port of a bond.
const OF_A_BOND: [&str; 2] = ["WQEs by port 1", "WQEs by port 2"];

/// The rows of the table. The HCAs count the values of all rows but the first four.
const LINES: [(&str, Value); 15] = [
    ("tokens", |rank| Some(rank.tokens)),
    ("choices", |rank| Some(rank.choices)),
    ("rows at experts", |rank| Some(rank.rows)),
    ("direct peers", |rank| Some(rank.direct_peers.into())),
    ("bytes sent", |rank| counted(&rank.counters, "tx_bytes")),
    ("bytes received", |rank| counted(&rank.counters, "rx_bytes")),
    ("WQEs", |rank| counted(&rank.counters, "tx_wqes")),
    (OF_A_BOND[0], |rank| {
        counted(&rank.counters, "lag_port1_wqes")
    }),
    (OF_A_BOND[1], |rank| {
        counted(&rank.counters, "lag_port2_wqes")
    }),
    ("doorbells", |rank| counted(&rank.counters, "doorbells")),
    ("signals", |rank| {
        counted(&rank.counters, "inline_write_requests")
    }),
    ("CQEs", |rank| counted(&rank.counters, "cqes")),
    ("packets sent", |rank| counted(&rank.counters, "tx_packets")),
    ("sent again", |rank| {
        counted(&rank.counters, "retransmissions")
    }),
    ("findings", |rank| counted(&rank.counters, "findings")),
];

fn counted(counters: &Counters, name: &str) -> Option<u64> {
    counters.get(name).copied()
}

/// Returns a number with commas, as 1,234,567.
pub(crate) fn grouped(value: u64) -> String {
    let digits = value.to_string();
    let mut out = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place != 0 && (digits.len() - place).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thousands_are_grouped() {
        assert_eq!(grouped(0), "0");
        assert_eq!(grouped(999), "999");
        assert_eq!(grouped(1_234_567), "1,234,567");
    }
}
