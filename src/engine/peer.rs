//! A peer as programs use it: its regions, and transfers to it and from it.

use std::fmt;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError, RwLockReadGuard};

use crate::engine::error::EngineError;
use crate::engine::host::{Inner, lock};
use crate::engine::ledger::overlap;
use crate::engine::ledger::plan::{Kind, Operation};
use crate::engine::ledger::slots::TransferId;
use crate::engine::lives::known::Known;
use crate::engine::memory::grant::Rights;
use crate::engine::memory::regions::Descriptor;
use crate::engine::memory::table::Mapped;
use crate::engine::route::counter::check_counter;
use crate::engine::route::link::Link;
use crate::engine::route::local::PeerPath;
use crate::engine::send::Attached;
use crate::engine::transfers::{LocalTable, Options, Prepared, RemoteTable};
use crate::engine::wire::messages::Hello;

/// A connection to another engine. It lasts until [`Peer::close`], the end of either engine, or the failure of its last QP; handles
/// may be dropped.
#[derive(Clone)]
pub struct Peer {
    pub(super) inner: Arc<Inner>,
    pub(super) link: Arc<Link>,
    /// The hello that the peer sent.
    pub(super) hello: Arc<Hello>,
    pub(super) known: Arc<Known>,
}

impl Peer {
    /// The name that the configuration of the other engine gives it.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.hello.name
    }

    /// QPs of the connection, both ends' smaller number.
    #[must_use]
    pub fn qps(&self) -> u64 {
        self.hello.qps.min(self.inner.hello.qps)
    }

    /// How transfers go to it now. From a copy that the system refuses on, they go by the NIC.
    #[must_use]
    pub fn path(&self) -> PeerPath {
        self.link.path()
    }

    /// How often a QP of the connection has failed, was reset at both ends and is used again.
    #[must_use]
    pub fn resets(&self) -> u64 {
        self.link.resets()
    }

    /// Whether the connection takes transfers.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.link.is_open()
    }

    /// Takes a region of the peer to be written and read. Once more does no harm. All connections to this life of the peer have it.
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
        self.take(Mapped {
            address: descriptor.address,
            bytes: descriptor.bytes,
            keys: descriptor.rkeys,
            owner: Rights::Both,
        })
    }

    /// Takes memory of the peer into its table.
    pub(super) fn take(&self, region: Mapped<Rights>) -> Result<(), EngineError> {
        let Mapped { address, bytes, .. } = region;
        let mut remote = lock(&self.known.remote);
        if remote.covering(address, bytes) == Some(&region) {
            return Ok(());
        }
        match Arc::make_mut(&mut remote).insert(region) {
            true => Ok(()),
            false => Err(EngineError::Overlap { address, bytes }),
        }
    }

    /// Forgets the region that begins at `address`: transfers that are submitted later do not reach it.
    pub fn forget(&self, address: u64) {
        let mut remote = lock(&self.known.remote);
        Arc::make_mut(&mut remote).remove(address);
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
    /// [`EngineError::WouldBlock`]: no slot is free; [`EngineError::PeerGone`]; [`EngineError::WorkerPanicked`]; ranges and numbers that
    /// cannot be; [`EngineError::ReadIntoItself`]; [`EngineError::Counter`], [`EngineError::CountedRead`], [`EngineError::CountedParts`]. Nothing was done in each case.
    pub fn submit(
        &self,
        operations: &[Operation],
        options: &Options,
    ) -> Result<TransferId, EngineError> {
        self.submit_with(operations, options, None)
    }

    pub(super) fn submit_with(
        &self,
        operations: &[Operation],
        options: &Options,
        notice: Option<Attached>,
    ) -> Result<TransferId, EngineError> {
        let _open = self.check_open()?;
        options.counter.map_or(Ok(()), check_counter)?;
        let overlaps = self.check_overlap(operations)?;
        let tables = self.tables();
        let transfers = &self.inner.transfers;
        let options = options.or(self.inner.config.deadline);
        let how = (&options, notice);
        transfers.submit(&self.link, tables, (operations, overlaps), how)
    }

    /// Plans a transfer once, to be posted many times.
    ///
    /// # Errors
    /// As [`Peer::submit`].
    pub fn prepare(&self, operations: &[Operation]) -> Result<Arc<Prepared>, EngineError> {
        self.prepare_as(operations, false)
    }

    /// The same of a transfer that may be posted with [`Options::counter`].
    ///
    /// # Errors
    /// [`EngineError::CountedRead`], [`EngineError::CountedParts`]; else as [`Peer::submit`].
    pub fn prepare_counting(&self, operations: &[Operation]) -> Result<Arc<Prepared>, EngineError> {
        self.prepare_as(operations, true)
    }

    fn prepare_as(
        &self,
        operations: &[Operation],
        counts: bool,
    ) -> Result<Arc<Prepared>, EngineError> {
        let _open = self.check_open()?;
        let overlaps = self.check_overlap(operations)?;
        let how = (self.inner.cut, self.inner.config.gather);
        let tables = self.tables();
        let what = (operations, overlaps, counts);
        self.inner.transfers.prepare(&self.link, tables, how, what)
    }

    /// Begins a transfer that was prepared.
    ///
    /// # Errors
    /// [`EngineError::PreparedElsewhere`]: by another engine; [`EngineError::ForeignPrepared`]: for another peer;
    /// [`EngineError::PreparedUncounted`]; else as [`Peer::submit`].
    pub fn post(
        &self,
        prepared: &Arc<Prepared>,
        options: &Options,
    ) -> Result<TransferId, EngineError> {
        self.post_with(prepared, options, None)
    }

    pub(super) fn post_with(
        &self,
        prepared: &Arc<Prepared>,
        options: &Options,
        notice: Option<Attached>,
    ) -> Result<TransferId, EngineError> {
        let _open = self.check_open()?;
        options.counter.map_or(Ok(()), check_counter)?;
        let options = options.or(self.inner.config.deadline);
        let how = (&options, notice);
        self.inner.transfers.post(&self.link, prepared, how)
    }

    /// Waits for its transfers, but not for longer than the engine's `drain`, and ends the connection. How many were cut off.
    #[must_use]
    pub fn close(&self) -> u32 {
        let left = self.link.drain(self.inner.config.drain);
        self.link.end_by_wish();
        left
    }

    /// Ends the connection now.
    pub fn break_off(&self) {
        self.link.end_by_wish();
    }

    /// Whether a WRITE goes where one of the same transfer comes from.
    fn check_overlap(&self, operations: &[Operation]) -> Result<bool, EngineError> {
        match self.hello.shares_memory_with(&self.inner.hello) {
            true => overlap::check(operations),
            false => Ok(false),
        }
    }

    fn tables(&self) -> (Arc<LocalTable>, Arc<RemoteTable>) {
        let local = Arc::clone(&lock(&self.inner.regions).table);
        (local, Arc::clone(&lock(&self.known.remote)))
    }

    /// While the result is held a close does not end the workers.
    pub(super) fn check_open(&self) -> Result<RwLockReadGuard<'_, ()>, EngineError> {
        let open = self.inner.submitting.read();
        let open = open.unwrap_or_else(PoisonError::into_inner);
        if self.inner.is_closing.load(Ordering::Acquire) {
            return Err(EngineError::Closing);
        }
        self.link.check(&self.hello.name)?;
        Ok(open)
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
