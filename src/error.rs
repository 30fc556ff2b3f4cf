//! The public error of the runtime: the error of any part, with the part's name.
//!
//! The parts convert into it (`impl From<VerbsError> for Error` stands in `verbs`, and so on); this module knows none of
//! them. A caller that wants the details asks for the type with [`Error::downcast_ref`].

pub(crate) mod remedy;

use std::error::Error as StdError;
use std::fmt;

// One crate must own them, and the stores, below this one, run threads of their own as well.
pub(crate) use rendezvous::thread::OwnThread;
pub use rendezvous::thread::{ThreadPanicked, ThreadRefused};

/// Which part of the runtime failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Part {
    /// Configuration and environment variables.
    Config,
    /// The HCA and its driver.
    Verbs,
    /// The device that runs kernels.
    Gpu,
    /// Ranks, rendezvous and windows.
    Team,
    /// Dispatch and combine.
    Moe,
    /// Memory moved by a program on the CPU.
    Engine,
    /// Measurements.
    Bench,
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Config => "configuration",
            Self::Verbs => "verbs",
            Self::Gpu => "gpu",
            Self::Team => "team",
            Self::Moe => "moe",
            Self::Engine => "engine",
            Self::Bench => "bench",
        })
    }
}

/// Anything that the runtime refuses or fails at. Prints as the part's own error, which names the value and the limit.
///
/// ```
/// use warpverbs::error::{Error, Part};
/// use warpverbs::gpu::{GpuError, GpuSelector};
///
/// let refused: Result<GpuSelector, Error> = "gpu7".parse().map_err(Error::from);
/// let error = refused.unwrap_err();
/// assert_eq!(error.part(), Part::Gpu);
/// assert!(matches!(error.downcast_ref(), Some(GpuError::BadArgument { .. })));
/// ```
#[derive(Debug)]
pub struct Error {
    part: Part,
    cause: Box<dyn StdError + Send + Sync>,
}

impl Error {
    /// Wraps an error of `part`.
    pub fn new(part: Part, cause: impl StdError + Send + Sync + 'static) -> Self {
        Self {
            part,
            cause: Box::new(cause),
        }
    }

    /// Where it comes from.
    #[must_use]
    pub fn part(&self) -> Part {
        self.part
    }

    /// Returns the part's error, if it is an `E`.
    #[must_use]
    pub fn downcast_ref<E: StdError + 'static>(&self) -> Option<&E> {
        self.cause.downcast_ref()
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.cause, f)
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.cause.source()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::{Path, PathBuf};

    /// Sources below `folder`.
    fn sources(folder: &Path) -> Vec<PathBuf> {
        let entries = std::fs::read_dir(folder).unwrap();
        let below = |path: PathBuf| match path.is_dir() {
            true => sources(&path),
            false => vec![path],
        };
        let files = entries.flat_map(|entry| below(entry.unwrap().path()));
        files
            .filter(|path| path.extension().is_some_and(|end| end == "rs"))
            .collect()
    }

    /// Returns the text of a message as the compiler reads it: a backslash at the end of a line takes the next line's indent away.
    fn joined(text: &str) -> String {
        let mut parts = text.split("\\\n");
        let first = parts.next().unwrap_or_default().to_owned();
        parts.fold(first, |text, part| text + part.trim_start())
    }

    #[test]
    fn no_error_of_any_crate_has_a_run_of_spaces_in_its_message() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let crates = [
            "src",
            "crates/capi/src",
            "crates/rendezvous/src",
            "crates/simt/src",
            "crates/softhca/src",
        ];
        let mut seen = 0;
        for path in crates.iter().flat_map(|folder| sources(&root.join(folder))) {
            let text = std::fs::read_to_string(&path).unwrap();
            // In two parts, so that this line is none.
            for attribute in text.split(concat!("#[er", "ror(")).skip(1) {
                let message = attribute.trim_start().strip_prefix('"');
                let Some((message, _)) = message.and_then(|text| text.split_once("\"")) else {
                    continue;
                };
                let message = joined(message);
                let place = path.display();
                assert!(!message.contains("  "), "{place}: {message}");
                assert!(!message.contains('\n'), "{place}: {message}");
                seen += 1;
            }
        }
        assert!(seen >= 100, "only {seen} messages found");
    }

    #[derive(Debug, thiserror::Error)]
    #[error("ranks is 9; it must be 1 to 8")]
    struct TooMany(#[source] std::num::TryFromIntError);

    #[test]
    fn an_error_prints_and_explains_itself_as_its_cause_does() {
        let number = u8::try_from(256).unwrap_err();
        let error = Error::new(Part::Team, TooMany(number));
        assert_eq!(error.to_string(), "ranks is 9; it must be 1 to 8");
        assert_eq!(error.source().unwrap().to_string(), number.to_string());
        assert!(
            error.downcast_ref::<TooMany>().is_some()
                && error.downcast_ref::<fmt::Error>().is_none()
        );
    }
}
