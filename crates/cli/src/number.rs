//! Parsers of options that are numbers. The numbers are written as in `WARPVERBS_*` variables.

use std::fmt::Display;
use std::ops::RangeInclusive;

use clap::builder::TypedValueParser;
use warpverbs::config::{BadAddress, EngineAddress, whole};

/// A type of whole numbers that an option may have.
pub trait Whole: TryFrom<u64> + PartialOrd + Display + Clone + Send + Sync + 'static {
    /// All numbers of the type.
    const ALL: RangeInclusive<Self>;
}

macro_rules! whole {
    ($($type:ident)+) => {
        $(impl Whole for $type {
            const ALL: RangeInclusive<Self> = 0..=Self::MAX;
        })+
    };
}

whole!(u16 u32 u64 usize);

/// Returns a parser of all numbers of the type. The code that reads the option checks any other limit.
#[must_use]
pub fn any<T: Whole>() -> impl TypedValueParser<Value = T> {
    within(T::ALL)
}

/// Returns a parser of numbers in this range.
#[must_use]
pub fn within<T: Whole>(range: RangeInclusive<T>) -> impl TypedValueParser<Value = T> {
    move |text: &str| {
        let number = whole(text).and_then(|number| T::try_from(number).ok());
        number.filter(|number| range.contains(number)).ok_or_else(|| {
            format!(
                "it must be a whole number from {} to {}, decimal or with 0x, without a sign and without zeros before it",
                range.start(),
                range.end()
            )
        })
    }
}

/// The longest time that an option takes, in seconds: a year. The sum of a few such times is inside the range of every clock.
const MOST_SECONDS: u64 = 365 * 24 * 60 * 60;

/// Returns a parser of whole numbers of seconds.
#[must_use]
pub fn seconds() -> impl TypedValueParser<Value = u64> {
    within(0..=MOST_SECONDS)
}

/// Returns a parser of decimal numbers that may have a fraction. The code that reads the option checks any limit.
#[must_use]
pub fn fraction() -> impl TypedValueParser<Value = f64> {
    |text: &str| {
        fraction_of(text).ok_or(
            "it must be a decimal number as 2 or 0.5, without a sign, an exponent and zeros before it",
        )
    }
}

fn fraction_of(text: &str) -> Option<f64> {
    let (units, part) = text.split_once('.').unwrap_or((text, "0"));
    let is_decimal =
        |digits: &str| !digits.is_empty() && digits.bytes().all(|digit| digit.is_ascii_digit());
    whole(units).filter(|_| is_decimal(units) && is_decimal(part))?;
    text.parse().ok()
}

/// Returns a parser of an IP address and a port, or of the path of a Unix socket.
#[must_use]
pub fn socket() -> impl TypedValueParser<Value = EngineAddress> {
    |text: &str| {
        text.parse::<EngineAddress>().map_err(|error| match error {
            BadAddress::Form { .. } => "it must be unix:PATH, or IP:PORT, an IPv6 address in brackets, and a port from 0 to 65535 without a sign and without zeros before it".to_owned(),
            error => error.to_string(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fraction_is_digits_with_a_point_between_them() {
        for (text, number) in [
            ("0", 0.0),
            ("2", 2.0),
            ("0.5", 0.5),
            ("10.25", 10.25),
            ("1.00", 1.0),
        ] {
            assert_eq!(fraction_of(text), Some(number), "{text}");
        }
        for text in [
            "", "+4", "-4", "04", "04.5", "00", "inf", "nan", "infinity", "1e3", "1.5e3", ".5",
            "5.", ".", "1.+5", "1.2.3", "0x10", "1_0", " 1",
        ] {
            assert_eq!(fraction_of(text), None, "'{text}'");
        }
    }
}
