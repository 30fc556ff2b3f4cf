//! Programs that run on the preloaded library: `peer.c`, which exchanges every operation with another of its kind, and tools.

use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

pub(crate) use softhca_rig::patience;

use patience::HANG;

/// A directory that is gone afterwards, unless the test has failed.
pub(crate) struct Place(pub(crate) PathBuf);

impl Place {
    pub(crate) fn new() -> Self {
        let name = format!("captures-{:x}", fastrand::u64(..));
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    /// Returns a file for a capture.
    pub(crate) fn capture(&self, number: usize) -> PathBuf {
        self.0.join(format!("case-{number}.pcapng"))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            let _ = fs::remove_dir_all(&self.0);
        }
    }
}

/// Returns the library beside this test.
pub(crate) fn library() -> PathBuf {
    let library = std::env::current_exe()
        .unwrap()
        .with_file_name("libsofthca.so");
    assert!(library.exists(), "{} was not built", library.display());
    library
}

/// Returns a command line on softhca, with its output kept.
pub(crate) fn preloaded(line: &str) -> Command {
    let mut words = line.split(' ');
    let mut command = Command::new(words.next().unwrap());
    command
        .args(words)
        .env("LD_PRELOAD", library())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

/// Waits for the end of a child and returns its output; kills a child that hangs. The child may write a few lines: more would
/// block it.
pub(crate) fn finish(mut child: Child) -> Output {
    let end = Instant::now() + HANG;
    while child.try_wait().unwrap().is_none() && Instant::now() < end {
        std::thread::sleep(Duration::from_millis(5));
    }
    let _ = child.kill();
    child.wait_with_output().unwrap()
}

/// Compiles `peer.c`; why not, if something for that is not installed.
pub(crate) fn build_peer(place: &Path) -> Result<String, String> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/rxe/peer.c");
    let program = place.join("peer");
    let output = Command::new("cc")
        .args(["-O1", "-Wall", "-Wextra", "-Werror", "-o"])
        .arg(&program)
        .arg(source)
        .arg("-libverbs")
        .output()
        .map_err(|error| format!("cc: {error}"))?;
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    if errors.contains("infiniband/verbs.h: No such file") {
        return Err("infiniband/verbs.h (package libibverbs-dev) is not installed".to_owned());
    }
    assert!(output.status.success(), "{errors}");
    Ok(program.to_str().unwrap().to_owned())
}

/// Returns a TCP port of 127.0.0.1 that no process has.
pub(crate) fn free_tcp_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port()
}
