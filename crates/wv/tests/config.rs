//! `wv config`, and the page of the documentation that it writes.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

/// `wv` without any variable of Warpverbs.
fn command() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_wv"));
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("WARPVERBS_") {
            command.env_remove(name);
        }
    }
    command
}

fn config(arguments: &[&str], variables: &[(&str, &str)]) -> Output {
    let mut command = command();
    command.arg("config").args(arguments);
    command.envs(variables.iter().copied()).output().unwrap()
}

fn texts(output: &Output) -> (String, String) {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    (text(&output.stdout), text(&output.stderr))
}

#[test]
fn the_page_of_the_variables_is_what_the_command_writes() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/configuration.md");
    let (written, _) = texts(&config(&["--markdown"], &[]));
    if std::env::var_os("UPDATE").is_some() {
        fs::write(&page, &written).unwrap();
    }
    let page = fs::read_to_string(page).unwrap();
    assert!(
        page == written,
        "docs/configuration.md is not what `wv config --markdown` writes: run this test with UPDATE=1"
    );
}

#[test]
fn what_is_set_is_shown_and_what_is_not_has_its_default() {
    let set = [
        ("WARPVERBS_MTU", "1024"),
        ("WARPVERBS_STORE", "etcd://me:secret@h:1/p?insecure"),
    ];
    let output = config(&["--json"], &set);
    assert!(output.status.success(), "{output:?}");
    let (json, said) = texts(&output);
    assert_eq!(said, "");
    assert!(!json.contains("secret"), "{json}");
    let found: Value = serde_json::from_str(&json).unwrap();
    let rows = found["variables"].as_array().unwrap();
    let row = |name: &str| rows.iter().find(|row| row["name"] == name).unwrap();
    assert_eq!(row("WARPVERBS_MTU")["set"], "1024");
    assert_eq!(row("WARPVERBS_STORE")["set"], "etcd://..@h:1/p?insecure");
    assert_eq!(row("WARPVERBS_WINDOWS")["set"], Value::Null);
    assert_eq!(row("WARPVERBS_WINDOWS")["default"], "16");
    let (table, _) = texts(&config(&[], &set));
    assert!(table.contains("1024 (set)"), "{table}");
    assert_eq!(
        table
            .lines()
            .filter(|line| line.starts_with("  WARPVERBS_"))
            .count(),
        rows.len()
    );
}

#[test]
fn what_no_rank_and_no_engine_could_start_with_is_named() {
    for (name, value, said_of_it) in [
        (
            "WARPVERBS_RANK",
            "abc",
            "it must be a number from 0 to 1023",
        ),
        ("WARPVERBS_RANKS", "0", "it must be a number from 1 to 1024"),
        ("WARPVERBS_RANK", "+4", "it must be a number"),
        ("WARPVERBS_RANKS", "04", "it must be a number"),
        ("WARPVERBS_STORE", "nonsense", "nonsense"),
        ("WARPVERBS_STORE", "etcd://", "WARPVERBS_STORE"),
        ("WARPVERBS_STORE", "htcd://me:secret@h:1/p", "htcd://h:1/p"),
        (
            "WARPVERBS_ENGINE_KEY_FILE",
            "/nowhere/engine.key",
            "/nowhere/engine.key",
        ),
        ("WARPVERBS_ENGINE_KEY_FILE", "", "'' is not a file"),
        ("WARPVERBS_ENGINE_ALLOW", "", "'' is not names of engines"),
    ] {
        let output = config(&[], &[(name, value)]);
        let (table, said) = texts(&output);
        assert_eq!(output.status.code(), Some(2), "{name}={value}: {said}");
        assert!(said.contains(name) && said.contains(said_of_it), "{said}");
        assert!(
            !table.contains("secret") && !said.contains("secret"),
            "{said}"
        );
    }
}

#[test]
fn a_value_that_is_no_text_is_named_and_shown() {
    let value = OsStr::from_bytes(b"k\xff");
    for name in [
        "WARPVERBS_ENGINE_KEY_FILE",
        "WARPVERBS_MTU",
        "WARPVERBS_RANK",
    ] {
        let mut command = command();
        let output = command.arg("config").env(name, value).output().unwrap();
        let (table, said) = texts(&output);
        assert_eq!(output.status.code(), Some(2), "{name}: {said}");
        assert_eq!(
            said,
            format!("wv config: {name} is \"k\\xFF\", which is no UTF-8\n")
        );
        assert!(table.contains("\"k\\xFF\" (set)"), "{table}");
    }
}

#[test]
fn a_value_that_cannot_be_and_a_name_that_nothing_reads_are_named() {
    let output = config(&[], &[("WARPVERBS_RETRY_COUNT", "8")]);
    assert_eq!(output.status.code(), Some(2));
    let (_, said) = texts(&output);
    assert_eq!(
        said,
        "wv config: WARPVERBS_RETRY_COUNT is '8'; it must be a number from 0 to 7\n"
    );
    for class in ["300", "256", "-1"] {
        let output = config(&[], &[("WARPVERBS_TRAFFIC_CLASS", class)]);
        assert_eq!(output.status.code(), Some(2), "{class}");
        let (_, said) = texts(&output);
        let limit = format!(
            "WARPVERBS_TRAFFIC_CLASS is '{class}'; it must be auto or a number from 0 to 255\n"
        );
        assert_eq!(said, format!("wv config: {limit}"));
    }
    let output = config(&[], &[("WARPVERBS_ENGINE_DEPTH", "500")]);
    assert_eq!(output.status.code(), Some(2));
    let (_, said) = texts(&output);
    assert!(
        said.contains("WARPVERBS_ENGINE_DEPTH is '500'; it must be one of 256, 512"),
        "{said}"
    );
    let output = config(&["--json"], &[("WARPVERBS_DEADLINE", "8")]);
    assert!(output.status.success());
    let (json, said) = texts(&output);
    let found: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(found["unknown"], serde_json::json!(["WARPVERBS_DEADLINE"]));
    assert!(
        said.ends_with("no variable has this name; WARPVERBS_DEADLINE_MS is near\n"),
        "{said}"
    );
    let (_, said) = texts(&config(&[], &[("WARPVERBS_ELEPHANTS", "8")]));
    assert!(said.ends_with("no variable has this name\n"), "{said}");
    assert_eq!(
        config(&["--json", "--markdown"], &[]).status.code(),
        Some(2)
    );
}
