//! The events of the library, on standard error: those that `RUST_LOG` asks for, and warnings of ranks if it asks for nothing.

use std::env::VarError;
use std::io;
use std::process::ExitCode;

use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{fmt, registry};

use crate::output;

/// The name of a variable that many programs read.
const VARIABLE: &str = "RUST_LOG";

/// Returns whether `RUST_LOG` asks for something.
#[must_use]
pub fn is_asked_for() -> bool {
    std::env::var_os(VARIABLE).is_some_and(|words| !words.is_empty())
}

/// Prints a line of the standard error of `rank`, a process that this command has started, if `RUST_LOG` asks for lines.
pub fn pass_on(rank: u32, line: &str) {
    if is_asked_for() {
        output::say(format_args!("rank {rank}: {line}"));
    }
}

/// Begins to write the events that `RUST_LOG` asks for: a level, or a list of modules with a level each. If the variable is not set, it
/// writes events at `level` or worse.
///
/// # Errors
/// The exit status of the command. The error has been printed.
pub fn start(level: LevelFilter) -> Result<(), ExitCode> {
    let wanted = match std::env::var(VARIABLE) {
        Ok(words) if !words.trim().is_empty() => words.parse::<Targets>().map_err(|error| {
            output::say(format_args!(
                "wv: {VARIABLE} is '{words}': {error}; it must be a level (error, warn, info, debug, trace, off), or a list such as \
                 'warn,warpverbs::team=debug'"
            ));
            ExitCode::from(2)
        })?,
        Err(VarError::NotUnicode(words)) => {
            output::say(format_args!("wv: {VARIABLE} is {words:?}, which is no UTF-8"));
            return Err(ExitCode::from(2));
        }
        _ => Targets::new().with_default(level),
    };
    let lines = fmt::layer().with_writer(io::stderr).without_time();
    let _ = registry().with(lines).with(wanted).try_init();
    Ok(())
}
