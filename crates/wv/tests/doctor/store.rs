//! On stores that answer and on stores that do not.

use std::process::Output;

use serde_json::Value;

use super::{examined, schema};
use warpverbs::team::{FileStore, Store};

/// Runs `wv doctor` for the store alone, with these variables. The schema accepts the JSON that `wv doctor` prints.
fn doctor(arguments: &[&str], variables: &[(&str, &str)]) -> (Output, String) {
    let mut command = examined::doctor(&["--only", "store"]);
    command.args(arguments).envs(variables.iter().copied());
    let output = command.output().unwrap();
    let text = String::from_utf8(output.stdout.clone()).unwrap();
    if arguments.contains(&"--json") {
        schema::accept(&text);
    }
    (output, text)
}

#[test]
fn a_store_that_answers_is_one_line_of_figures_and_nothing_is_left_in_it() {
    let directory = tempfile::tempdir().unwrap();
    let url = format!("file://{}", directory.path().display());
    let run = ("WARPVERBS_RUN_ID", "monday");
    let given = ["--store", url.as_str()];
    let named = [run, ("WARPVERBS_STORE", url.as_str())];
    for (arguments, variables, place) in [
        (&[][..], &[][..], "in memory (WARPVERBS_STORE is not set)"),
        (&given, &[run], &url),
        (&[], &named, &url),
    ] {
        let (output, text) = doctor(arguments, variables);
        assert!(output.status.success(), "{output:?}");
        let line: String = text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(
            line.starts_with(&format!("store ok store: {place}: ")),
            "{line}"
        );
        for figure in [" calls/s, p50 ", ", p99 ", ", slowest ", "lease_ttl of "] {
            assert!(line.contains(figure), "{line}");
        }
    }
    let store = FileStore::open(directory.path(), "monday").unwrap();
    assert_eq!(store.count("measure").unwrap().keys, 0);
}

#[test]
fn figures_in_json_are_those_of_the_calls_asked_for() {
    let (output, text) = doctor(&["--json", "--calls", "7"], &[]);
    assert!(output.status.success(), "{output:?}");
    let found: Value = serde_json::from_str(&text).unwrap();
    let store = &found["store"];
    // Fewer on a machine that takes 5 s for them.
    assert!(
        (1..=7).contains(&store["calls"].as_u64().unwrap()),
        "{text}"
    );
    let figure = |name: &str| store[name].as_f64().unwrap();
    assert!(figure("p50_us") <= figure("p99_us") && figure("p99_us") <= figure("slowest_us"));
    assert!(figure("shortest_lease_ttl_us") >= 6.0 * figure("p99_us") - 1e-3);
    assert_eq!(figure("default_lease_ttl_us"), 2e6);
}

#[test]
fn a_store_that_cannot_be_used_is_a_line_that_says_so() {
    for (url, why) in [
        ("file:///nonexistent/store", "does not exist"),
        ("redis://localhost", "is not file://"),
        #[cfg(feature = "etcd")]
        ("etcd://me:secret@127.0.0.1:1/p", "could be asked"),
    ] {
        let (output, text) = doctor(&["--store", url], &[]);
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(
            line.contains("missing store: ")
                && line.contains(": cannot be used: ")
                && line.contains(why),
            "{text}"
        );
        assert!(!text.contains("secret"), "{text}");
        let (output, text) = doctor(&["--json", "--store", url], &[]);
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        let found: Value = serde_json::from_str(&text).unwrap();
        assert!(found["store"]["error"].as_str().unwrap().contains(why));
    }
    let (_, text) = doctor(&[], &[("WARPVERBS_STORE_SHARED", "perhaps")]);
    assert!(text.contains("WARPVERBS_STORE_SHARED"), "{text}");
    for calls in ["0", "100001", "x"] {
        let (output, _) = doctor(&["--calls", calls], &[]);
        assert_eq!(output.status.code(), Some(2), "{output:?}");
    }
}
