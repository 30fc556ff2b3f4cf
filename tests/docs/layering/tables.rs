//! The tables name what exists, and all of it: those of `main.rs` the modules and headers of the tree, those of
//! ARCHITECTURE.md the same.

use super::{CRATE_USERS, HEADER_LAYERS, HEADERS, MODULES, root};
use std::collections::BTreeSet;

/// What every module may use, so that the table of ARCHITECTURE.md does not say it.
const EVERYWHERE: [&str; 3] = ["error", "config", "deadline"];

type Names = BTreeSet<String>;

/// One for each name that only one of the two has.
fn differences(what: &str, [one, other]: [&str; 2], names: [&Names; 2]) -> Vec<String> {
    let lacks = |place: &str, all: &Names, some: &Names| -> Vec<String> {
        all.difference(some)
            .map(|name| format!("{place} lacks {what} `{name}`"))
            .collect()
    };
    let mut found = lacks(other, names[0], names[1]);
    found.extend(lacks(one, names[1], names[0]));
    found
}

fn modules_of_table() -> Names {
    MODULES.iter().map(|(name, _)| (*name).to_owned()).collect()
}

fn headers_of_table() -> Names {
    let headers = HEADER_LAYERS.iter().flat_map(|layer| layer.iter());
    headers.map(|name| (*name).to_owned()).collect()
}

/// Headers by their path below HEADERS.
fn headers_of_tree() -> Names {
    let inner = entries(&format!("{HEADERS}detail"));
    let inner = inner.iter().map(|name| format!("detail/{name}"));
    let mut headers = entries(HEADERS);
    headers.remove("detail");
    headers.extend(inner);
    headers
}

/// Names of files and folders, without `.rs`.
fn entries(folder: &str) -> Names {
    let entries = std::fs::read_dir(root().join(folder)).unwrap();
    let name = |entry: std::io::Result<std::fs::DirEntry>| {
        let name = entry.unwrap().file_name().into_string().unwrap();
        name.trim_end_matches(".rs").to_owned()
    };
    entries.map(name).collect()
}

#[test]
fn the_tables_have_a_row_for_every_module_and_header_and_for_nothing_else() {
    let mut modules = entries("src");
    modules.remove("lib");
    let mut found = differences(
        "module",
        ["src", "MODULES"],
        [&modules, &modules_of_table()],
    );
    found.extend(differences(
        "header",
        [HEADERS, "HEADER_LAYERS"],
        [&headers_of_tree(), &headers_of_table()],
    ));
    assert!(found.is_empty(), "\n{}\n", found.join("\n"));
}

/// Returns what stands between backticks.
fn quoted(cell: &str) -> impl Iterator<Item = &str> {
    cell.split('`').skip(1).step_by(2)
}

/// What a module is, in the order of the table.
const MODULE_TEXTS: [(&str, &str); MODULES.len()] = [
    (
        "abi",
        "structs shared with kernels; rendered to `kernels/include/warpverbs/abi.h`, which a test compares",
    ),
    (
        "memheap",
        "the control-buffer allocator: offsets only, metadata on the host",
    ),
    (
        "topology",
        "where GPUs and NICs of a machine stand, read from sysfs below any root; which NIC a rank or an engine should try first",
    ),
    (
        "sys",
        "bindings of libibverbs and libmlx5, opened by dlopen; the generated file is checked in, a test makes it again",
    ),
    (
        "verbs",
        "RAII over DevX: context, PD, MR, control heap (UMEM), doorbell registers (UAR), CQ, QP",
    ),
    (
        "gpu",
        "trait `Gpu`: memory, copies, launch by name, streams, events, graphs; `cuda` and `simt` behind it",
    ),
    (
        "fabric",
        "what one rank has on its HCAs: the ports that `auto` takes, rails, the ladders by which it reaches them, ways to offer memory; what it publishes of its ports, its identity among processes, PSNs",
    ),
    (
        "provider",
        "queues that a thread of the host posts to, behind traits `Lane` and `Reaper`; `mlx5` (DevX QPs), `verbs` (by libibverbs), `ofi` (by libfabric), `local` (copies within the machine), `sink` (no HCA); `host`, enums over these; memory of the host and of GPUs that HCAs share",
    ),
    ("team", "ranks, windows, peer table in device memory"),
    (
        "membership",
        "which ranks belong to a team: they die, leave and come back under running calls",
    ),
    ("moe", "buffers, dispatch, combine"),
    (
        "engine",
        "the host engine: transfers, workers, connections of engines, notices, counters, keys of peers",
    ),
    (
        "internal",
        "what only the tests and measurements of this workspace call: hidden from the documentation, used by no module",
    ),
    ("error", "the public error"),
    (
        "config",
        "the one configuration struct and its `WARPVERBS_*` variables. `verbs`, `gpu`, `fabric`, `team`, `membership`, `moe`, `provider` and `engine` use `config` and `error`, `topology` uses `config`",
    ),
    (
        "deadline",
        "the order of clock and look of all waits of the host (`Looks`). `gpu`, `provider`, `team`, `membership`, `moe` and `engine` use it",
    ),
];

/// What the headers of a layer are, from the bottom up.
const LAYER_TEXTS: [&str; HEADER_LAYERS.len()] = [
    "rendered from `src/abi`",
    "one instruction per function: inline PTX, or its twin on the CPU",
    "the only file that tests `__CUDACC__`",
    "thread, warp or block; the one loop on memory that others change, with its deadline",
    "addresses with bounds; a QP and its kind; segments; CQEs; scopes of words and fences",
    "lanes that share a WQE; atomics as WQEs; memory of a peer by load and store",
    "the posting protocol and its steps",
    "one batch of WQEs by a scope; flush, fence",
    "bytes between local memory and a peer's, by one WQE or several",
    "what users call: put, signal; get; atomics; writes with an immediate; wait for a ticket or a signal; guards of peers; all of it by QP or directly; wait for several QPs",
];

/// The table of modules, of MODULES and CRATE_USERS.
fn modules_rendered() -> String {
    let mut table = String::from("| module of `src/` | may use | what it is |\n|---|---|---|\n");
    for (name, text) in MODULE_TEXTS {
        let uses: Vec<String> = used_by(name);
        let uses = if uses.is_empty() {
            "-".to_owned()
        } else {
            uses.join(", ")
        };
        table += &format!("| `{name}` | {uses} | {text} |\n");
    }
    table
}

/// The table of headers, of HEADER_LAYERS; the layer of kernels is above all.
fn headers_rendered() -> String {
    let layers = HEADER_LAYERS.len();
    let mut table =
        format!("| layer | headers | |\n|---|---|---|\n| {layers} | `kernels/moe`, yours | |\n");
    for (layer, (headers, text)) in HEADER_LAYERS.iter().zip(LAYER_TEXTS).enumerate().rev() {
        let names: Vec<String> = headers.iter().map(|name| format!("`{name}`")).collect();
        table += &format!("| {layer} | {} | {text} |\n", names.join(" "));
    }
    table
}

/// `text` with `table` in the place of the table that begins with the same line; none if `text` has no such table.
fn with_table(text: &str, table: &str) -> Option<String> {
    let first = table.lines().next()?;
    let start = text.find(first)?;
    let end = text[start..]
        .find("\n\n")
        .map_or(text.len(), |length| start + length + 1);
    Some(format!("{}{table}{}", &text[..start], &text[end..]))
}

/// Modules first, then crates, each in the order of its table.
fn used_by(module: &str) -> Vec<String> {
    let modules = MODULES.iter().filter(|(name, _)| *name == module);
    let modules = modules.flat_map(|(_, uses)| uses.iter());
    let crates = CRATE_USERS.iter().filter(|(_, by)| by.contains(&module));
    modules
        .filter(|name| !EVERYWHERE.contains(name))
        .map(|name| (*name).to_owned())
        .chain(crates.map(|(name, _)| name.replace('_', "-")))
        .collect()
}

/// Rewrites the document if UPDATE is set.
#[test]
fn the_tables_of_the_architecture_are_rendered_from_the_enforced_ones() {
    let path = root().join("ARCHITECTURE.md");
    let text = std::fs::read_to_string(&path).unwrap();
    let mut rendered = text.clone();
    for table in [modules_rendered(), headers_rendered()] {
        rendered = with_table(&rendered, &table).expect("the table is there");
    }
    if rendered != text && std::env::var_os("UPDATE").is_some() {
        std::fs::write(&path, &rendered).unwrap();
        return;
    }
    assert!(
        rendered == text,
        "ARCHITECTURE.md has not the tables of tests/docs/layering: rewrite it with UPDATE=1 cargo test --test layering"
    );
}

#[test]
fn the_reading_order_of_the_device_library_names_every_header() {
    let text = std::fs::read_to_string(root().join("kernels/README.md")).unwrap();
    let (_, below) = text.split_once("## Reading order").expect("the heading");
    let rows = below
        .lines()
        .skip_while(|line| !line.starts_with('|'))
        .take_while(|line| line.starts_with('|'));
    let first = rows.map(|row| row.split('|').nth(1).unwrap_or(""));
    let named: Names = first
        .flat_map(quoted)
        .filter(|name| name.contains(".cuh") || name.ends_with(".h"))
        .map(str::to_owned)
        .collect();
    let places = ["kernels/README.md", "HEADER_LAYERS"];
    let found = differences("header", places, [&named, &headers_of_table()]);
    assert!(found.is_empty(), "\n{}\n", found.join("\n"));
}

#[test]
fn a_table_that_differs_is_replaced_and_names_that_differ_are_found() {
    let table = "| a | b |\n|---|---|\n| 1 | 2 |\n";
    let text = "before\n\n| a | b |\n|---|---|\n| 9 |\n| 8 |\n\nafter\n";
    let expected = format!("before\n\n{table}\nafter\n");
    assert_eq!(with_table(text, table).as_deref(), Some(&*expected));
    assert_eq!(with_table("no table", table), None);
    let [one, other] = [["a", "b"], ["b", "c"]].map(|names| names.map(str::to_owned).into());
    let found = differences("header", ["the tree", "the table"], [&one, &other]);
    assert_eq!(
        found,
        ["the table lacks header `a`", "the tree lacks header `c`"]
    );
}
