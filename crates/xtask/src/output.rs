//! The output of a step, which goes to the output of this process and to a file.

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::thread;

use crate::failure::{At, Failure, Result};
use crate::process::{self, Ending, Running};

pub(crate) struct Output {
    sink: Sink,
}

/// Both places of the output, shared with the thread that copies what a command writes.
struct Sink {
    file: File,
    is_shown: bool,
}

impl Output {
    pub(crate) fn kept_in(path: &Path) -> Result<Self> {
        Self::made(path, true)
    }

    /// Returns an output that only the file gets, for unit tests, whose own output it would be otherwise.
    #[cfg(test)]
    pub(crate) fn unseen(path: &Path) -> Result<Self> {
        Self::made(path, false)
    }

    fn made(path: &Path, is_shown: bool) -> Result<Self> {
        let file = File::create(path).at(path)?;
        Ok(Self {
            sink: Sink { file, is_shown },
        })
    }

    /// Writes a line of this program.
    pub(crate) fn say(&mut self, line: &str) -> Result {
        self.sink
            .write(format!("{line}\n").as_bytes())
            .map_err(|error| Failure::new(1, format!("the log of this step: {error}")))
    }

    /// Runs a command in the foreground. What it writes to either of its outputs is shown and kept.
    pub(crate) fn status(&mut self, command: &mut Command) -> Result<ExitStatus> {
        let unusable = |error| Failure::new(1, format!("the log of this step: {error}"));
        let (mut reader, writer) = io::pipe().map_err(unusable)?;
        command.stdin(Stdio::null());
        command
            .stdout(writer.try_clone().map_err(unusable)?)
            .stderr(writer);
        let mut running = Running::start(command, Ending::Asked)?;
        // `command` has ends of the pipe. They are closed here, so that only the child has them.
        command.stdout(Stdio::null()).stderr(Stdio::null());
        let mut sink = self.sink.try_clone().map_err(unusable)?;
        let copier = thread::spawn(move || {
            let mut bytes = vec![0; 1 << 16];
            loop {
                match reader.read(&mut bytes)? {
                    0 => return io::Result::Ok(()),
                    count => sink.write(&bytes[..count])?,
                }
            }
        });
        let status = running.wait(None)?.ok_or_else(|| Failure::silent(1))?;
        process::joined(copier)?.map_err(unusable)?;
        Ok(status)
    }

    /// As [`status`](Self::status), but fails with the status of the command if the command fails.
    pub(crate) fn run(&mut self, command: &mut Command) -> Result {
        process::succeeded(self.status(command)?)
    }
}

impl Sink {
    fn try_clone(&self) -> io::Result<Self> {
        Ok(Self {
            file: self.file.try_clone()?,
            is_shown: self.is_shown,
        })
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        if self.is_shown {
            let mut shown = io::stdout().lock();
            shown.write_all(bytes)?;
            shown.flush()?;
        }
        self.file.write_all(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_command_writes_to_either_output_is_kept_with_its_status() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("step.log");
        let mut output = Output::unseen(&path).unwrap();
        output.say("first").unwrap();
        let mut script = process::command("sh", ["-c", "echo out; echo err >&2; exit 7"]);
        assert_eq!(output.run(&mut script), Err(Failure::silent(7)));
        output.say("last").unwrap();
        let kept = std::fs::read_to_string(&path).unwrap();
        assert_eq!(kept, "first\nout\nerr\nlast\n");
    }
}
