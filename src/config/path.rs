//! The parts of the path of a QP's packets that the caller may choose.

use std::ffi::OsString;

use crate::config::choices::{GRH, GrhUse, MTU, READ_DEPTH};
use crate::config::error::ConfigError;
use crate::config::setters::setters;
use crate::config::source::{OutOfRange, Source, in_table, in_words};

/// The parts of the path of a QP's packets that the caller may choose. Values that a port cannot have are refused when paths are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PathConfig {
    /// The own GID, by index. No variable. Default the GID with which the device was opened, which `WARPVERBS_GID` names
    /// ([`Context::own_gid`](crate::verbs::Context::own_gid)).
    pub gid_index: Option<u32>,
    /// Partition key, by value. `WARPVERBS_PKEY`, such as `0x8001`. Default the first key of the port.
    pub pkey: Option<u16>,
    /// The port of a link aggregation group by which packets leave, from 1. `WARPVERBS_LAG_PORT`. By default the QPs to a peer take the
    /// ports in turn.
    pub lag_port: Option<u8>,
    /// When packets have a global route header on InfiniBand. `WARPVERBS_GRH`: `auto`, `always`, `never`. Default `auto`.
    pub grh: GrhUse,
    /// Traffic class of the IP header, or of the GRH. `WARPVERBS_TRAFFIC_CLASS`, 0 to 255. Default the class that the system has set for
    /// the port ([`Context::traffic_class`](crate::verbs::Context::traffic_class)).
    pub traffic_class: Option<u8>,
    /// Ethernet priority. `WARPVERBS_PRIORITY`, 0 to 7. Default 0.
    pub priority: u8,
    /// InfiniBand service level. `WARPVERBS_SERVICE_LEVEL`, 0 to 15. Default 0.
    pub service_level: u8,
    /// Which of its 2^LMC LIDs an InfiniBand port sends from, and its peers send to. `WARPVERBS_PATH_BITS`, 0 to 127, less than 2^LMC.
    /// Default 0.
    pub path_bits: u8,
    /// Time to live of the IP header, or hop limit of the GRH. `WARPVERBS_HOP_LIMIT`, 1 to 255. Default 64.
    pub hop_limit: u8,
    /// The delay that a receiver-not-ready answer asks for, as its code in the PRM. `WARPVERBS_MIN_RNR_TIMER`, 0 to 31. Default 12 (0.64
    /// ms).
    pub min_rnr_timer: u8,
    /// Most payload of a packet in bytes: 256, 512, 1024, 2048 or 4096, at most the port's. `WARPVERBS_MTU`. Default the port's. QPs send
    /// with the smaller value of both ends.
    pub mtu: Option<u16>,
    /// How many reads and atomics a QP has under way at once, and takes from its peer: a power of two, 1 to 128. `WARPVERBS_READ_DEPTH`.
    /// Default as many as the device can have.
    pub read_depth: Option<u8>,
    /// The exponent n of the HCA's retransmission timeout 4.096 us · 2^n, 12 to 20. `WARPVERBS_ACK_TIMEOUT`. Default 14. The software HCA
    /// gets 17, because its process may have to wait for a core.
    pub ack_timeout: Option<u8>,
    /// Retries of a packet that is not acknowledged, 0 to 7. `WARPVERBS_RETRY_COUNT`. Default 7. A peer that has gone shows as an error
    /// after about 4.096 us · 2^`ack_timeout` · (`retry_count` + 1). Some devices take four times as long.
    pub retry_count: u8,
    /// Retries of a packet that meets no receive WQE, 0 to 7, where 7 stands for ever. `WARPVERBS_RNR_RETRY`. Default 7.
    pub rnr_retry: u8,
}

setters! {
    const PathConfig {
        with_gid_index(gid_index: Option<u32>),
        with_pkey(pkey: Option<u16>),
        with_lag_port(lag_port: Option<u8>),
        with_grh(grh: GrhUse),
        with_traffic_class(traffic_class: Option<u8>),
        with_priority(priority: u8),
        with_service_level(service_level: u8),
        with_path_bits(path_bits: u8),
        with_hop_limit(hop_limit: u8),
        with_min_rnr_timer(min_rnr_timer: u8),
        with_mtu(mtu: Option<u16>),
        with_read_depth(read_depth: Option<u8>),
        with_ack_timeout(ack_timeout: Option<u8>),
        with_retry_count(retry_count: u8),
        with_rnr_retry(rnr_retry: u8),
    }
}

impl Default for PathConfig {
    fn default() -> Self {
        Self {
            gid_index: None,
            pkey: None,
            lag_port: None,
            grh: GrhUse::Auto,
            traffic_class: None,
            priority: 0,
            service_level: 0,
            path_bits: 0,
            hop_limit: 64,
            min_rnr_timer: 12,
            mtu: None,
            read_depth: None,
            ack_timeout: None,
            retry_count: 7,
            rnr_retry: 7,
        }
    }
}

impl PathConfig {
    /// Returns the path configuration of this process, from its environment.
    ///
    /// # Errors
    /// [`ConfigError`] if a variable has a value that it cannot have.
    pub fn from_env() -> Result<Self, ConfigError> {
        Self::from_variables(|name| std::env::var_os(name))
    }

    /// Returns the path configuration from any source of variables, as `from_env` does from the environment.
    ///
    /// # Errors
    /// As [`PathConfig::from_env`].
    pub fn from_variables<T: Into<OsString>>(
        variable: impl Fn(&str) -> Option<T>,
    ) -> Result<Self, ConfigError> {
        Source::reading(variable, Self::read)
    }

    pub(super) fn read(source: &Source<'_>) -> Result<Self, ConfigError> {
        Ok(Self {
            gid_index: None,
            pkey: source.optional("WARPVERBS_PKEY")?,
            lag_port: source.optional("WARPVERBS_LAG_PORT")?,
            grh: source.word("WARPVERBS_GRH", &GRH)?,
            traffic_class: source.optional("WARPVERBS_TRAFFIC_CLASS")?,
            priority: source.number("WARPVERBS_PRIORITY")?,
            service_level: source.number("WARPVERBS_SERVICE_LEVEL")?,
            path_bits: source.number("WARPVERBS_PATH_BITS")?,
            hop_limit: source.number("WARPVERBS_HOP_LIMIT")?,
            min_rnr_timer: source.number("WARPVERBS_MIN_RNR_TIMER")?,
            mtu: source.word("WARPVERBS_MTU", &MTU)?,
            read_depth: source.word("WARPVERBS_READ_DEPTH", &READ_DEPTH)?,
            ack_timeout: source.optional("WARPVERBS_ACK_TIMEOUT")?,
            retry_count: source.number("WARPVERBS_RETRY_COUNT")?,
            rnr_retry: source.number("WARPVERBS_RNR_RETRY")?,
        })
    }

    /// Checks the fields. The error names the first field with a value that no port can have.
    pub(crate) fn check(&self) -> Result<(), OutOfRange> {
        in_table("priority", Some(self.priority))?;
        in_table("service_level", Some(self.service_level))?;
        in_table("path_bits", Some(self.path_bits))?;
        in_table("hop_limit", Some(self.hop_limit))?;
        in_table("min_rnr_timer", Some(self.min_rnr_timer))?;
        in_table("ack_timeout", self.ack_timeout)?;
        in_table("retry_count", Some(self.retry_count))?;
        in_table("rnr_retry", Some(self.rnr_retry))?;
        in_table("lag_port", self.lag_port)?;
        in_table("pkey", self.pkey)?;
        in_words("mtu", self.mtu, &MTU)?;
        in_words("read_depth", self.read_depth, &READ_DEPTH)
    }
}
