//! The check of the store in which ranks meet, with measured times.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use serde_json::{Value, json};
use warpverbs::config::Config;
use warpverbs::membership::GroupConfig;
use warpverbs::team::{Measured, MemoryStore, Store, StoreError, measure_store, open_store};

use super::check::{Look, Text};
use crate::number;
use crate::store::{configured, place};

/// The time after which no further call of the store begins.
const BOUND: Duration = Duration::from_secs(5);

/// The text of the check of the store.
pub(super) const TEXT: Text = Text {
    id: "store",
    what: "the store that ranks meet in",
    why: "Ranks find each other in the store. They take a rank for dead whose lease ends because the store is slow.",
    mend: "WARPVERBS_STORE=file:///DIRECTORY that all ranks share, or etcd://HOST:PORT/PREFIX. For a slow store set \
           GroupConfig::lease_ttl to 6 times its p99 or more.",
};

/// Which store to measure, and how.
#[derive(Args)]
pub(super) struct StoreOptions {
    /// Store to measure, else WARPVERBS_STORE, else one in memory
    #[arg(long, value_name = "URL")]
    store: Option<String>,
    /// Calls of the store, 1 to 100000; fewer if they take longer than 5 s
    #[arg(long, default_value_t = 500, value_parser = number::within(1_u32..=100_000))]
    calls: u32,
}

/// The result of the check of the store.
pub(super) struct Found {
    /// The URL of the store, without password and options.
    store: String,
    /// The measured times, or why there are none.
    measured: Result<Measured, String>,
    lease_ttl: Duration,
}

pub(super) fn examine(options: &StoreOptions) -> Found {
    let lease_ttl = GroupConfig::default().lease_ttl;
    let config = configured(options.store.as_deref());
    let config = match config {
        Ok(config) => config,
        Err(error) => {
            return Found {
                store: place(options.store.as_deref().unwrap_or_default()),
                measured: Err(error.to_string()),
                lease_ttl,
            };
        }
    };
    let measured = open(&config)
        .and_then(|store| measure_store(&*store, options.calls, BOUND))
        .map_err(|error| error.to_string());
    Found {
        store: place(&config.store),
        measured,
        lease_ttl,
    }
}

fn open(config: &Config) -> Result<Arc<dyn Store>, StoreError> {
    match config.store.as_str() {
        "" => Ok(Arc::new(MemoryStore::new())),
        url => open_store(url, &config.run_id),
    }
}

impl Found {
    /// Returns the measurement as the result of a check.
    pub(super) fn look(&self) -> Look {
        match (&self.measured, self.warning()) {
            (Err(_), _) => Look::missing(self.to_string()),
            (Ok(_), Some(_)) => Look::degraded(self.to_string()),
            (Ok(_), None) => Look::ok(self.to_string()),
        }
    }

    fn warning(&self) -> Option<String> {
        let measured = self.measured.as_ref().ok()?;
        (!measured.carries(self.lease_ttl)).then(|| {
            format!(
                "the default lease_ttl of {:?} is below 6 times the p99: ranks that live may be taken for dead; set \
                 GroupConfig::lease_ttl to {:.1?} or more, or use a faster store",
                self.lease_ttl, measured.shortest_lease_ttl
            )
        })
    }

    pub(super) fn json(&self) -> Value {
        let micros = |time: Duration| time.as_secs_f64() * 1e6;
        let mut store = json!({ "place": self.store });
        match &self.measured {
            Ok(measured) => {
                store["calls"] = json!(measured.calls);
                store["calls_per_second"] = json!(measured.per_second);
                store["p50_us"] = json!(micros(measured.p50));
                store["p99_us"] = json!(micros(measured.p99));
                store["slowest_us"] = json!(micros(measured.slowest));
                store["shortest_lease_ttl_us"] = json!(micros(measured.shortest_lease_ttl));
                store["default_lease_ttl_us"] = json!(micros(self.lease_ttl));
                store["warning"] = json!(self.warning());
            }
            Err(error) => store["error"] = json!(error),
        }
        store
    }
}

impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let measured = match &self.measured {
            Ok(measured) => measured,
            Err(error) => return write!(f, "{}: cannot be used: {error}", self.store),
        };
        write!(
            f,
            "{}: {:.0} calls/s, p50 {:.1?}, p99 {:.1?}, slowest {:.1?} ({} calls); carries a lease_ttl of {:.1?} or more",
            self.store,
            measured.per_second,
            measured.p50,
            measured.p99,
            measured.slowest,
            measured.calls,
            measured.shortest_lease_ttl
        )?;
        match self.warning() {
            Some(warning) => write!(f, "; {warning}"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_that_the_store_does_not_carry_is_warned_of() {
        let store = MemoryStore::new();
        let mut found = Found {
            store: "s".to_owned(),
            measured: measure_store(&store, 10, BOUND).map_err(|error| error.to_string()),
            lease_ttl: Duration::ZERO,
        };
        let text = found.to_string();
        assert!(text.contains("; the default lease_ttl of 0ns"), "{text}");
        assert!(found.json()["warning"].is_string());
        found.lease_ttl = Duration::MAX;
        let text = found.to_string();
        assert!(!text.contains("; the default"), "{text}");
        assert!(found.json()["warning"].is_null());
    }
}
