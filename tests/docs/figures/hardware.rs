//! What a GPU has shown: tables of docs/gpu.md, from the results that `./x gpu` leaves below crates/bench/kernels/results.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;

use serde_json::Value;

use super::{commits, root, text};

/// The results of a device.
pub(super) fn results(device: &str) -> Value {
    let path = root().join(format!("crates/bench/kernels/results/{device}.json"));
    let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path:?}: {error}"));
    serde_json::from_str(&text).unwrap()
}

#[test]
fn the_page_says_so_of_results_that_are_unfinished() {
    let results = results(super::GPU);
    let page = fs::read_to_string(root().join("docs/gpu.md")).unwrap();
    let unfinished = results["ended"] != "ok";
    assert_eq!(page.contains("The file is unfinished"), unfinished);
    let next = text(&results["go_on_with"]);
    assert!(!unfinished || page.contains(&format!("`{next}`")), "{next}");
}

/// Returns what a step has measured. It ended well.
fn step<'a>(results: &'a Value, name: &str) -> &'a Value {
    let mut steps = results["steps"].as_array().unwrap().iter();
    let step = steps.find(|step| step["name"] == name);
    let step = step.unwrap_or_else(|| panic!("no step {name}"));
    assert_eq!(step["ok"], true, "{name}");
    &step["data"]
}

fn rows(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().unwrap().iter()
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap()
}

fn origin(results: &Value, ran_on: &Value, command: &str) -> String {
    format!(
        "{}, driver {}, {}: `{command}`.\n",
        text(ran_on),
        text(&results["driver"]),
        commits::named(results)
    )
}

/// Operations of one thread, by the stores that stand before a fence.
pub(super) fn primitives(results: &Value) -> String {
    let data = step(results, "primitives");
    let mut by_name: BTreeMap<&str, BTreeMap<u64, f64>> = BTreeMap::new();
    for row in rows(&data["operations"]) {
        let stores = row["stores"].as_u64().unwrap();
        let of_name = by_name.entry(text(&row["name"])).or_default();
        of_name.insert(stores, number(&row["ns"]));
    }
    let mut out =
        "| operation of one thread, ns | alone | after 3 stores | after 12 |\n|---|--:|--:|--:|\n"
            .to_owned();
    for (name, by_stores) in by_name {
        let ns = |stores| {
            let ns = by_stores.get(&stores);
            ns.map_or_else(String::new, |ns| format!("{ns:.0}"))
        };
        writeln!(out, "| `{name}` | {} | {} | {} |", ns(0), ns(3), ns(12)).unwrap();
    }
    for row in rows(&data["grid_barriers"]) {
        let (blocks, ns) = (&row["blocks"], number(&row["ns"]));
        writeln!(out, "| barrier of {blocks} blocks | {ns:.0} | | |").unwrap();
    }
    out + "\n" + &origin(results, &data["ran_on"], "wv bench primitives --gpu 0")
}

/// Puts beside those of other projects: ns for one put of one poster, and puts of all in a second.
pub(super) fn puts(results: &Value) -> String {
    let data = step(results, "others");
    let mut out = "| 8-byte puts of one thread, doorbell in host memory | exclusive QPs: ns, 1 block | M puts/s, 132 blocks | \
                   one shared QP: ns, 1 block | M puts/s, 8 blocks | M puts/s, 132 blocks |\n|---|--:|--:|--:|--:|--:|\n"
        .to_owned();
    for project in rows(&data["projects"]) {
        assert_eq!(project["refused"], Value::Null);
        let find = |sharing: &str, blocks: u64| {
            let mut of_project = rows(&project["rows"]);
            let row = of_project.find(|row| {
                row["sharing"] == sharing && row["bytes"] == 8 && row["blocks"] == blocks
            });
            &row.unwrap()["times"]
        };
        let ns = |sharing| number(&find(sharing, 1)["ns_per_put"]);
        let rate = |sharing, blocks| number(&find(sharing, blocks)["mputs_per_s"]);
        writeln!(
            out,
            "| {} | {:.0} | {:.1} | {:.0} | {:.2} | {:.2} |",
            text(&project["name"]),
            ns("exclusive"),
            rate("exclusive", 132),
            ns("shared"),
            rate("shared", 8),
            rate("shared", 132)
        )
        .unwrap();
    }
    out + "\n" + &origin(results, &data["ran_on"], "./x gpu pack --others FOLDER")
}

/// Our puts by sharing, scope and record.
pub(super) fn posts(results: &Value) -> String {
    let data = step(results, "post-device");
    let mut out = "| QP | posts | doorbell record | ns for a put, 1 block | M puts/s, 8 blocks | M puts/s, 132 blocks |\n\
                   |---|---|---|--:|--:|--:|\n"
        .to_owned();
    let all: Vec<_> = rows(&data["rows"]).collect();
    for first in all.iter().filter(|row| row["blocks"] == 1) {
        let with = |blocks: u64| {
            let same = |row: &&&Value| {
                ["sharing", "scope", "record"]
                    .iter()
                    .all(|name| row[name] == first[name])
                    && row["blocks"] == blocks
            };
            number(&all.iter().find(same).unwrap()["times"]["mputs_per_s"])
        };
        let record = if first["record"] == true { "yes" } else { "no" };
        writeln!(
            out,
            "| {} | one {} | {record} | {:.0} | {:.1} | {:.0} |",
            text(&first["sharing"]),
            text(&first["scope"]),
            number(&first["times"]["ns_per_put"]),
            with(8),
            with(132)
        )
        .unwrap();
    }
    out + "\n"
        + &origin(
            results,
            &data["ran_on"],
            "wv bench post --gpu 0 --doorbell device",
        )
}

/// The MoE kernels of one rank, beside a copy.
pub(super) fn moe(results: &Value) -> String {
    let data = step(results, "moe");
    let mut out = "| phase | tokens | MB | us | GB/s | a copy, GB/s | of the copy |\n|---|--:|--:|--:|--:|--:|--:|\n".to_owned();
    for case in rows(&data["bandwidth"]) {
        for row in rows(&case["rows"]) {
            let seconds: Vec<f64> = rows(&row["seconds"]).map(number).collect();
            let bytes = number(&row["bytes"]);
            writeln!(
                out,
                "| {} | {} | {:.1} | {:.1} | {:.0} | {:.0} | {:.0}% |",
                text(&row["what"]),
                case["tokens"],
                bytes / 1e6,
                seconds[0] * 1e6,
                bytes / seconds[0] / 1e9,
                bytes / seconds[1] / 1e9,
                100.0 * seconds[1] / seconds[0]
            )
            .unwrap();
        }
    }
    let gpu = &data["bandwidth"][0]["gpu"];
    out + "\n" + &origin(results, gpu, "wv bench moe --device gpuhca --gpu 0")
}
