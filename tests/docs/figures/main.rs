//! Tables of measured and counted figures in documents, rendered from the files below docs/figures that `./x figures` writes. Rewrite:
//! `UPDATE=1 cargo test -p warpverbs --test figures`.
//!
//! A page names a table where it stands, `<!-- figures: NAME -->` before it and `<!-- end of figures -->` after it.

use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

const END: &str = "<!-- end of figures -->";

mod calls;
mod commits;
mod engine;
mod hardware;

/// The GPU whose results docs/gpu.md shows.
const GPU: &str = "NVIDIA-H200";

/// A table: its name, which is that of its file, its page, and what it says now.
type Table = (&'static str, &'static str, fn() -> String);

const TABLES: &[Table] = &[
    ("moe-step", "docs/cost.md", || moe_step(&file("moe-step"))),
    ("put", "docs/cost.md", || {
        calls::put(&file("put"), &file("put-others"))
    }),
    ("put", "kernels/README.md", || calls::calls(&file("put"))),
    ("group", "docs/membership.md", || group(&file("group"))),
    ("chaos", "docs/membership.md", || chaos(&file("chaos"))),
    ("demo", "README.md", || {
        shortened(&file("demo"), LEFT_OUT_OF_THE_DEMO)
    }),
    ("test", "README.md", || {
        shortened(&file("test"), LEFT_OUT_OF_THE_TEST)
    }),
    ("python", "python/README.md", || lines(&file("python"))),
    ("engine", "docs/engine.md", || {
        engine::engine(&file("engine"))
    }),
    ("engine-beside", "docs/engine.md", || {
        engine::beside(&file("engine-beside"))
    }),
    ("perftest", "docs/engine.md", || {
        engine::perftest(&file("perftest"))
    }),
    ("softhca", "crates/softhca/README.md", || {
        lines(&file("softhca"))
    }),
    ("gpu-primitives", "docs/gpu.md", || {
        hardware::primitives(&hardware::results(GPU))
    }),
    ("gpu-posts", "docs/gpu.md", || {
        hardware::posts(&hardware::results(GPU))
    }),
    ("gpu-puts", "docs/gpu.md", || {
        hardware::puts(&hardware::results(GPU))
    }),
    ("gpu-moe", "docs/gpu.md", || {
        hardware::moe(&hardware::results(GPU))
    }),
];

/// How lines begin in place of which the README shows `..`.
const LEFT_OUT_OF_THE_DEMO: &[&str] = &[
    "choices ",
    "rows at experts ",
    "direct peers ",
    "bytes sent ",
    "bytes received ",
    "signals ",
    "CQEs ",
    "packets sent ",
    "sent again ",
    "findings ",
];
/// The times of parts. What failed and the totals stay.
const LEFT_OUT_OF_THE_TEST: &[&str] = &[
    "lint ",
    "builds ",
    "tests ",
    "sanitizers ",
    "judges ",
    "sass ",
    "control ",
    "device ",
    "engine ",
    "membership ",
    "moe ",
    "interop ",
    "python ",
];

/// What a table has beside its own file: counts of other projects, which no command of this one makes.
const BESIDE: &[&str] = &["put-others"];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn figures() -> PathBuf {
    root().join("docs/figures")
}

fn file(name: &str) -> Value {
    let path = figures().join(format!("{name}.json"));
    let text =
        fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    serde_json::from_str(&text).unwrap()
}

/// The page with `table` in the place of table `name`, or an error if the page has no such place.
fn with_table(page: &str, name: &str, table: &str) -> Result<String, String> {
    let begin = format!("<!-- figures: {name} -->\n");
    let (before, rest) = page
        .split_once(&begin)
        .ok_or_else(|| format!("no line {begin:?}"))?;
    let (_, after) = rest
        .split_once(END)
        .ok_or_else(|| format!("no {END:?} behind {begin:?}"))?;
    Ok(format!("{before}{begin}\n{table}\n{END}{after}"))
}

#[test]
fn tables_of_figures_are_rendered_from_their_files() {
    let mut stale = Vec::new();
    for (name, page, render) in TABLES {
        let path = root().join(page);
        let text = fs::read_to_string(&path).unwrap();
        let now =
            with_table(&text, name, &render()).unwrap_or_else(|error| panic!("{page}: {error}"));
        if now == text {
            continue;
        }
        match std::env::var_os("UPDATE") {
            Some(_) => fs::write(&path, now).unwrap(),
            None => stale.push(format!("{page}: figures '{name}'")),
        }
    }
    assert!(
        stale.is_empty(),
        "{stale:?} are others than those of their files: UPDATE=1 cargo test -p warpverbs --test figures"
    );
}

#[test]
fn every_file_of_figures_is_shown_and_every_place_has_a_table() {
    let shown: Vec<String> = TABLES
        .iter()
        .map(|table| table.0)
        .chain(BESIDE.iter().copied())
        .map(|name| format!("{name}.json"))
        .collect();
    for entry in fs::read_dir(figures()).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        assert!(
            shown.contains(&name),
            "docs/figures/{name} is shown nowhere"
        );
    }
    for (_, page, _) in TABLES {
        let text = fs::read_to_string(root().join(page)).unwrap();
        for place in text.split("<!-- figures: ").skip(1) {
            let name = place.split(" -->").next().unwrap_or_default();
            assert!(
                TABLES
                    .iter()
                    .any(|table| table.0 == name && table.1 == *page),
                "{page}: no figures '{name}' are rendered there"
            );
        }
    }
}

#[test]
fn a_figure_that_was_written_by_hand_is_found() {
    let page = format!("before\n<!-- figures: a -->\n\n| 1 |\n\n{END}\nafter\n");
    assert_eq!(with_table(&page, "a", "| 1 |\n").unwrap(), page);
    assert_ne!(with_table(&page, "a", "| 2 |\n").unwrap(), page);
    assert!(with_table(&page, "b", "").is_err());
    assert!(with_table("<!-- figures: a -->\n", "a", "").is_err());
}

/// Date, commit and machine of a file, and its commands.
fn origin(file: &Value) -> String {
    let runs = file["runs"].as_array().unwrap().iter();
    let commands: Vec<String> = runs
        .map(|run| format!("`{}`", text(&run["command"])))
        .collect();
    let (date, commit) = (text(&file["date"]), commits::named(file));
    let machine = text(&file["machine"]);
    format!("{date}, {machine}, {commit}: {}.\n", commands.join(", "))
}

fn text(value: &Value) -> &str {
    value
        .as_str()
        .unwrap_or_else(|| panic!("{value} is no text"))
}

fn number(value: &Value) -> f64 {
    value
        .as_f64()
        .unwrap_or_else(|| panic!("{value} is no number"))
}

/// 1,124; 20.8.
fn count(value: f64) -> String {
    if value < 100.0 {
        let short = format!("{value:.1}");
        return short.trim_end_matches(".0").to_owned();
    }
    let digits = format!("{value:.0}");
    let mut grouped = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place != 0 && (digits.len() - place).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

#[test]
fn counts_are_short() {
    let shown = [0.0, 7.0, 20.75, 99.94, 999.6, 1124.0, 1_234_567.0].map(count);
    let expected = ["0", "7", "20.8", "99.9", "1,000", "1,124", "1,234,567"];
    assert_eq!(shown, expected);
}

/// Returns what a MoE step puts on the wire, for each rank.
fn moe_step(file: &Value) -> String {
    let mut table = "| ranks, routing, phase | work requests | doorbells | signals | MB | of the least bytes | DeepEP: requests | doorbells | \
                     signals | MB |\n|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|\n"
        .to_owned();
    let result = &file["runs"][0]["result"];
    for row in result["rows"].as_array().unwrap() {
        let ranks = number(&row["ranks"]);
        // The caption has the rest of the case.
        let routing = text(&row["case"]).split(", ").nth(3).unwrap();
        let each = |of: &Value| -> String {
            let counts =
                ["wqes", "doorbells", "signals"].map(|name| count(number(&of[name]) / ranks));
            let megabytes = number(&of["bytes"]) / ranks / 1e6;
            format!("{} | {megabytes:.2}", counts.join(" | "))
        };
        let least = 100.0 * number(&row["counted"]["bytes"]) / number(&row["least_bytes"]);
        writeln!(
            table,
            "| {ranks}, {routing}, {} | {} | {least:.1}% | {} |",
            text(&row["phase"]),
            each(&row["counted"]),
            each(&row["deepep"]),
        )
        .unwrap();
    }
    let memory = number(&result["peak_rss_bytes"]) / f64::from(1 << 30);
    format!(
        "{table}\nPeak memory of the process is {memory:.2} GiB. {}",
        origin(file)
    )
}

/// Returns what runs of `wv chaos` have shown, in ms.
fn chaos(file: &Value) -> String {
    let mut table = "| `wv` | steps checked | deaths | expelled, all disturbed | detect p50, max | resume p50, p99 | recover p50, p99 | rejoin p50, p99 | \
                     connect p50, p99 | gap p50, max |\n|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|\n"
        .to_owned();
    for run in file["runs"].as_array().unwrap() {
        let result = &run["result"];
        let times = |name: &str, high: &str| {
            let [middle, high] = ["p50", high].map(|of| {
                result[name][of]
                    .as_f64()
                    .map_or("-".into(), |us| count(us / 1e3))
            });
            format!("{middle}, {high}")
        };
        let command = text(&run["command"]);
        writeln!(
            table,
            "| `{}` | {} | {} | {} | {} | {} | {} | {} | {} | {} |",
            command.strip_prefix("wv ").unwrap_or(command),
            count(number(&result["steps"])),
            result["deaths"],
            result["expelled"],
            times("detect", "max"),
            times("resume", "p99"),
            times("recover", "p99"),
            times("rejoin", "p99"),
            times("connect", "p99"),
            times("gap", "max"),
        )
        .unwrap();
    }
    format!("{table}\n{}{}", tokens(file), origin(file))
}

/// Tokens that undisturbed ranks lost of undisturbed ranks, by run and by kind of deed. Nothing of runs that did not count them.
fn tokens(file: &Value) -> String {
    let mut rows = String::new();
    for run in file["runs"].as_array().unwrap() {
        let command = text(&run["command"]);
        let counted = &run["result"]["undisturbed"];
        for (deed, row) in counted["deeds"].as_object().into_iter().flatten() {
            let of = |name: &str| count(number(&row[name]));
            let causes = row["causes"].as_object().into_iter().flatten();
            let causes: Vec<String> = causes
                .map(|(cause, tokens)| format!("{cause} {}", count(number(tokens))))
                .collect();
            writeln!(
                rows,
                "| `{}` | {deed} | {} | {} | {} | {} | {} | {} | {} |",
                command.strip_prefix("wv ").unwrap_or(command),
                of("deeds"),
                of("calls"),
                of("tokens"),
                of("lost_at_once"),
                of("lost_later"),
                of("longest_ms"),
                causes.join(", "),
            )
            .unwrap();
        }
    }
    if rows.is_empty() {
        String::new()
    } else {
        format!(
            "| `wv` | last deed | deeds | calls of undisturbed ranks | their tokens | lost in the call of a deed or the next one | lost later \
             | longest time, ms | causes |\n|---|---|--:|--:|--:|--:|--:|--:|---|\n{rows}\n"
        )
    }
}

#[test]
fn tokens_of_undisturbed_ranks_are_a_row_for_each_kind_of_deed() {
    let row = serde_json::json!({
        "deeds": 2, "calls": 1200, "tokens": 19_200, "lost_at_once": 16, "lost_later": 0, "longest_ms": 40, "causes": { "timeout": 16 },
    });
    let file = serde_json::json!({ "runs": [
        { "command": "wv chaos --seed 1", "result": { "undisturbed": { "deeds": { "late": row } } } },
        { "command": "wv chaos --seed 2", "result": {} },
    ] });
    let table = tokens(&file);
    let row = "| `chaos --seed 1` | late | 2 | 1,200 | 19,200 | 16 | 0 | 40 | timeout 16 |";
    assert!(table.lines().any(|line| line == row), "{table}");
    assert_eq!(table.lines().count(), 4, "{table}");
    assert_eq!(tokens(&serde_json::json!({ "runs": [] })), "");
}

/// The lines of each command.
fn lines(file: &Value) -> String {
    let blocks = file["runs"].as_array().unwrap().iter().map(|run| {
        let lines: Vec<&str> = run["lines"].as_array().unwrap().iter().map(text).collect();
        format!("```\n{}\n```\n", lines.join("\n"))
    });
    format!("{}{}", blocks.collect::<String>(), origin(file))
}

/// As `lines`, with `..` in place of lines that begin with one of these words.
fn shortened(file: &Value, left_out: &[&str]) -> String {
    let mut file = file.clone();
    for run in file["runs"].as_array_mut().unwrap() {
        let mut kept: Vec<Value> = Vec::new();
        for line in run["lines"].as_array().unwrap() {
            if !left_out.iter().any(|begin| text(line).starts_with(begin)) {
                kept.push(line.clone());
            } else if kept.last().is_none_or(|last| text(last) != "..") {
                kept.push("..".into());
            }
        }
        run["lines"] = kept.into();
    }
    lines(&file)
}

#[test]
fn a_run_of_lines_that_is_left_out_becomes_two_dots() {
    let file = serde_json::json!({
        "commit": "1", "date": "2", "machine": "3",
        "runs": [{ "command": "c", "lines": ["a 1", "b 2", "b 3", "c 4", "b 5", "FAILED"] }],
    });
    let shown = shortened(&file, &["b "]);
    assert!(
        shown.starts_with("```\na 1\n..\nc 4\n..\nFAILED\n```\n"),
        "{shown}"
    );
}

/// Returns what a group asks of its store, and how long its changes take.
fn group(file: &Value) -> String {
    let mut table = "| | peace: calls/s and rank besides renewals | a death and a join: calls, bytes, by ranks | bring-up | a look | \
                     death p50 / max | join p50 / max | KiB/rank: all, without free pages | expelled |\n|---|--:|--:|--:|--:|--:|--:|--:|--:|\n"
        .to_owned();
    let mut newcomers = String::new();
    for run in file["runs"].as_array().unwrap() {
        let result = &run["result"];
        let (on, lease) = (text(&result["ran_on"]), number(&result["lease_ms"]) / 1e3);
        for row in result["rows"].as_array().unwrap() {
            let times = |name: &str| {
                let [middle, most] = ["p50", "max"].map(|of| count(number(&row[name][of])));
                format!("{middle} / {most} ms")
            };
            let change = &row["change"];
            writeln!(
                table,
                "| {} ranks, `{on}`, {} deaths, leases of {lease} s | {:.1} | {:.1}, {:.1} KB | {} ms | {:.2} ms | {} | {} | {}, {} | {} |",
                count(number(&row["ranks"])),
                row["death_ms"]["count"],
                number(&row["peace"]["calls_per_second"]),
                number(&change["calls_per_rank"]),
                number(&change["bytes_per_rank"]) / 1e3,
                count(number(&row["bring_up_ms"])),
                number(&row["look_ms"]["p50"]),
                times("death_ms"),
                times("join_ms"),
                count(number(&row["kib_per_rank"])),
                count(number(&row["kib_in_use"])),
                row["expelled"],
            )
            .unwrap();
            let server = &row["peace"]["server_core_percent"];
            if !server.is_null() {
                write!(
                    newcomers,
                    " The etcd took {:.0}% of a core in peace.",
                    number(server)
                )
                .unwrap();
            }
        }
        let newcomer = &result["crash_loop"];
        if !newcomer.is_null() {
            write!(
                newcomers,
                " A newcomer that died {} times left {} ranks {:.0}% of their calls in peace. The longest time between two calls of \
                 one rank was {} ms, and {} ms in peace.",
                newcomer["deaths"],
                newcomer["ranks"],
                number(&newcomer["calls_percent"]),
                count(number(&newcomer["longest_gap_ms"])),
                count(number(&newcomer["longest_gap_in_peace_ms"])),
            )
            .unwrap();
        }
    }
    format!("{table}\n{}{newcomers}\n", origin(file).trim_end())
}
