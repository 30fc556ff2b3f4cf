//! The record `failed/RANK.GENERATION-ID`: why a rank has given up. It ends the waits of the other ranks.

use rendezvous::{Store, StoreError};
use serde::{Deserialize, Serialize};

use crate::team::holder::Holder;
use crate::team::limits::VERSION;

/// Most characters of a message that are published.
const LONGEST: usize = 4096;

/// The contents of the record. Bytes that cannot be parsed as such say nothing of any rank.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::team) struct Failure {
    version: u32,
    message: String,
}

impl Failure {
    pub(in crate::team) fn new(message: &str) -> Self {
        Self {
            version: VERSION,
            message: message.chars().take(LONGEST).collect(),
        }
    }

    pub(in crate::team) fn text(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("a number and text")
    }

    /// Returns the message of the record with the bytes `text`.
    ///
    /// # Errors
    /// The reason why `text` is no such record, in words.
    pub(in crate::team) fn parse(text: &[u8]) -> Result<String, String> {
        let failure: Self = serde_json::from_slice(text).map_err(|error| error.to_string())?;
        match failure.version {
            VERSION => Ok(failure.message.chars().take(LONGEST).collect()),
            other => Err(format!("version {other}; this is version {VERSION}")),
        }
    }
}

/// Returns the rank and generation in the name of such a record. A name without a generation is of generation 1, which is what a
/// launcher starts.
pub(in crate::team) fn named(name: &str) -> Option<Holder> {
    let who = name.split_once('-').map_or(name, |(who, _)| who);
    let (rank, generation) = who.split_once('.').unwrap_or((who, "1"));
    Some(Holder::new(rank.parse().ok()?, generation.parse().ok()?))
}

/// Tells the other ranks why the first generation of `rank` has given up, if that rank cannot tell it itself.
///
/// # Errors
/// Errors of the store.
pub(crate) fn tell_failure(store: &dyn Store, rank: u32, message: &str) -> Result<(), StoreError> {
    store.put(&format!("failed/{rank}"), &Failure::new(message).text())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_is_read_as_written_and_what_is_none_is_refused() {
        let read = |message: &str| Failure::parse(&Failure::new(message).text());
        assert_eq!(read("no NIC"), Ok("no NIC".to_owned()));
        assert_eq!(read(""), Ok(String::new()));
        let long = "\u{e9}".repeat(2 * LONGEST);
        assert_eq!(read(&long).unwrap().chars().count(), LONGEST);
        let good = Failure::new("no NIC").text();
        for end in 0..good.len() {
            assert!(Failure::parse(&good[..end]).is_err(), "{end}");
        }
        for text in [
            &b"no NIC"[..],
            b"\xff",
            b"{}",
            b"{\"version\":6}",
            b"{\"version\":6,\"message\":\"\",\"more\":1}",
        ] {
            assert!(Failure::parse(text).is_err(), "{text:?}");
        }
        let other = Failure::parse(b"{\"version\":5,\"message\":\"\"}");
        assert_eq!(other.unwrap_err(), "version 5; this is version 6");
    }

    #[test]
    fn the_name_says_rank_and_generation() {
        for (name, wanted) in [
            ("3", Some((3, 1))),
            ("3-00c0ffee", Some((3, 1))),
            ("3.2-00c0ffee", Some((3, 2))),
            ("", None),
            ("x.1-0", None),
            ("1.x-0", None),
            ("4294967296", None),
        ] {
            let found = named(name).map(|of| (of.rank, of.generation));
            assert_eq!(found, wanted, "{name}");
        }
    }
}
