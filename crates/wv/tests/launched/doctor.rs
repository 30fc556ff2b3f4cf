//! The doctor as ranks of a job: which ranks reach which.

use serde_json::Value;

use crate::job::{Job, Launcher};
use crate::schema;

const DOCTOR: [&str; 5] = ["doctor", "--launched", "--json", "--only", "machine"];

#[test]
fn each_rank_reaches_each_other_one_with_a_whole_packet() {
    let job = Job::new(Launcher::Srun, &DOCTOR);
    let ended = job.run(&[0, 1, 2], 3, |_| Vec::new());
    for one in &ended {
        assert_eq!(one.status, Some(0), "{ended:#?}");
    }
    schema::accept(&ended[0].out);
    let found: Value = serde_json::from_str(&ended[0].out).unwrap();
    let ranks = &found["ranks"];
    assert_eq!(
        (ranks["ranks"].as_u64(), ranks["rails"].as_u64()),
        (Some(3), Some(1))
    );
    assert_eq!(ranks["packet_bytes"], 4096);
    let pairs = ranks["pairs"].as_array().unwrap();
    let of = |name: &str| {
        pairs
            .iter()
            .map(|pair| pair[name].as_u64().unwrap())
            .collect::<Vec<_>>()
    };
    assert_eq!(of("from"), [0, 0, 1, 1, 2, 2]);
    assert_eq!(of("to"), [1, 2, 0, 2, 0, 1]);
    for pair in pairs {
        assert_eq!(
            (&pair["reached"], &pair["reason"]),
            (&Value::Bool(true), &Value::Null)
        );
        assert!(
            pair["from_gid"].as_str().unwrap().starts_with("127."),
            "{pair}"
        );
        assert_ne!(pair["from_gid"], pair["to_gid"]);
    }
    for other in &ended[1..] {
        assert_eq!((other.out.as_str(), other.err.as_str()), ("", ""));
    }
}

#[test]
fn the_schema_has_the_reason_of_a_pair_that_fails() {
    let job = Job::new(Launcher::Srun, &DOCTOR);
    let lost = |nth: usize| match nth {
        1 => vec![("SOFTHCA_FAULT", "drop=100%".to_owned())],
        _ => Vec::new(),
    };
    let ended = job.run(&[0, 1], 2, lost);
    assert_eq!(ended[0].status, Some(1), "{ended:#?}");
    schema::accept(&ended[0].out);
    let found: Value = serde_json::from_str(&ended[0].out).unwrap();
    for pair in found["ranks"]["pairs"].as_array().unwrap() {
        assert_eq!(pair["reached"], false, "{pair}");
        assert!(pair["reason"].is_string(), "{pair}");
    }
}

#[test]
fn the_first_pair_that_fails_is_named_with_gids_and_reason() {
    let job = Job::new(
        Launcher::Torchrun,
        &["doctor", "--launched", "--only", "machine"],
    );
    // Nothing leaves or comes to rank 1.
    let lost = |nth: usize| match nth {
        1 => vec![("SOFTHCA_FAULT", "drop=100%".to_owned())],
        _ => Vec::new(),
    };
    let ended = job.run(&[0, 1, 2], 3, lost);
    assert_eq!(ended[0].status, Some(1), "{ended:#?}");
    let text = &ended[0].out;
    let line = text
        .lines()
        .find(|line| line.contains("does not reach"))
        .unwrap();
    assert!(
        line.contains("rank 0 (127.") && line.contains("does not reach rank 1 (127."),
        "{text}"
    );
    assert!(line.contains("on rail 0: "), "{text}");
    for (row, came) in [(0, ".X+"), (1, "X.X"), (2, "+X.")] {
        assert!(text.contains(&format!("    {row} {came}")), "{text}");
    }
}
