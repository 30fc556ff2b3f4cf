//! Why a variable cannot be used.

use std::ffi::OsString;

use crate::config::number::spelling;

/// A variable that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// No launcher has set a rank and a number of ranks.
    #[error(
        "no rank: set WARPVERBS_RANK and WARPVERBS_RANKS, or start with torchrun, mpirun or srun"
    )]
    NoRank,
    /// The value is not a number in its range.
    #[error("{name} is '{value}'; it must be {}a number from {least} to {most}{}", or(*word), spelling(value))]
    Number {
        /// The variable.
        name: String,
        /// The value that the environment gives the variable.
        value: String,
        /// The word that the variable may have instead of a number.
        word: Option<&'static str>,
        /// Least value.
        least: u64,
        /// Greatest value.
        most: u64,
    },
    /// The value is no UTF-8.
    #[error("{name} is {value:?}, which is no UTF-8")]
    NotText {
        /// The variable.
        name: String,
        /// The value that the environment gives the variable.
        value: OsString,
    },
    /// The value does not have the required form.
    #[error("{name}: {fault}")]
    Form {
        /// The variable.
        name: String,
        /// What is wrong, with the value and the form.
        fault: String,
    },
    /// The value is none of the words that the variable may have.
    #[error("{name} is '{value}'; it must be one of {}", words.join(", "))]
    Word {
        /// The variable.
        name: String,
        /// The value that the environment gives the variable.
        value: String,
        /// The words that the variable may have.
        words: Vec<&'static str>,
    },
}

fn or(word: Option<&str>) -> String {
    word.map_or_else(String::new, |word| format!("{word} or "))
}
