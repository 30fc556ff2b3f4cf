//! What engines and workers cost that have no work.

use std::net::{Ipv4Addr, SocketAddr};
use std::thread;
use std::time::{Duration, Instant};

use warpverbs::engine::EngineDevice;
use warpverbs::internal::engine::{Engine, Peer, sleeps_on};

use super::options::{EngineOptions, wrong};
use super::report::{Idle, IdleWorker};
use crate::error::BenchError;
use crate::host::p2p::{self, P2pOptions, Pair};

/// Longest wait for a peer that connects; far more than any takes.
const PATIENCE: Duration = Duration::from_secs(120);
/// The most QPs of a connection. Each idle peer has so many.
pub(super) const QPS_OF_A_PEER: u32 = 8;
/// The number of peers of the engine whose idle time is measured.
const IDLE_PEERS: u32 = 64;

/// Engines that are connected to one engine and do nothing.
pub(super) struct Crowd<'a> {
    connected: Vec<(Peer, Peer, Engine)>,
    place: String,
    device: &'a EngineDevice,
    options: &'a EngineOptions,
    /// The number of engines made until now, from which each gets a name of its own.
    made: u32,
}

impl<'a> Crowd<'a> {
    /// Returns a crowd of `hub` that has no engine yet. All its engines will be on this device.
    pub(super) fn new(
        hub: &Engine,
        device: &'a EngineDevice,
        options: &'a EngineOptions,
    ) -> Result<Self, BenchError> {
        let any = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 0);
        Ok(Self {
            connected: Vec::new(),
            place: hub.listen(any.into())?.to_string(),
            device,
            options,
            made: 0,
        })
    }

    /// Connects engines to `hub` until the QPs of all are as many as the options say.
    pub(super) fn come(&mut self, hub: &Engine) -> Result<(), BenchError> {
        self.grow(hub, self.options.idle_qps.div_ceil(QPS_OF_A_PEER))
    }

    /// Ends all engines of the crowd.
    pub(super) fn go(&mut self) {
        self.connected.clear();
    }

    /// Connects idle engines to `hub` until there are `count`.
    fn grow(&mut self, hub: &Engine, count: u32) -> Result<(), BenchError> {
        while self.connected.len() < count as usize {
            self.made += 1;
            let nth = self.made;
            let options = P2pOptions {
                qps: QPS_OF_A_PEER,
                ..self.options.p2p()
            };
            let config = p2p::config(&format!("idle-{nth}"), &options)?;
            let engine = Engine::new(self.device, config.with_log_depth(8))?;
            let peer = engine.connect(&self.place)?;
            let back = hub.accept(PATIENCE);
            let back = back.ok_or_else(|| wrong(format!("idle-{nth} did not come")))?;
            if u64::from(QPS_OF_A_PEER) != back.qps() {
                return Err(wrong(format!("idle-{nth} has {} QPs", back.qps())));
            }
            self.connected.push((peer, back, engine));
        }
        Ok(())
    }

    /// Returns what all engines of this process cost while `hub` has as many idle peers as are measured. They are ended after that.
    pub(super) fn idle(&mut self, hub: &Engine) -> Result<Idle, BenchError> {
        // The other end of the pair is one of the peers, too.
        self.grow(hub, IDLE_PEERS - 1)?;
        // The system cuts thread names at 15 bytes.
        let ran = watch(self.options, |name| name.starts_with("wv-engine"))?;
        let engines = self.connected.len();
        self.go();
        Ok(Idle {
            peers: IDLE_PEERS,
            // The two ends are engines as well.
            engines: u32::try_from(engines).unwrap_or(u32::MAX) + 2,
            threads: ran.threads,
            percent_of_core: ran.percent_of_core,
        })
    }
}

/// Returns what a worker costs while the two engines of `pair` are connected, have nothing to do, and are the only ones of this process.
pub(super) fn idle_worker(pair: &Pair, options: &EngineOptions) -> Result<IdleWorker, BenchError> {
    // Other threads of an engine have a word in place of the number.
    let ran = watch(options, |name| {
        let number = name.strip_prefix("wv-engine-");
        number.is_some_and(|number| number.bytes().all(|digit| digit.is_ascii_digit()))
    })?;
    let rests = sleeps_on(&pair.engines[0]);
    let first = rests.first().copied();
    #[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
    let workers = ran.threads.max(1) as f64;
    Ok(IdleWorker {
        workers: ran.threads,
        percent_of_core: ran.percent_of_core / workers,
        sleeps_on: first.ok_or_else(|| wrong("an engine without a device".to_owned()))?,
    })
}

/// How long some threads ran.
struct Ran {
    threads: usize,
    /// CPU time of all of them, in percent of a core.
    percent_of_core: f64,
}

/// Watches the threads with such names for a while.
#[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
fn watch(options: &EngineOptions, is_watched: fn(&str) -> bool) -> Result<Ran, BenchError> {
    let watched = Duration::from_millis(options.idle_ms.into());
    thread::sleep(watched / 4);
    let (begin, (before, _)) = (Instant::now(), ran(is_watched)?);
    thread::sleep(watched);
    let (after, threads) = ran(is_watched)?;
    let seconds = after.saturating_sub(before) as f64 / 1e9;
    Ok(Ran {
        threads,
        percent_of_core: 100.0 * seconds / begin.elapsed().as_secs_f64(),
    })
}

/// Returns for how many nanoseconds the threads with such names have run, and how many they are.
fn ran(is_watched: fn(&str) -> bool) -> Result<(u64, usize), BenchError> {
    let of_one = |task: std::io::Result<std::fs::DirEntry>| {
        let task = task.ok()?.path();
        let name = std::fs::read_to_string(task.join("comm")).ok()?;
        let times = std::fs::read_to_string(task.join("schedstat")).ok()?;
        let is_own = is_watched(name.trim_end());
        is_own.then(|| times.split(' ').next()?.parse::<u64>().ok())?
    };
    let tasks = std::fs::read_dir("/proc/self/task");
    let tasks = tasks.map_err(|error| wrong(format!("/proc/self/task: {error}")))?;
    let times: Vec<u64> = tasks.filter_map(of_one).collect();
    Ok((times.iter().sum(), times.len()))
}
