//! What a generation of a rank tells of itself, and what it offers one peer. Both are checked before anything is used.
//!
//! `hello/RANK.GENERATION` is the same for all ranks: addresses, settings, windows. `welcome/RANK.GENERATION/PEER.GENERATION` is
//! for one generation of one peer. It holds QPs and keys for that generation alone, so that this rank takes no packets and requests
//! of any other. The founders' hellos hold the offers to each other, for they all meet at once.

use serde::{Deserialize, Serialize};

use super::TeamError;
use super::direct::check_handle;
use super::exchange::Exchange;
use crate::config::PathConfig;
use crate::fabric::{Identity, PSN_BITS, PortRecord};
use crate::gpu::MemoryHandle;

/// Version of both records.
pub(super) const VERSION: u32 = 6;

/// Where a hello is kept.
pub(super) fn hello_key(rank: u32, generation: u32) -> String {
    format!("hello/{rank}.{generation}")
}

/// Where the welcome of one generation to another is kept.
pub(super) fn welcome_key(from: (u32, u32), to: (u32, u32)) -> String {
    format!("welcome/{}.{}/{}.{}", from.0, from.1, to.0, to.1)
}

/// The rank and generation that such a name begins with; none for other names.
pub(super) fn rank_generation(name: &str) -> Option<(u32, u32)> {
    let (rank, generation) = name.split_once('.')?;
    Some((rank.parse().ok()?, generation.parse().ok()?))
}

/// One generation of a rank.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Hello {
    pub(super) version: u32,
    /// Its port on each rail.
    pub(super) rails: Vec<PortRecord>,
    pub(super) identity: Identity,
    /// What all ranks have alike.
    pub(super) agreed: Vec<(String, String)>,
    /// Choices of it that cost something, in words: other ranks of its machine need not tell them again.
    pub(super) costs: Vec<String>,
    /// Its windows; `None` from a founder, which has made none yet.
    pub(super) windows: Option<Vec<WindowShape>>,
    /// From a founder to the others; none in the hello of a rank that joins later.
    pub(super) offers: Vec<Offer>,
}

/// What is the same of a window at all ranks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct WindowShape {
    pub(super) bytes: u64,
    pub(super) purpose: String,
}

/// What one generation offers one of another rank.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Offer {
    pub(super) version: u32,
    /// The rank that reads the offer.
    pub(super) rank: u32,
    pub(super) generation: u32,
    /// By QP.
    pub(super) qps: Vec<QpOffer>,
    /// What that rank needs to write each window, by window.
    pub(super) windows: Vec<WindowOffer>,
}

impl Offer {
    /// Whether it names the same QPs and windows; packet numbers differ from one life of the QPs to the next.
    pub(super) fn leads_where(&self, other: &Self) -> bool {
        let qps = |offer: &Self| -> Vec<(u32, u32)> {
            offer.qps.iter().map(|qp| (qp.qpn, qp.ece)).collect()
        };
        let to = |offer: &Self| (offer.version, offer.rank, offer.generation);
        to(self) == to(other) && qps(self) == qps(other) && self.windows == other.windows
    }
}

/// One QP: how its other end is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct QpOffer {
    pub(super) qpn: u32,
    /// First packet number, unless that is too near to `far` of the other end.
    pub(super) psn: u32,
    /// The number that the former other end would have sent next; none if it had no other end.
    pub(super) far: Option<u32>,
    /// Options of enhanced connection establishment that it has; 0 if its device knows none.
    pub(super) ece: u32,
}

/// What a peer needs to write one window of this rank.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct WindowOffer {
    pub(super) shape: WindowShape,
    pub(super) base: u64,
    /// By rail; none for a window that no peer writes.
    pub(super) rkeys: Vec<u32>,
    /// By which other processes of the machine open it; none if they do not.
    pub(super) handle: Option<MemoryHandle>,
}

/// What records of a rank are compared with.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wanted<'a> {
    pub(super) exchange: &'a Exchange,
    /// This rank and its generation.
    pub(super) own: (u32, u32),
    pub(super) hello: &'a Hello,
    pub(super) qps_per_peer: u32,
    pub(super) path: PathConfig,
}

impl Wanted<'_> {
    /// Refuses a hello of `rank` that does not fit this rank and its `windows`.
    pub(super) fn check_hello(
        &self,
        rank: u32,
        key: &str,
        hello: &Hello,
        windows: &[WindowShape],
    ) -> Result<(), TeamError> {
        self.check_version(rank, key, hello.version)?;
        self.exchange
            .same(&self.hello.agreed, rank, &hello.agreed)?;
        let (own, theirs) = (self.hello.rails.len(), hello.rails.len());
        if own != theirs {
            return Err(self.differs("number of rails", own, rank, theirs));
        }
        for (number, (own, theirs)) in self.hello.rails.iter().zip(&hello.rails).enumerate() {
            let refused = |reason: String| self.exchange.record(rank, key, &reason);
            theirs.check().map_err(refused)?;
            own.fits(theirs, &self.path).map_err(|unfit| {
                let what = format!("{} of rail {number}", unfit.what);
                self.differs(&what, unfit.own, rank, unfit.theirs)
            })?;
        }
        match &hello.windows {
            Some(theirs) => self.check_windows(rank, windows, theirs.iter()),
            None => Ok(()),
        }
    }

    /// Refuses an offer of `rank` that does not fit `windows` of this rank, or is for another rank.
    pub(super) fn check_offer(
        &self,
        rank: u32,
        key: &str,
        offer: &Offer,
        windows: &[WindowShape],
    ) -> Result<(), TeamError> {
        self.check_version(rank, key, offer.version)?;
        let refuse = |reason: String| Err(self.exchange.record(rank, key, &reason));
        let to = (offer.rank, offer.generation);
        if to != self.own {
            return refuse(format!("it is for rank {} of generation {}", to.0, to.1));
        }
        if offer.qps.len() != self.qps_per_peer as usize {
            let (own, theirs) = (self.qps_per_peer, offer.qps.len());
            return Err(self.differs("number of QPs told", own, rank, theirs));
        }
        let numbers = offer.qps.iter().flat_map(|qp| [qp.qpn, qp.psn]);
        let far = offer.qps.iter().filter_map(|qp| qp.far);
        if let Some(number) = numbers.chain(far).find(|number| *number >= 1 << PSN_BITS) {
            return refuse(format!("{number:#x}; QPNs and PSNs have 24 bits"));
        }
        self.check_windows(
            rank,
            windows,
            offer.windows.iter().map(|window| &window.shape),
        )?;
        for window in &offer.windows {
            let (rails, keys) = (self.hello.rails.len(), window.rkeys.len());
            if keys != rails && keys != 0 {
                return refuse(format!("{keys} keys of a window; there are {rails} rails"));
            }
            check_handle(window.handle.as_ref(), window.shape.bytes).or_else(refuse)?;
        }
        Ok(())
    }

    fn check_version(&self, rank: u32, key: &str, version: u32) -> Result<(), TeamError> {
        if version == VERSION {
            return Ok(());
        }
        let reason = format!("version {version}; this is version {VERSION}");
        Err(self.exchange.record(rank, key, &reason))
    }

    fn check_windows<'a>(
        &self,
        rank: u32,
        own: &[WindowShape],
        theirs: impl ExactSizeIterator<Item = &'a WindowShape>,
    ) -> Result<(), TeamError> {
        if own.len() != theirs.len() {
            return Err(self.differs("number of windows", own.len(), rank, theirs.len()));
        }
        for (id, (own, theirs)) in own.iter().zip(theirs).enumerate() {
            if own.bytes != theirs.bytes {
                let what = format!("bytes of window {id}");
                return Err(self.differs(&what, own.bytes, rank, theirs.bytes));
            }
            if own.purpose != theirs.purpose {
                let what = format!("purpose of window {id}");
                return Err(self.differs(&what, &own.purpose, rank, &theirs.purpose));
            }
        }
        Ok(())
    }

    fn differs(
        &self,
        what: &str,
        own: impl ToString,
        rank: u32,
        theirs: impl ToString,
    ) -> TeamError {
        let (own, theirs) = (own.to_string(), theirs.to_string());
        self.exchange.mismatch(what, own, rank, theirs)
    }
}

pub(crate) mod reader;
#[cfg(test)]
mod tests;
