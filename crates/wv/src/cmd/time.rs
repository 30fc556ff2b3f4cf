//! Times that are given as options.

use clap::builder::{RangedU64ValueParser, TypedValueParser};

/// Longest time that an option takes, in seconds: a year. Any sum of a few of them is inside the range of every clock.
const MOST: u64 = 365 * 24 * 60 * 60;

/// A whole number of seconds.
pub(super) fn seconds() -> impl TypedValueParser<Value = u64> {
    RangedU64ValueParser::<u64>::new().range(0..=MOST)
}
