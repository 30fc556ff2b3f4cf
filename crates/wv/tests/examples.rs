//! `docs/examples/other-program`: programs of Debian under `wv sim`, as its page says.

use std::env;
use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use test_basics::limits::HANG;

/// `run.sh` with this folder before the others in which programs are looked for, if there is one.
fn run(before: Option<&Path>) -> Output {
    let wv = Path::new(env!("CARGO_BIN_EXE_wv"));
    let runtime = tempfile::tempdir().unwrap();
    let folders = env::var_os("PATH").unwrap();
    let folders = before
        .into_iter()
        .chain(wv.parent())
        .map(Path::to_owned)
        .chain(env::split_paths(&folders));
    // Free, and below the ports that systems give to programs which name none: no other test takes it meanwhile.
    let first = 20_000 + u16::try_from(std::process::id() % 10_000).unwrap();
    let port = (first..first + 1_000)
        .find(|port| TcpListener::bind(("127.0.0.1", *port)).is_ok())
        .expect("a port of 1,000 is free");
    Command::new("timeout")
        .arg(HANG.as_secs().to_string())
        .arg(folder().join("run.sh"))
        .env("PATH", env::join_paths(folders).unwrap())
        .env("PORT", port.to_string())
        .env("XDG_RUNTIME_DIR", runtime.path())
        .env_remove("LD_PRELOAD")
        .output()
        .unwrap()
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/examples/other-program")
}

#[test]
fn the_example_fails_for_a_finding() {
    let own = tempfile::tempdir().unwrap();
    let planted = own.path().join("ibv_rc_pingpong");
    let real = env::split_paths(&env::var_os("PATH").unwrap())
        .map(|folder| folder.join("ibv_rc_pingpong"))
        .find(|program| program.is_file())
        .expect("ibverbs-utils is installed");
    let script = format!(
        "#!/bin/sh\necho \"wqe-qpn $$ mlx5_0: planted\" >>\"$SOFTHCA_FINDINGS\"\nexec {} \"$@\"\n",
        real.display()
    );
    fs::write(&planted, script).unwrap();
    fs::set_permissions(&planted, fs::Permissions::from_mode(0o755)).unwrap();
    let ended = run(Some(own.path()));
    let said = String::from_utf8_lossy(&ended.stderr);
    assert_eq!(ended.status.code(), Some(123), "{said}");
    assert!(said.contains("findings of the checker"), "{said}");
}

#[test]
fn programs_of_others_run_as_the_example_says() {
    let folder = folder();
    let ended = run(None);
    let failed = String::from_utf8_lossy(&ended.stderr);
    assert!(ended.status.success(), "{failed}");
    // A finding of a software HCA is a line `softhca: mlx5_0: .. [kind]`; the command ends well with one that it does not look for.
    assert!(!failed.contains("softhca: "), "{failed}");
    let said = String::from_utf8(ended.stdout).unwrap();
    let lines: Vec<String> = said
        .lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
        .collect();
    let page = fs::read_to_string(folder.join("README.md")).unwrap();
    let (_, shown) = page
        .split_once("It prints:\n\n```text\n")
        .expect("the block");
    let (shown, _) = shown.split_once("```").expect("its end");
    assert_eq!(lines, shown.lines().collect::<Vec<_>>());
}
