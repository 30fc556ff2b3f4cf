//! The engine of a process on one HCA or several: regions, peers, transfers.

use std::fmt;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::{Duration, Instant};

use crate::config::{EngineAddress, EngineConfig, EngineCq};
use crate::engine::config::{check, key, log_receives, pace};
use crate::engine::connection::admission::{Listening, Peers, accept_all, connect_over};
use crate::engine::connection::handshake::hello;
use crate::engine::connection::publication::Publication;
use crate::engine::error::{EngineError, HostError};
use crate::engine::gpus::Gpus;
use crate::engine::ids::{RegionId, number_of_engine};
use crate::engine::ledger::account::Outcome;
use crate::engine::ledger::cut::Cut;
use crate::engine::ledger::report::Report;
use crate::engine::ledger::slots::{Status, TransferId};
use crate::engine::lives::known::{AllKnown, PeerGone};
use crate::engine::memory::keys::{Keys, PeerKey};
use crate::engine::memory::regions::Descriptor;
use crate::engine::memory::registry::{Registry, Step};
use crate::engine::peer::Peer;
use crate::engine::route::counter::Counters;
use crate::engine::route::local::Local;
use crate::engine::route::rails::Rails;
use crate::engine::transfers::Transfers;
use crate::engine::wire::listener::Listener;
use crate::engine::wire::messages::{Hello, Wire};
use crate::engine::wire::seal::Role;
use crate::engine::wire::streams::Stream;
use crate::engine::worker::Pool;
use crate::engine::worker::cpus;
use crate::error::OwnThread;
use crate::provider::mlx5::RailShape;
use crate::provider::{AnyMemory, Host, ProviderError, Wake};
use crate::verbs::Context;

/// What was left when an engine was closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CloseReport {
    /// Transfers that still ran when the time for them was over, and so have failed.
    pub cut_off: u32,
    /// Transfers that were done since the engine was made.
    pub done: u64,
    /// Transfers that failed since the engine was made.
    pub failed: u64,
    /// Transfers that were cancelled since the engine was made.
    pub cancelled: u64,
    /// Transfers that ran into their deadline since the engine was made.
    pub timed_out: u64,
}

/// A host engine: regions, peers and transfers of one process, on one HCA or several.
pub struct Engine {
    pub(super) inner: Arc<Inner>,
}

pub(super) struct Inner {
    pub(super) config: EngineConfig,
    pub(super) cut: Cut,
    pub(super) hello: Hello,
    pub(super) transfers: Arc<Transfers>,
    pub(super) pool: Arc<Pool<Host>>,
    pub(super) local: Local,
    pub(super) counters: Arc<Counters>,
    pub(super) regions: Mutex<Registry>,
    /// A region was taken away, or stays.
    pub(super) left: Condvar,
    pub(super) peers: Mutex<Peers>,
    pub(super) arrived: Condvar,
    pub(super) listeners: Mutex<Vec<(Arc<Listening>, OwnThread)>>,
    /// Its name in stores.
    pub(super) published: Mutex<Vec<Publication>>,
    pub(super) gpus: Gpus,
    pub(super) links: AtomicU64,
    pub(super) is_closing: AtomicBool,
    /// Held by a submitter, from its look at `is_closing` until the transfer has begun.
    pub(super) submitting: RwLock<()>,
    pub(super) known: Arc<AllKnown>,
    /// Keys that peers have. Before the registrations behind them are gone they are ended.
    pub(super) keys: Arc<Keys<PeerKey>>,
    /// Behind all that stands on it.
    pub(super) rails: Arc<Rails>,
}

impl Engine {
    /// An engine on the device `context`.
    ///
    /// # Errors
    /// As [`Engine::on`].
    pub fn new(context: &Arc<Context>, config: EngineConfig) -> Result<Self, HostError> {
        Self::on(std::slice::from_ref(context), config)
    }

    /// An engine on these devices, whose transfers are striped over all of them.
    ///
    /// # Errors
    /// [`HostError::Refused`]: a value of `config` outside its limits, no device, too many, or one twice; [`HostError::KeyFile`];
    /// [`HostError::Provider`]: what an HCA refuses; [`EngineError::EngineNumbers`].
    pub fn on(contexts: &[Arc<Context>], mut config: EngineConfig) -> Result<Self, HostError> {
        let cut = check(&config)?;
        config.key = key(&config)?;
        let cpus = Self::worker_cpus(contexts, &config)?;
        let shape = RailShape {
            log_depth: config.log_depth,
            log_receives: log_receives(config.log_depth),
            log_entries: config.log_entries,
            workers: config.workers,
            shares_cqs: config.cq == EngineCq::Nic,
            pkey: config.path.pkey,
            lag_port: config.path.lag_port.unwrap_or(0),
        };
        let rails = Arc::new(Rails::new(contexts, &shape)?);
        let (qps, devices) = (config.qps, contexts.len());
        if (qps as usize) < devices {
            return Err(EngineError::FewQps { qps, devices }.into());
        }
        let number = number_of_engine()?;
        let how = (cut, config.gather);
        let (slots, workers) = (config.transfers, rails.workers());
        let transfers = Transfers::new(number, slots, how, workers, config.retry)?;
        let transfers = Arc::new(transfers);
        let cpus = cpus::of_each(&config.cpus, cpus, config.workers);
        let reapers = rails.reapers().into_iter().zip(cpus).collect();
        let pool = Pool::start(&transfers, reapers, pace(&config))?;
        let known = Arc::new(AllKnown::new(config.peers, config.inbox));
        let incarnation = fastrand::u64(..);
        let local = Local::new(config.engine_path, incarnation)?;
        let counters = Arc::new(Counters::new(local.board.as_ref())?);
        let regions = Registry::new(number, local.board.clone(), transfers.flushes());
        Ok(Self {
            inner: Arc::new(Inner {
                cut,
                hello: hello(&rails, &config, incarnation)?,
                config,
                transfers,
                pool: Arc::new(pool),
                local,
                counters,
                regions: Mutex::new(regions),
                left: Condvar::new(),
                peers: Mutex::default(),
                arrived: Condvar::new(),
                listeners: Mutex::default(),
                published: Mutex::default(),
                gpus: Gpus::default(),
                links: AtomicU64::new(1),
                is_closing: AtomicBool::new(false),
                submitting: RwLock::default(),
                known,
                keys: Arc::default(),
                rails,
            }),
        })
    }

    /// This life of the engine.
    #[must_use]
    pub fn incarnation(&self) -> u64 {
        self.inner.hello.incarnation
    }

    /// Registers all of `memory`: an `Arc` of [`HostMemory`](crate::engine::HostMemory) or of
    /// [`GpuMemory`](crate::engine::GpuMemory). What is registered already is shared. Memory of a GPU is registered on every HCA by its
    /// best DMA-BUF, else by its address.
    ///
    /// # Errors
    /// [`EngineError::Overlap`]: with a region in part; [`EngineError::Freed`]: with one whose memory was freed;
    /// [`EngineError::RegionBytes`]: longer than a region of one of its devices, of which then none has any of it;
    /// [`EngineError::OtherKind`]; [`EngineError::RegionNumbers`]; [`EngineError::Closing`]; [`HostError::Provider`]: what the HCA or
    /// the GPU refuses.
    pub fn register(&self, memory: impl Into<AnyMemory>) -> Result<RegionId, HostError> {
        let ids = self.register_each(&[memory.into()]);
        ids.map(|ids| ids[0]).map_err(|(_, error)| error)
    }

    /// Registers each of `memories`, or none: their regions, in their order. Memory inside a region, or inside another of these,
    /// shares its registration; memory side by side does not. An empty list has no regions.
    ///
    /// # Errors
    /// [`HostError::Listed`]: which of these cannot be registered, and why, as of [`Engine::register`]. Of two that overlap it is the
    /// one that begins later.
    pub fn register_all<'a, M>(&self, memories: &'a [M]) -> Result<Vec<RegionId>, HostError>
    where
        AnyMemory: From<&'a M>,
    {
        let memories: Vec<AnyMemory> = memories.iter().map(AnyMemory::from).collect();
        let listed = |(element, error)| HostError::Listed {
            element,
            error: Box::new(error),
        };
        self.register_each(&memories).map_err(listed)
    }

    fn register_each(&self, memories: &[AnyMemory]) -> Result<Vec<RegionId>, (usize, HostError)> {
        let mut regions = lock(&self.inner.regions);
        while memories.iter().any(|memory| regions.is_leaving(memory)) {
            let waited = self.inner.left.wait(regions);
            regions = waited.unwrap_or_else(PoisonError::into_inner);
        }
        if self.inner.is_closing.load(Ordering::Acquire) {
            return Err((0, EngineError::Closing.into()));
        }
        regions.register(&self.inner.rails, memories)
    }

    /// Takes a region away, from peers too. Its registration goes with the last region that shares it.
    ///
    /// # Errors
    /// [`EngineError::Busy`]: transfers or grants use it, or a peer of this machine does not end a copy.
    /// [`EngineError::UnknownRegion`]; [`EngineError::ForeignRegion`]: of another engine. [`HostError::Provider`]: the HCA keeps it, so
    /// it stays.
    pub fn deregister(&self, region: RegionId) -> Result<(), HostError> {
        match self.inner.deregister(region) {
            // Grants of connections that have ended may be all that uses it.
            Err(HostError::Refused(EngineError::Busy { .. })) if self.inner.keys.end_orphans() => {
                self.inner.deregister(region)
            }
            done => done,
        }
    }

    /// The description of a region that a peer needs. The program carries it to the peer.
    ///
    /// # Errors
    /// [`EngineError::UnknownRegion`]; [`EngineError::ForeignRegion`]: of another engine.
    pub fn descriptor(&self, region: RegionId) -> Result<Descriptor, HostError> {
        self.inner.descriptor(region)
    }

    /// Lets other engines connect at `address`, where port 0 is any. Where it is: with its port, or with the path from the root on.
    ///
    /// All users of the machine reach a port of loopback, and only processes of this user a Unix socket. The socket is gone with the
    /// engine. One that a process has left over is replaced.
    ///
    /// # Errors
    /// [`HostError::Insecure`]: not loopback, without a key, and `insecure` is not set; [`EngineError::Closing`];
    /// [`HostError::Listen`]: a process listens there, or the system refuses; [`HostError::Provider`]: the system.
    pub fn listen(&self, address: EngineAddress) -> Result<EngineAddress, HostError> {
        let EngineConfig { insecure, key, .. } = &self.inner.config;
        if let EngineAddress::Tcp(address) = address
            && !is_loopback(address.ip())
            && !insecure
            && key.is_none()
        {
            return Err(HostError::Insecure { address });
        }
        let system = |call| move |source| ProviderError::System { call, source };
        let listener = Listener::bind(&address)?;
        let address = listener.address().clone();
        let listening = Arc::new(Listening {
            wake: Wake::new()?,
            stops: AtomicBool::new(false),
        });
        let (inner, own) = (Arc::downgrade(&self.inner), Arc::clone(&listening));
        let body = move || accept_all(&inner, &listener, &own);
        // `close` takes the listeners after it has set the flag, so either it ends this one, or this one is not begun.
        let mut listeners = lock(&self.inner.listeners);
        if self.inner.is_closing.load(Ordering::Acquire) {
            return Err(EngineError::Closing.into());
        }
        let thread = OwnThread::spawn("wv-engine-listen", body, |_| {}).map_err(system("spawn"))?;
        listeners.push((listening, thread));
        drop(listeners);
        Ok(address)
    }

    /// Lets other engines connect at the address of its configuration. Where it is.
    ///
    /// # Errors
    /// As [`Engine::listen`].
    pub fn listen_as_configured(&self) -> Result<EngineAddress, HostError> {
        self.listen(self.configured_address().clone())
    }

    /// The address of its configuration.
    #[must_use]
    pub fn configured_address(&self) -> &EngineAddress {
        &self.inner.config.listen
    }

    /// Connects to the engine that listens at `place`, as `host:port` or `unix:PATH`.
    ///
    /// # Errors
    /// [`HostError::Connection`]: no engine listens, its settings do not fit, or it refuses. [`HostError::Distrusted`]: the two
    /// have different keys.
    pub fn connect(&self, place: &str) -> Result<Peer, HostError> {
        let most = self.inner.config.connect_timeout;
        let wire = Wire::new(Stream::connect(place, most)?, most);
        connect_over(&self.inner, wire, (place, Role::Connects))
    }

    /// The next peer that has connected to this engine. None: the time is over.
    #[must_use]
    pub fn accept(&self, most: Duration) -> Option<Peer> {
        let end = Instant::now().checked_add(most);
        let mut peers = lock(&self.inner.peers);
        loop {
            if let Some(peer) = peers.arrived.pop_front() {
                return Some(peer);
            }
            let left = end.map_or(most, |end| end.saturating_duration_since(Instant::now()));
            if left.is_zero() || self.inner.is_closing.load(Ordering::Acquire) {
                return None;
            }
            let waited = self.inner.arrived.wait_timeout(peers, left);
            peers = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// The next peer that is gone. Each life of a peer is reported once, when its last connection has ended, unless this side ended
    /// it. By then all transfers to it are concluded, and this side's QPs to it are reset. None: the time is over.
    #[must_use]
    pub fn peer_gone(&self, most: Duration) -> Option<PeerGone> {
        self.inner.known.gone(most)
    }

    /// What became of a transfer. Any number of polls say the same, until it is released.
    ///
    /// # Errors
    /// [`EngineError::ForeignId`].
    pub fn poll(&self, id: TransferId) -> Result<Status, EngineError> {
        self.inner.transfers.poll(id)
    }

    /// The same of many, in their order.
    ///
    /// # Errors
    /// [`EngineError::ForeignId`].
    pub fn poll_many(&self, ids: &[TransferId], into: &mut Vec<Status>) -> Result<(), EngineError> {
        into.clear();
        for id in ids {
            into.push(self.poll(*id)?);
        }
        Ok(())
    }

    /// Waits until the transfer is concluded, or the time is over; what became of it. Of one that is pending still,
    /// [`Engine::stalled`] tells whether it is slow or dead.
    ///
    /// # Errors
    /// [`EngineError::ForeignId`].
    pub fn wait(&self, id: TransferId, most: Duration) -> Result<Status, EngineError> {
        self.inner.transfers.wait_any(&[id], most)?;
        self.poll(id)
    }

    /// Waits until one of `ids` is concluded or unknown: its place among them. None: the time is over.
    ///
    /// # Errors
    /// [`EngineError::ForeignId`].
    pub fn wait_any(
        &self,
        ids: &[TransferId],
        most: Duration,
    ) -> Result<Option<usize>, EngineError> {
        self.inner.transfers.wait_any(ids, most)
    }

    /// Hands nothing more out of the transfer. It is concluded when the HCA has nothing more of it: wait for that. What it has for
    /// longer than `grace` is flushed, and the QPs are reset at both ends.
    ///
    /// # Errors
    /// [`EngineError::ForeignId`], [`EngineError::Released`].
    pub fn cancel(&self, id: TransferId) -> Result<(), EngineError> {
        self.inner.transfers.cancel(id)
    }

    /// What became of a concluded transfer, operation by operation.
    ///
    /// # Errors
    /// [`EngineError::Pending`], [`EngineError::Released`], [`EngineError::ForeignId`].
    pub fn report(&self, id: TransferId) -> Result<Report, EngineError> {
        let mut report = self.inner.transfers.report(id)?;
        let rail = report.first.and_then(|first| first.rail);
        report.device = rail.and_then(|rail| self.inner.rails.name(rail as usize));
        Ok(report)
    }

    /// Gives the slot of a concluded transfer back: its id is unknown from then on.
    ///
    /// # Errors
    /// [`EngineError::Pending`], [`EngineError::ForeignId`].
    pub fn release(&self, id: TransferId) -> Result<(), EngineError> {
        self.inner.transfers.release(id)
    }

    /// Transfers that were submitted and not released.
    #[must_use]
    pub fn in_use(&self) -> usize {
        self.inner.transfers.in_use()
    }

    /// Takes nothing new, waits for what runs, ends all connections and all threads, and takes all regions away. Once more only
    /// reports.
    #[must_use = "it says what was cut off"]
    pub fn close(&self) -> CloseReport {
        self.inner.close()
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.inner.close();
    }
}

impl Inner {
    pub(super) fn descriptor(&self, region: RegionId) -> Result<Descriptor, HostError> {
        lock(&self.regions).descriptor(region, self.hello.incarnation)
    }

    /// Without the lock while peers of this machine end their copies.
    fn deregister(&self, region: RegionId) -> Result<(), HostError> {
        let mut regions = lock(&self.regions);
        let leaving = loop {
            match regions.leave(region)? {
                Step::Done => return Ok(()),
                Step::Waits(leaving) => break leaving,
                Step::Taken => {
                    let waited = self.left.wait(regions);
                    regions = waited.unwrap_or_else(PoisonError::into_inner);
                }
            }
        };
        drop(regions);
        let left = leaving.wait();
        let done = lock(&self.regions).finish(&leaving, left);
        self.left.notify_all();
        done
    }

    fn close(&self) -> CloseReport {
        let was_open = !self.is_closing.swap(true, Ordering::AcqRel);
        let mut cut_off = 0;
        if was_open {
            // A submitter that has not seen `is_closing` has begun its transfer before this line, and none begins later. So workers
            // end all transfers.
            drop(
                self.submitting
                    .write()
                    .unwrap_or_else(PoisonError::into_inner),
            );
            let published = std::mem::take(&mut *lock(&self.published));
            drop(published);
            for (listening, thread) in std::mem::take(&mut *lock(&self.listeners)) {
                listening.stops.store(true, Ordering::SeqCst);
                listening.wake.wake();
                thread.join();
            }
            let (threads, arrived) = {
                let mut peers = lock(&self.peers);
                (
                    std::mem::take(&mut peers.threads),
                    std::mem::take(&mut peers.arrived),
                )
            };
            drop(arrived);
            self.arrived.notify_all();
            self.counters.close();
            let end = Instant::now() + self.config.drain;
            for (link, ..) in &threads {
                cut_off += link.drain(end.saturating_duration_since(Instant::now()));
                link.end_by_wish();
            }
            for (.., thread) in threads {
                thread.join();
            }
            self.pool.stop();
            self.counters.end_mirrors();
            self.keys.end_all();
            let regions = std::mem::replace(
                &mut *lock(&self.regions),
                Registry::new(self.transfers.engine(), None, self.transfers.flushes()),
            );
            if let Some(board) = &self.local.board
                && board.has_copiers()
            {
                tracing::error!(
                    "the memory of an engine is kept: a peer of this machine stands still within a copy"
                );
                std::mem::forget(regions);
            }
            self.transfers.waiting().change();
        }
        let count = |outcome| self.transfers.count(outcome);
        CloseReport {
            cut_off,
            done: count(Outcome::Done),
            failed: count(Outcome::Failed),
            cancelled: count(Outcome::Cancelled),
            timed_out: count(Outcome::TimedOut),
        }
    }
}

/// How often threads of the engine have woken: workers, and those that watch its connections. For tests.
#[must_use]
pub fn wakes(engine: &Engine) -> [u64; 2] {
    let inner = &engine.inner;
    let peers = lock(&inner.peers);
    let links = peers.threads.iter().filter_map(|(link, ..)| link.wake());
    [inner.pool.wakes(), links.map(Wake::wakes).sum()]
}

/// How each NIC of the engine has registered the memory of a region, and which ways it refused: what a measurement is of.
///
/// # Errors
/// [`EngineError::UnknownRegion`], [`EngineError::ForeignRegion`].
pub fn ways(engine: &Engine, region: RegionId) -> Result<Vec<String>, HostError> {
    lock(&engine.inner.regions).ways(region)
}

fn is_loopback(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => ip.is_loopback(),
        IpAddr::V6(ip) => ip.is_loopback(),
    }
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Each change is whole.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hello = &self.inner.hello;
        write!(f, "Engine({}, {:#x})", hello.name, hello.incarnation)
    }
}
