//! `wv group` on stores that hold a group, and on stores that hold none.

use std::path::Path;
use std::process::{Command, Output};
use std::time::Duration;

use serde_json::Value;
use warpverbs::team::open_store;

/// Four ranks, the last of which asks; 0 and 2 are parted, and a proposal parts 1 and 2.
const RECORD: &str = r#"{"slots":5,"epoch":7,"first":9,"number":3,"asked":0,"members":"0-2=1*2,3","parted":"0/2",
    "open":{"by":1,"keep":"0-2","takes":"3=2","changes":"1/2"}}"#;

fn url(directory: &Path) -> String {
    format!("file://{}", directory.display())
}

fn group(directory: &Path, arguments: &[&str]) -> (Output, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_wv"));
    command
        .args(["group", "--store", &url(directory)])
        .args(arguments)
        .env("WARPVERBS_RUN_ID", "run");
    let output = command.output().unwrap();
    let texts = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text));
    let text = texts.concat();
    (output, text)
}

fn private() -> tempfile::TempDir {
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o700);
    let directory = tempfile::Builder::new()
        .permissions(mode)
        .tempdir()
        .unwrap();
    drop(open_store(&url(directory.path()), "run").unwrap());
    directory
}

#[test]
fn a_group_is_shown_with_its_parted_pairs_and_what_each_rank_says() {
    let directory = private();
    let store = open_store(&url(directory.path()), "run").unwrap();
    store.put("group/record", RECORD.as_bytes()).unwrap();
    let row = r#"{"slots":5,"takings":1,"epoch":7,"broken":"2","unheard":"1"}"#;
    store.put("group/row/0.1", row.as_bytes()).unwrap();
    store.put("group/row/9.1", b"{").unwrap();
    let asks = r#"{"process":{"seen_from":"a machine","pid":7,"started":9},"asks":true}"#;
    let ttl = Duration::from_secs(60);
    store
        .take_lease("group/member/3.2", asks.as_bytes(), ttl)
        .unwrap();

    let (output, text) = group(directory.path(), &[]);
    assert!(output.status.success(), "{text}");
    for line in [
        "view 7 from call 9 on: 3 members of 5 slots, 1 pair parted",
        "parted: 0-2",
        "proposal 3 by rank 1: keeps [0, 1, 2], takes in 3 (generation 2), parts 0-2, 1-2",
        "    0          1  member without a lease; hears nothing of [1]; has broken QPs to [2]",
        "    3          2  asks to be taken in",
        "note: 'group/row/9.1' counts as missing: slot 9; there are 5",
    ] {
        assert!(text.lines().any(|found| found == line), "{line}\n{text}");
    }

    let (output, text) = group(directory.path(), &["--json"]);
    assert!(output.status.success(), "{text}");
    let found: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(found["parted"], serde_json::json!([[0, 2]]));
    assert_eq!(found["ranks"][2]["parted_from"], serde_json::json!([0]));
    assert_eq!(found["ranks"][0]["broken"], serde_json::json!([2]));
    assert_eq!(
        found["proposal"]["parts"],
        serde_json::json!([[0, 2], [1, 2]])
    );
    assert_eq!(found["ranks"].as_array().unwrap().len(), 4, "{text}");
}

#[test]
fn a_store_without_a_group_or_with_garbage_is_one_sentence_and_status_1() {
    let directory = private();
    let refused = |words: &str| {
        let (output, text) = group(directory.path(), &[]);
        assert_eq!(output.status.code(), Some(1), "{text}");
        assert!(
            text.starts_with("wv group: ") && text.contains(words),
            "{text}"
        );
    };
    refused("no group of run 'run' has met in file://");
    let store = open_store(&url(directory.path()), "run").unwrap();
    store.put("group/record", b"{").unwrap();
    refused("invalid record 'group/record' of the group");
    let mut command = Command::new(env!("CARGO_BIN_EXE_wv"));
    let none = command.arg("group").env_remove("WARPVERBS_STORE");
    let output = none.output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(text.contains("--store URL or WARPVERBS_STORE"), "{text}");
}

#[test]
fn records_that_no_rank_writes_are_shown_as_plain_lines() {
    let directory = private();
    let store = open_store(&url(directory.path()), "run").unwrap();
    store.put("group/record", RECORD.as_bytes()).unwrap();
    let row = r#"{"a\nview 8\u001b[2J\u202e\u0085":1}"#;
    store.put("group/row/0.1", row.as_bytes()).unwrap();
    for arguments in [&[][..], &["--json"]] {
        let (output, text) = group(directory.path(), arguments);
        assert!(output.status.success(), "{text}");
        assert!(text.contains("[2J"), "the record is named: {text}");
        assert!(!text.contains(['\u{1b}', '\u{202e}', '\u{85}']), "{text:?}");
        assert!(!text.contains("\nview 8"), "{text:?}");
    }
}
