//! Standard output without a reader, and one that cannot be written.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::process::{Output, Stdio};

use crate::Demo;

/// The smallest measurement, which runs anywhere.
pub(crate) const POST: [&str; 11] = [
    "post",
    "--gpu",
    "simt",
    "--blocks",
    "1",
    "--mode",
    "exclusive",
    "--scope",
    "thread",
    "--record",
    "yes",
];

/// Commands that print something without ranks.
const COMMANDS: [(&str, &[&str]); 3] = [
    ("demo", &["--explain", "--ranks", "2"]),
    ("bench", &POST),
    ("sim", &["--list-capabilities"]),
];

/// Small runs of rank processes.
const RUNS: [(&str, &[&str]); 2] = [
    (
        "demo",
        &[
            "--ranks", "2", "--steps", "1", "--tokens", "4", "--hidden", "64",
        ],
    ),
    (
        "demo",
        &[
            "--ranks", "2", "--steps", "1", "--tokens", "4", "--hidden", "64", "--json",
        ],
    ),
];

/// The end of a command with this standard output and, if asked, standard error; it leaves no file and no process.
fn end(command: &str, arguments: &[&str], out: Stdio, errors: Stdio) -> Output {
    let mut demo = Demo::of(command, arguments);
    demo.command.stdout(out).stderr(errors);
    let output = demo.command.spawn().unwrap().wait_with_output().unwrap();
    demo.nothing_is_left();
    output
}

/// One end of a connection whose other end is closed.
fn closed() -> Stdio {
    let (own, other) = UnixStream::pair().unwrap();
    drop(other);
    Stdio::from(OwnedFd::from(own))
}

#[test]
fn a_command_with_closed_output_ends_by_sigpipe_and_reports_nothing() {
    for (command, arguments) in COMMANDS.iter().chain(&RUNS) {
        let output = end(command, arguments, closed(), Stdio::piped());
        let errors = String::from_utf8_lossy(&output.stderr);
        let what = format!("{command} {arguments:?}: {}, {errors}", output.status);
        assert_eq!(output.status.signal(), Some(libc::SIGPIPE), "{what}");
        assert!(
            !errors.contains("panicked") && !errors.contains("standard output"),
            "{what}"
        );
    }
}

#[test]
fn messages_that_no_rank_reads_change_nothing() {
    let output = end("demo", RUNS[0].1, Stdio::piped(), closed());
    assert!(output.status.success(), "{}", output.status);
    assert!(String::from_utf8_lossy(&output.stdout).contains("bit for bit"));
    // The message that it fails with is lost, its status is not.
    let output = end("demo", &["--ranks", "99"], Stdio::piped(), closed());
    assert_eq!(output.status.code(), Some(2));
}

#[test]
fn output_that_cannot_be_written_is_an_error_that_says_why() {
    for (command, arguments) in COMMANDS.iter().chain(&RUNS) {
        let full = File::options().write(true).open("/dev/full").unwrap();
        let output = end(command, arguments, full.into(), Stdio::piped());
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{command}: {errors}");
        let words = format!("wv {command}: cannot write to standard output: No space left");
        assert!(errors.contains(&words), "{errors}");
    }
}
