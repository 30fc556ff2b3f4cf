//! The engine of a process on one HCA or several: regions, peers, transfers.

use std::fmt;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use rendezvous::Store;

use crate::config::{CpuList, EngineAddress, EngineConfig, EngineCq, EngineKey, GpuSelector};
use crate::engine::config::{bounded, check, key, log_receives, pace, sizes};
use crate::engine::connection::admission::{accept_all, connect_over};
use crate::engine::connection::core::Listening;
use crate::engine::connection::publication::{ENGINES, Publication};
use crate::engine::error::{EngineError, HostError};
use crate::engine::ids::RegionId;
use crate::engine::inner::{CloseReport, Inner, NewEngine};
use crate::engine::ledger::tally::Statistics;
use crate::engine::lock::lock;
use crate::engine::memory::grant::Grant;
use crate::engine::memory::numbers::number_of_engine;
use crate::engine::memory::regions::Descriptor;
use crate::engine::peer::Peer;
use crate::engine::places::cpus;
use crate::engine::places::devices::{self, EngineDevices};
use crate::engine::route::rails::{RailStatus, Rails};
use crate::engine::transfers::{Sizes, Transfers};
use crate::engine::wire::listener::Listener;
use crate::engine::wire::messages::Wire;
use crate::engine::wire::seal::Role;
use crate::engine::wire::streams::Stream;
use crate::engine::worker::{Pool, Seat, Workers};
use crate::error::OwnThread;
use crate::gpu::Gpu;
use crate::provider::shape::RailShape;
use crate::provider::{AnyMemory, EngineDevice, Host, HostRail, ProviderError, Wake};
use crate::verbs::{Context, VerbsError};

/// A host engine: regions, peers and transfers of one process, on one HCA or several.
pub struct Engine {
    pub(super) inner: Arc<Inner>,
}

impl Engine {
    /// Makes an engine on this device, an open one of any provider.
    ///
    /// # Errors
    /// As [`Engine::on`].
    pub fn new<D>(device: &D, config: EngineConfig) -> Result<Self, HostError>
    where
        D: Clone + Into<EngineDevice>,
    {
        Self::on(std::slice::from_ref(device), config)
    }

    /// Makes an engine on these devices, which are open. Its transfers are striped over all of them. A device that takes shorter messages
    /// or fewer ranges than `config` says bounds those of the engine.
    ///
    /// # Errors
    /// [`HostError::Refused`]: a value of `config` is outside its limits, or there is no device, too many, or one twice;
    /// [`HostError::KeyFile`]; [`HostError::Provider`]: what an HCA refuses; [`EngineError::EngineNumbers`].
    pub fn on<D>(devices: &[D], config: EngineConfig) -> Result<Self, HostError>
    where
        D: Clone + Into<EngineDevice>,
    {
        let devices: Vec<EngineDevice> = devices.iter().cloned().map(Into::into).collect();
        Self::on_each(&devices, config)
    }

    fn on_each(all: &[EngineDevice], config: EngineConfig) -> Result<Self, HostError> {
        check(&config)?;
        let mut config = bounded(config, all);
        let sizes = sizes(&config)?;
        config.key = key(&config)?;
        let cpus = Self::worker_cpus(all, &config)?;
        let shape = RailShape {
            log_depth: config.log_depth,
            log_receives: log_receives(config.log_depth),
            log_entries: config.log_entries,
            workers: config.workers,
            shares_cqs: config.cq == EngineCq::Nic,
            pkey: config.path.pkey,
            lag_port: config.path.lag_port.unwrap_or(0),
            ranges: config.gather,
            inline: config.inline,
        };
        let rails = Arc::new(Rails::new(all, &shape)?);
        let (qps, devices) = (config.qps, all.len());
        if (qps as usize) < devices {
            return Err(EngineError::FewQps { qps, devices }.into());
        }
        let number = number_of_engine()?;
        let sizes = Sizes {
            workers: rails.workers(),
            ..sizes
        };
        let transfers = Arc::new(Transfers::new(number, &sizes)?);
        let cpus = cpus::of_each(&config.cpus, cpus, config.workers);
        let seats = rails.reapers().into_iter().zip(cpus);
        let seats = seats.map(|(reaper, cpus)| Seat { reaper, cpus });
        let pool = Pool::<Host>::start(&transfers, seats.collect(), pace(&config))?;
        let pool = Arc::new(pool);
        let inner = Inner::new(NewEngine {
            config,
            rails,
            transfers,
            workers: Arc::clone(&pool) as Arc<dyn Workers>,
            pool,
        })?;
        Ok(Self {
            inner: Arc::new(inner),
        })
    }

    /// Returns the number of this life of the engine.
    #[must_use]
    pub fn incarnation(&self) -> u64 {
        self.inner.core.hello.incarnation
    }

    /// Registers all of `memory`: an `Arc` of [`HostMemory`](crate::engine::HostMemory) or of
    /// [`GpuMemory`](crate::engine::GpuMemory). Memory that is registered already is shared. Memory of a GPU is registered on
    /// every HCA by its best DMA-BUF, or by its address if there is none.
    ///
    /// # Errors
    /// [`EngineError::Overlap`]: a region has a part of it; [`EngineError::Freed`]: it overlaps a region whose memory was freed;
    /// [`EngineError::RegionBytes`]: it is longer than a region of one of the devices, and no device has any of it then;
    /// [`EngineError::OtherKind`]; [`EngineError::RegionNumbers`]; [`EngineError::Closing`]; [`HostError::Provider`]: what the
    /// HCA or the GPU refuses.
    pub fn register(&self, memory: impl Into<AnyMemory>) -> Result<RegionId, HostError> {
        let ids = self.register_each(&[memory.into()]);
        ids.map(|ids| ids[0]).map_err(|(_, error)| error)
    }

    /// Registers each of `memories`, or none. Returns their regions, in their order. Memory inside a region, or inside another of
    /// these, shares its registration. Memory side by side does not. An empty list has no regions.
    ///
    /// # Errors
    /// [`HostError::Listed`]: names the memory that cannot be registered, and an error of [`Engine::register`]. Of two that
    /// overlap it names the one that begins later.
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
        if self.inner.core.is_closing.load(Ordering::Acquire) {
            return Err((0, EngineError::Closing.into()));
        }
        regions.register(&self.inner.core.rails, memories)
    }

    /// Takes a region away, from peers too. The registration ends with the last region that shares it.
    ///
    /// # Errors
    /// [`EngineError::Busy`]: transfers or grants use it, or a peer of this machine does not end a copy.
    /// [`EngineError::UnknownRegion`]; [`EngineError::ForeignRegion`]: the region is another engine's. [`HostError::Provider`]:
    /// the HCA keeps the registration, so the region stays.
    pub fn deregister(&self, region: RegionId) -> Result<(), HostError> {
        match self.inner.deregister(region) {
            // Perhaps only grants of ended connections use the region.
            Err(HostError::Refused(EngineError::Busy { .. }))
                if self.inner.core.keys.end_orphans() =>
            {
                self.inner.deregister(region)
            }
            done => done,
        }
    }

    /// Returns the description of a region that a peer needs. The program carries it to the peer.
    ///
    /// # Errors
    /// [`EngineError::UnknownRegion`]; [`EngineError::ForeignRegion`]: the region is another engine's.
    pub fn descriptor(&self, region: RegionId) -> Result<Descriptor, HostError> {
        self.inner.descriptor(region)
    }

    /// Lets other engines connect at `address`. The system chooses a port in the place of port 0. Returns the address with the
    /// port that it has, or with the path from the root on.
    ///
    /// All users of the machine reach a port of loopback. Only processes of this user reach a Unix socket. The socket goes with
    /// the engine. A socket that a process has left over is replaced.
    ///
    /// # Errors
    /// [`HostError::Insecure`]: the address is not loopback, the engine has no key, and `insecure` is not set; [`EngineError::Closing`];
    /// [`HostError::Listen`]: a process listens there, or the system refuses; [`HostError::Provider`]: the system.
    pub fn listen(&self, address: EngineAddress) -> Result<EngineAddress, HostError> {
        let EngineConfig { insecure, key, .. } = &self.inner.core.config;
        if let EngineAddress::Tcp(address) = address
            && !is_loopback(address.ip())
            && !insecure
            && key.is_none()
        {
            return Err(HostError::Insecure { address });
        }
        let listener = Listener::bind(&address)?;
        let address = listener.address().clone();
        let listening = Arc::new(Listening {
            wake: Wake::new()?,
            stops: AtomicBool::new(false),
        });
        let (core, own) = (Arc::downgrade(&self.inner.core), Arc::clone(&listening));
        let body = move || accept_all(&core, &listener, &own);
        // `close` sets the flag before it takes the listeners. So it ends this listener, or this thread sees the flag.
        let mut listeners = lock(&self.inner.listeners);
        if self.inner.core.is_closing.load(Ordering::Acquire) {
            return Err(EngineError::Closing.into());
        }
        let thread = OwnThread::spawn("wv-engine-listen", body, |_| {});
        let thread = thread.map_err(ProviderError::from)?;
        listeners.push((listening, thread));
        drop(listeners);
        Ok(address)
    }

    /// Lets other engines connect at the address of the configuration. Returns the address, as [`Engine::listen`] does.
    ///
    /// # Errors
    /// As [`Engine::listen`].
    pub fn listen_as_configured(&self) -> Result<EngineAddress, HostError> {
        self.listen(self.configured_address().clone())
    }

    /// Returns the address of the configuration.
    #[must_use]
    pub fn configured_address(&self) -> &EngineAddress {
        &self.inner.core.config.listen
    }

    /// Connects to the engine that listens at `place`, as `host:port` or `unix:PATH`.
    ///
    /// # Errors
    /// [`HostError::Connection`]: no engine listens, its settings do not fit, or it refuses. [`HostError::Distrusted`]: the two
    /// have different keys.
    pub fn connect(&self, place: &str) -> Result<Peer, HostError> {
        let most = self.inner.core.config.connect_timeout;
        let wire = Wire::new(Stream::connect(place, most)?, most);
        let connected = connect_over(&self.inner.core, wire, place, Role::Connects)?;
        Ok(Peer::new(&self.inner, connected))
    }

    /// Returns the next peer that has connected to this engine. None: the time is over.
    #[must_use]
    pub fn accept(&self, most: Duration) -> Option<Peer> {
        let end = Instant::now().checked_add(most);
        let mut peers = lock(&self.inner.core.peers);
        loop {
            if let Some(arrived) = peers.accept() {
                return Some(Peer::new(&self.inner, arrived));
            }
            let left = end.map_or(most, |end| end.saturating_duration_since(Instant::now()));
            if left.is_zero() || self.inner.core.is_closing.load(Ordering::Acquire) {
                return None;
            }
            let waited = self.inner.core.arrived.wait_timeout(peers, left);
            peers = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Opens the mlx5 HCAs that an engine with this configuration would be on, as [`Engine::open_nics`] does, for programs that use them by
    /// DevX.
    ///
    /// # Errors
    /// As [`Engine::open_nics`]; [`HostError::Provider`] if a device is driven by another provider.
    pub fn open_devices(config: &EngineConfig) -> Result<Vec<Arc<Context>>, HostError> {
        let devices = Self::open_nics(config)?;
        let context = |device: &EngineDevice| {
            let context = device.context().cloned();
            context.ok_or_else(|| VerbsError::Capability {
                device: device.name().to_owned(),
                what: "provider",
                has: device.provider().to_owned(),
                needed: "mlx5, for a program that uses DevX".to_owned(),
            })
        };
        let contexts = devices.iter().map(context).collect::<Result<_, _>>();
        Ok(contexts?)
    }

    /// Opens the devices that an engine with this configuration would be on, and makes nothing on them. The provider of the configuration
    /// drives them; `auto` takes mlx5, and for a device without DevX verbs. Among ports `auto` takes the nearest, then the fastest, then
    /// the first by name. If a port does not open, it takes the next one. The log says at `info` why it passes over a port, and why it
    /// takes another provider.
    ///
    /// # Errors
    /// [`HostError::Refused`]: a value of `config` is outside its limits, or there are too many devices, or more rails than QPs.
    /// [`HostError::Provider`]: a device does not exist or cannot be used (with `auto` every port and its reason), or a CUDA
    /// device does not exist.
    pub fn open_nics(config: &EngineConfig) -> Result<Vec<EngineDevice>, HostError> {
        let found = Self::choose_devices(config)?;
        for port in &found.passed_over {
            tracing::info!("engine '{}' passes over {port}", config.name);
        }
        for step in &found.steps {
            tracing::info!("engine '{}': {step}", config.name);
        }
        let (taken, wanted) = (found.devices.len(), config.rails as usize);
        if config.device.is_auto() && taken < wanted {
            tracing::warn!(
                "engine '{}' has {taken} of {wanted} rails (WARPVERBS_ENGINE_RAILS): no other port is as near and as fast",
                config.name
            );
        }
        Ok(found.devices)
    }

    /// Opens devices as [`Engine::open_nics`] does, and also returns the ports that `auto` passes over, and why a provider was not taken.
    /// The log says nothing.
    ///
    /// # Errors
    /// As [`Engine::open_nics`].
    pub fn choose_devices(config: &EngineConfig) -> Result<EngineDevices, HostError> {
        check(config)?;
        devices::open(config)
    }

    /// Opens the devices that `config` names, and makes an engine on them.
    ///
    /// # Errors
    /// As [`Engine::open_nics`] and [`Engine::on`].
    pub fn start(config: EngineConfig) -> Result<Self, HostError> {
        let devices = Self::open_nics(&config)?;
        Self::on(&devices, config)
    }

    /// Returns the CPUs on which the workers of each rail would run, of an engine with this configuration on these devices. None:
    /// they run on all CPUs that the process may use.
    ///
    /// # Errors
    /// [`HostError::Refused`]: the process may not use a CPU of the list.
    pub fn worker_cpus<D>(
        devices: &[D],
        config: &EngineConfig,
    ) -> Result<Vec<Option<CpuList>>, HostError>
    where
        D: Clone + Into<EngineDevice>,
    {
        let of_rail = |device: &D| {
            let device: EngineDevice = device.clone().into();
            cpus::choose(&config.cpus, device.local_cpus().as_deref())
        };
        devices.iter().map(of_rail).collect()
    }

    /// Returns the key that an engine with this configuration would have, perhaps from a file.
    ///
    /// # Errors
    /// [`HostError::KeyFile`].
    pub fn read_key(config: &EngineConfig) -> Result<Option<EngineKey>, HostError> {
        key(config)
    }

    /// Returns whether the engine takes nothing new, since [`Engine::close`] was called.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.inner.core.is_closing.load(Ordering::Acquire)
    }

    /// Returns the names of the RDMA devices that the engine is on, in the order of its rails.
    #[must_use]
    pub fn devices(&self) -> Vec<&str> {
        let rails = self.inner.core.rails.all().iter();
        rails.map(HostRail::device).collect()
    }

    /// Returns what each rail has done.
    #[must_use]
    pub fn rails(&self) -> Vec<RailStatus> {
        let rails = &self.inner.core.rails;
        let all = rails.all().iter().enumerate();
        let transfers = &self.inner.core.transfers;
        let status = all.map(|(nth, rail)| {
            let rest = rails.rest(nth, |rest, now| (rest.state(now), rest.begun()));
            let (state, rests) = rest.unwrap_or_default();
            RailStatus {
                device: rail.device().to_owned(),
                port: rail.port(),
                state,
                rests,
                slices: transfers.queues().by_nic(rails.workers_of(nth)),
                refusals: rail.refusals(),
            }
        });
        status.collect()
    }

    /// Returns what the engine has done since its start, in one consistent look. Never waits.
    #[must_use]
    pub fn statistics(&self) -> Statistics {
        self.inner.core.transfers.statistics()
    }

    /// Opens a GPU for [`GpuMemory`](crate::engine::GpuMemory), without kernels. It is opened once, and closed with the engine.
    /// `simt` stands for a GPU where there is none: its memory is host memory of the process.
    ///
    /// # Errors
    /// [`EngineError::Closing`]; [`HostError::Provider`]: there is no such GPU, or the driver fails.
    pub fn gpu(&self, selector: GpuSelector) -> Result<Arc<dyn Gpu>, HostError> {
        if self.is_closed() {
            return Err(EngineError::Closing.into());
        }
        let opened = self.inner.gpus.open(selector);
        Ok(opened.map_err(ProviderError::from)?)
    }

    /// Ends a grant, and returns when the HCA has destroyed its key. Requests that the peer begins after that fail. The memory
    /// may then be used for something else. A grant that has ended already is no error.
    ///
    /// # Errors
    /// [`EngineError::UnknownGrant`]: the grant is of another engine or an earlier life of this one; [`HostError::Provider`]: the
    /// HCA keeps the key, so the peer may still use it, and the program may call this again.
    pub fn revoke(&self, grant: &Grant) -> Result<(), HostError> {
        let number = grant.number;
        if grant.owner != self.incarnation() {
            return Err(EngineError::UnknownGrant { number }.into());
        }
        let ended = self.inner.core.keys.end(number);
        self.inner.core.transfers.waiting().change();
        Ok(ended?)
    }

    /// Returns how many grants have not ended.
    #[must_use]
    pub fn grants(&self) -> usize {
        self.inner.core.keys.count()
    }

    /// Takes a region away as [`Engine::deregister`] does, but first waits up to `most` for transfers and grants that use it.
    ///
    /// # Errors
    /// [`EngineError::Busy`]: some still use it; otherwise as [`Engine::deregister`].
    pub fn deregister_wait(&self, region: RegionId, most: Duration) -> Result<(), HostError> {
        let mut busy = None;
        let look = || match self.deregister(region) {
            Err(HostError::Refused(error @ EngineError::Busy { .. })) => {
                busy = Some(error);
                Ok(None)
            }
            other => Ok(Some(other)),
        };
        let done = self.inner.core.transfers.waiting().until(most, look)?;
        done.unwrap_or_else(|| Err(busy.unwrap_or(EngineError::Closing).into()))
    }

    /// Publishes in `store` that the engine of this name listens at `address`, until [`Engine::unpublish`] or the end of the engine.
    ///
    /// A process that is killed keeps its name for at most ten seconds. A store without leases keeps the record of such a process.
    ///
    /// # Errors
    /// As [`Publication::new`].
    pub fn publish(
        &self,
        store: &Arc<dyn Store>,
        address: &EngineAddress,
    ) -> Result<(), HostError> {
        if self.is_closed() {
            return Err(EngineError::Closing.into());
        }
        let name = &self.inner.core.config.name;
        let made = Publication::new(store, ENGINES, name, address)?;
        let mut published = lock(&self.inner.published);
        published.push(made);
        // A close that has begun meanwhile has taken only the names before this one.
        if self.is_closed() {
            published.clear();
        }
        Ok(())
    }

    /// Takes this engine's name out of the stores that it was published in.
    pub fn unpublish(&self) {
        let published = std::mem::take(&mut *lock(&self.inner.published));
        drop(published);
    }

    /// Connects to the engine that has published its name in `store`.
    ///
    /// # Errors
    /// [`HostError::UnknownName`]; [`HostError::Store`]; otherwise as [`Engine::connect`].
    pub fn connect_by_name(&self, store: &dyn Store, name: &str) -> Result<Peer, HostError> {
        self.connect(&Publication::find(store, ENGINES, name)?)
    }

    /// Closes the engine: it takes nothing new, waits for what runs, ends all connections and all threads, and takes all regions
    /// away. A second call only reports.
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

/// Returns how often threads of the engine have woken: workers, and those that watch its connections. For tests.
#[must_use]
pub fn wakes(engine: &Engine) -> [u64; 2] {
    let inner = &engine.inner;
    [inner.core.workers.wakes(), lock(&inner.core.peers).wakes()]
}

/// Returns on what a worker of each NIC sleeps that has a connection and nothing to do, in words. Measurements print this.
#[must_use]
pub fn sleeps_on(engine: &Engine) -> Vec<&'static str> {
    let rails = engine.inner.core.rails.all().iter();
    rails.map(HostRail::sleeps_on).collect()
}

/// Returns how each NIC of the engine has registered the memory of a region, and which ways it refused. Measurements print this.
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

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hello = &self.inner.core.hello;
        write!(f, "Engine({}, {:#x})", hello.name, hello.incarnation)
    }
}
