//! The output of commands: results go to standard output, everything else to standard error.
//!
//! The reader of standard output may be gone (`wv demo | head`). Then the command drops what it holds and ends by SIGPIPE, as other
//! programs do; shells report 141. A closed standard error changes nothing.

use std::fmt;
use std::io::{self, Write};
use std::process::ExitCode;

use crate::signals::end_likewise;

/// The error that standard output could not be written.
#[derive(Debug, thiserror::Error)]
#[error("cannot write to standard output: {0}")]
pub struct OutputError(io::Error);

/// Writes `text` to standard output.
///
/// # Errors
/// The output cannot be written, perhaps because its reader is gone.
pub fn print(text: &dyn fmt::Display) -> Result<(), OutputError> {
    let mut out = io::stdout().lock();
    let written = write!(out, "{text}");
    written.and_then(|()| out.flush()).map_err(OutputError)
}

/// Writes `line` to standard error.
pub fn say(line: fmt::Arguments<'_>) {
    let _ = writeln!(io::stderr(), "{line}");
}

/// Prints the result of a command, and returns its exit status. It is called when nothing is left to be dropped.
#[must_use]
pub fn finish(command: &str, text: &dyn fmt::Display) -> ExitCode {
    match print(text) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => error.end(command),
    }
}

impl OutputError {
    /// Ends `command`, which has nothing left to be dropped: by SIGPIPE if the reader is gone, else with a message.
    #[must_use]
    pub fn end(&self, command: &str) -> ExitCode {
        if self.0.kind() == io::ErrorKind::BrokenPipe {
            end_likewise(libc::SIGPIPE);
        }
        say(format_args!("{command}: {self}"));
        ExitCode::FAILURE
    }
}
