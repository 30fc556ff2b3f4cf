//! Grants as programs make, take and revoke them.

use std::sync::Arc;
use std::time::Duration;

use crate::engine::error::{EngineError, HostError};
use crate::engine::host::{Engine, lock};
use crate::engine::ids::RegionId;
use crate::engine::memory::grant::{Grant, Rights};
use crate::engine::memory::keys::{EndError, PeerKey};
use crate::engine::memory::table::Mapped;
use crate::engine::peer::Peer;
use crate::engine::route::rails::{GrantedRange, RailKeys};
use crate::provider::local::ShownRegion;
use crate::verbs::RangeKey;

impl Engine {
    /// Ends a grant, and returns when the HCA has destroyed its key. Requests that the peer begins after that fail, and the
    /// memory may be used for something else. A grant that has ended already is no error.
    ///
    /// # Errors
    /// [`EngineError::UnknownGrant`]: of another engine or an earlier life of this one; [`HostError::Provider`]: the HCA keeps the key, so the peer may still use it. It can be called
    /// again.
    pub fn revoke(&self, grant: &Grant) -> Result<(), HostError> {
        let number = grant.number;
        if grant.owner != self.incarnation() {
            return Err(EngineError::UnknownGrant { number }.into());
        }
        let ended = self.inner.keys.end(number);
        self.inner.transfers.waiting().change();
        Ok(ended?)
    }

    /// Grants that have not ended.
    #[must_use]
    pub fn grants(&self) -> usize {
        self.inner.keys.count()
    }

    /// As [`Engine::deregister`], but waits up to `most` for transfers and grants that use the region.
    ///
    /// # Errors
    /// [`EngineError::Busy`]: some still do; else as [`Engine::deregister`].
    pub fn deregister_wait(&self, region: RegionId, most: Duration) -> Result<(), HostError> {
        let mut busy = None;
        let look = || match self.deregister(region) {
            Err(HostError::Refused(error @ EngineError::Busy { .. })) => {
                busy = Some(error);
                Ok(None)
            }
            other => Ok(Some(other)),
        };
        let done = self.inner.transfers.waiting().until(most, look)?;
        done.unwrap_or_else(|| Err(busy.unwrap_or(EngineError::Closing).into()))
    }
}

impl Peer {
    /// Lets the peer read or write the `bytes` bytes at `address` of this side, by a key of its own. One command of the HCA makes
    /// the key over the registration. It ends when `time_to_live` is over, with this connection, or by [`Engine::revoke`]; until
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
        let keys = &self.inner.keys;
        let users = Arc::clone(&region.owner);
        let place = keys.reserve((&self.link, name), users, (address, bytes));
        let place = place.inspect_err(|_| region.owner.leave())?;
        let range = GrantedRange {
            lkeys: region.keys,
            address,
            bytes,
            named: place.named,
        };
        let made = self.inner.rails.keys(&range, rights.access(), place.tag);
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
        let board = self.inner.local.board.as_ref();
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
            owner: self.inner.hello.incarnation,
            peer: self.hello.incarnation,
            address: place.named,
            bytes,
            rkeys,
            rights,
        })
    }

    /// A grant of the whole registration behind a region, to be read and written, without a time.
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
        let (peer, own) = (self.hello.incarnation, self.inner.hello.incarnation);
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
}

impl From<EndError> for HostError {
    fn from(error: EndError) -> Self {
        match error {
            EndError::Engine(error) => error.into(),
            EndError::Verbs(error) => error.into(),
        }
    }
}
