//! The CPUs on which the workers of a host engine run.

use std::fmt;
use std::str::FromStr;

use crate::config::number::whole;

/// The limit of CPU numbers: Linux is built for this many CPUs at most.
const MOST_CPUS: u32 = 8192;

/// The CPUs on which the workers of a host engine run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub enum EngineCpus {
    /// CPUs near the worker's NIC, as the system lists them. If it lists none that the process may use, any CPUs.
    #[default]
    Near,
    /// All CPUs that the process may use.
    Any,
    /// The CPUs of this list.
    Listed(CpuList),
}

/// Numbers of CPUs, at least one, ascending.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct CpuList(Vec<u32>);

/// A text that is no list of CPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("it is no list of CPUs; it must be numbers below {MOST_CPUS} and ranges, as 0-3,8")]
pub struct BadCpus;

impl CpuList {
    /// Returns the list of these numbers. Returns None if there is no number, or one that no CPU has.
    #[must_use]
    pub fn of(numbers: impl IntoIterator<Item = u32>) -> Option<Self> {
        let mut all: Vec<u32> = numbers.into_iter().collect();
        all.sort_unstable();
        all.dedup();
        let fits = all.last().is_some_and(|last| *last < MOST_CPUS);
        fits.then_some(Self(all))
    }

    /// Returns the numbers of the CPUs.
    #[must_use]
    pub fn numbers(&self) -> &[u32] {
        &self.0
    }

    /// Returns part `nth` of `parts`, whose lengths differ by one CPU at most. Returns all CPUs if there are fewer CPUs than parts.
    pub(crate) fn part(&self, nth: usize, parts: usize) -> Self {
        let cpus = self.0.len();
        let border = |at: usize| at.min(parts) * cpus / parts;
        match self.0.get(border(nth)..border(nth + 1)) {
            Some(part) if !part.is_empty() && cpus >= parts => Self(part.to_vec()),
            _ => self.clone(),
        }
    }

    /// Returns the CPUs that are in `other` too, or None if there are none.
    pub(crate) fn within(&self, other: &Self) -> Option<Self> {
        let both = self.0.iter().filter(|cpu| other.has(**cpu));
        Self::of(both.copied())
    }

    /// Returns whether the list has all CPUs of `other`.
    pub(crate) fn has_all(&self, other: &Self) -> bool {
        other.0.iter().all(|cpu| self.has(*cpu))
    }

    pub(crate) fn has(&self, cpu: u32) -> bool {
        self.0.binary_search(&cpu).is_ok()
    }
}

impl FromStr for CpuList {
    type Err = BadCpus;

    fn from_str(text: &str) -> Result<Self, BadCpus> {
        let mut all = Vec::new();
        for part in text.split(',') {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let [first, last] = [first, last].map(|it| {
                let number = whole(it).and_then(|it| u32::try_from(it).ok());
                number.filter(|it| *it < MOST_CPUS)
            });
            match (first, last) {
                (Some(first), Some(last)) if first <= last => all.extend(first..=last),
                _ => return Err(BadCpus),
            }
        }
        Self::of(all).ok_or(BadCpus)
    }
}

impl fmt::Display for CpuList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (nth, range) in self.0.chunk_by(|one, next| *next == one + 1).enumerate() {
            let comma = if nth == 0 { "" } else { "," };
            match range {
                [first, .., last] => write!(f, "{comma}{first}-{last}"),
                only => write!(f, "{comma}{}", only[0]),
            }?;
        }
        Ok(())
    }
}

impl FromStr for EngineCpus {
    type Err = BadCpus;

    fn from_str(text: &str) -> Result<Self, BadCpus> {
        match text {
            "near" => Ok(Self::Near),
            "any" => Ok(Self::Any),
            list => Ok(Self::Listed(list.parse()?)),
        }
    }
}

impl fmt::Display for EngineCpus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Near => f.write_str("near"),
            Self::Any => f.write_str("any"),
            Self::Listed(list) => write!(f, "{list}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_divided_where_it_has_a_cpu_for_each() {
        let list: CpuList = "2-6,9".parse().unwrap();
        let parts = |count| -> Vec<String> {
            (0..count)
                .map(|nth| list.part(nth, count).to_string())
                .collect()
        };
        assert_eq!(parts(1), ["2-6,9"]);
        assert_eq!(parts(2), ["2-4", "5-6,9"]);
        assert_eq!(parts(4), ["2", "3-4", "5", "6,9"]);
        assert_eq!(parts(6), ["2", "3", "4", "5", "6", "9"]);
        assert_eq!(parts(7), ["2-6,9"; 7]);
        assert_eq!(list.part(2, 2), list, "no such part");
    }

    #[test]
    fn a_list_is_read_as_the_kernel_writes_it() {
        for (text, numbers, written) in [
            ("0", &[0][..], "0"),
            ("0-2,8", &[0, 1, 2, 8], "0-2,8"),
            ("3,1,2,2", &[1, 2, 3], "1-3"),
            ("8190-8191", &[8190, 8191], "8190-8191"),
        ] {
            let list: CpuList = text.parse().unwrap();
            assert_eq!(list.numbers(), numbers);
            assert_eq!(list.to_string(), written);
        }
        for text in [
            "",
            ",",
            "0-",
            "-1",
            "2-1",
            "0,,1",
            "0-1-2",
            "a",
            "+1",
            "01",
            "0-03",
            "8192",
            "0-4294967295",
        ] {
            assert_eq!(text.parse::<CpuList>(), Err(BadCpus), "{text}");
        }
    }

    #[test]
    fn words_stand_for_themselves() {
        for text in ["near", "any", "0-3"] {
            assert_eq!(text.parse::<EngineCpus>().unwrap().to_string(), text);
        }
        assert_eq!("all".parse::<EngineCpus>(), Err(BadCpus));
    }

    #[test]
    fn what_two_lists_have_in_common_may_be_nothing() {
        let [low, high, all] = ["0-3", "4-7", "2-5"].map(|it| it.parse::<CpuList>().unwrap());
        assert_eq!(low.within(&all), CpuList::of([2, 3]));
        assert_eq!(low.within(&high), None);
        let both: CpuList = "0-7".parse().unwrap();
        assert!(both.has_all(&low) && both.has_all(&both));
        assert!(!low.has_all(&all) && !low.has_all(&both));
    }
}
