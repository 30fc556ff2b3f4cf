//! Records of another rank with any bytes: a typed error or a good record.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use super::*;
use crate::team::{MemoryStore, Store, TeamConfig};

const HELLO: &str = r#"{"version": 6, "rails": [{"link_layer": "ethernet", "lid": 0,
    "gid": [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 255, 255, 10, 0, 0, 1], "gid_index": 3, "mtu": 5, "speed_mbps": 100000,
    "pkey": 65535, "log_reads": 4, "grh_required": false}],
    "identity": {"direct": true, "process": {"seen_from": "a machine", "pid": 7, "started": 9}, "user": 0,
    "device": "simt", "team": 77, "living": [77]}, "agreed": [["hidden", "128"]], "costs": ["words"],
    "windows": [{"bytes": 4096, "purpose": "data"}], "offers": []}"#;

const OFFER: &str = r#"{"version": 6, "rank": 0, "generation": 1,
    "qps": [{"qpn": 17, "psn": 5, "far": null, "ece": 0}, {"qpn": 18, "psn": 16777215, "far": 3, "ece": 4294967295}],
    "windows": [{"shape": {"bytes": 4096, "purpose": "data"}, "base": 65536, "rkeys": [1234],
    "handle": {"bytes": 4096, "name": {"cuda": {"ipc": [1, 2, 3], "offset": 0}}}}]}"#;

const HELLO_KEY: &str = "hello/1.1";
const OFFER_KEY: &str = "welcome/1.1/0.1";

/// Values of a field that no rank, or a rank of another kind, writes.
const VALUES: [&str; 10] = [
    "0",
    "-1",
    "1.5",
    "255",
    "16777216",
    "4294967296",
    "18446744073709551616",
    "1e999",
    "null",
    "\"\"",
];

/// Rank 0, which reads what rank 1 has told.
struct Reader {
    store: Arc<MemoryStore>,
    exchange: Exchange,
    hello: Hello,
}

impl Reader {
    fn new() -> Self {
        let store = Arc::new(MemoryStore::new());
        let shared: Arc<dyn Store> = Arc::<MemoryStore>::clone(&store);
        let config = TeamConfig {
            timeout: Duration::ZERO,
            ..TeamConfig::new(0, 2)
        };
        Self {
            exchange: Exchange::new(shared, &config),
            hello: serde_json::from_str(HELLO).unwrap(),
            store,
        }
    }

    /// What comes of a hello and of an offer of these bytes.
    fn read(&self, key: &str, record: &[u8]) -> Result<(), TeamError> {
        self.store.put(key, record)?;
        let path = PathConfig::default();
        let wanted = Wanted {
            exchange: &self.exchange,
            own: (0, 1),
            hello: &self.hello,
            qps_per_peer: 2,
            path,
        };
        let windows = self.hello.windows.as_deref().unwrap();
        if key == OFFER_KEY {
            let offer: Offer = self.exchange.read_versioned(1, key)?.unwrap();
            return wanted.check_offer(1, key, &offer, windows);
        }
        let hello: Hello = self.exchange.read_versioned(1, key)?.unwrap();
        wanted.check_hello(1, key, &hello, windows)?;
        // What is made of a good one.
        for (own, theirs) in self.hello.rails.iter().zip(&hello.rails) {
            own.path(theirs, &path, 0, 0);
        }
        self.hello.identity.reach(&hello.identity);
        Ok(())
    }
}

#[test]
fn mutated_hellos_and_offers_are_good_or_refused_by_rank() {
    let count = match std::env::var_os("WV_TEST_FULL") {
        Some(_) => 1_000_000,
        None => 20_000,
    };
    let reader = Reader::new();
    let (mut good, mut refused) = (0, 0);
    for seed in 0..count {
        let (key, record) = match seed % 2 {
            0 => (HELLO_KEY, HELLO),
            _ => (OFFER_KEY, OFFER),
        };
        let record = mutated(&mut fastrand::Rng::with_seed(seed), record.as_bytes());
        match reader.read(key, &record) {
            Ok(()) => good += 1,
            Err(error) => {
                let text = error.to_string();
                let is_typed = matches!(
                    error,
                    TeamError::Record { rank: 1, .. } | TeamError::Mismatch { .. }
                );
                assert!(is_typed && text.contains("rank 1"), "seed {seed}: {text}");
                refused += 1;
            }
        }
    }
    println!("{count} mutated records: {good} good, {refused} refused");
    assert!(good > 0 && refused > good, "{good} good, {refused} refused");
}

#[test]
fn the_records_that_are_mutated_are_good() {
    let reader = Reader::new();
    reader.read(HELLO_KEY, HELLO.as_bytes()).unwrap();
    reader.read(OFFER_KEY, OFFER.as_bytes()).unwrap();
}

fn mutated(random: &mut fastrand::Rng, record: &[u8]) -> Vec<u8> {
    let mut bytes = record.to_vec();
    for _ in 0..random.usize(1..=3) {
        if bytes.is_empty() {
            break;
        }
        let at = random.usize(..bytes.len());
        let range = at..bytes.len().min(at + random.usize(1..=40));
        match random.u8(..7) {
            0 => bytes[at] ^= 1 << random.u8(..8),
            1 => bytes[at] = b"{}[],:\"\\0-9e "[random.usize(..13)],
            2 => bytes.truncate(at),
            3 => drop(bytes.drain(range)),
            4 => {
                let again = bytes[range].to_vec();
                bytes.splice(at..at, again);
            }
            5 => {
                if let Some(number) = number_behind(&bytes, at) {
                    let value = VALUES[random.usize(..VALUES.len())];
                    bytes.splice(number, value.bytes());
                }
            }
            _ => drop(bytes.splice(at..at, std::iter::repeat_n(b'[', 200))),
        }
    }
    bytes
}

/// The first digits at or behind `at`.
fn number_behind(bytes: &[u8], at: usize) -> Option<Range<usize>> {
    let start = at + bytes[at..].iter().position(u8::is_ascii_digit)?;
    let digits = bytes[start..]
        .iter()
        .take_while(|byte| byte.is_ascii_digit());
    Some(start..start + digits.count())
}
