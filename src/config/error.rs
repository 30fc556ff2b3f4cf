//! Why a variable cannot be used.

use std::ffi::OsString;

use crate::config::number::spelling;

/// A variable that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// No launcher has set rank and number of ranks.
    #[error(
        "no rank: set WARPVERBS_RANK and WARPVERBS_RANKS, or start with torchrun, mpirun or srun"
    )]
    NoRank,
    /// A value that is not a number in its range.
    #[error("{name} is '{value}'; it must be {}a number from {least} to {most}{}", or(*word), spelling(value))]
    Number {
        /// The variable.
        name: String,
        /// The value that the environment gives the variable.
        value: String,
        /// What it may be beside a number.
        word: Option<&'static str>,
        /// Least value.
        least: u64,
        /// Greatest value.
        most: u64,
    },
    /// A value that is no UTF-8.
    #[error("{name} is {value:?}, which is no UTF-8")]
    NotText {
        /// The variable.
        name: String,
        /// The value that the environment gives the variable.
        value: OsString,
    },
    /// A value that does not have the form that it must have.
    #[error("{name}: {fault}")]
    Form {
        /// The variable.
        name: String,
        /// What is wrong, with the value and the form.
        fault: String,
    },
    /// A value that is none of its words.
    #[error("{name} is '{value}'; it must be one of {}", words.join(", "))]
    Word {
        /// The variable.
        name: String,
        /// The value that the environment gives the variable.
        value: String,
        /// What it may be.
        words: Vec<&'static str>,
    },
}

fn or(word: Option<&str>) -> String {
    word.map_or_else(String::new, |word| format!("{word} or "))
}
