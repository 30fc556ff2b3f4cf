//! `wv config`: the variables that a rank or a host engine reads, with their values in this process.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::process::ExitCode;

use clap::Args;
use serde::Serialize;
use warpverbs::config::{EngineConfig, GROUPS, Reader, Variable, variable, variables};
use warpverbs::engine::Engine;
use warpverbs::team::check_url;

use crate::output;
use crate::store::{as_a_rank, place};

/// Print which variables a rank or a host engine reads, what each may be, and its value in this process; fail if one is invalid
#[derive(Debug, Args)]
pub struct ConfigOptions {
    /// Print JSON
    #[arg(long, conflicts_with = "markdown")]
    json: bool,
    /// Print the page of the documentation, without the values of this process
    #[arg(long)]
    markdown: bool,
}

/// The variables that Warpverbs reads beside its configuration. They say where files are.
const OTHERS: [&str; 4] = [
    "WARPVERBS_NVRTC",
    "WARPVERBS_CUBINS",
    "WARPVERBS_SOFTHCA",
    "WARPVERBS_INCLUDE",
];

#[derive(Serialize)]
struct Row {
    name: &'static str,
    /// The value that is set; null where the default holds.
    set: Option<String>,
    default: &'static str,
    values: String,
    meaning: &'static str,
}

#[derive(Serialize)]
struct Found {
    variables: Vec<Row>,
    /// Why a rank or an engine could not start with these variables.
    refused: Option<String>,
    /// The variables that begin with `WARPVERBS_` and that nothing reads.
    unknown: Vec<String>,
}

/// Runs `wv config`. It exits with 0 if a rank and an engine can start with these variables, and with 2 if a variable cannot be used.
#[must_use]
pub fn run(options: &ConfigOptions) -> ExitCode {
    const COMMAND: &str = "wv config";
    if options.markdown {
        return output::finish(COMMAND, &page());
    }
    let found = look();
    let text = if options.json {
        serde_json::to_string_pretty(&found).expect("texts are JSON") + "\n"
    } else {
        table(&found)
    };
    for name in &found.unknown {
        let alike = alike(name);
        output::say(format_args!(
            "{COMMAND}: {name} is set, and no variable has this name{alike}"
        ));
    }
    let Some(error) = found.refused else {
        return output::finish(COMMAND, &text);
    };
    if let Err(error) = output::print(&text) {
        return error.end(COMMAND);
    }
    output::say(format_args!("{COMMAND}: {error}"));
    ExitCode::from(2)
}

fn look() -> Found {
    let row = |row: &'static Variable| Row {
        name: row.name,
        set: shown(row),
        default: row.default,
        values: row.values.to_string(),
        meaning: row.meaning,
    };
    let refused = check_rank().and_then(|()| check_engine()).err();
    let known = |name: &str| variable(name).is_some() || OTHERS.contains(&name);
    let names: BTreeSet<String> = std::env::vars_os()
        .filter_map(|(name, _)| name.into_string().ok())
        .filter(|name| name.starts_with("WARPVERBS_") && !name.starts_with("WARPVERBS_TEST_"))
        .filter(|name| !known(name))
        .collect();
    Found {
        variables: variables().map(row).collect(),
        refused,
        unknown: names.into_iter().collect(),
    }
}

/// Checks that a rank could start with the variables of this process. The error says why not.
fn check_rank() -> Result<(), String> {
    let config = as_a_rank(|name| std::env::var_os(name)).map_err(|error| error.to_string())?;
    let url = config.store;
    if url.is_empty() {
        return Ok(());
    }
    check_url(&url).map_err(|error| {
        // The URL may have a password.
        let error = error.to_string().replace(&url, &place(&url));
        format!("WARPVERBS_STORE: {error}")
    })
}

/// Checks that a host engine could start with the variables of this process. The error says why not.
fn check_engine() -> Result<(), String> {
    let config = EngineConfig::from_variables("engine", |name| std::env::var_os(name));
    let config = config.map_err(|error| error.to_string())?;
    match Engine::read_key(&config) {
        Ok(_) => Ok(()),
        Err(error) => Err(format!("WARPVERBS_ENGINE_KEY_FILE: {error}")),
    }
}

/// Returns the value of a variable, if it is set. A password in the URL of a store is left out.
fn shown(row: &Variable) -> Option<String> {
    let value = std::env::var_os(row.name)?;
    let value = match value.into_string() {
        Ok(value) => value,
        Err(value) => return Some(format!("{value:?}")),
    };
    let Some((kind, rest)) = value
        .split_once("://")
        .filter(|_| row.name == "WARPVERBS_STORE")
    else {
        return Some(value);
    };
    match rest.rsplit_once('@') {
        Some((_, place)) => Some(format!("{kind}://..@{place}")),
        None => Some(value),
    }
}

fn table(found: &Found) -> String {
    let mut text = String::new();
    let mut rows = found.variables.iter();
    for group in GROUPS {
        let _ = writeln!(text, "{}", group.title);
        for row in rows.by_ref().take(group.variables.len()) {
            let value = match (&row.set, row.default) {
                (Some(value), _) => format!("{value} (set)"),
                (None, "") => "-".to_owned(),
                (None, default) => default.to_owned(),
            };
            let values = row.values.replace('`', "");
            let _ = writeln!(text, "  {:<35} {value:<14} {values}", row.name);
        }
    }
    text
}

/// Returns a hint to the variable that was perhaps meant by `name`, or an empty text.
fn alike(name: &str) -> String {
    let near = variables().min_by_key(|row| distance(name, row.name));
    match near.filter(|row| distance(name, row.name) <= 3) {
        Some(row) => format!("; {} is near", row.name),
        None => String::new(),
    }
}

/// Returns how many letters must be changed, added or left out to turn one name into the other.
fn distance(one: &str, other: &str) -> usize {
    let other: Vec<char> = other.chars().collect();
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (at, letter) in one.chars().enumerate() {
        let mut corner = std::mem::replace(&mut row[0], at + 1);
        for place in 0..other.len() {
            let changed = corner + usize::from(letter != other[place]);
            corner = row[place + 1];
            row[place + 1] = changed.min(corner + 1).min(row[place] + 1);
        }
    }
    row[other.len()]
}

/// Returns the text of docs/configuration.md.
fn page() -> String {
    let mut text = String::from(
        "# Configuration\n\n\
         A rank reads these variables once, at its start, and so does a host engine: each table says which of them. A value beyond \
         its limits ends the start with an error that names the variable, the value and the limits.\n\n\
         Of a rank, `Config` (Rust) has a field for each, with a setter. `wv_team_config` (C) takes them as `settings`. `Team(..)` \
         (Python) takes each by the name of its field, such as `mtu=1024`. For an engine these are `EngineConfig`, \
         `wv_engine_config` and `Engine(..)`; their fields have no `ENGINE_` before the name, as in `qps=8`. `wv config` prints \
         what is set, and names variables that nothing reads.\n\n\
         A number is decimal, or hexadecimal with `0x`. It has no sign and no zeros before it: `+4` and `04` are refused. So are they \
         in options of `wv`, in ports of addresses and in `SOFTHCA_*` variables.\n\n\
         `wv config --markdown` writes this page, from the table that the reader of the variables follows (`src/config/variables.rs`).\n",
    );
    for group in GROUPS {
        let readers: Vec<&str> = group
            .readers
            .iter()
            .map(|reader| name_of(*reader))
            .collect();
        let _ = write!(
            text,
            "\n## {}\n\nRead by {}.\n\n| variable | values | default | sets |\n|---|---|---|---|\n",
            group.title,
            readers.join(" and ")
        );
        for row in group.variables {
            let default = match row.default {
                "" => String::new(),
                default => format!("`{default}`"),
            };
            let _ = writeln!(
                text,
                "| `{}` | {} | {default} | {} |",
                row.name, row.values, row.meaning
            );
        }
    }
    text
}

fn name_of(reader: Reader) -> &'static str {
    match reader {
        Reader::Rank => "a rank",
        Reader::Engine => "a host engine",
        _ => "others",
    }
}
