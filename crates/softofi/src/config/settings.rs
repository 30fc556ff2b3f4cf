//! The settings of a run, and their defaults.

use std::path::PathBuf;
use std::time::Duration;

use libfabric_abi::{LATEST_API, Version};

use super::profile::Profile;

/// The environment variable with the configuration.
pub const VARIABLE: &str = "SOFTOFI";

/// What becomes of operations to a peer that is dead or has closed its endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dead {
    /// Each ends with an error after `dead_after`.
    Error,
    /// None is told of ever again: the program closes its endpoint.
    Silent,
    /// The seed chooses for each.
    Mixed,
}

/// A configuration, from a text by `parse`. The fields are the keys of the text, in the order of the README.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// `profile`: what `fi_getinfo` offers, in this order; `both` is `efa` and then `efa-direct`, so that programs must choose.
    pub profiles: Vec<Profile>,
    /// `seed`: of all that is random.
    pub seed: u64,
    /// `api`: what `fi_version` says. Before 2.1 there is no `efa-direct`, before 1.20 no DMA-BUF.
    pub api: Version,
    /// `again`: posts of a thousand that `-FI_EAGAIN` refuses.
    pub again: u32,
    /// `warmup`: so many posts to each new peer are refused first, as a provider does that connects.
    pub warmup: u32,
    /// `pieces`: most parts of an operation, unless it is longer than 64 KiB for each.
    pub pieces: u32,
    /// `late_us`: a part lands at most so much later than it could.
    pub late: Duration,
    /// `data_us`: the data of a write comes to the target's queue at most so much later than its last part has landed.
    pub data: Duration,
    /// `early`: operations of a thousand that complete before their last byte has landed.
    pub early: u32,
    /// `early_ms`: by how much that byte is later.
    pub early_by: Duration,
    /// `lost`: operations of a thousand whose completion never comes.
    pub lost: u32,
    /// `double`: operations of a thousand that complete twice.
    pub double: u32,
    /// `dead`: what becomes of operations to an endpoint that is gone.
    pub dead: Dead,
    /// `dead_ms`: after which time.
    pub dead_after: Duration,
    /// `timeout_ms`: after which time without a sign of the peer operations end with an error.
    pub timeout: Duration,
    /// `wait`: `fd` for completion queues with a descriptor, `none` without.
    pub wait: bool,
    /// `hmem`: whether memory of devices is offered.
    pub hmem: bool,
    /// `nics`: domains that `fi_getinfo` shows.
    pub nics: u32,
    /// `endpoints`: most that a domain has enabled at once.
    pub endpoints: usize,
    /// `queue`: most operations of an endpoint under way.
    pub queue: usize,
    /// `provider`: the name that programs see.
    pub provider: String,
    /// `log`: a file to which each broken rule is appended as well.
    pub log: Option<PathBuf>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            profiles: vec![Profile::EfaDirect],
            seed: 1,
            api: LATEST_API,
            again: 100,
            warmup: 0,
            pieces: 4,
            late: Duration::from_micros(300),
            data: Duration::from_micros(300),
            early: 0,
            early_by: Duration::from_millis(20),
            lost: 0,
            double: 0,
            dead: Dead::Error,
            dead_after: Duration::from_millis(100),
            timeout: Duration::from_secs(10),
            wait: false,
            hmem: false,
            nics: 1,
            endpoints: 256,
            queue: 256,
            provider: "efa".to_owned(),
            log: None,
        }
    }
}
