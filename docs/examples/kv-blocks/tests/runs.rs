//! The example as its page starts it: two processes on software HCAs, which meet in a directory.

use std::path::Path;
use std::process::{Child, Command, Stdio};

use softhca as _;

#[test]
fn blocks_of_one_process_land_in_the_other_in_each_run() {
    let directory = tempfile::tempdir().unwrap();
    run(directory.path());
    // In the same directory.
    run(directory.path());
}

fn run(directory: &Path) {
    let sides = ["decode", "prefill"].map(|side| start(side, directory));
    let said = sides.map(|child| {
        let ended = child.wait_with_output().unwrap();
        let failed = String::from_utf8_lossy(&ended.stderr).into_owned();
        assert!(ended.status.success(), "{failed}");
        String::from_utf8(ended.stdout).unwrap()
    });
    let expected = [
        "decode: 16 blocks of 65536 bytes are here\n",
        "prefill: 16 blocks are written\n",
    ];
    assert_eq!(said, expected);
}

/// One side, with the software HCA preloaded as `wv sim` does it.
fn start(side: &str, directory: &Path) -> Child {
    let program = Path::new(env!("CARGO_BIN_EXE_example-kv-blocks"));
    Command::new("timeout")
        .arg(test_basics::limits::HANG.as_secs().to_string())
        .arg(program)
        .args([side, directory.to_str().unwrap()])
        .env("LD_PRELOAD", program.with_file_name("deps/libsofthca.so"))
        .env("XDG_RUNTIME_DIR", directory)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}
