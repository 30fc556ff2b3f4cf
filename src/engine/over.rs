//! An engine over lanes of any provider, with one peer that no engine stands behind. It shows what an engine costs without the NIC, and
//! what happens when a chain is refused or a worker panics.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use rendezvous::Process;

use crate::config::{EngineConfig, EnginePath};
use crate::engine::config::{pace, sizes};
use crate::engine::connection::peers::{Arrived, Running};
use crate::engine::error::HostError;
use crate::engine::host::Engine;
use crate::engine::inner::{Inner, NewEngine};
use crate::engine::kind::Rights;
use crate::engine::limits::count;
use crate::engine::lives::life::{EngineLife, EngineLives};
use crate::engine::lock::lock;
use crate::engine::memory::numbers::number_of_engine;
use crate::engine::memory::table::{Mapped, Table};
use crate::engine::peer::Peer;
use crate::engine::places::cpus;
use crate::engine::route::fences::Fence;
use crate::engine::route::link::Link;
use crate::engine::route::rails::{RailKeys, Rails};
use crate::engine::transfers::{Sizes, Transfers};
use crate::engine::wire::messages::Hello;
use crate::engine::worker::{Held, Pool, Seat, Workers};
use crate::error::OwnThread;
use crate::provider::{Provider, ProviderError, Wake, WorkerLanes};

/// The name of the engine's only peer.
const PEER: &str = "no engine";
/// Longest sleep of the thread that waits until no worker has a lane.
const LOOK: Duration = Duration::from_secs(60);

/// Returns an engine whose workers have these lanes, and its only peer. All addresses below `bytes` are registered at both ends. The engine
/// has no NIC, so it registers no memory and takes no connection.
///
/// # Errors
/// [`HostError::Refused`]: a value outside its limits; [`HostError::Provider`]: what the system refuses.
pub fn over<P: Provider>(
    config: EngineConfig,
    bytes: u64,
    lanes: impl FnOnce(&EngineConfig) -> Vec<WorkerLanes<P>>,
) -> Result<(Engine, Peer), HostError> {
    let sizes = sizes(&config)?;
    let config = config.with_engine_path(EnginePath::Nic);
    let (reapers, lanes): (Vec<_>, Vec<_>) = lanes(&config)
        .into_iter()
        .map(|WorkerLanes { reaper, lanes }| (reaper, lanes))
        .unzip();
    let sizes = Sizes {
        workers: count(reapers.len()),
        ..sizes
    };
    let transfers = Arc::new(Transfers::new(number_of_engine()?, &sizes)?);
    let near = vec![cpus::choose(&config.cpus, None)?];
    let cpus = cpus::of_each(&config.cpus, near, sizes.workers);
    let seats = reapers.into_iter().zip(cpus);
    let seats = seats.map(|(reaper, cpus)| Seat { reaper, cpus });
    let pace = pace(&config);
    let workers = Arc::new(Pool::<P>::start(&transfers, seats.collect(), pace)?);
    let inner = Arc::new(Inner::new(NewEngine {
        config,
        rails: Arc::new(Rails::none()),
        pool: Arc::new(Pool::start(&transfers, Vec::new(), pace)?),
        transfers,
        workers: Arc::clone(&workers) as Arc<dyn Workers>,
    })?);
    lock(&inner.regions).table = one_region(bytes, Arc::default());
    // From here on a drop ends the threads.
    let engine = Engine {
        inner: Arc::clone(&inner),
    };
    let (owners, lanes): (Vec<u32>, Vec<P::Lane>) = in_turn(lanes).into_iter().unzip();
    let arrived = connect(&inner, &owners)?;
    *lock(&arrived.known.remote) = one_region(bytes, Rights::Both);
    for (nth, (owner, lane)) in owners.into_iter().zip(lanes).enumerate() {
        workers.add(owner, Held::new(&arrived.link, nth, 1, lane));
    }
    let peer = Peer::new(&inner, arrived);
    Ok((engine, peer))
}

/// Returns the lanes with their workers. The first lane of each worker comes before the second of any.
fn in_turn<L>(lanes: Vec<Vec<L>>) -> Vec<(u32, L)> {
    let mut left: Vec<_> = (0..).zip(lanes.into_iter().map(Vec::into_iter)).collect();
    let mut all = Vec::new();
    while !left.is_empty() {
        left.retain_mut(|(worker, lanes)| {
            let next = lanes.next();
            let has_more = next.is_some();
            all.extend(next.map(|lane| (*worker, lane)));
            has_more
        });
    }
    all
}

/// Makes the only connection of the engine, with a lane for each of `owners`.
fn connect(inner: &Inner, owners: &[u32]) -> Result<Arrived, HostError> {
    let core = &inner.core;
    let hello = Arc::new(Hello {
        name: PEER.to_owned(),
        incarnation: 0,
        // A process of this machine that has no memory of this one.
        process: Process::of(0),
        ..core.hello.clone()
    });
    let number = core.links.fetch_add(1, Ordering::Relaxed);
    let link = Link::new(number, hello.incarnation, owners, Some(Wake::new()?));
    let link = Arc::new(link);
    let rooms = [hello.inbox; 2];
    let known = core
        .known
        .enter(&hello.name, hello.incarnation, rooms, &link);
    let end = End {
        link: Arc::clone(&link),
        transfers: Arc::clone(&core.transfers),
        known: Arc::clone(&known),
        all: Arc::clone(&core.known),
    };
    let control = OwnThread::spawn("wv-engine-alone", move || end.run(), |_| {});
    lock(&core.peers).run(Running {
        link: Arc::clone(&link),
        hello: Arc::clone(&hello),
        control: control.map_err(ProviderError::from)?,
    });
    Ok(Arrived { link, hello, known })
}

/// The end of the connection: this thread takes it down, as the control thread of a connection does.
struct End {
    link: Arc<Link>,
    transfers: Arc<Transfers>,
    known: Arc<EngineLife>,
    all: Arc<EngineLives>,
}

impl End {
    /// Waits until the link is broken, and concludes its transfers once no worker has a lane of it. There is no other end to ask.
    fn run(&self) {
        if let Err(error) = self.watch() {
            tracing::error!("a link without an engine is not watched: {error}");
            self.link.break_off();
        }
        // A thread that waits for a slot looks again, and is refused.
        self.transfers.waiting().change();
        self.transfers.queues().look();
        while !self.link.fences().wait_for_lanes(LOOK) {}
        self.transfers.end(&self.link, Fence::Whole);
        self.all.leave(&self.known, &self.link, None);
    }

    fn watch(&self) -> Result<(), ProviderError> {
        let Some(wake) = self.link.wake() else {
            return Ok(());
        };
        while self.link.is_open() {
            wake.begin();
            let slept = if self.link.is_open() {
                wake.sleep(None, None)
            } else {
                Ok(())
            };
            wake.end();
            slept?;
        }
        Ok(())
    }
}

/// Returns the table of an end whose addresses below `bytes` are one region.
fn one_region<T: Clone>(bytes: u64, owner: T) -> Arc<Table<T>> {
    let mut table = Table::default();
    table.insert(Mapped {
        address: 0,
        bytes,
        keys: RailKeys::from_iter([1]),
        owner,
    });
    Arc::new(table)
}
