//! Partitions: the P_Key table of a port, and the rule that says which keys talk to each other.
//!
//! A QP has the key at one index of the table and writes that key into its packets. A packet for a QP of another partition is dropped
//! without an answer. A packet between two limited members is dropped in the same way. Source: InfiniBand volume 1, "Partitioning".

use crate::number::whole;
use std::fmt;
use std::str::FromStr;
use thiserror::Error;

/// The bit of a key that marks a full member. The other 15 bits are the partition.
const FULL_MEMBER: u16 = 0x8000;
/// The most keys that a port has: the number that `pkey_table_size` 0 stands for.
const MOST: usize = 128;

/// The P_Keys of a port, by index. A port of Ethernet has the default key alone.
///
/// As text (`SOFTHCA_PKEYS`) a table is hexadecimal numbers with commas.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PkeyTable(Vec<u16>);

/// The error for a text that is no [`PkeyTable`].
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{text:?} is not {}", PkeyTable::EXPECTED)]
pub struct NoPkeyTable {
    /// The given text.
    pub text: String,
}

impl PkeyTable {
    /// The key of a full member of the default partition.
    pub const DEFAULT_PKEY: u16 = 0xffff;

    /// The texts that are tables, in words.
    pub const EXPECTED: &str =
        "1 to 128 different partition keys as 0xffff,0x8001, no partition of which is 0";

    /// Returns the keys in the order of their indices.
    #[must_use]
    pub fn keys(&self) -> &[u16] {
        &self.0
    }

    fn new(keys: Vec<u16>) -> Option<Self> {
        let mut different = keys.clone();
        different.sort_unstable();
        different.dedup();
        let is_table = (1..=MOST).contains(&keys.len())
            && different.len() == keys.len()
            && keys.iter().all(|key| key & !FULL_MEMBER != 0);
        is_table.then_some(Self(keys))
    }
}

impl Default for PkeyTable {
    fn default() -> Self {
        Self(vec![Self::DEFAULT_PKEY])
    }
}

impl FromStr for PkeyTable {
    type Err = NoPkeyTable;

    fn from_str(text: &str) -> Result<Self, NoPkeyTable> {
        let key = |word: &str| whole(word).filter(|_| word.starts_with("0x"));
        let keys: Option<Vec<u16>> = text.split(',').map(key).collect();
        keys.and_then(Self::new).ok_or_else(|| NoPkeyTable {
            text: text.to_owned(),
        })
    }
}

impl fmt::Display for PkeyTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, key) in self.0.iter().enumerate() {
            let comma = if at > 0 { "," } else { "" };
            write!(f, "{comma}{key:#06x}")?;
        }
        Ok(())
    }
}

/// Returns whether QPs with these keys exchange packets: both keys have the same partition, and at least one of them is that of a full
/// member.
pub(crate) fn matches(one: u16, other: u16) -> bool {
    (one ^ other) & !FULL_MEMBER == 0 && (one | other) & FULL_MEMBER != 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_read_as_it_is_written() {
        for text in ["0xffff", "0xffff,0x8001,0x0002", "0x7fff"] {
            assert_eq!(text.parse::<PkeyTable>().unwrap().to_string(), text);
        }
        assert_eq!(PkeyTable::default().to_string(), "0xffff");
        let most: Vec<String> = (1..=128u16).map(|key| format!("{key:#06x}")).collect();
        assert_eq!(
            most.join(",").parse::<PkeyTable>().unwrap().keys().len(),
            128
        );
        let more = format!("{},0x0081", most.join(","));
        for text in [
            "",
            "0x8000",
            "0x0",
            "0xffff,0xffff",
            "0x10000",
            "65535",
            "0xffff,",
            &more,
        ] {
            let error = text.parse::<PkeyTable>().unwrap_err().to_string();
            assert!(error.contains("is not 1 to 128 different"), "{error}");
        }
    }

    #[test]
    fn a_full_member_talks_to_all_of_its_partition_and_to_no_other() {
        for (one, other, expected) in [
            (0x8001, 0x8001, true),
            (0x8001, 0x0001, true),
            (0x0001, 0x0001, false),
            (0x8001, 0x8002, false),
            (0xffff, 0x7fff, true),
        ] {
            assert_eq!(matches(one, other), expected, "{one:#x} {other:#x}");
            assert_eq!(matches(other, one), expected, "{other:#x} {one:#x}");
        }
    }
}
