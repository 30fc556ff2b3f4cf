//! What calls of the device library cost in SASS, as `./x sass` counts it: the tables of docs/cost.md and kernels/README.md, and the
//! row of the README.

use std::fmt::Write;

use serde_json::Value;

use crate::{count, number, origin, text};

/// The cost kernels of a file that `./x figures put` has written.
struct Calls<'a>(&'a [Value]);

impl<'a> Calls<'a> {
    fn of(file: &'a Value) -> Self {
        Self(file["runs"][0]["result"].as_array().unwrap())
    }

    fn kernel(&self, name: &str) -> &'a Value {
        let found = self.0.iter().find(|call| call["kernel"] == name);
        found.unwrap_or_else(|| panic!("no cost kernel {name} is counted"))
    }

    /// 197 + 829: inlined, and out of line.
    fn instructions(&self, name: &str) -> String {
        let call = self.kernel(name);
        format!("{} + {}", call["instructions"], call["out_of_line"])
    }

    /// The cells of a put. A second walk of the same kernel has the same instructions, which stand in the row before.
    fn put(&self, name: &str, walk: &str) -> String {
        let call = self.kernel(name);
        let walked = &call["walks"][walk];
        let (instructions, invalidations) = match walk {
            "rings" => (self.instructions(name), &call["invalidate"]),
            _ => (String::new(), &walked["invalidate"]),
        };
        let (atomics, mmio) = (&walked["atomic"], &walked["mmio"]);
        format!(
            "{instructions} | {} | {atomics} | {mmio} | {invalidations}",
            wider_than_a_block(walked)
        )
    }
}

/// A put of several libraries: ours as counted, the others as their file has it.
pub(crate) fn put(file: &Value, others: &Value) -> String {
    let calls = Calls::of(file);
    let mut table =
        "| put, one thread | instructions | fences | atomics | MMIO | L1 invalidations, static |\n|---|--:|--:|--:|--:|--:|\n"
            .to_owned();
    for row in others["rows"].as_array().unwrap() {
        let (whose, cells) = match row["cells"].as_array() {
            Some(cells) => ("", cells.iter().map(text).collect::<Vec<_>>().join(" | ")),
            None => (
                "**Warpverbs**, ",
                calls.put(text(&row["kernel"]), text(&row["walk"])),
            ),
        };
        writeln!(table, "| {whose}{} | {cells} |", text(&row["put"])).unwrap();
    }
    format!(
        "{table}\nA wait for a ticket is {} instructions and no fence; gpunetio's is {}. The others, counted {}: {}. Ours: {}",
        calls.instructions("wait_ticket_thread_shared"),
        text(&others["wait"]),
        text(&others["date"]),
        text(&others["commits"]),
        origin(file),
    )
}

fn wider_than_a_block(walk: &Value) -> String {
    count(number(&walk["fence_gpu"]) + number(&walk["fence_sys"]))
}

/// Rows of the table of all calls: what the page says, the kernel that has it, and the walk through that kernel.
const CALLS: &[(&str, &str, &str)] = &[
    ("`put`, thread, exclusive", "put_thread_exclusive", "rings"),
    (
        "the same, no doorbell record",
        "put_thread_exclusive_no_record",
        "rings",
    ),
    (
        "`put`, thread, shared: this thread rings",
        "put_thread_shared",
        "rings",
    ),
    ("another thread rings", "put_thread_shared", "others_ring"),
    ("held back (`more`)", "put_more_thread_shared", "parks"),
    (
        "no record: this thread rings",
        "put_thread_shared_no_record",
        "rings",
    ),
    ("queues in host memory", "put_thread_shared_host", "rings"),
    ("mailbox", "put_thread_shared_mailbox", "rings"),
    ("CTA-owned", "put_thread_cta", "rings"),
    (
        "kind known at run time (`AnyQp`)",
        "put_thread_shared_any",
        "rings",
    ),
    (
        "`put`, warp, up to 32 messages, shared",
        "put_warp_shared",
        "rings",
    ),
    ("`put`, block, shared", "put_block_shared", "rings"),
    (
        "`put_value`, 8 bytes, thread, shared",
        "put_value_thread_shared",
        "rings",
    ),
    (
        "`put_signal`, 16-byte signal, thread, shared",
        "put_signal_thread_shared",
        "rings",
    ),
    (
        "`put_two`, two sources, thread, shared",
        "put_two_thread_shared",
        "rings",
    ),
    (
        "`put_imm`, thread, shared",
        "put_imm_thread_shared",
        "rings",
    ),
    (
        "`put_signal`, add, thread, shared",
        "put_signal_add_thread_shared",
        "rings",
    ),
    ("`get`, thread, shared", "get_thread_shared", "rings"),
    (
        "`amo` fetch-add, thread, shared",
        "amo_fetch_add_thread_shared",
        "rings",
    ),
    (
        "`amo` compare-swap, thread, shared",
        "amo_compare_swap_thread_shared",
        "rings",
    ),
    (
        "`amo` swap (two WQEBBs, a NOP), thread, shared",
        "amo_swap_thread_shared",
        "rings",
    ),
    ("`flush`, thread, shared", "flush_thread_shared", "rings"),
    (
        "`wait` for a ticket that is done",
        "wait_ticket_thread_shared",
        "done",
    ),
    ("`wait_data`, the same", "wait_data_thread_shared", "done"),
    (
        "`wait_word` whose word is there, then a plain load",
        "wait_signal_thread",
        "done",
    ),
];

/// Every call of the device library that has a budget.
pub(crate) fn calls(file: &Value) -> String {
    let calls = Calls::of(file);
    let mut table = "| call | inlined | out of line | registers | executed | fences | atomics | MMIO | record |\n\
                     |---|--:|--:|--:|--:|--:|--:|--:|--:|\n"
        .to_owned();
    let mut before = "";
    for (label, name, walk) in CALLS {
        let call = calls.kernel(name);
        let walked = &call["walks"][walk];
        let whole = if before == *name {
            " | | ".to_owned()
        } else {
            let whole = ["instructions", "out_of_line", "registers"];
            whole.map(|part| call[part].to_string()).join(" | ")
        };
        before = name;
        writeln!(
            table,
            "| {label} | {whole} | {} | {} | {} | {} | {} |",
            walked["instructions"],
            fences(walked),
            walked["atomic"],
            registers(walked),
            walked["record"],
        )
        .unwrap();
    }
    format!("{table}\n{}", origin(file))
}

/// 2; 2 of system scope; 1 and 1 of block scope; 1, which invalidates L1.
fn fences(walk: &Value) -> String {
    let [gpu, system, block] = ["fence_gpu", "fence_sys", "fence_cta"].map(|of| number(&walk[of]));
    let mut parts = Vec::new();
    if gpu + system > 0.0 || block == 0.0 {
        parts.push(wider_than_a_block(walk));
    }
    if system > 0.0 {
        parts.push(format!("{} of system scope", count(system)));
    }
    if block > 0.0 {
        parts.push(format!("{} of block scope", count(block)));
    }
    if number(&walk["invalidate"]) > 0.0 {
        parts.push("CCTL".to_owned());
    }
    parts.join(", ")
}

/// Stores to the register, or the `red` by which a mailbox is reached.
fn registers(walk: &Value) -> String {
    if number(&walk["mailbox"]) > 0.0 {
        format!("0, {} `red` to the host", walk["mailbox"])
    } else {
        walk["mmio"].to_string()
    }
}

#[test]
fn the_readme_compares_what_the_files_say() {
    let readme = include_str!("../../../README.md");
    let file = crate::file("put");
    let shared = Calls::of(&file).kernel("put_thread_shared");
    let fences = wider_than_a_block(&shared["walks"]["rings"]);
    let expected = format!(
        "[{} instructions](docs/cost.md#what-a-put-costs) and {} out of line, {fences} fences",
        shared["instructions"], shared["out_of_line"]
    );
    assert!(
        readme.contains(&expected),
        "README.md should say: {expected}"
    );
    let moe = include_str!("../../../docs/moe.md");
    // `moe_data` compares this row with `moe::required_bytes`.
    let library = |ranks: &str| {
        let start = format!("| BF16, by expert, sums | {ranks} |");
        let row = moe.lines().find(|line| line.starts_with(&start)).unwrap();
        row.split('|').nth(6).unwrap().trim()
    };
    let expected = format!(
        "[{} MiB at 8 ranks](docs/moe.md#bytes-of-a-moe-layer), {} at 64",
        library("8"),
        library("64")
    );
    assert!(
        readme.contains(&expected),
        "README.md should say: {expected}"
    );
}
