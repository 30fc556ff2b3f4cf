//! What `RUST_LOG` shows of ranks: where they join, and which change a line belongs to.

use super::Demo;

/// Three ranks of which one is killed and none comes back: status, and standard error.
fn ran(log: &str) -> (Option<i32>, String) {
    let demo = Demo::new(&[
        "--ranks", "3", "--tokens", "16", "--hidden", "64", "--steps", "40", "--kill", "1@5",
    ]);
    let output = demo.set("RUST_LOG", log).run();
    let said = String::from_utf8(output.stderr).unwrap();
    (output.status.code(), said)
}

/// Lines that have all of these words.
fn lines(said: &str, words: &[&str]) -> usize {
    let has = |line: &&str| words.iter().all(|word| line.contains(word));
    said.lines().filter(has).count()
}

#[test]
fn a_log_names_rank_and_change_of_each_line() {
    let (status, said) = ran("info");
    assert_eq!(status, Some(0), "{said}");
    for rank in 0..3 {
        let span = format!("join{{rank={rank} generation=1}}: warpverbs::team: ");
        let first = format!("rank {rank} of 3");
        assert_eq!(lines(&said, &[&span, &first]), 1, "{span}{first}: {said}");
    }
    for rank in [0, 2] {
        let span = format!("group{{rank={rank} generation=1}}:change{{proposal=");
        assert!(lines(&said, &[&span, "Viewed("]) > 0, "{span}: {said}");
    }
    assert_eq!(
        lines(&said, &["Promised"]),
        0,
        "a step is of level debug: {said}"
    );

    let (status, said) = ran("warpverbs::team=info");
    assert_eq!(status, Some(0), "{said}");
    assert!(lines(&said, &["join{"]) >= 3, "{said}");
    assert_eq!(lines(&said, &["Viewed("]), 0, "{said}");

    let (status, said) = ran("");
    assert_eq!(status, Some(0), "{said}");
    assert_eq!(lines(&said, &["INFO"]), 0, "{said}");
}

#[test]
fn a_log_level_that_is_none_is_refused_with_those_there_are() {
    let (status, said) = ran("warpverbs=loud");
    assert_eq!(status, Some(2), "{said}");
    assert!(said.contains("RUST_LOG is 'warpverbs=loud'"), "{said}");
    assert!(
        said.contains("it must be a level (error, warn, info"),
        "{said}"
    );
}
