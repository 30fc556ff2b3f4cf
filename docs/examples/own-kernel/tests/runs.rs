//! The example as its page starts it, with two and three ranks.

use std::path::Path;
use std::process::{Child, Command, Stdio};

use softhca as _;

#[test]
fn each_rank_gets_the_squares_of_the_previous_one() {
    for ranks in [2, 3] {
        let directory = tempfile::tempdir().unwrap();
        let children: Vec<Child> = (0..ranks)
            .map(|rank| start(rank, ranks, directory.path()))
            .collect();
        for (rank, child) in (0..ranks).zip(children) {
            let ended = child.wait_with_output().unwrap();
            let failed = String::from_utf8_lossy(&ended.stderr);
            assert!(ended.status.success(), "rank {rank} of {ranks}: {failed}");
            let first = 32 * ((rank + ranks - 1) % ranks);
            let square = |lane: u32| (first + lane) * (first + lane);
            let expected = format!(
                "rank {rank}: {} {} .. {}\n",
                square(0),
                square(1),
                square(31)
            );
            assert_eq!(String::from_utf8_lossy(&ended.stdout), expected);
        }
    }
}

/// One rank, with the software HCA preloaded as `wv sim` does it.
fn start(rank: u32, ranks: u32, directory: &Path) -> Child {
    let program = Path::new(env!("CARGO_BIN_EXE_example-own-kernel"));
    Command::new("timeout")
        .arg(test_basics::limits::HANG.as_secs().to_string())
        .arg(program)
        .args([
            &rank.to_string(),
            &ranks.to_string(),
            directory.to_str().unwrap(),
        ])
        .env("LD_PRELOAD", program.with_file_name("deps/libsofthca.so"))
        .env("XDG_RUNTIME_DIR", directory)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}
