//! A peer as programs use it: its regions, and transfers to it and from it.

use std::fmt;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError, RwLockReadGuard};
use std::time::Duration;

use crate::engine::connection::peers::Arrived;
use crate::engine::error::{EngineError, HostError};
use crate::engine::ids::{RegionId, TransferId};
use crate::engine::inner::Inner;
use crate::engine::kind::{Kind, Rights};
use crate::engine::ledger::overlap;
use crate::engine::ledger::plan::Operation;
use crate::engine::lives::attached::Attached;
use crate::engine::lives::life::EngineLife;
use crate::engine::lock::lock;
use crate::engine::memory::grant::Grant;
use crate::engine::memory::keys::{PeerKey, Range};
use crate::engine::memory::regions::Descriptor;
use crate::engine::memory::table::{Mapped, Tables};
use crate::engine::route::counter::check_counter;
use crate::engine::route::link::Link;
use crate::engine::route::local::PeerPath;
use crate::engine::route::rails::{GrantedRange, RailKeys};
use crate::engine::transfers::{How, Moves, Options, Prepared};
use crate::engine::wire::messages::Hello;
use crate::provider::HostKey;
use crate::provider::local::ShownRegion;

/// A connection to another engine. It lasts until [`Peer::close`], the end of either engine, or the failure of its last QP.
/// Programs may drop its handles.
#[derive(Clone)]
pub struct Peer {
    pub(super) inner: Arc<Inner>,
    pub(super) link: Arc<Link>,
    /// The hello that the peer sent.
    pub(super) hello: Arc<Hello>,
    pub(super) known: Arc<EngineLife>,
}

impl Peer {
    /// Returns the handle of a connection of `inner`.
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

    /// Returns the name that the configuration of the other engine gives it.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.hello.name
    }

    /// Returns the number of QPs of the connection: the smaller of the numbers that both ends want.
    #[must_use]
    pub fn qps(&self) -> u64 {
        self.hello.qps.min(self.inner.core.hello.qps)
    }

    /// Returns how transfers go to the peer now. After the system has refused a copy, they go by the NIC.
    #[must_use]
    pub fn path(&self) -> PeerPath {
        self.link.path()
    }

    /// Returns how often a QP of the connection has failed, was reset at both ends and is used again.
    #[must_use]
    pub fn resets(&self) -> u64 {
        self.link.fences().resets()
    }

    /// Returns whether the connection takes transfers.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.link.is_open()
    }

    /// Lets transfers write and read a region of the peer. A second call does no harm. All connections to this life of the peer
    /// have the region.
    ///
    /// # Errors
    /// [`EngineError::Incarnation`]: the descriptor is of another engine or an earlier life; [`EngineError::Overlap`]: it
    /// overlaps another region of the peer that is known.
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
        if Arc::make_mut(&mut remote).insert(region) {
            Ok(())
        } else {
            Err(EngineError::Overlap { address, bytes })
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

    /// Begins a transfer of all these operations, which run in any order. [`Options`] say how: with a notice for the peer's program, with
    /// a counter, with a deadline. It waits only if they say so.
    ///
    /// # Errors
    /// [`EngineError::WouldBlock`]: no slot is free; [`EngineError::PeerGone`]; [`EngineError::WorkerPanicked`]; the errors for
    /// ranges and numbers that cannot be; [`EngineError::ReadIntoItself`]; [`EngineError::Counter`],
    /// [`EngineError::CountedRead`], [`EngineError::CountedParts`]. Of a transfer with a notice also the errors of [`Peer::notify`].
    /// Nothing was done in each case.
    pub fn submit(
        &self,
        operations: &[Operation],
        options: &Options<'_>,
    ) -> Result<TransferId, EngineError> {
        self.begin(options, |how| {
            let moves = self.moves(operations)?;
            let transfers = &self.inner.core.transfers;
            transfers.submit(&self.link, self.tables(), moves, how)
        })
    }

    /// Begins a transfer by `begin`. While that is refused for want of a slot or of room, it waits as `options` say.
    fn begin(
        &self,
        options: &Options<'_>,
        begin: impl Fn(How) -> Result<TransferId, EngineError>,
    ) -> Result<TransferId, EngineError> {
        if options.wait.is_zero() {
            return self.begin_once(options, &begin);
        }
        let waiting = self.inner.core.transfers.waiting();
        waiting.while_refused(options.wait, is_full, || self.begin_once(options, &begin))
    }

    fn begin_once(
        &self,
        options: &Options<'_>,
        begin: impl Fn(How) -> Result<TransferId, EngineError>,
    ) -> Result<TransferId, EngineError> {
        let attach = |bytes| Attached::new(&self.known, &self.hello.name, bytes);
        let notice = options.notice.map(attach).transpose()?;
        let has_notice = notice.is_some();
        let begun = self.begin_with(options, notice, begin);
        // Another thread may have been refused the room that this one gave back, and waits to be woken.
        if has_notice && begun.is_err() && self.known.outbox().has_refused() {
            self.inner.core.transfers.waiting().change();
        }
        begun
    }

    fn begin_with(
        &self,
        options: &Options<'_>,
        notice: Option<Attached>,
        begin: impl Fn(How) -> Result<TransferId, EngineError>,
    ) -> Result<TransferId, EngineError> {
        let _open = self.check_open()?;
        options.counter.map_or(Ok(()), check_counter)?;
        begin(How {
            // The configuration gives the deadline that the options leave out.
            deadline: options.deadline.or(self.inner.core.config.deadline),
            counter: options.counter,
            notice,
        })
    }

    /// Plans a transfer once, to be posted many times.
    ///
    /// # Errors
    /// As [`Peer::submit`].
    pub fn prepare(&self, operations: &[Operation]) -> Result<Arc<Prepared>, EngineError> {
        self.prepare_as(operations, false)
    }

    /// Plans a transfer once, to be posted many times, also with [`Options::counter`].
    ///
    /// # Errors
    /// [`EngineError::CountedRead`], [`EngineError::CountedParts`]; otherwise as [`Peer::submit`].
    pub fn prepare_counting(&self, operations: &[Operation]) -> Result<Arc<Prepared>, EngineError> {
        self.prepare_as(operations, true)
    }

    fn prepare_as(
        &self,
        operations: &[Operation],
        counts: bool,
    ) -> Result<Arc<Prepared>, EngineError> {
        let _open = self.check_open()?;
        let moves = self.moves(operations)?;
        let transfers = &self.inner.core.transfers;
        transfers.prepare(&self.link, self.tables(), moves, counts)
    }

    /// Begins a transfer that was prepared.
    ///
    /// # Errors
    /// [`EngineError::PreparedElsewhere`]: another engine has prepared it; [`EngineError::ForeignPrepared`]: it is for another
    /// peer; [`EngineError::PreparedUncounted`]; otherwise as [`Peer::submit`].
    pub fn post(
        &self,
        prepared: &Arc<Prepared>,
        options: &Options<'_>,
    ) -> Result<TransferId, EngineError> {
        let transfers = &self.inner.core.transfers;
        self.begin(options, |how| transfers.post(&self.link, prepared, how))
    }

    /// Sends a notice of up to [`MOST_NOTICE_BYTES`](super::MOST_NOTICE_BYTES) bytes, after those sent before. Never waits.
    ///
    /// If the connection ends before the peer's program has taken the notice, the next connection of the same two lives brings it.
    ///
    /// # Errors
    /// [`EngineError::InboxFull`]: the peer's program has not taken the notices that it has; [`EngineError::NoticeBytes`];
    /// [`EngineError::PeerGone`]; [`EngineError::Closing`]. Nothing was done in each case.
    pub fn notify(&self, bytes: &[u8]) -> Result<(), EngineError> {
        let _open = self.check_open()?;
        Attached::new(&self.known, &self.hello.name, bytes)?.send(None);
        Ok(())
    }

    /// Sends a notice as [`Peer::notify`] does, but first waits up to `most` for room.
    ///
    /// # Errors
    /// [`EngineError::InboxFull`]: no room came in time; otherwise as [`Peer::notify`].
    pub fn notify_wait(&self, bytes: &[u8], most: Duration) -> Result<(), EngineError> {
        let waiting = self.inner.core.transfers.waiting();
        waiting.while_refused(most, is_full, || self.notify(bytes))
    }

    /// Lets the peer read or write the `bytes` bytes at `address` of this side, by a key of its own. One command of the HCA makes
    /// the key over the registration. The grant ends when `time_to_live` is over, with this connection, or by
    /// [`Engine::revoke`](super::Engine::revoke). Until then the region stays. The program carries the result to the peer.
    ///
    /// # Errors
    /// [`EngineError::GrantRange`]: there are no bytes, or no registration has all of them; [`EngineError::TimeToLive`]: the time
    /// is 0; [`EngineError::GrantSpace`]; [`EngineError::PeerGone`]; [`EngineError::Closing`]; [`HostError::Provider`]: the HCA
    /// makes no key. Nothing was done in each case.
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
        let table = Arc::clone(&lock(&self.inner.regions).table);
        let region = table.covering(address, bytes).filter(|_| bytes > 0);
        let region = region.filter(|region| region.owner.enter());
        let region = region.ok_or(EngineError::GrantRange { address, bytes })?;
        let keys = &self.inner.core.keys;
        let users = Arc::clone(&region.owner);
        let peer = &*self.hello.name;
        let place = keys.reserve(&self.link, peer, users, Range { address, bytes });
        let place = place.inspect_err(|_| region.owner.leave())?;
        let range = GrantedRange {
            lkeys: region.keys,
            address,
            bytes,
            named: place.named,
        };
        let rails = &self.inner.core.rails;
        let made = rails.keys(&range, rights.access(), place.tag);
        let made = made.inspect_err(|_| keys.not_made(place.number))?;
        let rkeys: RailKeys = made.iter().map(HostKey::rkey).collect();
        let near = region.keys.near();
        let rkeys = rkeys.with_near(near).with_gpu(region.keys.is_of_gpu());
        let rkeys = rkeys.with_base(rails.naming().of_grant(address));
        let grant = Grant {
            number: place.number,
            owner: self.inner.core.hello.incarnation,
            peer: self.hello.incarnation,
            address: place.named,
            bytes,
            rkeys,
            rights,
        };
        if !keys.made(place.number, self.key(made, &grant, address), time_to_live) {
            keys.end_in_tries(place.number)?;
            let peer = peer.to_owned();
            return Err(EngineError::PeerGone { peer }.into());
        }
        if time_to_live.is_some()
            && let Some(wake) = self.link.wake()
        {
            // The thread of the connection ends it in time.
            wake.wake();
        }
        Ok(grant)
    }

    /// Returns the key of a grant of memory at `place`. A peer that copies within the machine finds it on the board too.
    fn key(&self, made: Vec<HostKey>, grant: &Grant, place: u64) -> PeerKey {
        let allows = |right: Rights| grant.rights.number() & right.number() != 0;
        let shown = ShownRegion {
            address: grant.address,
            bytes: grant.bytes,
            key: grant.rkeys.of(0),
            place,
            may_read: allows(Rights::Read),
            may_write: allows(Rights::Write),
        };
        // A peer elsewhere has no use for it, and no peer copies memory of a GPU.
        let board = self.inner.core.local.board.as_ref();
        let board = board.filter(|_| self.link.is_seated() && !grant.rkeys.is_of_gpu());
        PeerKey::new(made, board, &shown)
    }

    /// Grants the whole registration of a region, to be read and written, without an end in time.
    ///
    /// # Errors
    /// [`EngineError::UnknownRegion`]; [`EngineError::ForeignRegion`]: the region is of another engine than this connection;
    /// otherwise as [`Peer::grant`].
    pub fn export(&self, region: RegionId) -> Result<Grant, HostError> {
        let whole = self.inner.descriptor(region)?;
        self.grant(whole.address, whole.bytes, Rights::Both, None)
    }

    /// Lets transfers reach what the peer has granted this engine. A second call does no harm. [`Peer::forget`] forgets it.
    ///
    /// # Errors
    /// [`EngineError::Incarnation`]: the grant is of another engine or an earlier life of the peer;
    /// [`EngineError::ForeignGrant`]: it is to another engine or an earlier life of this one; [`EngineError::Overlap`].
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

    /// Ends the connection, after a wait for its transfers of at most the `drain` of the configuration. Returns how many
    /// transfers were cut off.
    #[must_use]
    pub fn close(&self) -> u32 {
        let left = self.link.load().drain(self.inner.core.config.drain);
        self.link.end_by_wish();
        left
    }

    /// Ends the connection now.
    pub fn break_off(&self) {
        self.link.end_by_wish();
    }

    /// Returns what a transfer of these operations moves. Refuses a READ into memory from which the transfer reads.
    fn moves<'a>(&self, operations: &'a [Operation]) -> Result<Moves<'a>, EngineError> {
        let shares_memory = self.hello.shares_memory_with(&self.inner.core.hello);
        Ok(Moves {
            operations,
            overlaps: shares_memory && overlap::check(operations)?,
        })
    }

    fn tables(&self) -> Tables {
        Tables {
            local: Arc::clone(&lock(&self.inner.regions).table),
            remote: Arc::clone(&lock(&self.known.remote)),
        }
    }

    /// Refuses what an engine that is closed or a link that has ended does not take. While a caller holds the result, a close
    /// does not end the workers.
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

/// Returns whether the call may succeed once a slot or room is free.
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
