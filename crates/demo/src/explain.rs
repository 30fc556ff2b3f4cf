//! `--explain`: prints bytes, QPs and signals of a shape, without running it.

use std::fmt::Write;

use crate::data::input::Inputs;
use crate::error::DemoError;
use crate::options::format_in_words;
use crate::report::grouped;
use warpverbs::moe::{Layout, Placement, RowLayout, required_bytes};
use warpverbs::team::TeamConfig;

/// Returns everything that a run of these inputs needs, in words.
pub(crate) fn explain(inputs: &Inputs) -> Result<String, DemoError> {
    let (config, ranks) = (&inputs.config, inputs.ranks);
    let bytes = required_bytes(config, ranks)?;
    let layout = Layout::new(config, ranks);
    let team = TeamConfig::new(0, ranks);
    let traffic = Traffic::of_first_step(inputs);
    let mut out = String::new();
    let mut line = |name: &str, value: u64, note: &str| {
        let _ = writeln!(out, "{name:<34} {:>17}  {note}", grouped(value));
    };
    line(
        "device memory per rank, bytes",
        bytes.library(1) + team.needed_control_bytes(),
        "all that the library allocates:",
    );
    line(
        "  slots",
        bytes.slots,
        "peers write: 2 sets x (dispatch slots + combine rows) of every rank",
    );
    line(
        "  staging",
        bytes.staging,
        "the NIC reads: one slot per token, one row per token received",
    );
    line(
        "  signals",
        bytes.signals,
        "32 bytes per peer, kind and set",
    );
    line(
        "  state",
        bytes.state,
        "context, state per peer, table of experts",
    );
    line(
        "  handle",
        bytes.handle,
        "one call; a second one for two calls at once",
    );
    line(
        "  control heap",
        team.needed_control_bytes(),
        "contexts, flags and rings of the QPs",
    );
    line(
        "output recv_x, bytes",
        bytes.recv_x,
        match config.layout {
            RowLayout::ExpertMajor => {
                "the caller's: [local experts, ranks x tokens, hidden], touched where rows arrive"
            }
            RowLayout::RankMajor => "the caller's: [ranks, tokens, hidden], each token once",
        },
    );
    line(
        "bytes of a slot",
        layout.slot_bytes,
        "header, token and its scales",
    );
    line(
        "QPs per rank",
        team.qps(),
        "dispatch and combine x 2 sets, to each peer",
    );
    line(
        "control heap per QP, bytes",
        warpverbs::abi::control_bytes(1 << team.log_depth),
        "depth 1,024",
    );
    line("windows", 3, "slots, staging, signals");
    line(
        "data signals per rank and step",
        2 * u64::from(ranks - 1),
        "16 bytes inline, after the data",
    );
    line(
        "rows sent per rank and step",
        traffic.rows_per_rank(ranks),
        "one per token and rank chosen; mean of the first step",
    );
    line(
        "bytes sent per rank and step",
        traffic.bytes_per_rank(&layout, ranks),
        "dispatch and combine, payload",
    );
    Ok(format!(
        "{ranks} ranks, {} tokens of {} each, {}, {} experts, top-{}\n{}\n\n{out}",
        config.max_tokens,
        config.hidden,
        format_in_words(config.format),
        config.experts,
        config.top_k,
        inputs.description
    ))
}

/// The number of rows that leave their rank in the first step, over all ranks.
struct Traffic {
    rows: u64,
}

impl Traffic {
    fn of_first_step(inputs: &Inputs) -> Self {
        let placement = Placement::blocks(inputs.config.experts, inputs.ranks);
        let top_k = inputs.config.top_k as usize;
        let mut rows = 0;
        for rank in 0..inputs.ranks {
            for choices in inputs.batch(0, rank).experts.chunks_exact(top_k) {
                let slots = choices
                    .iter()
                    .flat_map(|&expert| placement.slots_of(expert));
                let mut others: Vec<u32> = slots
                    .map(|&slot| placement.homes()[slot as usize].rank)
                    .filter(|home| *home != rank)
                    .collect();
                others.sort_unstable();
                others.dedup();
                rows += others.len() as u64;
            }
        }
        Self { rows }
    }

    fn rows_per_rank(&self, ranks: u32) -> u64 {
        self.rows / u64::from(ranks)
    }

    fn bytes_per_rank(&self, layout: &Layout, ranks: u32) -> u64 {
        let row = layout.scales_at + layout.scale_bytes + layout.combine_row_bytes;
        (self.rows * row + u64::from(ranks) * 2 * u64::from(ranks - 1) * 16) / u64::from(ranks)
    }
}
