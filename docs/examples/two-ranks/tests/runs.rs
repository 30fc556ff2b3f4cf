//! The example as its page starts it: two processes on software HCAs, which meet in a directory.

use std::path::Path;
use std::process::{Child, Command, Stdio};

use softhca as _;

#[test]
fn two_processes_dispatch_and_combine() {
    let directory = tempfile::tempdir().unwrap();
    let ranks = ["0", "1"].map(|rank| start(rank, directory.path()));
    for (rank, child) in ranks.into_iter().enumerate() {
        let ended = child.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&ended.stdout);
        let failed = String::from_utf8_lossy(&ended.stderr);
        assert!(ended.status.success(), "rank {rank}: {failed}");
        // 0.75 * 1 of expert 0, and 0.25 * 4 of expert 3.
        assert_eq!(said, format!("rank {rank}: 1.75\n"));
    }
}

#[test]
fn wrong_arguments_are_refused() {
    for words in [
        vec![],
        vec!["0"],
        vec!["rank", "/tmp"],
        vec!["0", "/tmp", "2"],
    ] {
        let ended = Command::new(env!("CARGO_BIN_EXE_example-two-ranks"))
            .args(&words)
            .output()
            .unwrap();
        assert_eq!(ended.status.code(), Some(1), "{words:?}");
    }
}

/// One rank, with the software HCA preloaded as `wv sim` does it. A wait that fails ends by the deadline of the team.
fn start(rank: &str, directory: &Path) -> Child {
    let program = Path::new(env!("CARGO_BIN_EXE_example-two-ranks"));
    Command::new("timeout")
        .arg(test_basics::limits::HANG.as_secs().to_string())
        .arg(program)
        .args([rank, directory.to_str().unwrap()])
        .env("LD_PRELOAD", program.with_file_name("deps/libsofthca.so"))
        .env("XDG_RUNTIME_DIR", directory)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}
