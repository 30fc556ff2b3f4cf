//! A peer as programs use it: its regions, and transfers to it and from it.

use std::fmt;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError, RwLockReadGuard};
use std::time::Duration;

use crate::engine::connection::core::Arrived;
use crate::engine::error::{EngineError, HostError};
use crate::engine::ids::{RegionId, TransferId};
use crate::engine::inner::Inner;
use crate::engine::kind::{Kind, Rights};
use crate::engine::ledger::overlap;
use crate::engine::ledger::plan::Operation;
use crate::engine::lives::attached::Attached;
use crate::engine::lives::known::Known;
use crate::engine::lock::lock;
use crate::engine::memory::grant::Grant;
use crate::engine::memory::keys::PeerKey;
use crate::engine::memory::regions::Descriptor;
use crate::engine::memory::table::{LocalTable, Mapped, RemoteTable};
use crate::engine::route::counter::check_counter;
use crate::engine::route::link::Link;
use crate::engine::route::local::PeerPath;
use crate::engine::route::rails::{GrantedRange, RailKeys};
use crate::engine::transfers::{Options, Prepared};
use crate::engine::wire::messages::Hello;
use crate::provider::local::ShownRegion;
use crate::verbs::RangeKey;

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
    /// The handle of a connection of `inner`.
    pub(super) fn new(inner: &Arc<Inner>, arrived: Arrived) -> Self {
        let Arrived { link, hello, known } = arrived;
        let inner = Arc::clone(inner);
        Self {
            inner,
            link,
            hello,
            known,
        }
    }

    /// The name that the configuration of the other engine gives it.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.hello.name
    }

    /// QPs of the connection, both ends' smaller number.
    #[must_use]
    pub fn qps(&self) -> u64 {
        self.hello.qps.min(self.inner.core.hello.qps)
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

    /// Returns whether the connection takes transfers.
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
        let transfers = &self.inner.core.transfers;
        let options = options.or(self.inner.core.config.deadline);
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
        let how = (self.inner.cut, self.inner.core.config.gather);
        let tables = self.tables();
        let what = (operations, overlaps, counts);
        self.inner
            .core
            .transfers
            .prepare(&self.link, tables, how, what)
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
        let options = options.or(self.inner.core.config.deadline);
        let how = (&options, notice);
        self.inner.core.transfers.post(&self.link, prepared, how)
    }

    /// As [`Peer::submit`], but waits up to `most` for a slot where none is free.
    ///
    /// # Errors
    /// [`EngineError::WouldBlock`]: no slot was free in time; else as [`Peer::submit`].
    pub fn submit_wait(
        &self,
        operations: &[Operation],
        options: &Options,
        most: Duration,
    ) -> Result<TransferId, EngineError> {
        self.begin_within(most, || self.submit(operations, options))
    }

    /// As [`Peer::post`], but waits up to `most` for a slot where none is free.
    ///
    /// # Errors
    /// [`EngineError::WouldBlock`]: no slot was free in time; else as [`Peer::post`].
    pub fn post_wait(
        &self,
        prepared: &Arc<Prepared>,
        options: &Options,
        most: Duration,
    ) -> Result<TransferId, EngineError> {
        self.begin_within(most, || self.post(prepared, options))
    }

    fn begin_within(
        &self,
        most: Duration,
        begin: impl Fn() -> Result<TransferId, EngineError>,
    ) -> Result<TransferId, EngineError> {
        let is_full = |error: &EngineError| matches!(error, EngineError::WouldBlock { .. });
        let waiting = self.inner.core.transfers.waiting();
        waiting.while_refused(most, is_full, begin)
    }

    /// Sends a notice of up to [`MOST_NOTICE_BYTES`](super::MOST_NOTICE_BYTES) bytes, after those sent before. Never waits.
    ///
    /// Where the connection ends before it was taken, the next connection of the same lives brings it.
    ///
    /// # Errors
    /// [`EngineError::InboxFull`]: the peer's program takes none; [`EngineError::NoticeBytes`]; [`EngineError::PeerGone`];
    /// [`EngineError::Closing`]. Nothing was done in each case.
    pub fn notify(&self, bytes: &[u8]) -> Result<(), EngineError> {
        let _open = self.check_open()?;
        Attached::new(&self.known, &self.hello.name, bytes)?.send(None);
        Ok(())
    }

    /// As [`Peer::notify`], but waits up to `most` for room.
    ///
    /// # Errors
    /// [`EngineError::InboxFull`]: no room came in time; else as [`Peer::notify`].
    pub fn notify_wait(&self, bytes: &[u8], most: Duration) -> Result<(), EngineError> {
        let waiting = self.inner.core.transfers.waiting();
        waiting.while_refused(most, is_full, || self.notify(bytes))
    }

    /// As [`Peer::submit`], with a notice that the peer gets after the last byte of the transfer. If the transfer fails, the
    /// peer gets the notice too, with the outcome and the first cause.
    ///
    /// # Errors
    /// As [`Peer::submit`] and [`Peer::notify`].
    pub fn submit_notify(
        &self,
        operations: &[Operation],
        options: &Options,
        bytes: &[u8],
    ) -> Result<TransferId, EngineError> {
        self.with_notice(bytes, |attached| {
            self.submit_with(operations, options, Some(attached))
        })
    }

    /// As [`Peer::submit_notify`], but waits up to `most` for a slot and for room.
    ///
    /// # Errors
    /// As [`Peer::submit_notify`].
    pub fn submit_notify_wait(
        &self,
        operations: &[Operation],
        options: &Options,
        bytes: &[u8],
        most: Duration,
    ) -> Result<TransferId, EngineError> {
        let waiting = self.inner.core.transfers.waiting();
        waiting.while_refused(most, is_full, || {
            self.submit_notify(operations, options, bytes)
        })
    }

    /// As [`Peer::post`], with a notice, as [`Peer::submit_notify`].
    ///
    /// # Errors
    /// As [`Peer::post`] and [`Peer::notify`].
    pub fn post_notify(
        &self,
        prepared: &Arc<Prepared>,
        options: &Options,
        bytes: &[u8],
    ) -> Result<TransferId, EngineError> {
        self.with_notice(bytes, |attached| {
            self.post_with(prepared, options, Some(attached))
        })
    }

    /// As [`Peer::post_notify`], but waits up to `most` for a slot and for room.
    ///
    /// # Errors
    /// As [`Peer::post_notify`].
    pub fn post_notify_wait(
        &self,
        prepared: &Arc<Prepared>,
        options: &Options,
        bytes: &[u8],
        most: Duration,
    ) -> Result<TransferId, EngineError> {
        let waiting = self.inner.core.transfers.waiting();
        waiting.while_refused(most, is_full, || self.post_notify(prepared, options, bytes))
    }

    fn with_notice(
        &self,
        bytes: &[u8],
        begin: impl FnOnce(Attached) -> Result<TransferId, EngineError>,
    ) -> Result<TransferId, EngineError> {
        let begun = begin(Attached::new(&self.known, &self.hello.name, bytes)?);
        // Another thread may have been refused the room that was given back. One that waits does not wake itself.
        if begun.is_err() && self.known.outbox().has_refused() {
            self.inner.core.transfers.waiting().change();
        }
        begun
    }

    /// Lets the peer read or write the `bytes` bytes at `address` of this side, by a key of its own. One command of the HCA makes
    /// the key over the registration. It ends when `time_to_live` is over, with this connection, or by [`Engine::revoke`](super::Engine::revoke); until
    /// then the region stays. The program carries the result to the peer.
    ///
    /// # Errors
    /// [`EngineError::GrantRange`]: no bytes, or no registration has all of them; [`EngineError::TimeToLive`]: none;
    /// [`EngineError::GrantSpace`]; [`EngineError::PeerGone`]; [`EngineError::Closing`]; [`HostError::Provider`]: the HCA makes no
    /// key. Nothing was done in each case.
    pub fn grant(
        &self,
        address: u64,
        bytes: u64,
        rights: Rights,
        time_to_live: Option<Duration>,
    ) -> Result<Grant, HostError> {
        let _open = self.check_open()?;
        if time_to_live == Some(Duration::ZERO) {
            return Err(EngineError::TimeToLive.into());
        }
        let name = &*self.hello.name;
        let table = Arc::clone(&lock(&self.inner.regions).table);
        let region = table.covering(address, bytes).filter(|_| bytes > 0);
        let region = region.filter(|region| region.owner.enter());
        let region = region.ok_or(EngineError::GrantRange { address, bytes })?;
        let keys = &self.inner.core.keys;
        let users = Arc::clone(&region.owner);
        let place = keys.reserve((&self.link, name), users, (address, bytes));
        let place = place.inspect_err(|_| region.owner.leave())?;
        let range = GrantedRange {
            lkeys: region.keys,
            address,
            bytes,
            named: place.named,
        };
        let made = self
            .inner
            .core
            .rails
            .keys(&range, rights.access(), place.tag);
        let made = made.inspect_err(|_| keys.not_made(place.number))?;
        let rkeys: RailKeys = made.iter().map(RangeKey::rkey).collect();
        let is_of_gpu = region.keys.is_of_gpu();
        let rkeys = rkeys.with_near(region.keys.near()).with_gpu(is_of_gpu);
        let shown = ShownRegion {
            address: place.named,
            bytes,
            key: rkeys.of(0),
            place: address,
            may_read: rights.number() & Rights::Read.number() != 0,
            may_write: rights.number() & Rights::Write.number() != 0,
        };
        // A peer elsewhere has no use for it, and no peer copies memory of a GPU.
        let board = self.inner.core.local.board.as_ref();
        let board = board.filter(|_| self.link.is_seated() && !is_of_gpu);
        let key = PeerKey::new(made, board, &shown);
        if !keys.made(place.number, key, time_to_live) {
            keys.end_in_tries(place.number)?;
            let peer = name.to_owned();
            return Err(EngineError::PeerGone { peer }.into());
        }
        if time_to_live.is_some()
            && let Some(wake) = self.link.wake()
        {
            // The thread of the connection ends it in time.
            wake.wake();
        }
        Ok(Grant {
            number: place.number,
            owner: self.inner.core.hello.incarnation,
            peer: self.hello.incarnation,
            address: place.named,
            bytes,
            rkeys,
            rights,
        })
    }

    /// A grant of the whole registration of a region, to be read and written, without a time.
    ///
    /// # Errors
    /// [`EngineError::UnknownRegion`]; [`EngineError::ForeignRegion`]: of another engine than this connection; else as [`Peer::grant`].
    pub fn export(&self, region: RegionId) -> Result<Grant, HostError> {
        let whole = self.inner.descriptor(region)?;
        self.grant(whole.address, whole.bytes, Rights::Both, None)
    }

    /// Takes what the peer has granted this engine. Once more does no harm. [`Peer::forget`] forgets it.
    ///
    /// # Errors
    /// [`EngineError::Incarnation`]: of another engine or an earlier life of the peer; [`EngineError::ForeignGrant`]: to another
    /// engine or an earlier life of this one; [`EngineError::Overlap`].
    pub fn import_grant(&self, grant: &Grant) -> Result<(), EngineError> {
        let (peer, own) = (self.hello.incarnation, self.inner.core.hello.incarnation);
        if grant.owner != peer {
            let found = grant.owner;
            return Err(EngineError::Incarnation { found, peer });
        }
        if grant.peer != own {
            let found = grant.peer;
            return Err(EngineError::ForeignGrant { found, own });
        }
        self.take(Mapped {
            address: grant.address,
            bytes: grant.bytes,
            keys: grant.rkeys,
            owner: grant.rights,
        })
    }

    /// Waits for its transfers, but not for longer than the engine's `drain`, and ends the connection. How many were cut off.
    #[must_use]
    pub fn close(&self) -> u32 {
        let left = self.link.drain(self.inner.core.config.drain);
        self.link.end_by_wish();
        left
    }

    /// Ends the connection now.
    pub fn break_off(&self) {
        self.link.end_by_wish();
    }

    /// Returns whether a WRITE goes where one of the same transfer comes from.
    fn check_overlap(&self, operations: &[Operation]) -> Result<bool, EngineError> {
        match self.hello.shares_memory_with(&self.inner.core.hello) {
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
        if self.inner.core.is_closing.load(Ordering::Acquire) {
            return Err(EngineError::Closing);
        }
        self.link.check(&self.hello.name)?;
        Ok(open)
    }
}

/// Returns whether the call may succeed later.
fn is_full(error: &EngineError) -> bool {
    matches!(
        error,
        EngineError::WouldBlock { .. } | EngineError::InboxFull { .. }
    )
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
