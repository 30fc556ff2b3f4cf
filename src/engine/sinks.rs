//! An engine without HCAs. It shows what an engine costs without the NIC, and what happens when a chain is refused.

use std::sync::Arc;
use std::time::Duration;

use crate::config::EngineConfig;
use crate::engine::config::{pace, sizes};
use crate::engine::error::{EngineError, HostError};
use crate::engine::ids::TransferId;
use crate::engine::kind::Rights;
use crate::engine::ledger::plan::Operation;
use crate::engine::ledger::report::Report;
use crate::engine::ledger::slots::Status;
use crate::engine::memory::regions::Users;
use crate::engine::memory::table::{Mapped, Table, Tables};
use crate::engine::places::cpus;
use crate::engine::route::fences::Fence;
use crate::engine::route::link::Link;
use crate::engine::route::rails::RailKeys;
use crate::engine::transfers::{How, Moves, Options, Prepared, Transfers};
use crate::engine::worker::{Held, Pool, Seat};
use crate::error::OwnThread;
use crate::provider::ProviderError;
use crate::provider::sink::{Sink, SinkFault, SinkLane, SinkReaper};

/// The name of the engine's only peer.
const PEER: &str = "the sink";
/// Longest sleep of the thread that waits for the end of the link.
const LOOK: Duration = Duration::from_secs(60);

/// One engine with one peer, whose lanes complete without an HCA. All addresses below `bytes` are registered at both ends.
pub struct SinkEngine {
    transfers: Arc<Transfers>,
    pool: Pool<Sink>,
    link: Arc<Link>,
    /// The thread that waits for the end of the link.
    control: Option<OwnThread>,
    tables: Tables,
}

impl SinkEngine {
    /// Returns an engine with memory of `bytes` bytes at both ends. The first lane has the fault.
    ///
    /// # Errors
    /// [`HostError::Refused`]: a value outside its limits; [`HostError::Provider`]: what the system refuses.
    pub fn new(
        config: EngineConfig,
        bytes: u64,
        fault: Option<SinkFault>,
    ) -> Result<Self, HostError> {
        let transfers = Arc::new(Transfers::new(0, &sizes(&config)?)?);
        let workers = config.workers;
        let owners: Vec<u32> = (0..config.qps).map(|lane| lane % config.workers).collect();
        let link = Arc::new(Link::new(0, 0, &owners, None));
        let mut reapers: Vec<SinkReaper> = Vec::new();
        reapers.resize_with(config.workers as usize, SinkReaper::default);
        let mut lanes = Vec::new();
        for (number, owner) in (0..).zip(&owners) {
            let lane = SinkLane::new(number, 1 << config.log_depth);
            let lane = lane.with_fault(fault.filter(|_| number == 0));
            reapers[*owner as usize].add(&lane);
            lanes.push((*owner, lane));
        }
        let cpus = vec![cpus::choose(&config.cpus, None)?];
        let cpus = cpus::of_each(&config.cpus, cpus, workers);
        let seats = reapers.into_iter().zip(cpus);
        let seats = seats.map(|(reaper, cpus)| Seat { reaper, cpus });
        let pool = Pool::start(&transfers, seats.collect(), pace(&config))?;
        for (nth, (owner, lane)) in lanes.into_iter().enumerate() {
            pool.add(owner, Held::new(&link, nth, 1, lane));
        }
        let control = end_of(&transfers, &link)?;
        let tables = Tables {
            local: one_region(bytes, Arc::new(Users::default())),
            remote: one_region(bytes, Rights::Both),
        };
        Ok(Self {
            transfers,
            pool,
            link,
            control: Some(control),
            tables,
        })
    }

    /// Begins a transfer as [`Peer::submit`](crate::engine::Peer::submit) does.
    ///
    /// # Errors
    /// As [`Peer::submit`](crate::engine::Peer::submit).
    pub fn submit(
        &self,
        operations: &[Operation],
        options: &Options<'_>,
    ) -> Result<TransferId, EngineError> {
        self.link.check(PEER)?;
        let how = How {
            deadline: options.deadline,
            counter: options.counter,
            notice: None,
        };
        self.transfers
            .submit(&self.link, self.tables.clone(), moves(operations), how)
    }

    /// Plans a transfer as [`Peer::prepare`](crate::engine::Peer::prepare) does.
    ///
    /// # Errors
    /// As [`Peer::prepare`](crate::engine::Peer::prepare).
    pub fn prepare(&self, operations: &[Operation]) -> Result<Arc<Prepared>, EngineError> {
        self.transfers
            .prepare(&self.link, self.tables.clone(), moves(operations), false)
    }

    /// Begins a transfer as [`Peer::post`](crate::engine::Peer::post) does.
    ///
    /// # Errors
    /// As [`Peer::post`](crate::engine::Peer::post).
    pub fn post(&self, prepared: &Arc<Prepared>) -> Result<TransferId, EngineError> {
        self.link.check(PEER)?;
        self.transfers.post(&self.link, prepared, How::default())
    }

    /// Returns what became of a transfer, as [`Engine::poll`](crate::engine::Engine::poll) does.
    ///
    /// # Errors
    /// As [`Engine::poll`](crate::engine::Engine::poll).
    pub fn poll(&self, id: TransferId) -> Result<Status, EngineError> {
        self.transfers.poll(id)
    }

    /// Waits for a transfer as [`Engine::wait`](crate::engine::Engine::wait) does.
    ///
    /// # Errors
    /// As [`Engine::wait`](crate::engine::Engine::wait).
    pub fn wait(&self, id: TransferId, most: Duration) -> Result<Status, EngineError> {
        self.transfers.wait_any(&[id], most)?;
        self.transfers.poll(id)
    }

    /// Cancels a transfer as [`Engine::cancel`](crate::engine::Engine::cancel) does.
    ///
    /// # Errors
    /// As [`Engine::cancel`](crate::engine::Engine::cancel).
    pub fn cancel(&self, id: TransferId) -> Result<(), EngineError> {
        self.transfers.cancel(id)
    }

    /// Returns the report of a transfer, as [`Engine::report`](crate::engine::Engine::report) does.
    ///
    /// # Errors
    /// As [`Engine::report`](crate::engine::Engine::report).
    pub fn report(&self, id: TransferId) -> Result<Report, EngineError> {
        self.transfers.report(id)
    }

    /// Gives the slot of a transfer back, as [`Engine::release`](crate::engine::Engine::release) does.
    ///
    /// # Errors
    /// As [`Engine::release`](crate::engine::Engine::release).
    pub fn release(&self, id: TransferId) -> Result<(), EngineError> {
        self.transfers.release(id)
    }
}

impl Drop for SinkEngine {
    fn drop(&mut self) {
        self.link.break_off();
        self.pool.stop();
        if let Some(control) = self.control.take() {
            control.join();
        }
    }
}

/// Returns what a transfer of these operations moves. Nothing overlaps, since no byte moves.
fn moves(operations: &[Operation]) -> Moves<'_> {
    Moves {
        operations,
        overlaps: false,
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

/// Starts the thread that ends the link once no worker has a lane of it: a sink has no other end to ask.
fn end_of(transfers: &Arc<Transfers>, link: &Arc<Link>) -> Result<OwnThread, ProviderError> {
    let (transfers, link) = (Arc::clone(transfers), Arc::clone(link));
    let body = move || {
        while !link.fences().wait_for_lanes(LOOK) {}
        transfers.end(&link, Fence::Whole);
    };
    Ok(OwnThread::spawn("wv-engine-sink", body, |_| {})?)
}
