//! Ranks that die, stand still, lose each other and come back under the steps of the others: `wv demo --kill`, `wv chaos`.

use std::fs;
use std::process::Command;
use std::thread;
use std::time::Duration;

use serde_json::Value;

use super::{Demo, disturb, full, wait_for_ranks};

impl Demo {
    /// A run that ends well; its JSON.
    pub(super) fn json(self) -> Value {
        let output = self.run();
        let text = String::from_utf8(output.stdout).unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{text}\n{errors}");
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
    }
}

/// Durations of this name, in microseconds, ascending.
fn times(value: &Value, name: &str) -> Vec<u64> {
    let times = value[name].as_array().unwrap_or_else(|| panic!("{value}"));
    times.iter().map(|us| us.as_u64().unwrap()).collect()
}

#[test]
fn ranks_go_on_when_others_are_killed_under_their_steps() {
    let directory = tempfile::tempdir().unwrap();
    let picture = directory.path().join("ranks.svg");
    let steps = if full() { "400" } else { "40" };
    let mut demo = Demo::new(&[
        "--ranks",
        "4",
        "--tokens",
        "16",
        "--hidden",
        "64",
        "--steps",
        steps,
        "--json",
        "--kill",
        "2@10",
        "--kill",
        "0@20",
        "--timeline",
    ]);
    demo.command.arg(&picture);
    let value = demo.json();
    assert_eq!(value["deaths"], 2, "{value}");
    assert_eq!(value["expelled"], 0, "{value}");
    let resumed = value["resume"].as_array().unwrap();
    // All survivors of each death; the second to die may not have got so far with the first.
    assert!((4..=5).contains(&resumed.len()), "{value}");
    let steps: u64 = steps.parse().unwrap();
    assert!(value["steps"].as_u64().unwrap() >= 2 * steps, "{value}");
    assert!(value["tokens_lost"].as_u64().unwrap() > 0, "{value}");
    let picture = fs::read_to_string(&picture).unwrap();
    assert_eq!(picture.matches("killed").count(), 2);
}

#[test]
fn a_killed_rank_comes_back_under_the_steps_of_the_others() {
    let steps = if full() { "4000" } else { "400" };
    let value = Demo::new(&[
        "--ranks",
        "4",
        "--tokens",
        "16",
        "--hidden",
        "64",
        "--steps",
        steps,
        "--json",
        "--kill",
        "2@5",
        "--rejoin-after",
        "0.1",
    ])
    .json();
    assert_eq!(
        (&value["deaths"], &value["expelled"]),
        (&1.into(), &0.into()),
        "{value}"
    );
    assert_eq!(value["resume"].as_array().unwrap().len(), 3, "{value}");
    assert_eq!(value["rejoin"].as_array().unwrap().len(), 1, "{value}");
    // Of four QPs to the rank that came back, and of nobody else's; nothing is allocated for it.
    let commands = value["commands"].as_u64().unwrap();
    assert!((1..=5 * 4 + 8).contains(&commands), "{value}");
    assert_eq!(value["bytes"], 0, "{value}");
}

/// The figures of the README, on the output of the test.
fn print(what: &str, value: &Value) {
    let row = |name: &str| {
        let times = times(value, name);
        let of = |percent: usize| times.get((times.len() * percent).div_ceil(100).max(1) - 1);
        format!("{name} {:?} {:?} {:?} us", of(50), of(99), of(100))
    };
    let rows = ["detect", "resume", "recover", "rejoin", "connect", "gap"].map(row);
    println!("{what}: p50, p99, max of {}", rows.join(", "));
}

#[test]
fn eight_ranks_are_killed_one_after_the_other_and_no_survivor_fails_a_step() {
    let count: usize = if full() { 100 } else { 8 };
    // Nobody's patience runs out on a machine that is busy: what the dead rank owes is known from its process.
    let value = Demo::of(
        "chaos",
        &[
            "--ranks",
            "8",
            "--kills-only",
            "--deeds",
            &count.to_string(),
            "--minutes",
            "20",
            "--deadline",
            "20000",
            "--seed",
            "8",
            "--json",
        ],
    )
    .json();
    print("8 ranks", &value);
    assert_eq!(value["deaths"], count, "{value}");
    for none in ["expelled", "steps_failed", "bytes"] {
        assert_eq!(value[none], 0, "{none}: {value}");
    }
    assert_eq!(times(&value, "rejoin").len(), count, "{value}");
    // Each survivor has noticed, gone on without the dead rank, and come back to its pace; who dies meanwhile has not.
    for name in ["detect", "resume", "recover"] {
        let got = times(&value, name).len();
        assert!(
            (6 * count..=7 * count).contains(&got),
            "{name}: {got}: {value}"
        );
    }
    // One QP per kind and set to the rank that came, and keys of three windows; none of anybody else's. A mean over the time of a
    // survivor, in which one more may have gone whose four QPs were failed (its successor is not there yet); tests of the team
    // count for one replacement.
    let commands = value["commands_per_rank"].as_u64().unwrap();
    assert!((1..=5 * 4 + 8 + 4).contains(&commands), "{value}");
}

/// 15 s of everything, and five until all are there and have settled.
fn chaos(seed: &str, loss: &str) -> Value {
    let minutes = if full() { "2" } else { "0.25" };
    let value = Demo::of(
        "chaos",
        &[
            "--ranks",
            "6",
            "--minutes",
            minutes,
            "--seed",
            seed,
            "--loss",
            loss,
            "--json",
        ],
    )
    .json();
    print(&format!("seed {seed}, {loss}% lost"), &value);
    let disturbed = value["disturbed"].as_object().unwrap();
    assert!(disturbed.len() >= 3, "{value}");
    assert!(value["deaths"].as_u64().unwrap() > 0, "{value}");
    assert!(
        value["tokens_lost"].as_u64() < value["tokens"].as_u64(),
        "{value}"
    );
    assert_eq!(value["bytes"], 0, "{value}");
    value
}

#[test]
fn ranks_that_are_killed_frozen_and_parted_at_random_all_serve_in_the_end() {
    chaos("1", "0");
}

#[test]
fn the_same_over_a_wire_that_loses_packets() {
    chaos("2", "0.5");
}

#[test]
fn a_rank_that_dies_by_another_hand_ends_chaos_and_is_named() {
    let demo = Demo::of("chaos", &["--ranks", "3", "--kills-only", "--minutes", "5"]);
    let (status, message) = disturb(demo, |runtime| {
        let pid = wait_for_ranks(runtime, 3)[1].to_string();
        thread::sleep(Duration::from_millis(700));
        let killed = Command::new("kill").args(["-9", &pid]).status();
        assert!(killed.unwrap().success());
    });
    assert_eq!(status, Some(1), "{message}");
    assert!(message.contains("seed 1: rank "), "{message}");
    assert!(message.contains("its process ended"), "{message}");
}

#[test]
fn a_rank_that_hangs_ends_chaos_and_is_named() {
    // One deed of the longest pause apart at the most: it is over before the rank is stopped.
    let demo = Demo::of(
        "chaos",
        &[
            "--ranks",
            "3",
            "--only",
            "freezes",
            "--minutes",
            "5",
            "--patience",
            "3",
        ],
    );
    let (status, message) = disturb(demo, |runtime| {
        let pid = wait_for_ranks(runtime, 3)[1].to_string();
        // Again and again: chaos lets a rank go on that it has stopped itself.
        for _ in 0..400 {
            let stopped = Command::new("kill").args(["-STOP", &pid]).status();
            if !stopped.unwrap().success() {
                break;
            }
            thread::sleep(Duration::from_millis(50));
        }
    });
    assert_eq!(status, Some(1), "{message}");
    let words = ["hangs behind step", "does not come back"];
    assert!(
        words.iter().any(|words| message.contains(words)),
        "{message}"
    );
}

#[test]
fn chaos_that_cannot_be_is_one_sentence_with_value_and_limit() {
    let cases: [(&[&str], &str); 5] = [
        (&["--ranks", "2"], "--ranks is 2; it must be 3 to 64"),
        (&["--ranks", "65"], "--ranks is 65; it must be"),
        (
            &["--loss", "51"],
            "--loss is 51; it must be 0 to 50 percent",
        ),
        (
            &["--minutes", "1e9"],
            "--minutes is 1000000000; it must be 0 to 1440",
        ),
        (
            &["--deadline", "1"],
            "--deadline is 1; it must be 50 to 60000 ms",
        ),
    ];
    for (arguments, words) in cases {
        let (status, message) = Demo::of("chaos", arguments).refused();
        assert_eq!(status, 2, "{message}");
        assert!(message.contains(words), "{message}");
        assert_eq!(message.lines().count(), 1, "{message}");
    }
}
