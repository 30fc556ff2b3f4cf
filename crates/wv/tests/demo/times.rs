//! Options that are times: none, and more than any clock holds.

use crate::Demo;
use crate::closed::POST;

const MOST: &str = "18446744073709551615";

/// Status and messages of a command that ends by itself and does not panic.
fn end(command: &str, arguments: &[&str]) -> (i32, String) {
    let output = Demo::of(command, arguments).run();
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    let what = format!("{command} {arguments:?}: {}: {errors}", output.status);
    assert!(!errors.contains("panicked"), "{what}");
    (output.status.code().expect(&what), errors)
}

#[test]
fn a_time_beyond_its_limit_is_refused_with_value_and_limit() {
    const YEAR: &str = "a whole number from 0 to 31536000";
    const FRACTION: &str = "it must be a decimal number";
    for (command, arguments, limit) in [
        ("demo", &["--timeout", MOST][..], YEAR),
        ("demo", &["--timeout", "31536001"], YEAR),
        (
            "demo",
            &["--kill", "0@1", "--rejoin-after", MOST],
            "seconds",
        ),
        (
            "demo",
            &["--kill", "0@1", "--rejoin-after", "inf"],
            FRACTION,
        ),
        (
            "demo",
            &["--kill", "0@1", "--rejoin-after", "NaN"],
            FRACTION,
        ),
        ("demo", &["--kill", "0@1", "--rejoin-after=-1"], FRACTION),
        ("chaos", &["--patience", MOST], YEAR),
        ("chaos", &["--minutes", MOST], "0 to 1440"),
        ("chaos", &["--minutes", "NaN"], FRACTION),
        ("chaos", &["--deadline", MOST], "50 to 60000"),
        ("chaos", &["--deadline", "0"], "50 to 60000"),
        ("bench", &["post", "--gpu", "simt", "--timeout", MOST], YEAR),
    ] {
        let (code, errors) = end(command, arguments);
        assert_eq!(code, 2, "{command} {arguments:?}: {errors}");
        assert!(errors.contains(limit), "{errors}");
        let number = arguments
            .last()
            .unwrap()
            .trim_start_matches("--rejoin-after=");
        let shown = number.replace(MOST, "1844674407370955");
        assert!(errors.contains(&shown), "{errors}");
    }
}

#[test]
fn no_time_at_all_is_a_run_that_ends() {
    const SMALL: [&str; 8] = [
        "--ranks", "3", "--steps", "20", "--tokens", "4", "--hidden", "64",
    ];
    let runs: [(&str, Vec<&str>); 4] = [
        ("demo", [&SMALL[..], &["--timeout", "0"]].concat()),
        (
            "demo",
            [&SMALL[..], &["--kill", "1@2", "--rejoin-after", "0"]].concat(),
        ),
        (
            "chaos",
            vec!["--ranks", "3", "--minutes", "0", "--patience", "0"],
        ),
        ("bench", [&POST[..], &["--timeout", "0"]].concat()),
    ];
    for (command, arguments) in runs {
        let (code, errors) = end(command, &arguments);
        // Whether the time was enough depends on the machine.
        assert!(
            matches!(code, 0 | 1),
            "{command} {arguments:?}: {code}: {errors}"
        );
    }
}

#[test]
fn times_of_faults_are_refused_beyond_their_range_and_work_up_to_it() {
    let sim = |fault: &str| end("sim", &["--fault", fault, "--", "true"]);
    let (code, errors) = sim(&format!("freeze@{MOST}s+1s"));
    assert_eq!(code, 125, "{errors}");
    assert!(errors.contains(MOST), "{errors}");
    for fault in [
        "freeze@0s+0s",
        "freeze@18446744073s+18446744073s",
        "delay=0s..18446744073s@100%",
        "partition=127.0.0.1@..18446744073s",
        "cqe=delay#1:18446744073s",
    ] {
        let (code, errors) = sim(fault);
        assert_eq!(code, 0, "{fault}: {errors}");
    }
}
