//! The checks of an engine's configuration, and what the parts of an engine take from it.

use rendezvous::read_secret;

use crate::config::{EngineConfig, EngineKey, MOST_LOG_ENTRIES, OutOfRange, in_table};
use crate::engine::error::{EngineError, HostError};
use crate::engine::ledger::cut::Cut;
use crate::engine::limits::MOST_SLICE_BYTES;
use crate::engine::transfers::Sizes;
use crate::engine::worker::Pace;
use crate::provider::EngineDevice;

/// The most bytes of a key file: digits and the end of a line.
const MOST_KEY_FILE: u64 = 2 * EngineKey::BYTES as u64 + 2;

/// Checks that all values of `config` are inside their limits. Returns how vectors of operations are cut.
pub(super) fn check(config: &EngineConfig) -> Result<Cut, EngineError> {
    let cut = Cut::new(config.slice, config.fragment, MOST_SLICE_BYTES)?;
    for (field, value) in [
        ("qps", config.qps),
        ("rails", config.rails),
        ("workers", config.workers),
        ("chain", config.chain),
        ("reap", config.reap),
        ("gather", config.gather),
        ("inline", config.inline),
        ("transfers", config.transfers),
        ("peers", config.peers),
        ("inbox", config.inbox),
        ("retry", config.retry),
    ] {
        in_table(field, Some(value))?;
    }
    let log_depth = config.log_depth;
    for (field, value, least, most) in [
        (
            "length of the name of an engine",
            config.name.len() as u64,
            1,
            255,
        ),
        ("log_depth", log_depth.into(), 8, 15),
        (
            "log_entries",
            config.log_entries.into(),
            log_depth,
            MOST_LOG_ENTRIES,
        ),
    ] {
        if !(u64::from(least)..=u64::from(most)).contains(&value) {
            let limit = format!("{least} to {most}");
            return Err(OutOfRange {
                field,
                value,
                limit,
            }
            .into());
        }
    }
    config.path.check()?;
    Ok(cut)
}

/// Returns `config` with at most the ranges and the bytes of a WQE that each of these devices takes.
pub(super) fn bounded(config: EngineConfig, devices: &[EngineDevice]) -> EngineConfig {
    let mut bounded = config;
    for device in devices {
        let Some(limits) = device.limits() else {
            continue;
        };
        bounded.gather = bounded.gather.min(limits.ranges.max(1));
        let longest = u64::from(bounded.slice) + u64::from(bounded.fragment);
        if longest > limits.message.into() {
            bounded.fragment = bounded.fragment.min(limits.message / 2);
            bounded.slice = limits.message - bounded.fragment;
            let (name, slice) = (device.name(), bounded.slice);
            tracing::info!("a slice has {slice} bytes: a message by {name} has no more");
        }
    }
    bounded
}

/// Checks `config`, and returns how many transfers its engine has with one NIC.
pub(super) fn sizes(config: &EngineConfig) -> Result<Sizes, EngineError> {
    Ok(Sizes {
        cut: check(config)?,
        slots: config.transfers,
        workers: config.workers,
        retry: config.retry,
        gather: config.gather,
    })
}

/// Returns the key that the configuration gives, or that its key file has.
pub(super) fn key(config: &EngineConfig) -> Result<Option<EngineKey>, HostError> {
    let (None, Some(file)) = (&config.key, &config.key_file) else {
        return Ok(config.key.clone());
    };
    let refused = |problem: String| HostError::KeyFile {
        file: file.clone(),
        problem,
    };
    let bytes = read_secret(file, MOST_KEY_FILE).map_err(refused)?;
    match EngineKey::of_file(&bytes) {
        Some(key) => Ok(Some(key)),
        None => Err(refused(format!(
            "it has {} bytes; they must be {} random ones, or their hexadecimal digits",
            bytes.len(),
            EngineKey::BYTES
        ))),
    }
}

/// Returns log2 of the receive WQEs of a QP: how many WRITEs that count may arrive before their worker looks.
pub(super) fn log_receives(log_depth: u8) -> u8 {
    log_depth.saturating_sub(2).clamp(4, 7)
}

/// Returns how the workers post.
pub(super) fn pace(config: &EngineConfig) -> Pace {
    Pace {
        chain: config.chain,
        reap: config.reap as usize,
        gather: config.gather,
        grace: config.grace,
    }
}

impl From<OutOfRange> for EngineError {
    fn from(found: OutOfRange) -> Self {
        let OutOfRange {
            field: what,
            value,
            limit,
        } = found;
        Self::Knob { what, value, limit }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
    use std::time::Duration;

    use super::*;
    use crate::config::PathConfig;
    use crate::engine::transfers::Transfers;
    use crate::engine::worker::{Pool, Seat, Workers};
    use crate::provider::sink::SinkLane;
    use crate::provider::{Completed, Completion, Provider, ProviderError, Reaper, Wake};

    /// A reaper that always has more completions than a worker takes at a time, of lanes that are gone. It reports how many were asked for.
    struct Endless(SyncSender<usize>);

    enum Fake {}

    impl Provider for Fake {
        type Lane = SinkLane;
        type Reaper = Endless;
    }

    impl Reaper for Endless {
        fn reap(&mut self, found: &mut Vec<Completion>, most: usize) {
            let gone = Completion {
                lane: u32::MAX,
                what: Completed::Sends,
                index: 0,
                cause: None,
            };
            found.resize(most, gone);
            // The receiver may be gone after it has got enough reports.
            let _ = self.0.try_send(most);
        }

        fn sleep(&mut self, _: &Wake, _: Option<Duration>) -> Result<(), ProviderError> {
            Ok(())
        }
    }

    fn taken(value: &str) -> usize {
        let variable = |name: &str| (name == "WARPVERBS_ENGINE_REAP").then(|| value.to_owned());
        let config = EngineConfig::from_variables("a", variable).unwrap();
        let sizes = Sizes {
            slots: 1,
            workers: 1,
            ..sizes(&config).unwrap()
        };
        let transfers = Arc::new(Transfers::new(0, &sizes).unwrap());
        let (tell, told): (_, Receiver<usize>) = sync_channel(1);
        let seat = Seat {
            reaper: Endless(tell),
            cpus: None,
        };
        let pool = Pool::<Fake>::start(&transfers, vec![seat], pace(&config)).unwrap();
        let most = told.recv().unwrap();
        pool.stop();
        most
    }

    #[test]
    fn a_worker_takes_as_many_completions_in_a_turn_as_the_variable_says() {
        for most in [1, 64, 256] {
            assert_eq!(taken(&most.to_string()), most);
        }
    }

    #[test]
    fn a_quarter_of_the_wqes_are_for_receives_from_16_to_128() {
        let receives = |depth: u32| {
            let log = u8::try_from(depth.ilog2()).unwrap();
            1 << log_receives(log)
        };
        let found = [16, 64, 128, 256, 512, 1024, 32_768].map(receives);
        assert_eq!(found, [16, 16, 32, 64, 128, 128, 128]);
    }

    #[test]
    fn both_ends_of_a_limit_are_taken_and_one_beyond_is_refused() {
        let refused = |config: EngineConfig| check(&config).unwrap_err().to_string();
        let good = || EngineConfig::new("b");
        let long = |bytes| good().with_name("x".repeat(bytes));
        for (config, reason) in [
            (
                long(256),
                "length of the name of an engine is 256; it must be 1 to 255",
            ),
            (good().with_rails(0), "rails is 0; it must be 1 to 8"),
            (good().with_rails(9), "rails is 9; it must be 1 to 8"),
            (
                good().with_transfers(65_537),
                "transfers is 65537; it must be 1 to 65536",
            ),
            (
                good().with_log_entries(8),
                "log_entries is 8; it must be 9 to 22",
            ),
            (
                good().with_log_entries(23),
                "log_entries is 23; it must be 9 to 22",
            ),
            (
                good().with_path(PathConfig::default().with_retry_count(8)),
                "retry_count is 8; it must be 0 to 7",
            ),
        ] {
            assert_eq!(refused(config), reason);
        }
        let most = long(255)
            .with_qps(8)
            .with_chain(64)
            .with_reap(256)
            .with_gather(16);
        let most = most
            .with_log_depth(15)
            .with_log_entries(22)
            .with_peers(65_536);
        check(&most).unwrap();
        let least = good().with_qps(1).with_chain(1).with_reap(1).with_gather(1);
        let least = least
            .with_log_depth(8)
            .with_log_entries(8)
            .with_transfers(1);
        check(&least.with_slice(4096).with_fragment(0)).unwrap();
    }
}
