//! Ranks, windows, the peer table in device memory, the rendezvous store.
//!
//! [`Team::join`] is collective: every rank makes its QPs to every other, they exchange numbers through the store and
//! connect. What kernels need is then in device memory, behind one address that does not move. A rank that fails in a
//! collective call tells the others, which end soon after with its error.
//!
//! A team has places for more ranks than it may begin with. A rank that comes later or again ([`TeamConfig::joining`]) joins
//! alone, makes its windows alone and publishes its record ([`Team::hello`]). Then each member and the new rank connect with each
//! other ([`Team::connect_peer`]). Nothing else of the members changes.
//!
//! ```
//! use std::sync::Arc;
//! use warpverbs::gpu::{self, GpuSelector};
//! use warpverbs::team::{MemoryStore, Team, TeamConfig};
//! use warpverbs::verbs::{Context, DeviceSelector};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let _hca = softhca::Hca::new()?; // where there is no ConnectX
//! let device = Context::open(&DeviceSelector::Auto)?;
//! let gpu = gpu::open(GpuSelector::Auto)?;
//! let team = Team::join(TeamConfig::new(0, 1), &device, &gpu, Arc::new(MemoryStore::new()))?;
//! let window = team.window(4096)?; // of every rank, at an address of its own
//! assert_eq!((team.ranks(), window.bytes), (1, 4096));
//! # Ok(())
//! # }
//! ```

mod arguments;
mod attempts;
mod budget;
mod choices;
mod close;
mod config;
mod counters;
mod devices;
mod direct;
mod error;
mod exchange;
mod export;
mod failed;
mod failures;
pub(crate) mod hello;
mod life;
mod link;
mod link_layer;
mod links;
mod living;
mod meeting;
mod order;
mod paths;
mod prove;
mod rails;
mod ranks;
mod rebuild;
mod recover;
mod replace;
mod retell;
mod reunite;
mod summary;
mod tables;
mod tidy;
mod together;
mod usage;
mod window;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::abi::QpContext;
use crate::config::Config;
use crate::error::Error;
use crate::fabric::{FabricError, LiveTeam, Rail, RailConfig, Ways};
use crate::gpu::Gpu;
use crate::verbs::{Context, Events, HeapStats, Pd, QpConfig};

pub use crate::fabric::{Choice, Matter, RefusedStep, Step};
pub use crate::verbs::{CqKind, Doorbell, Queues, Sharing};
pub(crate) use arguments::{CallShape, Differs, Launches};
pub use budget::{PostOp, Posts};
pub use choices::choices_on;
pub use close::CloseReport;
pub use config::{MAX_QPS_PER_PEER, MAX_RANKS, MAX_WINDOWS, MOST_WINDOWS, TeamConfig};
pub use counters::{QpCounters, QpReport};
pub use devices::RankDevices;
pub use error::TeamError;
use exchange::{Exchange, Settings};
pub(crate) use failed::tell_failure;
use link::Link;
use links::{Links, PeerLinks};
use meeting::Meetings;
pub use order::SignalOrder;
pub use paths::{PathSource, RankPath};
pub use ranks::RankSet;
#[cfg(feature = "etcd")]
pub use rendezvous::EtcdStore;
pub(crate) use rendezvous::printable;
pub use rendezvous::{
    AroundStore, BringUpStore, Changed, Count, Entry, FileStore, KeyChange, KeyWatch, LEASE_TTL,
    Lease, LeaseId, MAX_KEY, MAX_VALUE, Measured, MemoryStore, Patient, RECORD_VERSION, Records,
    Store, StoreAnswer, StoreCall, StoreError, TextMap, check_url, measure as measure_store,
    open_store,
};
use tables::Tables;
pub(crate) use tidy::Sweep;
pub(crate) use together::Maker;
use window::OwnedWindow;

/// The team as one rank holds it. Dropping it destroys the QPs and frees the windows ([`Team::close`] does so with a report). No
/// kernel may use them any more. A [`Team::barrier`] before the drop makes sure that no peer still writes to the windows.
#[derive(Debug)]
pub struct Team {
    config: TeamConfig,
    exchange: Exchange,
    gpu: Arc<dyn Gpu>,
    tables: Tables,
    links: Links,
    /// The hello of a rank that joins, as it was written.
    told: Mutex<Option<Vec<u8>>>,
    /// How its HCAs hear of work and reach its memory.
    ways: Mutex<Ways>,
    /// How signals are kept behind data.
    signals: Choice,
    windows: Mutex<Vec<OwnedWindow>>,
    meetings: Mutex<Meetings>,
    rails: Vec<Rail>,
    /// Dropped last: when it goes, no kernel of this rank can store into the memory of others any more.
    living: LiveTeam,
}

impl Team {
    /// Joins the team that meets in `store`, as rank `config.rank`, with the device `context` and kernels on `gpu`.
    ///
    /// # Errors
    /// What is wrong here, or at another rank ([`TeamError::PeerFailed`]), or between two ([`TeamError::Mismatch`]); ranks
    /// that do not come within `config.join_timeout`. Everything that was made has been taken down again.
    pub fn join(
        config: TeamConfig,
        context: &Arc<Context>,
        gpu: &Arc<dyn Gpu>,
        store: Arc<dyn Store>,
    ) -> Result<Arc<Self>, TeamError> {
        Self::join_rails(config, std::slice::from_ref(context), gpu, store)
    }

    /// As [`Team::join`], with several HCAs. QP `i` to a peer runs on rail `i` mod rails, from `contexts[rail]` here to the rail of
    /// the same number at the peer. All ranks have the same number of rails.
    ///
    /// # Errors
    /// As [`Team::join`]; no device, or more than [`MAX_RAILS`](crate::abi::MAX_RAILS).
    pub fn join_rails(
        config: TeamConfig,
        contexts: &[Arc<Context>],
        gpu: &Arc<dyn Gpu>,
        store: Arc<dyn Store>,
    ) -> Result<Arc<Self>, TeamError> {
        let devices = Devices {
            contexts,
            domains: &[],
        };
        Self::join_on(config, devices, gpu, store)
    }

    /// The same in protection domains that the caller keeps using: one for each rail, on the device of which it is. QPs of the
    /// caller in such a domain may use memory that the team registers, if they know its keys. The team's QPs may use what the
    /// caller registers.
    ///
    /// # Errors
    /// As [`Team::join_rails`].
    pub fn join_domains(
        config: TeamConfig,
        domains: &[Arc<Pd>],
        gpu: &Arc<dyn Gpu>,
        store: Arc<dyn Store>,
    ) -> Result<Arc<Self>, TeamError> {
        let contexts: Vec<_> = domains
            .iter()
            .map(|domain| Arc::clone(domain.context()))
            .collect();
        let devices = Devices {
            contexts: &contexts,
            domains,
        };
        Self::join_on(config, devices, gpu, store)
    }

    fn join_on(
        config: TeamConfig,
        devices: Devices<'_>,
        gpu: &Arc<dyn Gpu>,
        store: Arc<dyn Store>,
    ) -> Result<Arc<Self>, TeamError> {
        let exchange = Exchange::new(store, &config);
        // A second start of a rank has no word in the team: what fails there is its own.
        exchange.enter()?;
        let joined = Self::join_with(config, devices, gpu, &exchange);
        told(&exchange, joined).map(Arc::new)
    }

    /// Joins as `config` says: opens the device, the GPU and the store that it names. A team of one needs no store.
    ///
    /// # Errors
    /// What cannot be opened; as [`Team::join`].
    pub fn start(config: &Config) -> Result<Arc<Self>, Error> {
        Self::start_as(config, |team, _| Ok(team))
    }

    /// The same with a role. `role` gets the default configuration of a team and the store in which it meets. It returns the
    /// configuration of a founder, or of a rank that joins later ([`TeamConfig::joining`]).
    ///
    /// # Errors
    /// As [`Team::start`], and those of `role`, before anything else is opened than the store.
    pub fn start_as<E: From<Error>>(
        config: &Config,
        role: impl FnOnce(TeamConfig, &Arc<dyn Store>) -> Result<TeamConfig, E>,
    ) -> Result<Arc<Self>, E> {
        let store = Self::open_store(config).map_err(Error::from)?;
        Self::start_in(config, store, role)
    }

    /// The store that `config` names; for a team of one that names none, memory of this process.
    ///
    /// # Errors
    /// As [`open_store`].
    pub fn open_store(config: &Config) -> Result<Arc<dyn Store>, StoreError> {
        match (config.ranks, config.store.as_str()) {
            (1, "") => Ok(Arc::new(MemoryStore::new())),
            (_, url) => open_store(url, &config.run_id),
        }
    }

    /// The same in `store`, whatever the configuration says of one.
    ///
    /// # Errors
    /// As [`Team::start_as`].
    pub fn start_in<E: From<Error>>(
        config: &Config,
        store: Arc<dyn Store>,
        role: impl FnOnce(TeamConfig, &Arc<dyn Store>) -> Result<TeamConfig, E>,
    ) -> Result<Arc<Self>, E> {
        let team = role(TeamConfig::of(config), &store)?;
        let open = || -> Result<_, Error> {
            let devices = RankDevices::open_in(config, &team, &store)?;
            for reason in &devices.passed_over {
                tracing::info!("rank {} passes over {reason}", config.rank);
            }
            Ok(devices)
        };
        match open() {
            Ok(devices) => {
                let RankDevices { gpu, contexts, .. } = devices;
                Ok(Self::join_rails(team, &contexts, &gpu, store).map_err(Error::from)?)
            }
            Err(error) => {
                let team_error: Option<&TeamError> = error.downcast_ref();
                if !team_error.is_some_and(TeamError::is_remote) {
                    let exchange = Exchange::new(store, &team);
                    // Only the first start of a rank speaks for it: devices are often refused because that one has them.
                    if let Err(taken @ TeamError::RankTaken { .. }) = exchange.enter() {
                        return Err(Error::from(taken).into());
                    }
                    exchange.fail_with(&error.to_string());
                }
                Err(error.into())
            }
        }
    }

    fn join_with(
        config: TeamConfig,
        devices: Devices<'_>,
        gpu: &Arc<dyn Gpu>,
        exchange: &Exchange,
    ) -> Result<Self, TeamError> {
        let (rank, generation) = (config.rank, config.generation);
        let _span = tracing::info_span!("join", rank, generation).entered();
        let contexts = devices.contexts;
        let rails = u32::try_from(contexts.len()).unwrap_or(u32::MAX);
        config.check(rails)?;
        exchange.tell_link_layer(contexts)?;
        let (mut ways, signals) = choices::settle(&config, contexts, gpu.as_ref())?;
        let mut agreed = config.agreed(rails);
        let settled = exchange.settle(Settings {
            agreed: agreed.clone(),
            qps_per_peer: config.qps_per_peer,
            orders: signals.kept.clone(),
        })?;
        let config = config.with_qps_per_peer(settled.qps_per_peer);
        let signals = signals.settled(settled.order, settled.lacking);
        let order = choices::order_of(&signals);
        agreed.push((exchange::ORDER.to_owned(), order.to_string()));
        let living = LiveTeam::new();
        let identity = living.identity(gpu.as_ref(), config.modes.direct);
        let (made, mut links) = loop {
            let made = match rails_of(&config, devices, gpu.as_ref(), &ways)? {
                Ok(made) => made,
                Err(refusal) => {
                    ways.leave(refusal)?;
                    continue;
                }
            };
            let (agreed, identity) = (agreed.clone(), identity.clone());
            let costs = choices::costs(ways.choices().into_iter().chain([&signals]));
            match Links::new(gpu.as_ref(), &made, &config, agreed, (identity, costs)) {
                Ok(links) => break (made, links),
                Err(TeamError::Gpu(refusal)) => ways.leave(refusal.into())?,
                Err(TeamError::Verbs(refusal)) => ways.leave(refusal.into())?,
                Err(other) => return Err(other),
            }
        };
        let told = match config.joins() {
            true => Vec::new(),
            false => links.found(exchange, &made, &config)?,
        };
        choices::tell(ways.choices().into_iter().chain([&signals]), &told);
        let tables = Tables::new(gpu, &config, rails, &links.contexts(&config))?;
        for (rank, peer) in (0..).zip(links.all()) {
            if rank != config.rank && peer.state().connected == 0 {
                tables.close(rank);
            }
        }
        let team = Self {
            config,
            exchange: exchange.clone(),
            gpu: Arc::clone(gpu),
            tables,
            links,
            told: Mutex::default(),
            ways: Mutex::new(ways),
            signals,
            windows: Mutex::default(),
            meetings: Mutex::default(),
            rails: made,
            living,
        };
        tracing::info!("{}", team.summary());
        if tracing::enabled!(tracing::Level::INFO) {
            for path in team.paths() {
                tracing::info!("{path}");
            }
        }
        Ok(team)
    }

    /// The rank of this process, from 0 on.
    #[must_use]
    pub fn rank(&self) -> u32 {
        self.config.rank
    }

    /// Number of ranks.
    #[must_use]
    pub fn ranks(&self) -> u32 {
        self.config.ranks
    }

    /// How it was joined.
    #[must_use]
    pub fn config(&self) -> &TeamConfig {
        &self.config
    }

    /// Where kernels of this rank run.
    #[must_use]
    pub fn gpu(&self) -> &Arc<dyn Gpu> {
        &self.gpu
    }

    /// Teams of this process whose kernels run on the device of this one, itself among them.
    pub(crate) fn teams_on_device(&self) -> u32 {
        crate::fabric::teams_on(&self.gpu.device_id())
    }

    /// Device address of the [`TeamContext`](crate::abi::TeamContext).
    #[must_use]
    pub fn context_addr(&self) -> u64 {
        self.tables.addr()
    }

    /// How signals are kept behind data: the same at all ranks.
    #[must_use]
    pub fn signal_order(&self) -> SignalOrder {
        choices::order_of(&self.signals)
    }

    /// Rails: HCAs of each rank.
    #[must_use]
    pub fn rails(&self) -> usize {
        self.rails.len()
    }

    /// Statistics of the control heap of `rail`; none if the team has no such rail.
    #[must_use]
    pub fn rail_stats(&self, rail: usize) -> Option<HeapStats> {
        self.rails.get(rail).map(|rail| rail.heap().stats())
    }

    /// What the control heap holds: that of the first rail.
    #[must_use]
    pub fn control_stats(&self) -> HeapStats {
        self.rails[0].heap().stats()
    }

    /// A map of the heaps of all rails that a person reads: the figures of each, then its live blocks and free extents by offset.
    #[must_use]
    pub fn control_heap_dump(&self) -> String {
        let mut map = String::new();
        for (number, rail) in self.rails.iter().enumerate() {
            for (name, heap) in rail.heaps() {
                map += &format!("rail {number}, {name}, {}", heap.dump());
            }
        }
        map
    }

    /// Waits until every founder has called it with the same `name`, which is used once. After an error all may call it again.
    ///
    /// # Errors
    /// [`TeamError::Late`] for a rank that joined later. Ranks that do not come within the team's timeout, or have failed.
    pub fn barrier(&self, name: &str) -> Result<(), TeamError> {
        self.exchange.only_founders("a barrier")?;
        told(&self.exchange, self.check_threads())?;
        let met = self.meet(&format!("barrier/{name}"), || Ok(((), ())), |_, ()| Ok(()));
        met.map(drop)
    }

    /// Whether another rank has published that it gives up.
    ///
    /// # Errors
    /// Its error; [`VerbsError::Panicked`](crate::verbs::VerbsError::Panicked) if a thread that rings doorbells for this rank does not
    /// run any more.
    pub fn check_peers(&self) -> Result<(), TeamError> {
        self.check_threads()?;
        self.exchange.failure()
    }

    /// The same if the store answers at once, for a rank whose call runs.
    pub(crate) fn check_peers_at_once(&self) -> Result<(), TeamError> {
        self.check_threads()?;
        self.exchange.failure_at_once()
    }

    /// Whether the processes of all other founders still run, as far as this machine can see. A process that is killed publishes no
    /// failure. This call cannot see processes of other machines. A rank that was replaced has ended, too, so a group does not make
    /// this call.
    ///
    /// # Errors
    /// [`TeamError::PeerEnded`].
    pub fn check_processes(&self) -> Result<(), TeamError> {
        self.exchange.check_processes()
    }

    /// The other founders whose processes have ended, as far as this machine can see; as [`Team::check_processes`].
    #[must_use]
    pub fn ended_ranks(&self) -> Vec<u32> {
        self.exchange.ended().map(|(rank, _)| rank).collect()
    }

    /// Whether the threads run that ring doorbells for this rank. Each launch of a layer and each collective call asks, too.
    ///
    /// # Errors
    /// [`VerbsError::Panicked`](crate::verbs::VerbsError::Panicked): what is posted does not run any more.
    pub(crate) fn check_threads(&self) -> Result<(), TeamError> {
        Ok(self.rails.iter().try_for_each(Rail::check)?)
    }

    /// Tells the others that this rank comes to nothing any more, before it closes the team while they may still wait for it. Their
    /// collective calls then end with [`TeamError::PeerClosed`] at once.
    pub fn tell_closed(&self) {
        self.exchange.tell_closed();
    }

    /// The other founders that have told so.
    ///
    /// # Errors
    /// The store's.
    pub fn closed_ranks(&self) -> Result<Vec<u32>, TeamError> {
        Ok(self.exchange.closed()?.collect())
    }

    /// Tells the others that this rank gives up, and why.
    pub fn give_up(&self, message: &str) {
        self.exchange.fail_with(message);
    }

    /// Sets the longest wait of device calls that start from now on.
    ///
    /// # Errors
    /// The device's.
    pub fn set_deadline(&self, deadline: Duration) -> Result<(), TeamError> {
        self.tables.write_deadline(deadline)
    }

    /// Ends every wait of every running and later device call with `aborted`.
    ///
    /// # Errors
    /// The device's.
    pub fn abort(&self) -> Result<(), TeamError> {
        self.tables.write_abort()?;
        for peer in self.links.all() {
            for link in &peer.state().links {
                link.write_abort(self.gpu.as_ref(), true)?;
            }
        }
        Ok(())
    }

    /// The store in which the ranks meet.
    pub(crate) fn store(&self) -> &Arc<dyn Store> {
        self.exchange.store()
    }

    /// By rail: what its HCA tells without being asked.
    pub(crate) fn hca_events(&self) -> impl Iterator<Item = (usize, &Events)> {
        let rails = self.rails.iter().enumerate();
        rails.filter_map(|(number, rail)| Some((number, rail.events()?)))
    }

    /// Peers of which kernels have found a QP failed since the last call, and those that share a word with them.
    pub(crate) fn failing(&self) -> Vec<u32> {
        self.links.failures().take()
    }

    /// Of each QP to `peer` the word of its first failure and syndrome.
    pub(crate) fn error_words(&self, peer: u32) -> Result<Vec<u64>, TeamError> {
        let state = self.peer(peer)?.state();
        let words = state.links.iter().map(|link| {
            let context = link.layout().context_addr;
            self.word(context, std::mem::offset_of!(QpContext, err))
        });
        words.collect()
    }

    /// The QPs to `peer`.
    fn peer(&self, peer: u32) -> Result<&PeerLinks, TeamError> {
        let (rank, ranks) = (self.config.rank, self.config.ranks);
        if peer == rank {
            let limit = format!("another rank than this, {rank}");
            return Err(TeamError::limit("peer", peer, limit));
        }
        let links = self.links.all().get(peer as usize);
        links.ok_or(TeamError::UnknownRank { rank: peer, ranks })
    }

    /// QP `i` of those to a peer.
    fn link<'a>(&self, links: &'a [Link], i: u32) -> Result<&'a Link, TeamError> {
        let limit = || format!("below {}", self.config.qps_per_peer);
        let link = links.get(i as usize);
        link.ok_or_else(|| TeamError::limit("QP number", i, limit()))
    }

    fn windows(&self) -> MutexGuard<'_, Vec<OwnedWindow>> {
        // A panic elsewhere under the lock leaves the list whole.
        self.windows.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A rail on each of `contexts`, or the first refusal.
fn rails_of(
    config: &TeamConfig,
    Devices { contexts, domains }: Devices<'_>,
    gpu: &dyn Gpu,
    ways: &Ways,
) -> Result<Result<Vec<Rail>, FabricError>, TeamError> {
    let rails = u32::try_from(contexts.len()).unwrap_or(u32::MAX);
    let room = |(number, context): (u32, &Arc<Context>)| {
        let shape = QpConfig {
            doorbell: ways.doorbell(context.caps()),
            queues: ways.queues(),
            ..config.any_shape()
        };
        config.rail(number, rails, shape, ways.queue_rung())
    };
    let room: Vec<RailConfig> = (0..).zip(contexts).map(room).collect::<Result<_, _>>()?;
    let domains = domains.iter().map(Some).chain(std::iter::repeat(None));
    let each = contexts.iter().zip(domains).zip(&room);
    let made = each
        .map(|((context, domain), room)| Ok(Rail::new(context, domain, gpu, room)?.with_events()));
    Ok(made.collect())
}

/// What the rails of a team are made on.
#[derive(Clone, Copy)]
struct Devices<'a> {
    contexts: &'a [Arc<Context>],
    /// By rail; empty: each rail makes one of its own.
    domains: &'a [Arc<Pd>],
}

/// Passes `result` on. Publishes an error that began at this rank.
fn told<T>(exchange: &Exchange, result: Result<T, TeamError>) -> Result<T, TeamError> {
    if let Err(error) = &result
        && !error.is_remote()
    {
        exchange.fail_with(&error.to_string());
    }
    result
}
