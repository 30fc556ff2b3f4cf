//! The engine of a process on one HCA: regions, peers, transfers.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rendezvous::Store;

use super::account::Outcome;
use super::config::EngineConfig;
use super::connection::Control;
use super::cut::Cut;
use super::error::EngineError;
use super::handshake::{Connected, Handshake, hello};
use super::link::Link;
use super::plan::{Kind, Operation};
use super::regions::{Descriptor, Mapped, Users};
use super::report::Report;
use super::slots::{Status, TransferId};
use super::transfers::{LocalTable, Options, Prepared, RemoteTable, Transfers, TransfersError};
use super::wire::{Hello, Wire};
use super::worker::{Pace, Pool};
use crate::error::{Error, OwnThread, Part};
use crate::provider::mlx5::{Mlx5, Mlx5Rail, RailShape, Registration};
use crate::provider::{HostMemory, ProviderError, Wake};
use crate::verbs::{Context, VerbsError};

/// Numbers engines of this process.
static ENGINES: AtomicU32 = AtomicU32::new(1);
/// Most connections that have not been accepted by the program.
const BACKLOG: usize = 1024;
/// Under this key of a store an engine of that name tells its address.
const STORE_KEY: &str = "engine";

/// An error of an engine.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HostError {
    /// Nothing was done.
    #[error(transparent)]
    Refused(#[from] EngineError),
    /// The HCA or the system.
    #[error(transparent)]
    Provider(#[from] ProviderError),
    /// A peer that cannot be connected.
    #[error("{peer}: {reason}")]
    Connection {
        /// Its place.
        peer: String,
        /// Why.
        reason: String,
    },
    /// An address that is not loopback.
    #[error(
        "{address} is reached by other machines, and who connects is asked for no key: set `insecure`, or listen on loopback"
    )]
    Insecure {
        /// Which.
        address: SocketAddr,
    },
    /// A store.
    #[error("the store says of engine '{name}': {reason}")]
    Store {
        /// The name that was looked for or told.
        name: String,
        /// Why.
        reason: String,
    },
}

impl From<VerbsError> for HostError {
    fn from(error: VerbsError) -> Self {
        Self::Provider(error.into())
    }
}

impl From<TransfersError> for HostError {
    fn from(error: TransfersError) -> Self {
        match error {
            TransfersError::Engine(error) => error.into(),
            TransfersError::Provider(error) => error.into(),
        }
    }
}

impl From<HostError> for Error {
    fn from(error: HostError) -> Self {
        Self::new(Part::Engine, error)
    }
}

/// A registered region. No other of this engine ever has the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RegionId(u64);

/// What was left when an engine was closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CloseReport {
    /// Transfers that still ran when the time for them was over, and so have failed.
    pub cut_off: u32,
    /// Since the engine was made: done.
    pub done: u64,
    /// Failed.
    pub failed: u64,
    /// Cancelled.
    pub cancelled: u64,
    /// Timed out.
    pub timed_out: u64,
}

/// The engine.
pub struct Engine {
    inner: Arc<Inner>,
}

/// A connection to another engine. It lasts until [`Peer::close`], the end of either engine, or a failure; handles may be dropped.
#[derive(Clone)]
pub struct Peer {
    inner: Arc<Inner>,
    link: Arc<Link>,
    /// What the peer has told.
    hello: Arc<Hello>,
    remote: Arc<Mutex<Arc<RemoteTable>>>,
}

struct Inner {
    config: EngineConfig,
    cut: Cut,
    hello: Hello,
    transfers: Arc<Transfers>,
    pool: Pool<Mlx5>,
    regions: Mutex<Registry>,
    peers: Mutex<Peers>,
    arrived: Condvar,
    listeners: Mutex<Vec<(Arc<Listening>, OwnThread)>>,
    links: AtomicU64,
    is_closing: AtomicBool,
    /// Behind all that stands on it.
    rail: Arc<Mlx5Rail>,
}

/// Regions of this side.
#[derive(Default)]
struct Registry {
    table: Arc<LocalTable>,
    /// Each with the address of its registration, which several may share.
    regions: HashMap<u64, u64>,
    registrations: HashMap<u64, Shared>,
    next: u64,
}

struct Shared {
    registration: Registration,
    users: Arc<Users>,
    bytes: u64,
    regions: u32,
}

#[derive(Default)]
struct Peers {
    /// All that have not ended: their control threads.
    threads: Vec<(Arc<Link>, Arc<Hello>, OwnThread)>,
    /// Those that have connected and were not accepted yet.
    arrived: VecDeque<Peer>,
}

struct Listening {
    wake: Wake,
    stops: AtomicBool,
}

impl Engine {
    /// An engine on the device `context`.
    ///
    /// # Errors
    /// [`HostError::Refused`]: a value of `config` outside its limits; [`HostError::Provider`]: what the HCA refuses.
    pub fn new(context: &Arc<Context>, config: EngineConfig) -> Result<Self, HostError> {
        let cut = config.check()?;
        let shape = RailShape {
            log_depth: config.log_depth,
            log_entries: config.log_entries,
            cqs: config.workers,
            pkey: config.path.pkey,
            lag_port: config.path.lag_port.unwrap_or(0),
        };
        let rail = Arc::new(Mlx5Rail::new(context, &shape)?);
        let number = ENGINES.fetch_add(1, Ordering::Relaxed);
        let how = (cut, config.gather);
        let transfers = Transfers::new(number, config.transfers, how, config.workers)?;
        let transfers = Arc::new(transfers);
        let reapers = (0..config.workers as usize).filter_map(|cq| rail.reaper(cq));
        let pace = Pace {
            chain: config.chain,
            reap: config.reap as usize,
            gather: config.gather,
        };
        let pool = Pool::start(&transfers, reapers.collect(), pace)?;
        Ok(Self {
            inner: Arc::new(Inner {
                cut,
                hello: hello(&rail, &config, fastrand::u64(..))?,
                config,
                transfers,
                pool,
                regions: Mutex::default(),
                peers: Mutex::default(),
                arrived: Condvar::new(),
                listeners: Mutex::default(),
                links: AtomicU64::new(1),
                is_closing: AtomicBool::new(false),
                rail,
            }),
        })
    }

    /// This life of the engine.
    #[must_use]
    pub fn incarnation(&self) -> u64 {
        self.inner.hello.incarnation
    }

    /// Registers all of `memory`. What is registered already is shared.
    ///
    /// # Errors
    /// [`HostError::Provider`]: what the HCA refuses.
    pub fn register(&self, memory: &Arc<HostMemory>) -> Result<RegionId, HostError> {
        let (address, bytes) = (memory.address(), memory.bytes());
        let mut registry = self.inner.regions();
        let known = registry
            .table
            .covering(address, bytes)
            .map(|region| region.address);
        let first = match known {
            Some(first) => first,
            None => self.register_new(&mut registry, memory)?,
        };
        let number = registry.next;
        registry.next += 1;
        registry.regions.insert(number, first);
        if let Some(shared) = registry.registrations.get_mut(&first) {
            shared.regions += 1;
        }
        Ok(RegionId(number))
    }

    fn register_new(
        &self,
        registry: &mut Registry,
        memory: &Arc<HostMemory>,
    ) -> Result<u64, HostError> {
        let (address, bytes) = (memory.address(), memory.bytes());
        let registration = self.inner.rail.register(memory)?;
        let users = Arc::new(Users::default());
        let mapped = Mapped {
            address,
            bytes,
            key: registration.lkey(),
            owner: Arc::clone(&users),
        };
        let table = registry.table.with(mapped);
        let table = table.ok_or(EngineError::Overlap { address, bytes })?;
        registry.table = Arc::new(table);
        registry.registrations.insert(
            address,
            Shared {
                registration,
                users,
                bytes,
                regions: 0,
            },
        );
        Ok(address)
    }

    /// Takes a region away, from peers too. Its registration goes with the last region that shares it.
    ///
    /// # Errors
    /// [`EngineError::Busy`]: transfers use it; [`EngineError::UnknownRegion`]; [`HostError::Provider`]: the HCA keeps it, so it
    /// stays.
    pub fn deregister(&self, region: RegionId) -> Result<(), HostError> {
        let mut registry = self.inner.regions();
        let number = region.0;
        let unknown = EngineError::UnknownRegion { number };
        let first = *registry.regions.get(&number).ok_or(unknown.clone())?;
        let shared = registry.registrations.get_mut(&first).ok_or(unknown)?;
        if shared.regions > 1 {
            shared.regions -= 1;
            registry.regions.remove(&number);
            return Ok(());
        }
        let busy = |users| EngineError::Busy { number, users };
        shared.users.close().map_err(busy)?;
        if let Err(error) = shared.registration.deregister() {
            shared.users.open();
            return Err(error.into());
        }
        registry.regions.remove(&number);
        registry.registrations.remove(&first);
        registry.table = Arc::new(registry.table.without(first));
        Ok(())
    }

    /// What a peer needs to know of a region, to be carried there by the program.
    ///
    /// # Errors
    /// [`EngineError::UnknownRegion`].
    pub fn descriptor(&self, region: RegionId) -> Result<Descriptor, HostError> {
        let registry = self.inner.regions();
        let number = region.0;
        let first = registry.regions.get(&number);
        let shared = first.and_then(|first| Some((first, registry.registrations.get(first)?)));
        let (first, shared) = shared.ok_or(EngineError::UnknownRegion { number })?;
        Ok(Descriptor {
            incarnation: self.incarnation(),
            address: *first,
            bytes: shared.bytes,
            rkey: shared.registration.rkey(),
        })
    }

    /// Lets other engines connect at `address`, where port 0 is any. Where it is.
    ///
    /// # Errors
    /// [`HostError::Insecure`]: not loopback, and `insecure` is not set; [`HostError::Provider`]: the system.
    pub fn listen(&self, address: SocketAddr) -> Result<SocketAddr, HostError> {
        if !is_loopback(address.ip()) && !self.inner.config.insecure {
            return Err(HostError::Insecure { address });
        }
        let system = |call| move |source| ProviderError::System { call, source };
        let listener = TcpListener::bind(address).map_err(system("bind"))?;
        listener.set_nonblocking(true).map_err(system("fcntl"))?;
        let address = listener.local_addr().map_err(system("getsockname"))?;
        let listening = Arc::new(Listening {
            wake: Wake::new()?,
            stops: AtomicBool::new(false),
        });
        let (inner, own) = (Arc::downgrade(&self.inner), Arc::clone(&listening));
        let body = move || accept_all(&inner, &listener, &own);
        let thread = OwnThread::spawn("wv-engine-listen", body, |_| {}).map_err(system("spawn"))?;
        lock(&self.inner.listeners).push((listening, thread));
        Ok(address)
    }

    /// Tells `store` that an engine of this one's name listens at `address`.
    ///
    /// # Errors
    /// [`HostError::Store`]: another engine has the name there, or the store does not answer.
    pub fn publish(&self, store: &dyn Store, address: SocketAddr) -> Result<(), HostError> {
        let name = &self.inner.config.name;
        let failed = |reason: String| HostError::Store {
            name: name.clone(),
            reason,
        };
        let key = format!("{STORE_KEY}/{name}");
        let value = address.to_string();
        let is_set = store.compare_and_set(&key, None, value.as_bytes());
        match is_set.map_err(|error| failed(error.to_string()))? {
            true => Ok(()),
            false => Err(failed("an engine has this name".to_owned())),
        }
    }

    /// Takes back what [`Engine::publish`] has told.
    ///
    /// # Errors
    /// [`HostError::Store`].
    pub fn unpublish(&self, store: &dyn Store) -> Result<(), HostError> {
        let name = self.inner.config.name.clone();
        let key = format!("{STORE_KEY}/{name}");
        let removed = store.remove(&key);
        removed.map(|_| ()).map_err(|error| HostError::Store {
            name,
            reason: error.to_string(),
        })
    }

    /// Connects to the engine that listens at `place`, as `host:port`.
    ///
    /// # Errors
    /// [`HostError::Connection`]: nobody is there, it does not fit, or it refuses.
    pub fn connect(&self, place: &str) -> Result<Peer, HostError> {
        let failed = |reason: String| HostError::Connection {
            peer: place.to_owned(),
            reason,
        };
        let addresses = place.to_socket_addrs();
        let addresses = addresses.map_err(|error| failed(error.to_string()))?;
        let most = self.inner.config.connect_timeout;
        let mut reason = "the name has no address".to_owned();
        for address in addresses {
            match TcpStream::connect_timeout(&address, most) {
                Ok(stream) => return connect_over(&self.inner, stream, place),
                Err(error) => reason = format!("{address}: {error}"),
            }
        }
        Err(failed(reason))
    }

    /// Connects to the engine that has told its name to `store`.
    ///
    /// # Errors
    /// [`HostError::Store`]: none has; else as [`Engine::connect`].
    pub fn connect_by_name(&self, store: &dyn Store, name: &str) -> Result<Peer, HostError> {
        let failed = |reason: String| HostError::Store {
            name: name.to_owned(),
            reason,
        };
        let value = store.try_get(&format!("{STORE_KEY}/{name}"));
        let value = value.map_err(|error| failed(error.to_string()))?;
        let value = value.ok_or_else(|| failed("no engine has this name".to_owned()))?;
        let place = String::from_utf8(value);
        let place = place.map_err(|_| failed("its address is no text".to_owned()))?;
        self.connect(&place)
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

    /// Waits until the transfer is concluded, or the time is over; what became of it.
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

    /// Hands nothing more out of the transfer. It is concluded when the HCA has nothing more of it: wait for that.
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
        self.inner.transfers.report(id)
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

    /// Takes nothing new, waits for what runs, ends all connections and all threads.
    #[must_use]
    pub fn close(self) -> CloseReport {
        self.inner.close()
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.inner.close();
    }
}

impl Peer {
    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.hello.name
    }

    /// QPs of the connection, both ends' smaller number.
    #[must_use]
    pub fn qps(&self) -> u64 {
        self.hello.qps.min(self.inner.hello.qps)
    }

    /// Whether the connection takes transfers.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.link.is_open()
    }

    /// Takes a region of the peer to be written and read. Once more does no harm.
    ///
    /// # Errors
    /// [`EngineError::Incarnation`]: of another engine or an earlier life; [`EngineError::Overlap`]: with a region of the peer that
    /// is known and not the same.
    pub fn import(&self, descriptor: &Descriptor) -> Result<(), EngineError> {
        let peer = self.hello.incarnation;
        if descriptor.incarnation != peer {
            let found = descriptor.incarnation;
            return Err(EngineError::Incarnation { found, peer });
        }
        let Descriptor {
            address,
            bytes,
            rkey: key,
            ..
        } = *descriptor;
        let mut remote = lock(&self.remote);
        let is_known = |it: &Mapped<()>| (it.address, it.bytes, it.key) == (address, bytes, key);
        if remote.covering(address, bytes).is_some_and(is_known) {
            return Ok(());
        }
        let owner = ();
        let with = remote.with(Mapped {
            address,
            bytes,
            key,
            owner,
        });
        *remote = Arc::new(with.ok_or(EngineError::Overlap { address, bytes })?);
        Ok(())
    }

    /// Forgets the region that begins at `address`: transfers that are submitted later do not reach it.
    pub fn forget(&self, address: u64) {
        let mut remote = lock(&self.remote);
        *remote = Arc::new(remote.without(address));
    }

    /// Writes `bytes` bytes from `local`, here, to `remote`, at the peer.
    ///
    /// # Errors
    /// As [`Peer::submit`].
    pub fn write(&self, local: u64, remote: u64, bytes: u64) -> Result<TransferId, EngineError> {
        self.one(Kind::Write, local, remote, bytes)
    }

    /// Reads `bytes` bytes from `remote`, at the peer, to `local`, here.
    ///
    /// # Errors
    /// As [`Peer::submit`].
    pub fn read(&self, local: u64, remote: u64, bytes: u64) -> Result<TransferId, EngineError> {
        self.one(Kind::Read, local, remote, bytes)
    }

    fn one(
        &self,
        kind: Kind,
        local: u64,
        remote: u64,
        bytes: u64,
    ) -> Result<TransferId, EngineError> {
        let operation = Operation {
            kind,
            local,
            remote,
            bytes,
        };
        self.submit(&[operation], &Options::default())
    }

    /// Begins a transfer of all these operations, in no order among each other. Never waits.
    ///
    /// # Errors
    /// [`EngineError::WouldBlock`]: no slot is free; [`EngineError::PeerGone`]; what [`Plan::set`](super::Plan::set) refuses. Nothing was
    /// done in each case.
    pub fn submit(
        &self,
        operations: &[Operation],
        options: &Options,
    ) -> Result<TransferId, EngineError> {
        self.check_open()?;
        let tables = self.tables();
        let transfers = &self.inner.transfers;
        transfers.submit(&self.link, tables, operations, options)
    }

    /// Plans a transfer once, to be posted many times.
    ///
    /// # Errors
    /// As [`Peer::submit`].
    pub fn prepare(&self, operations: &[Operation]) -> Result<Arc<Prepared>, EngineError> {
        self.check_open()?;
        let how = (self.inner.cut, self.inner.config.gather);
        Transfers::prepare(&self.link, self.tables(), how, operations)
    }

    /// Begins a transfer that was prepared.
    ///
    /// # Errors
    /// [`EngineError::ForeignPrepared`]; else as [`Peer::submit`].
    pub fn post(
        &self,
        prepared: &Arc<Prepared>,
        options: &Options,
    ) -> Result<TransferId, EngineError> {
        self.check_open()?;
        self.inner.transfers.post(&self.link, prepared, options)
    }

    /// Waits for its transfers, but not for longer than the engine's `drain`, and ends the connection. How many were cut off.
    #[must_use]
    pub fn close(&self) -> u32 {
        let left = self.link.drain(self.inner.config.drain);
        self.link.break_off();
        left
    }

    /// Ends the connection now, as if a QP had failed.
    pub fn break_off(&self) {
        self.link.break_off();
    }

    fn tables(&self) -> (Arc<LocalTable>, Arc<RemoteTable>) {
        let local = Arc::clone(&self.inner.regions().table);
        (local, Arc::clone(&lock(&self.remote)))
    }

    fn check_open(&self) -> Result<(), EngineError> {
        if self.inner.is_closing.load(Ordering::Acquire) {
            return Err(EngineError::Closing);
        }
        let peer = || self.hello.name.clone();
        match self.link.is_open() {
            true => Ok(()),
            false => Err(EngineError::PeerGone { peer: peer() }),
        }
    }
}

impl Inner {
    fn regions(&self) -> MutexGuard<'_, Registry> {
        lock(&self.regions)
    }

    fn close(&self) -> CloseReport {
        let was_open = !self.is_closing.swap(true, Ordering::AcqRel);
        let mut cut_off = 0;
        if was_open {
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
            let end = Instant::now() + self.config.drain;
            for (link, ..) in &threads {
                cut_off += link.drain(end.saturating_duration_since(Instant::now()));
                link.break_off();
            }
            for (.., thread) in threads {
                thread.join();
            }
            self.pool.stop();
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

/// Connects over a stream, from either end.
fn connect_over(inner: &Arc<Inner>, stream: TcpStream, place: &str) -> Result<Peer, HostError> {
    let mut wire = Wire::new(stream, inner.config.connect_timeout);
    let handshake = Handshake {
        rail: &inner.rail,
        config: &inner.config,
        hello: &inner.hello,
        place,
    };
    let connected = handshake.run(&mut wire)?;
    admit(inner, connected, wire, place)
}

/// Takes a connection in, whose QPs can send.
fn admit(
    inner: &Arc<Inner>,
    connected: Connected,
    wire: Wire,
    place: &str,
) -> Result<Peer, HostError> {
    let Connected { peer, pairs, lanes } = connected;
    let hello = Arc::new(peer);
    let refused = |reason: String| HostError::Connection {
        peer: place.to_owned(),
        reason,
    };
    let mut peers = lock(&inner.peers);
    if inner.is_closing.load(Ordering::Acquire) {
        return Err(EngineError::Closing.into());
    }
    let ended = |(link, _, _): &mut (Arc<Link>, Arc<Hello>, OwnThread)| link.is_over();
    for (_, _, thread) in peers.threads.extract_if(.., ended) {
        thread.join();
    }
    let most = inner.config.peers as usize;
    if peers.threads.len() >= most {
        return Err(refused(format!("this engine has {most} peers, its most")));
    }
    let is_other = |(link, it, _): &(Arc<Link>, Arc<Hello>, OwnThread)| {
        link.is_open() && it.name == hello.name && it.incarnation != hello.incarnation
    };
    if peers.threads.iter().any(is_other) {
        let reason = format!("another engine with the name '{}' is connected", hello.name);
        return Err(refused(reason));
    }
    let workers = inner.config.workers;
    let owners: Vec<u32> = (0..).map(|n: u32| n % workers).take(lanes.len()).collect();
    let number = inner.links.fetch_add(1, Ordering::Relaxed);
    let link = Arc::new(Link::new(number, &owners, Some(Wake::new()?)));
    for (owner, lane) in owners.into_iter().zip(lanes) {
        inner.pool.add(owner, &link, lane);
    }
    let control = Control {
        link: Arc::clone(&link),
        transfers: Arc::clone(&inner.transfers),
        pairs,
        wire,
        name: hello.name.clone(),
    };
    let thread = OwnThread::spawn("wv-engine-peer", || control.run(), |_| {});
    let thread = thread.map_err(|source| ProviderError::System {
        call: "spawn",
        source,
    })?;
    peers
        .threads
        .push((Arc::clone(&link), Arc::clone(&hello), thread));
    Ok(Peer {
        inner: Arc::clone(inner),
        link,
        hello,
        remote: Arc::default(),
    })
}

/// Takes connections, each in a thread of its own, so that none that says nothing holds up another.
fn accept_all(inner: &std::sync::Weak<Inner>, listener: &TcpListener, own: &Listening) {
    let mut threads: Vec<OwnThread> = Vec::new();
    loop {
        own.wake.begin();
        if !own.stops.load(Ordering::SeqCst)
            && let Err(error) = own.wake.sleep(Some(listener.as_fd()), None)
        {
            tracing::error!("an engine does not listen any more: {error}");
            break;
        }
        own.wake.end();
        if own.stops.load(Ordering::SeqCst) {
            break;
        }
        let Ok((stream, from)) = listener.accept() else {
            continue;
        };
        threads.retain(|thread| !thread.is_finished());
        if threads.len() >= BACKLOG {
            tracing::warn!("{from}: {BACKLOG} others connect just now");
            continue;
        }
        let inner = std::sync::Weak::clone(inner);
        let body = move || {
            let Some(inner) = inner.upgrade() else {
                return;
            };
            let connected = stream.set_nonblocking(false).map_err(|source| {
                let call = "fcntl";
                ProviderError::System { call, source }.into()
            });
            match connected.and_then(|()| connect_over(&inner, stream, &from.to_string())) {
                Ok(peer) => {
                    lock(&inner.peers).arrived.push_back(peer);
                    inner.arrived.notify_all();
                }
                Err(error) => tracing::warn!("not connected: {error}"),
            }
        };
        match OwnThread::spawn("wv-engine-hello", body, |_| {}) {
            Ok(thread) => threads.push(thread),
            Err(error) => tracing::error!("{from}: no thread: {error}"),
        }
    }
    for thread in threads {
        thread.join();
    }
}

fn is_loopback(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => ip.is_loopback(),
        IpAddr::V6(ip) => ip.is_loopback(),
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Each change is whole.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hello = &self.inner.hello;
        write!(f, "Engine({}, {:#x})", hello.name, hello.incarnation)
    }
}

impl fmt::Debug for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "Peer({}, {:#x})",
            self.hello.name, self.hello.incarnation
        )
    }
}
