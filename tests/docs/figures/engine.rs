//! Figures of the host engine: what it costs, and what it reaches beside its yardsticks.

use std::fmt::Write;

use serde_json::Value;

use super::{count, number, origin, text};

/// The median, and the lowest and the highest.
fn spread(of: &Value) -> String {
    let [median, least, most] = [0, 1, 2].map(|nth| number(&of[nth]));
    format!("{median:.2} ({least:.2}..{most:.2})")
}

/// Returns what transfers of the host engine cost, over a sink, on software HCAs and by copies.
pub(crate) fn engine(file: &Value) -> String {
    let mut table =
        "| `wv` | moved | ms of a round: median (spread) | rate |\n|---|---|--:|--:|\n".to_owned();
    let spread = |of: &Value| {
        let [median, least, most] = [0, 1, 2].map(|nth| number(&of[nth]) * 1e3);
        format!("{median:.2} ({least:.2}..{most:.2})")
    };
    let mut copies = "| copies to another process | bytes of a transfer | GB/s: median (spread) | the bare loop | of it |\n|---|--:|--:|--:|--:|\n".to_owned();
    for run in file["runs"].as_array().unwrap() {
        let (command, result) = (text(&run["command"]), &run["result"]);
        let command = command.strip_prefix("wv ").unwrap_or(command);
        let rows = result["rows"].as_array().map_or(&[][..], Vec::as_slice);
        for row in rows.iter().filter(|row| row["way"].is_null()) {
            let (pattern, rate) = (&row["pattern"], number(&row["slices_per_second"]));
            writeln!(
                table,
                "| `{command}` | {}: {} operations of {} bytes | {} | {:.2} M WQEs/s |",
                text(&pattern["name"]),
                count(number(&pattern["operations"])),
                count(number(&pattern["bytes"])),
                spread(&row["seconds"]),
                rate / 1e6,
            )
            .unwrap();
        }
        for row in rows.iter().filter(|row| !row["way"].is_null()) {
            let rates = |of: &Value| {
                let [median, least, most] = [0, 1, 2].map(|nth| number(&of[nth]));
                format!("{median:.2} ({least:.2}..{most:.2})")
            };
            writeln!(
                copies,
                "| `{}`, {} | {} | {} | {} | {:.0}% |",
                text(&row["way"]),
                text(&row["kind"]),
                count(number(&row["bytes"])),
                rates(&row["engine"]),
                rates(&row["bare"]),
                100.0 * number(&row["ratio"]),
            )
            .unwrap();
        }
        if !result["gigabytes_per_second"].is_null() {
            writeln!(
                table,
                "| `{command}` | {} operations to each of {} peers, {} MB in all | {} | {:.2} GB/s |",
                count(number(&result["operations"])),
                result["options"]["peers"],
                count(number(&result["bytes"]) / 1e6),
                spread(&result["seconds"]),
                number(&result["gigabytes_per_second"]),
            )
            .unwrap();
        }
    }
    format!("{table}\n{copies}\n{}", origin(file))
}

/// Rates beside those of a bare loop, of one worker and without idle QPs; what wakes and idle engines cost; several rails.
pub(crate) fn beside(file: &Value) -> String {
    let mut table =
        "| rate | engine: median (spread) | beside | median (spread) | of it |\n|---|--:|---|--:|--:|\n"
            .to_owned();
    let mut lines = String::new();
    for run in file["runs"].as_array().unwrap() {
        let result = &run["result"];
        for row in result["rows"].as_array().into_iter().flatten() {
            writeln!(
                table,
                "| {}, {} | {} | {} | {} | {:.0}% |",
                text(&row["what"]),
                text(&row["unit"]),
                spread(&row["rate"]),
                text(&row["beside"]),
                spread(&row["yardstick"]),
                100.0 * number(&row["ratio"]),
            )
            .unwrap();
        }
        for latency in result["latencies"].as_array().into_iter().flatten() {
            let [half, most, _] = [0, 1, 2].map(|nth| number(&latency["microseconds"][nth]));
            writeln!(
                lines,
                "- 8 bytes over a sink, {}: half in {half:.1} us, 99% in {most:.1} us.",
                text(&latency["what"])
            )
            .unwrap();
        }
        let worker = &result["idle_worker"];
        if !worker.is_null() {
            writeln!(
                lines,
                "- An idle worker with an open connection: {:.2}% of a core. It sleeps on {}.",
                number(&worker["percent_of_core"]),
                text(&worker["sleeps_on"]),
            )
            .unwrap();
        }
        let idle = &result["idle"];
        if !idle.is_null() {
            writeln!(
                lines,
                "- An idle engine with {} peers, and these peers: {:.2}% of a core, for {} threads of {} engines.",
                idle["peers"],
                number(&idle["percent_of_core"]),
                idle["threads"],
                idle["engines"],
            )
            .unwrap();
        }
        let posted = result["posted_bytes"].as_array();
        if let Some(posted) = posted.filter(|posted| posted.len() > 1) {
            let all: f64 = posted.iter().map(number).sum();
            let shares = posted.iter().map(|bytes| {
                let share = 100.0 * number(bytes) / all;
                format!("{share:.1}%")
            });
            let shares: Vec<String> = shares.collect();
            write!(
                lines,
                "- {} rails{} post {} of the bytes",
                posted.len(),
                with_fault(&result["faulty"]),
                shares.join(", ")
            )
            .unwrap();
            let faulty = &result["faulty"];
            if !faulty.is_null() {
                let [all, others, alone] =
                    ["all", "others", "alone"].map(|name| number(&faulty[name][0]));
                write!(
                    lines,
                    ". Together they carry {all:.1} Gb/s, the others alone {others:.1} Gb/s, and the last alone {alone:.1} Gb/s: {:.0}% of both",
                    number(&faulty["percent"])
                )
                .unwrap();
            }
            lines.push_str(".\n");
        }
    }
    format!("{table}\n{lines}\n{}", origin(file))
}

fn with_fault(faulty: &Value) -> String {
    match faulty["fault"].as_str() {
        Some(fault) => format!(" of which the last has `{fault}`"),
        None => String::new(),
    }
}

/// These transfers by perftest and by the engine, and puts of UCX where it was installed.
pub(crate) fn perftest(file: &Value) -> String {
    let mut table = "| program, bytes | GB/s: median (spread) | engine | of it | `ucx_perftest`, put |\n|---|--:|--:|--:|--:|\n"
        .to_owned();
    for run in file["runs"].as_array().unwrap() {
        let result = &run["result"];
        for row in result["rows"].as_array().unwrap() {
            let ucx = Some(&row["ucx"]).filter(|rates| !rates.is_null());
            writeln!(
                table,
                "| `{} -q {}`, {} | {} | {} | {:.0}% | {} |",
                text(&row["program"]),
                text(&result["qps"]),
                count(number(&row["bytes"])),
                spread(&row["perftest"]),
                spread(&row["engine"]),
                100.0 * number(&row["ratio"]),
                ucx.map_or_else(|| "-".to_owned(), spread),
            )
            .unwrap();
        }
    }
    format!("{table}\n{}", origin(file))
}
