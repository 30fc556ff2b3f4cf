//! The configuration of a host engine.

use std::ffi::OsString;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use crate::config::choices::{
    ENGINE_CQ, ENGINE_DEPTH, ENGINE_PAIRING, ENGINE_PATH, EngineCq, EnginePairing, EnginePath,
};
use crate::config::cpus::EngineCpus;
use crate::config::devices::DeviceChoice;
use crate::config::engine_address::EngineAddress;
use crate::config::error::ConfigError;
use crate::config::gid::GidChoice;
use crate::config::gpu::GpuSelector;
use crate::config::key::EngineKey;
use crate::config::limits::MOST_LOG_ENTRIES;
use crate::config::path::PathConfig;
use crate::config::provider::ProviderChoice;
use crate::config::setters::setters;
use crate::config::source::Source;

/// The configuration of a host engine. It is checked when the engine is made.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct EngineConfig {
    /// The name by which peers know the engine, 1 to 255 bytes. No variable.
    pub name: String,
    /// The RDMA devices: `mlx5_3`, `mlx5_3:2` (a port), `mlx5_0,mlx5_1`, `^mlx5_bond_0` (all but this) or `auto`. `WARPVERBS_DEVICE`.
    /// Default `auto`. [`Engine::start`](crate::engine::Engine::start) opens them.
    pub device: DeviceChoice,
    /// The provider that drives the NICs. `WARPVERBS_PROVIDER`. Default `auto`. [`Engine::start`](crate::engine::Engine::start) takes it.
    pub provider: ProviderChoice,
    /// The file of libfabric, for the provider `ofi`. `WARPVERBS_LIBFABRIC`. Default none: `libfabric.so.1` as the loader finds it.
    pub libfabric: Option<PathBuf>,
    /// Most ports that `auto` takes, 1 to 8 and at most [`qps`](Self::qps). All of them are as near and as fast as the best one. All named
    /// devices are taken. `WARPVERBS_ENGINE_RAILS`. Default 1.
    pub rails: u32,
    /// The CUDA device near which `auto` looks for ports. With any other value `auto` looks near the NUMA node that has all CPUs of the
    /// workers. If these CPUs are on several nodes, the fastest port is the best one. `WARPVERBS_GPU`. Default `auto`.
    pub gpu: GpuSelector,
    /// The GID that the engine sends from. `WARPVERBS_GID`. Default `auto`. [`Engine::start`](crate::engine::Engine::start) takes it.
    pub gid: GidChoice,
    /// QPs to a peer, 1 to 8. A connection has the smaller number of its two ends. `WARPVERBS_ENGINE_QPS`. Default 4.
    pub qps: u32,
    /// Threads that post, 1 to 8. `WARPVERBS_ENGINE_WORKERS`. Default 1.
    pub workers: u32,
    /// On which CPUs the workers run. A list that has a CPU for each worker is divided among them. `WARPVERBS_ENGINE_CPUS`. Default `near`.
    pub cpus: EngineCpus,
    /// In which CQs the QPs complete: one for each worker, or one for all workers of a NIC. `WARPVERBS_ENGINE_CQ`. Default `worker`.
    pub cq: EngineCq,
    /// log2 of the WQEBBs of a QP, 8 to 15. `WARPVERBS_ENGINE_DEPTH`, which holds the number itself. Default 9.
    pub log_depth: u8,
    /// log2 of the entries of the first CQ, which each worker has or all share: at least the depth of a QP, at most 22. At the start an
    /// engine takes memory for the QPs that have a share of this CQ. Further QPs get further CQs and memory, as much again each time. If
    /// variables are read, the first CQ is for the QPs to 16 [`peers`](Self::peers). Default 15.
    pub log_entries: u8,
    /// Most WQEs that one doorbell posts, 1 to 64. `WARPVERBS_ENGINE_CHAIN`. Default 16.
    pub chain: u32,
    /// Most completions that a worker takes in one turn, 1 to 256. `WARPVERBS_ENGINE_REAP`. Default 64.
    pub reap: u32,
    /// Bytes of a slice of a transfer, 4 KiB to 1 GiB. `WARPVERBS_ENGINE_SLICE`. Default 64 KiB.
    pub slice: u32,
    /// Bytes by which the last slice of a transfer may be longer: 0 up to the bytes of a slice. `WARPVERBS_ENGINE_FRAGMENT`. Default 4 KiB.
    pub fragment: u32,
    /// Most local ranges of one WQE, 1 to 16. `WARPVERBS_ENGINE_GATHER`. Default 4.
    pub gather: u32,
    /// Bytes up to which a WQE carries the data of a WRITE, as they are when it is posted, 0 to 28. `WARPVERBS_ENGINE_INLINE`. Default 28.
    pub inline: u32,
    /// Most transfers at one time, 1 to 65,536. `WARPVERBS_ENGINE_TRANSFERS`. Default 4096.
    pub transfers: u32,
    /// Most peers at one time, 1 to 65,536. `WARPVERBS_ENGINE_PEERS`. Default 1024.
    pub peers: u32,
    /// Bytes of the notices of one peer that are kept until the program takes them, 128 KiB to 1 GiB. Each notice takes 64 bytes more than
    /// its length. If a notice has no room, the engine refuses it. `WARPVERBS_ENGINE_INBOX`. Default 4 MiB.
    pub inbox: u32,
    /// How often a slice whose QP has failed is posted again on another QP of the connection, 0 to 16. A slice is not posted again if the
    /// request itself is wrong, or if it has an immediate. `WARPVERBS_ENGINE_RETRY`. Default 3.
    pub retry: u32,
    /// Which rails of an engine meet which rails of its peer. `WARPVERBS_ENGINE_PAIRING`. Default `place`.
    pub pairing: EnginePairing,
    /// How transfers go to peers of this machine. `WARPVERBS_ENGINE_PATH`. Default `auto`.
    pub engine_path: EnginePath,
    /// How long a cancel or a deadline waits for the slices of its transfer that the HCA still has. After that time the QPs with these
    /// slices go to the error state, and slices of other transfers on these QPs go to other QPs. No variable. Default 200 ms.
    pub grace: Duration,
    /// The deadline of transfers whose [`Options`](crate::engine::Options) name none. `WARPVERBS_ENGINE_DEADLINE_MS`. Default none.
    pub deadline: Option<Duration>,
    /// Longest wait for the other end in each step of a connection. `WARPVERBS_ENGINE_CONNECT_TIMEOUT_MS`. Default 5 s.
    pub connect_timeout: Duration,
    /// Longest wait for running transfers when a connection is closed. No variable. Default 5 s.
    pub drain: Duration,
    /// The address at which [`Engine::listen_as_configured`](crate::engine::Engine::listen_as_configured) listens. Port 0 stands for any
    /// port. `WARPVERBS_ENGINE_LISTEN`. Default `127.0.0.1:0`.
    pub listen: EngineAddress,
    /// Names of the engines with which this engine connects; an empty list stands for all. An engine says its name itself, so only
    /// [`key`](Self::key) keeps other engines out. `WARPVERBS_ENGINE_ALLOW`. Default empty.
    pub allow: Vec<String>,
    /// The key that peers must have. All bytes of the connections are encrypted under it; the data that HCAs carry is not. No variable.
    /// Default none.
    pub key: Option<EngineKey>,
    /// The file that holds the key, if [`key`](Self::key) is none: 32 bytes or 64 hexadecimal digits. Only its user may read the file.
    /// `WARPVERBS_ENGINE_KEY_FILE`. Default none.
    pub key_file: Option<PathBuf>,
    /// True if an engine without a key listens on addresses that are not loopback. No variable. Default false.
    pub insecure: bool,
    /// How packets go to the peers.
    pub path: PathConfig,
}

setters! {
    EngineConfig {
        with_name(name: String),
        with_device(device: DeviceChoice),
        with_provider(provider: ProviderChoice),
        with_libfabric(libfabric: Option<PathBuf>),
        with_rails(rails: u32),
        with_gpu(gpu: GpuSelector),
        with_gid(gid: GidChoice),
        with_qps(qps: u32),
        with_workers(workers: u32),
        with_cpus(cpus: EngineCpus),
        with_cq(cq: EngineCq),
        with_log_depth(log_depth: u8),
        with_log_entries(log_entries: u8),
        with_chain(chain: u32),
        with_reap(reap: u32),
        with_slice(slice: u32),
        with_fragment(fragment: u32),
        with_gather(gather: u32),
        with_inline(inline: u32),
        with_transfers(transfers: u32),
        with_peers(peers: u32),
        with_inbox(inbox: u32),
        with_retry(retry: u32),
        with_pairing(pairing: EnginePairing),
        with_engine_path(engine_path: EnginePath),
        with_grace(grace: Duration),
        with_deadline(deadline: Option<Duration>),
        with_connect_timeout(connect_timeout: Duration),
        with_drain(drain: Duration),
        with_listen(listen: EngineAddress),
        with_allow(allow: Vec<String>),
        with_key(key: Option<EngineKey>),
        with_key_file(key_file: Option<PathBuf>),
        with_insecure(insecure: bool),
        with_path(path: PathConfig),
    }
}

impl EngineConfig {
    /// Returns the configuration of an engine named `name` in which each setting has its default.
    #[must_use]
    pub fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            device: DeviceChoice::default(),
            provider: ProviderChoice::default(),
            libfabric: None,
            rails: 1,
            gpu: GpuSelector::default(),
            gid: GidChoice::default(),
            qps: 4,
            workers: 1,
            cpus: EngineCpus::default(),
            cq: EngineCq::default(),
            log_depth: 9,
            log_entries: 15,
            chain: 16,
            reap: 64,
            slice: 1 << 16,
            fragment: 1 << 12,
            gather: 4,
            inline: 28,
            transfers: 4096,
            peers: 1024,
            inbox: 1 << 22,
            retry: 3,
            pairing: EnginePairing::default(),
            engine_path: EnginePath::default(),
            grace: Duration::from_millis(200),
            deadline: None,
            connect_timeout: Duration::from_secs(5),
            drain: Duration::from_secs(5),
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)).into(),
            allow: Vec::new(),
            key: None,
            key_file: None,
            insecure: false,
            path: PathConfig::default(),
        }
    }

    /// Returns the configuration of an engine named `name` from the environment of this process.
    ///
    /// # Errors
    /// [`ConfigError`] if a variable has a value that it cannot have.
    pub fn from_env(name: &str) -> Result<Self, ConfigError> {
        Self::from_variables(name, |variable| std::env::var_os(variable))
    }

    /// Returns the configuration from any source of variables, as `from_env` does from the environment.
    ///
    /// # Errors
    /// As [`EngineConfig::from_env`].
    pub fn from_variables<T: Into<OsString>>(
        name: &str,
        variable: impl Fn(&str) -> Option<T>,
    ) -> Result<Self, ConfigError> {
        Source::reading(variable, |source| Self::read(name, source))
    }

    fn read(name: &str, source: &Source<'_>) -> Result<Self, ConfigError> {
        let log_depth = source.word("WARPVERBS_ENGINE_DEPTH", &ENGINE_DEPTH)?;
        let workers = source.number("WARPVERBS_ENGINE_WORKERS")?;
        let qps = source.number("WARPVERBS_ENGINE_QPS")?;
        let peers = source.number("WARPVERBS_ENGINE_PEERS")?;
        let cq = source.word("WARPVERBS_ENGINE_CQ", &ENGINE_CQ)?;
        let sharers = match cq {
            EngineCq::Worker => workers,
            EngineCq::Nic => 1,
        };
        Ok(Self {
            device: source.parsed("WARPVERBS_DEVICE")?,
            provider: source.parsed("WARPVERBS_PROVIDER")?,
            libfabric: source.given("WARPVERBS_LIBFABRIC", file)?,
            rails: source.number("WARPVERBS_ENGINE_RAILS")?,
            gpu: source.read("WARPVERBS_GPU", GpuSelector::of_word)?,
            gid: source.parsed("WARPVERBS_GID")?,
            qps,
            workers,
            cpus: source.read("WARPVERBS_ENGINE_CPUS", |text| text.parse().ok())?,
            cq,
            log_depth,
            log_entries: log_entries(peers, qps, sharers, log_depth),
            chain: source.number("WARPVERBS_ENGINE_CHAIN")?,
            reap: source.number("WARPVERBS_ENGINE_REAP")?,
            slice: source.number("WARPVERBS_ENGINE_SLICE")?,
            fragment: source.number("WARPVERBS_ENGINE_FRAGMENT")?,
            gather: source.number("WARPVERBS_ENGINE_GATHER")?,
            inline: source.number("WARPVERBS_ENGINE_INLINE")?,
            transfers: source.number("WARPVERBS_ENGINE_TRANSFERS")?,
            peers,
            inbox: source.number("WARPVERBS_ENGINE_INBOX")?,
            retry: source.number("WARPVERBS_ENGINE_RETRY")?,
            deadline: source
                .optional("WARPVERBS_ENGINE_DEADLINE_MS")?
                .map(Duration::from_millis),
            listen: source.read("WARPVERBS_ENGINE_LISTEN", |text| text.parse().ok())?,
            allow: source
                .given("WARPVERBS_ENGINE_ALLOW", names)?
                .unwrap_or_default(),
            key_file: source.given("WARPVERBS_ENGINE_KEY_FILE", file)?,
            pairing: source.word("WARPVERBS_ENGINE_PAIRING", &ENGINE_PAIRING)?,
            engine_path: source.word("WARPVERBS_ENGINE_PATH", &ENGINE_PATH)?,
            connect_timeout: source.milliseconds("WARPVERBS_ENGINE_CONNECT_TIMEOUT_MS")?,
            path: PathConfig::read(source)?,
            ..Self::new(name)
        })
    }
}

/// Returns the file of this path. An empty text is none.
fn file(path: &str) -> Option<PathBuf> {
    (!path.is_empty()).then(|| PathBuf::from(path))
}

/// Returns the names in a list with commas. An empty text is no list: it would let every engine in.
fn names(text: &str) -> Option<Vec<String>> {
    let names = text.split(',').map(|name| name.trim().to_owned());
    let names: Vec<String> = names.collect();
    let fit = names.iter().all(|name| (1..=255).contains(&name.len()));
    fit.then_some(names)
}

/// An engine takes memory at its start for the QPs to this many peers.
const FIRST_PEERS: u32 = 16;

/// Returns log2 of the entries of the first CQ of a worker. The worker's QPs to the first peers have a share in it.
fn log_entries(peers: u32, qps: u32, workers: u32, log_depth: u8) -> u8 {
    // A connection has its first QPs on the first workers, so these have the most.
    let of_connection = qps.div_ceil(workers.max(1));
    let queues = peers.min(FIRST_PEERS) * of_connection;
    let log_queues = queues.max(1).next_power_of_two().ilog2();
    u8::try_from(u32::from(log_depth) + log_queues)
        .unwrap_or(MOST_LOG_ENTRIES)
        .min(MOST_LOG_ENTRIES)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(set: &[(&str, &str)]) -> EngineConfig {
        let variable = |asked: &str| {
            let found = set
                .iter()
                .find(|(name, _)| asked == format!("WARPVERBS_ENGINE_{name}"));
            found.map(|(_, value)| (*value).to_owned())
        };
        EngineConfig::from_variables("a", variable).unwrap()
    }

    #[test]
    fn the_first_cq_has_a_share_for_the_qps_to_the_first_peers_only() {
        assert_eq!(of(&[]).log_entries, EngineConfig::new("a").log_entries);
        for peers in ["1", "3", "16", "17", "65536"] {
            for qps in ["1", "3", "8"] {
                for workers in ["1", "2", "8"] {
                    for depth in ["256", "32768"] {
                        let config = of(&[
                            ("PEERS", peers),
                            ("QPS", qps),
                            ("WORKERS", workers),
                            ("DEPTH", depth),
                        ]);
                        // The first worker has the most QPs of each connection.
                        let first = (0..config.qps).filter(|nth| nth % config.workers == 0);
                        let peers = config.peers.min(FIRST_PEERS);
                        let queues = u64::from(peers) * first.count() as u64;
                        let has = 1u64 << config.log_entries;
                        let needed = queues << config.log_depth;
                        assert!(has >= needed, "{config:?}");
                        assert!(config.log_entries <= MOST_LOG_ENTRIES);
                        assert!(has < 2 * needed.max(1), "{config:?}");
                        assert!(config.log_entries >= config.log_depth);
                    }
                }
            }
        }
    }
}
