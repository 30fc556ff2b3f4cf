//! Reads variables by their table, and checks fields that code has set by the same limits.

use std::cell::RefCell;
use std::ffi::OsString;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use crate::config::error::ConfigError;
use crate::config::number::whole;
use crate::config::variable::{Values, Variable};
use crate::config::variables::{variable, variables};

/// The source from which variables are read.
pub(super) struct Source<'a> {
    variable: &'a dyn Fn(&str) -> Option<OsString>,
    /// The first variable that was read and is no text.
    refused: RefCell<Option<ConfigError>>,
}

impl Source<'_> {
    /// Returns what `read` makes of these variables.
    ///
    /// # Errors
    /// [`ConfigError::NotText`] if a variable that `read` has read is no text: such a variable must not count as not set. Otherwise the
    /// error of `read`.
    pub(super) fn reading<V: Into<OsString>, T>(
        variable: impl Fn(&str) -> Option<V>,
        read: impl FnOnce(&Source<'_>) -> Result<T, ConfigError>,
    ) -> Result<T, ConfigError> {
        let source = Source {
            variable: &|name| variable(name).map(Into::into),
            refused: RefCell::default(),
        };
        let read = read(&source);
        source.refused.take().map_or(read, Err)
    }

    /// Returns the text of the variable, if it is set.
    pub(super) fn set(&self, name: &str) -> Option<String> {
        match (self.variable)(name)?.into_string() {
            Ok(text) => Some(text),
            Err(value) => {
                let name = name.to_owned();
                let refused = ConfigError::NotText { name, value };
                self.refused.borrow_mut().get_or_insert(refused);
                None
            }
        }
    }

    /// Returns the text of the variable, or of its default.
    pub(super) fn text(&self, name: &str) -> String {
        self.set(name)
            .unwrap_or_else(|| row_of(name).default.to_owned())
    }

    pub(super) fn number<T: TryFrom<u64>>(&self, name: &str) -> Result<T, ConfigError> {
        let number = self.optional(name)?;
        number.ok_or_else(|| row_of(name).refuse(self.text(name)))
    }

    /// Returns the number of a variable. Returns None if the variable holds its word instead.
    pub(super) fn optional<T: TryFrom<u64>>(&self, name: &str) -> Result<Option<T>, ConfigError> {
        let row = row_of(name);
        let value = self.text(name);
        if matches!(row.values, Values::NumberOr { word, .. } if word == value) {
            return Ok(None);
        }
        let in_limits = |number: &u64| {
            row.limits()
                .is_some_and(|[least, most]| (least..=most).contains(number))
        };
        let number = whole(&value).filter(in_limits);
        match number.and_then(|number| T::try_from(number).ok()) {
            Some(number) => Ok(Some(number)),
            None => Err(row.refuse(value)),
        }
    }

    pub(super) fn milliseconds(&self, name: &str) -> Result<Duration, ConfigError> {
        self.number(name).map(Duration::from_millis)
    }

    /// Returns the meaning of the word that the variable holds.
    pub(super) fn word<T: Copy>(
        &self,
        name: &str,
        meanings: &[(&'static str, T)],
    ) -> Result<T, ConfigError> {
        let value = self.text(name);
        match meanings.iter().find(|(word, _)| *word == value) {
            Some((_, meaning)) => Ok(*meaning),
            None => Err(row_of(name).refuse(value)),
        }
    }

    pub(super) fn switch(&self, name: &str) -> Result<bool, ConfigError> {
        self.word(name, &[("0", false), ("1", true)])
    }

    /// Returns what `read` makes of the variable's text.
    pub(super) fn read<T>(
        &self,
        name: &str,
        read: impl Fn(&str) -> Option<T>,
    ) -> Result<T, ConfigError> {
        let value = self.text(name);
        read(&value).ok_or_else(|| row_of(name).refuse(value))
    }

    /// Returns what `read` makes of the variable's text, if the variable is set.
    pub(super) fn given<T>(
        &self,
        name: &str,
        read: impl Fn(&str) -> Option<T>,
    ) -> Result<Option<T>, ConfigError> {
        match self.set(name) {
            None => Ok(None),
            Some(_) => self.read(name, read).map(Some),
        }
    }

    /// Returns the value that the variable's text is parsed to. The error says what is wrong with the text.
    pub(super) fn parsed<T: FromStr>(&self, name: &str) -> Result<T, ConfigError>
    where
        T::Err: fmt::Display,
    {
        let read = self.text(name).parse();
        read.map_err(|fault: T::Err| ConfigError::Form {
            name: name.to_owned(),
            fault: fault.to_string(),
        })
    }

    /// Returns the number from `least` to `most` that a variable holds. The variable may be a launcher's.
    pub(super) fn within(&self, name: &str, least: u32, most: u32) -> Result<u32, ConfigError> {
        let value = self.set(name).unwrap_or_default();
        let number = whole(&value).and_then(|number| u32::try_from(number).ok());
        match number {
            Some(number) if (least..=most).contains(&number) => Ok(number),
            _ => Err(ConfigError::Number {
                name: name.to_owned(),
                value,
                word: None,
                least: least.into(),
                most: most.into(),
            }),
        }
    }
}

fn row_of(name: &str) -> &'static Variable {
    variable(name)
        .expect("what is read stands in the table: every test of a configuration reads all")
}

/// A field that code has set to a value that its variable cannot have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OutOfRange {
    pub(crate) field: &'static str,
    pub(crate) value: u64,
    pub(crate) limit: String,
}

/// Refuses a value of `field` that is outside the limits of its variable.
pub(crate) fn in_table(
    field: &'static str,
    value: Option<impl Into<u64>>,
) -> Result<(), OutOfRange> {
    let limits = variables().find_map(|row| row.limits().filter(|_| row.field() == field));
    let [least, most] = limits.expect("the field of a number that stands in the table");
    let Some(value) = value.map(Into::into) else {
        return Ok(());
    };
    if (least..=most).contains(&value) {
        Ok(())
    } else {
        Err(OutOfRange {
            field,
            value,
            limit: format!("{least} to {most}"),
        })
    }
}

/// Refuses a value of `field` for which its variable has no word.
pub(super) fn in_words<T: Copy + PartialEq + Into<u64>>(
    field: &'static str,
    value: Option<T>,
    meanings: &[(&'static str, Option<T>)],
) -> Result<(), OutOfRange> {
    match value {
        Some(number) if meanings.iter().all(|(_, meant)| *meant != value) => {
            let words: Vec<&str> = meanings.iter().map(|(word, _)| *word).collect();
            Err(OutOfRange {
                field,
                value: number.into(),
                limit: format!("one of {}", words.join(", ")),
            })
        }
        _ => Ok(()),
    }
}
