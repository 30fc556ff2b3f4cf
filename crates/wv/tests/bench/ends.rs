//! Benches on simulated machines of their own, one of which serves runs to the others.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use test_basics::addresses::free_address;

/// `wv bench` with these words and options, on such a machine.
pub(crate) fn machine(runtime: &Path, bench: &[&str], options: &[&str]) -> Command {
    let wv = env!("CARGO_BIN_EXE_wv");
    let mut command = Command::new(wv);
    command
        .args(["sim", "--ip", &free_address().to_string(), "--"])
        .args([wv, "bench"])
        .args(bench)
        .args(options)
        .env("XDG_RUNTIME_DIR", runtime)
        .env_remove("WARPVERBS_SOFTHCA")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

/// One that serves.
pub(crate) struct Server {
    child: Child,
    /// Where it listens.
    pub(crate) place: String,
}

impl Server {
    /// Serves, once it has said where.
    pub(crate) fn start(runtime: &Path, bench: &[&str], options: &[&str]) -> Self {
        let serve = [&["--serve", "127.0.0.1:0"], options].concat();
        let mut child = machine(runtime, bench, &serve).spawn().unwrap();
        let mut line = String::new();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        out.read_line(&mut line).unwrap();
        assert!(line.starts_with("serves runs at 127.0.0.1:"), "{line}");
        let place = line.trim_end().rsplit(' ').next().unwrap().to_owned();
        Self { child, place }
    }

    /// Its end, after the last of its runs.
    pub(crate) fn ended(self) -> Output {
        self.child.wait_with_output().unwrap()
    }
}
