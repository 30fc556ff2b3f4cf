//! How an engine works.

use std::time::Duration;

use super::cut::Cut;
use super::error::EngineError;
use super::slots::MOST_SLOTS;
use crate::config::{PathConfig, setters};

/// How an engine works. Checked when it is made.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct EngineConfig {
    /// By which peers know it, 1 to 255 bytes.
    pub name: String,
    /// QPs to a peer, 1 to 8; each connection has the smaller number of its two ends. Default 4.
    pub qps: u32,
    /// Threads that post, 1 to 8. Default 1.
    pub workers: u32,
    /// log2 of the WQEBBs of a QP, 8 to 15. Default 9.
    pub log_depth: u8,
    /// log2 of the entries of a worker's CQ, at least the depth of a QP: it has a share for each that the worker may have. Default 15.
    pub log_entries: u8,
    /// Most WQEs behind one doorbell, 1 to 64. Default 16.
    pub chain: u32,
    /// Most completions of one turn of a worker, 1 to 256. Default 64.
    pub reap: u32,
    /// Bytes of a slice, 4 KiB to 1 GiB. Default 64 KiB.
    pub slice: u32,
    /// Bytes by which the last slice may be longer, 0 to those of a slice. Default 4 KiB.
    pub fragment: u32,
    /// Most local ranges of a WQE, 1 to 16. Default 4.
    pub gather: u32,
    /// Transfers at a time, 1 to 65,536. Default 4096.
    pub transfers: u32,
    /// Peers at a time, 1 to 65,536. Default 1024.
    pub peers: u32,
    /// How often a slice whose QP has failed is posted again on another QP of the connection, 0 to 16. What is wrong with the request
    /// itself is not repeated, nor is anything with an immediate. Default 3.
    pub retry: u32,
    /// How long a cancel or a deadline waits for what the HCA has of the transfer. Behind it the QPs that hold slices of the transfer go
    /// to the error state, and what they hold of other transfers goes to other QPs. Default 200 ms.
    pub grace: Duration,
    /// Longest wait for the other end in each step of a connection. Default 5 s.
    pub connect_timeout: Duration,
    /// Longest wait for running transfers when a connection is closed. Default 5 s.
    pub drain: Duration,
    /// Listen on addresses that are not loopback, though who connects is not asked for a key. Default false.
    pub insecure: bool,
    /// How packets go to the peers.
    pub path: PathConfig,
}

setters! {
    EngineConfig {
        with_name(name: String),
        with_qps(qps: u32),
        with_workers(workers: u32),
        with_log_depth(log_depth: u8),
        with_log_entries(log_entries: u8),
        with_chain(chain: u32),
        with_reap(reap: u32),
        with_slice(slice: u32),
        with_fragment(fragment: u32),
        with_gather(gather: u32),
        with_transfers(transfers: u32),
        with_peers(peers: u32),
        with_retry(retry: u32),
        with_grace(grace: Duration),
        with_connect_timeout(connect_timeout: Duration),
        with_drain(drain: Duration),
        with_insecure(insecure: bool),
        with_path(path: PathConfig),
    }
}

impl EngineConfig {
    /// All defaults, for an engine of this name.
    #[must_use]
    pub fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            qps: 4,
            workers: 1,
            log_depth: 9,
            log_entries: 15,
            chain: 16,
            reap: 64,
            slice: 1 << 16,
            fragment: 1 << 12,
            gather: 4,
            transfers: 4096,
            peers: 1024,
            retry: 3,
            grace: Duration::from_millis(200),
            connect_timeout: Duration::from_secs(5),
            drain: Duration::from_secs(5),
            insecure: false,
            path: PathConfig::default(),
        }
    }

    /// How vectors are cut, if all values are inside their limits.
    pub(super) fn check(&self) -> Result<Cut, EngineError> {
        let cut = Cut::new(self.slice, self.fragment, 1 << 30)?;
        let name = self.name.len() as u64;
        for (what, value, least, most) in [
            ("length of the name of an engine", name, 1, 255),
            ("qps", self.qps.into(), 1, 8),
            ("workers", self.workers.into(), 1, 8),
            ("log_depth", self.log_depth.into(), 8, 15),
            (
                "log_entries",
                self.log_entries.into(),
                self.log_depth.into(),
                22,
            ),
            ("chain", self.chain.into(), 1, 64),
            ("reap", self.reap.into(), 1, 256),
            ("gather", self.gather.into(), 1, 16),
            ("transfers", self.transfers.into(), 1, MOST_SLOTS.into()),
            ("peers", self.peers.into(), 1, 65_536),
            ("retry", self.retry.into(), 0, 16),
        ] {
            if !(least..=most).contains(&value) {
                return Err(EngineError::Knob {
                    what,
                    value,
                    least,
                    most,
                });
            }
        }
        Ok(cut)
    }
}
