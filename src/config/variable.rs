//! What a variable is: its name, what it may be, what it means, what reads it.

use std::fmt;

use crate::config::error::ConfigError;

/// A variable of the environment, and the field of [`Config`](super::Config) or [`EngineConfig`](super::EngineConfig) that it sets.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Variable {
    /// `WARPVERBS_..`.
    pub name: &'static str,
    /// What it may be.
    pub values: Values,
    /// What it is where it is not set, in its own words; empty where the meaning says what happens then.
    pub default: &'static str,
    /// What it sets.
    pub meaning: &'static str,
}

/// What a variable may be.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Values {
    /// A whole number in this range, decimal or with `0x`.
    Number {
        /// Least value.
        least: u64,
        /// Greatest value.
        most: u64,
    },
    /// This word, or a whole number in the range.
    NumberOr {
        /// The word that may stand in place of a number.
        word: &'static str,
        /// Least value.
        least: u64,
        /// Greatest value.
        most: u64,
    },
    /// One of these words.
    Words(&'static [&'static str]),
    /// Text; this says which.
    Text(&'static str),
}

/// What reads a variable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reader {
    /// A rank of a team: [`Config`](super::Config).
    Rank,
    /// A host engine: [`EngineConfig`](super::EngineConfig).
    Engine,
}

/// Variables of one subject.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Group {
    /// The subject.
    pub title: &'static str,
    /// What reads them: each reads all of them.
    pub readers: &'static [Reader],
    /// The variables of the subject, in the order of the page.
    pub variables: &'static [Variable],
}

impl Variable {
    /// Returns the field that it sets, as code and errors call it.
    #[must_use]
    pub fn field(&self) -> String {
        let name = self.name.trim_start_matches("WARPVERBS_");
        let name = name.trim_start_matches("ENGINE_");
        name.trim_end_matches("_MS").to_lowercase()
    }

    /// Returns the limits of a number; none of anything else.
    #[must_use]
    pub fn limits(&self) -> Option<[u64; 2]> {
        match self.values {
            Values::Number { least, most } | Values::NumberOr { least, most, .. } => {
                Some([least, most])
            }
            Values::Words(_) | Values::Text(_) => None,
        }
    }

    /// Returns the error of a value that it may not be.
    pub(super) fn refuse(&self, value: String) -> ConfigError {
        let name = self.name.to_owned();
        let number = |word, least, most| ConfigError::Number {
            name: name.clone(),
            value: value.clone(),
            word,
            least,
            most,
        };
        match self.values {
            Values::Number { least, most } => number(None, least, most),
            Values::NumberOr { word, least, most } => number(Some(word), least, most),
            Values::Words(words) => ConfigError::Word {
                name,
                value,
                words: words.to_vec(),
            },
            Values::Text(form) => ConfigError::Form {
                name,
                fault: format!("'{value}' is not {form}"),
            },
        }
    }
}

impl fmt::Display for Values {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number { least, most } => write!(f, "{least} to {most}"),
            Self::NumberOr { word, least, most } => write!(f, "`{word}`, {least} to {most}"),
            Self::Words(words) => {
                let quoted: Vec<String> = words.iter().map(|word| format!("`{word}`")).collect();
                f.write_str(&quoted.join(" "))
            }
            Self::Text(form) => f.write_str(form),
        }
    }
}
