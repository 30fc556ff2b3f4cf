//! What a variable is: its name, its possible values, its meaning, and who reads it.

use std::fmt;

use crate::config::error::ConfigError;

/// A variable of the environment, and the field of [`Config`](super::Config) or [`EngineConfig`](super::EngineConfig) that it sets.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Variable {
    /// `WARPVERBS_..`.
    pub name: &'static str,
    /// The values that the variable may have.
    pub values: Values,
    /// The value of a variable that is not set, as text. Empty if the meaning says what happens then.
    pub default: &'static str,
    /// What the variable sets.
    pub meaning: &'static str,
}

/// The values that a variable may have.
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
    /// A text. The string says what it must be.
    Text(&'static str),
}

/// A reader of variables.
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
    /// The readers of these variables. Each reads all of them.
    pub readers: &'static [Reader],
    /// The variables of the subject, in the order of the page.
    pub variables: &'static [Variable],
}

impl Variable {
    /// Returns the name of the field that the variable sets, as code and errors call it.
    #[must_use]
    pub fn field(&self) -> String {
        let name = self.name.trim_start_matches("WARPVERBS_");
        let name = name.trim_start_matches("ENGINE_");
        name.trim_end_matches("_MS").to_lowercase()
    }

    /// Returns the limits of a number. Returns None if the variable is no number.
    #[must_use]
    pub fn limits(&self) -> Option<[u64; 2]> {
        match self.values {
            Values::Number { least, most } | Values::NumberOr { least, most, .. } => {
                Some([least, most])
            }
            Values::Words(_) | Values::Text(_) => None,
        }
    }

    /// Returns the error for a value that the variable may not have.
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
