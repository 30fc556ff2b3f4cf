//! A process that a test starts from its own program, asks by lines, and may kill.

use std::env;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};

use test_support::limits::HANG;
use warpverbs::internal::engine::Descriptor;

/// Another process with an engine.
pub(crate) struct Process {
    child: Child,
    input: ChildStdin,
    lines: Receiver<String>,
}

impl Process {
    /// Runs this ignored test alone, with a variable that says what the process is to be. It answers by lines behind `said: `.
    pub(crate) fn start(test: &str, (variable, value): (&str, &str)) -> Self {
        let mut child = Command::new(env::current_exe().unwrap())
            .args(["--exact", test, "--ignored", "--nocapture"])
            .env(variable, value)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (input, output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                // What the test harness prints has no newline in front of the first answer.
                if let Some((_, said)) = line.split_once("said: ") {
                    let _ = sender.send(said.to_owned());
                }
            }
        });
        Self {
            child,
            input,
            lines,
        }
    }

    pub(crate) fn ask(&mut self, what: &str) {
        writeln!(self.input, "{what}").unwrap();
    }

    pub(crate) fn says(&self) -> String {
        self.lines.recv_timeout(HANG).expect("it answers")
    }

    pub(crate) fn asked(&mut self, what: &str) -> String {
        self.ask(what);
        self.says()
    }

    /// By SIGKILL.
    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The descriptor that another process has said in hexadecimal digits.
pub(crate) fn descriptor(hex: &str) -> Descriptor {
    let byte = |at: usize| u8::from_str_radix(&hex[at..at + 2], 16).unwrap();
    let bytes: Vec<u8> = (0..hex.len()).step_by(2).map(byte).collect();
    Descriptor::from_bytes(&bytes).unwrap()
}
