//! Who runs the WQEs of an HCA.

use std::str::FromStr;

/// The executor of the WQEs of an HCA.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Execution {
    /// The engine thread of this library.
    #[default]
    Engine,
    /// An executor that [`softhca_attach`](crate::device::external::softhca_attach) names.
    External,
}

impl Execution {
    pub(crate) const EXPECTED: &'static str = "engine or external";
}

/// A text that names no execution.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnknownExecution;

impl FromStr for Execution {
    type Err = UnknownExecution;

    fn from_str(text: &str) -> Result<Self, UnknownExecution> {
        match text {
            "engine" => Ok(Self::Engine),
            "external" => Ok(Self::External),
            _ => Err(UnknownExecution),
        }
    }
}
