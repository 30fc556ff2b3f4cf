//! The text of a configuration, read.

use std::str::FromStr;
use std::time::Duration;

use libfabric_abi::Version;

use super::{Config, Dead, Profile};

/// A text that is no configuration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// A part without `=`.
    #[error("`{0}` is not key=value")]
    NoValue(String),
    /// A key that does not exist.
    #[error("there is no key `{0}`")]
    NoKey(String),
    /// A value that the key does not take.
    #[error("`{value}` is no value of `{key}`: {wanted}")]
    BadValue {
        /// The key.
        key: String,
        /// What was given.
        value: String,
        /// What it takes.
        wanted: &'static str,
    },
}

impl FromStr for Config {
    type Err = ConfigError;

    fn from_str(text: &str) -> Result<Self, ConfigError> {
        let mut config = Self::default();
        for part in text.split(',').map(str::trim).filter(|it| !it.is_empty()) {
            let (key, value) = part
                .split_once('=')
                .ok_or_else(|| ConfigError::NoValue(part.to_owned()))?;
            set(&mut config, key, value)?;
        }
        // A library of that age does not have it.
        if config.api < Version::new(2, 1) && config.profiles.len() > 1 {
            config.profiles.retain(|it| *it != Profile::EfaDirect);
        }
        Ok(config)
    }
}

fn set(config: &mut Config, key: &str, value: &str) -> Result<(), ConfigError> {
    let bad = |wanted| ConfigError::BadValue {
        key: key.to_owned(),
        value: value.to_owned(),
        wanted,
    };
    let number = || value.parse::<u64>().map_err(|_| bad("a number"));
    let small = || value.parse::<u32>().map_err(|_| bad("a number of 32 bits"));
    let rate = || match value.parse() {
        Ok(rate) if rate <= 1000 => Ok(rate),
        _ => Err(bad("of a thousand")),
    };
    let size = || value.parse::<usize>().map_err(|_| bad("a number"));
    match key {
        "profile" => config.profiles = profiles(value).ok_or(bad("efa-direct, efa or both"))?,
        "seed" => config.seed = number()?,
        "api" => config.api = version(value).ok_or(bad("1.17 to 2.1"))?,
        "again" => config.again = rate()?,
        "warmup" => config.warmup = small()?,
        "pieces" => config.pieces = small()?.max(1),
        "late_us" => config.late = Duration::from_micros(number()?),
        "data_us" => config.data = Duration::from_micros(number()?),
        "early" => config.early = rate()?,
        "early_ms" => config.early_by = Duration::from_millis(number()?),
        "lost" => config.lost = rate()?,
        "double" => config.double = rate()?,
        "fault" => fault(config, value).ok_or(bad("early, lost or double, and :RATE"))?,
        "dead" => config.dead = dead(value).ok_or(bad("error, silent or mixed"))?,
        "dead_ms" => config.dead_after = Duration::from_millis(number()?),
        "timeout_ms" => config.timeout = Duration::from_millis(number()?),
        "wait" => config.wait = choice(value, "none", "fd").ok_or(bad("none or fd"))?,
        "hmem" => config.hmem = choice(value, "0", "1").ok_or(bad("0 or 1"))?,
        "nics" => config.nics = small()?.clamp(1, 32),
        "endpoints" => config.endpoints = size()?,
        "queue" => config.queue = size()?.max(1),
        "provider" => config.provider = value.to_owned(),
        "log" => config.log = Some(value.into()),
        _ => return Err(ConfigError::NoKey(key.to_owned())),
    }
    Ok(())
}

fn profiles(value: &str) -> Option<Vec<Profile>> {
    if value == "both" {
        return Some(vec![Profile::Efa, Profile::EfaDirect]);
    }
    Some(vec![Profile::named(value)?])
}

fn version(value: &str) -> Option<Version> {
    let (major, minor) = value.split_once('.')?;
    let version = Version::new(major.parse().ok()?, minor.parse().ok()?);
    let known = Version::new(1, 0)..=libfabric_abi::LATEST_API;
    known.contains(&version).then_some(version)
}

/// `early`, or `early:50`.
fn fault(config: &mut Config, value: &str) -> Option<()> {
    let (name, rate) = value.split_once(':').unwrap_or((value, "1000"));
    let rate = rate.parse().ok().filter(|rate| *rate <= 1000)?;
    match name {
        "early" => config.early = rate,
        "lost" => config.lost = rate,
        "double" => config.double = rate,
        _ => return None,
    }
    Some(())
}

fn dead(value: &str) -> Option<Dead> {
    Some(match value {
        "error" => Dead::Error,
        "silent" => Dead::Silent,
        "mixed" => Dead::Mixed,
        _ => return None,
    })
}

fn choice(value: &str, no: &str, yes: &str) -> Option<bool> {
    (value == yes)
        .then_some(true)
        .or((value == no).then_some(false))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_sets_what_it_names_and_leaves_the_rest() {
        let config: Config =
            "profile=both, seed=7,fault=early:50,wait=fd,late_us=0,data_us=9,api=2.1"
                .parse()
                .unwrap();
        assert_eq!(config.profiles, [Profile::Efa, Profile::EfaDirect]);
        assert_eq!((config.seed, config.early, config.lost), (7, 50, 0));
        assert!(config.wait && config.late.is_zero());
        assert_eq!(config.data, Duration::from_micros(9));
        assert_eq!("".parse(), Ok(Config::default()));
        let old: Config = "profile=both,api=1.20".parse().unwrap();
        assert_eq!(old.profiles, [Profile::Efa]);
    }

    #[test]
    fn what_is_no_configuration_is_named() {
        for (text, part) in [
            ("seed", "`seed` is not key=value"),
            ("sed=1", "no key `sed`"),
            ("seed=x", "`x` is no value of `seed`: a number"),
            ("again=1001", "of a thousand"),
            ("api=2.2", "1.17 to 2.1"),
            ("fault=late", "early, lost or double"),
            ("profile=cxi", "efa-direct, efa or both"),
        ] {
            let error = text.parse::<Config>().unwrap_err().to_string();
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
