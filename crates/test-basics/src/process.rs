//! A process that a test starts from its own program, talks to by lines, and may kill.

use std::env;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};

use crate::limits::HANG;

/// The process. Dropping this ends it.
#[derive(Debug)]
pub struct Process {
    child: Child,
    input: ChildStdin,
    lines: Receiver<String>,
}

impl Process {
    /// Starts this program again with only the ignored test `test`, and with a variable that tells the process what to be. The process
    /// answers by lines after `said: `.
    pub fn start(test: &str, (variable, value): (&str, &str)) -> Self {
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
                // The first answer follows what the test harness prints without a newline.
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

    /// Sends the process a line.
    pub fn ask(&mut self, what: &str) {
        writeln!(self.input, "{what}").unwrap();
    }

    /// Returns the next answer of the process.
    pub fn says(&self) -> String {
        self.lines.recv_timeout(HANG).expect("it answers")
    }

    /// Sends the process a line, and returns its answer.
    pub fn asked(&mut self, what: &str) -> String {
        self.ask(what);
        self.says()
    }

    /// Returns the number of the process.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Kills the process (SIGKILL).
    pub fn kill(&mut self) {
        self.child.kill().unwrap();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
