//! Processes made of this test's own executable, which talk with their parent in lines.
//!
//! A child runs one `#[ignore]`d test of the same file, with its task in the environment. Its lines begin with `@`, to tell
//! them from what the test harness prints.

use crate::patience::HANG;
use std::io::{BufRead, BufReader, Lines, Write};
use std::process::{ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};

const TASK: &str = "SOFTHCA_WIRE_TEST_TASK";

/// A child process. Dropping it ends it.
pub struct Child {
    process: std::process::Child,
    input: ChildStdin,
    lines: Receiver<String>,
}

impl Child {
    /// Starts test `test` of this executable with `task`.
    pub fn start(test: &str, task: &str) -> Self {
        let mut process = Command::new(std::env::current_exe().unwrap())
            .args([
                "--ignored",
                "--exact",
                "--nocapture",
                "--test-threads=1",
                test,
            ])
            .env(TASK, task)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let input = process.stdin.take().unwrap();
        let output = BufReader::new(process.stdout.take().unwrap());
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                if let Some((_, text)) = line.split_once('@')
                    && sender.send(text.to_owned()).is_err()
                {
                    return;
                }
            }
        });
        Self {
            process,
            input,
            lines,
        }
    }

    /// Sends a line to the child.
    pub fn tell(&mut self, line: &str) {
        writeln!(self.input, "{line}").unwrap();
    }

    /// The child's next line.
    pub fn hear(&mut self) -> String {
        self.lines.recv_timeout(HANG).unwrap_or_else(|error| {
            panic!(
                "a child says nothing: {error}, {:?}",
                self.process.try_wait()
            )
        })
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// In a child: its task, and the lines of its parent. `None` if this test was not started by [`Child::start`].
pub fn child_channel() -> Option<(String, Lines<std::io::StdinLock<'static>>)> {
    Some((std::env::var(TASK).ok()?, std::io::stdin().lines()))
}
