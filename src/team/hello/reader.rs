//! A reader of another rank's records that needs no team: for tests and fuzzers.

use std::sync::Arc;
use std::time::Duration;

use rendezvous::{MemoryStore, Store};

use super::{Hello, Offer, Wanted};
use crate::config::PathConfig;
use crate::team::config::TeamConfig;
use crate::team::error::TeamError;
use crate::team::holder::Holder;
use crate::team::meeting::exchange::Exchange;
use crate::team::windows::shown::WindowShape;

/// A valid hello, as rank 1 publishes it. [`RecordReader`] takes it as the hello of rank 0, too.
pub(in crate::team) const HELLO: &[u8] = br#"{"version": 6, "rails": [{"link_layer": "ethernet", "lid": 0,
    "gid": [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 255, 255, 10, 0, 0, 1], "gid_index": 3, "mtu": 5, "speed_mbps": 100000,
    "pkey": 65535, "log_reads": 4, "grh_required": false}],
    "identity": {"direct": true, "process": {"seen_from": "a machine", "pid": 7, "started": 9}, "user": 0,
    "device": "simt", "team": 77, "living": [77]}, "agreed": [["hidden", "128"]], "costs": ["words"],
    "windows": [{"bytes": 4096, "purpose": "data"}], "offers": []}"#;

/// A valid offer of rank 1 to rank 0.
#[cfg(test)]
pub(in crate::team) const OFFER: &[u8] = br#"{"version": 6, "rank": 0, "generation": 1,
    "qps": [{"qpn": 17, "psn": 5, "far": null, "ece": 0}, {"qpn": 18, "psn": 16777215, "far": 3, "ece": 4294967295}],
    "windows": [{"shape": {"bytes": 4096, "purpose": "data"}, "base": 65536, "rkeys": [1234],
    "handle": {"bytes": 4096, "name": {"cuda": {"ipc": [1, 2, 3], "offset": 0}}}}]}"#;

const HELLO_KEY: &str = "hello/1.1";
const OFFER_KEY: &str = "welcome/1.1/0.1";

/// A reader that stands for rank 0 of two, and reads the records of rank 1.
#[derive(Debug)]
pub struct RecordReader {
    store: Arc<MemoryStore>,
    exchange: Exchange,
    hello: Hello,
}

impl RecordReader {
    /// Returns a reader that has read nothing yet.
    ///
    /// # Panics
    ///
    /// Never: the hello that it begins with is valid.
    #[must_use]
    pub fn new() -> Self {
        let store = Arc::new(MemoryStore::new());
        let shared: Arc<dyn Store> = Arc::<MemoryStore>::clone(&store);
        let config = TeamConfig::new(0, 2).with_join_timeout(Duration::ZERO);
        Self {
            exchange: Exchange::new(shared, &config),
            hello: serde_json::from_slice(HELLO).expect("a good hello"),
            store,
        }
    }

    /// Reads `record` as a hello of rank 1. From a valid one it also finds the path on each rail, and how rank 1 is reached.
    ///
    /// # Errors
    ///
    /// [`TeamError::Record`] and [`TeamError::Mismatch`], of rank 1.
    pub fn hello(&self, record: &[u8]) -> Result<(), TeamError> {
        self.store.put(HELLO_KEY, record)?;
        let hello = self.exchange.read_versioned::<Hello>(1, HELLO_KEY)?;
        let Some(hello) = hello else { return Ok(()) };
        let wanted = self.wanted();
        wanted.check_hello(1, HELLO_KEY, &hello, self.windows())?;
        for (own, theirs) in self.hello.rails.iter().zip(&hello.rails) {
            own.path(theirs, &wanted.path, 0, 0);
        }
        self.hello.identity.reach(&hello.identity);
        Ok(())
    }

    /// Reads `record` as an offer of rank 1 to rank 0.
    ///
    /// # Errors
    ///
    /// As [`RecordReader::hello`].
    pub fn offer(&self, record: &[u8]) -> Result<(), TeamError> {
        self.store.put(OFFER_KEY, record)?;
        let offer = self.exchange.read_versioned::<Offer>(1, OFFER_KEY)?;
        let Some(offer) = offer else { return Ok(()) };
        self.wanted()
            .check_offer(1, OFFER_KEY, &offer, self.windows())
    }

    fn wanted(&self) -> Wanted<'_> {
        Wanted {
            exchange: &self.exchange,
            own: Holder::new(0, 1),
            hello: &self.hello,
            qps_per_peer: 2,
            path: PathConfig::default(),
        }
    }

    fn windows(&self) -> &[WindowShape] {
        self.hello.windows.as_deref().unwrap_or_default()
    }
}

impl Default for RecordReader {
    fn default() -> Self {
        Self::new()
    }
}
