//! `docs/examples/other-program`: programs of Debian under `wv sim`, as its page says.

use std::env;
use std::net::TcpListener;
use std::path::Path;
use std::process::Command;

use test_basics::limits::HANG;

#[test]
fn programs_of_others_run_as_the_example_says() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/examples/other-program");
    let wv = Path::new(env!("CARGO_BIN_EXE_wv"));
    let runtime = tempfile::tempdir().unwrap();
    let path = format!(
        "{}:{}",
        wv.parent().unwrap().display(),
        env::var("PATH").unwrap()
    );
    // Free, and below the ports that systems give to programs which name none: no other test takes it meanwhile.
    let first = 20_000 + u16::try_from(std::process::id() % 10_000).unwrap();
    let port = (first..first + 1_000)
        .find(|port| TcpListener::bind(("127.0.0.1", *port)).is_ok())
        .expect("a port of 1,000 is free");
    let ended = Command::new("timeout")
        .arg(HANG.as_secs().to_string())
        .arg(folder.join("run.sh"))
        .env("PATH", path)
        .env("PORT", port.to_string())
        .env("XDG_RUNTIME_DIR", runtime.path())
        .env_remove("LD_PRELOAD")
        .output()
        .unwrap();
    let failed = String::from_utf8_lossy(&ended.stderr);
    assert!(ended.status.success(), "{failed}");
    // A finding of a software HCA is a line `softhca: mlx5_0: .. [kind]`; the command ends well with one that it does not look for.
    assert!(!failed.contains("softhca: "), "{failed}");
    let said = String::from_utf8(ended.stdout).unwrap();
    let lines: Vec<String> = said
        .lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
        .collect();
    let page = std::fs::read_to_string(folder.join("README.md")).unwrap();
    let (_, shown) = page
        .split_once("It prints:\n\n```text\n")
        .expect("the block");
    let (shown, _) = shown.split_once("```").expect("its end");
    assert_eq!(lines, shown.lines().collect::<Vec<_>>());
}
