//! What a generation of a rank tells of itself, and what it offers one peer. Both are checked before anything is used.
//!
//! `hello/RANK.GENERATION` is the same for all ranks: addresses, settings, windows. `welcome/RANK.GENERATION/PEER.GENERATION` is
//! for one generation of one peer. It holds QPs and keys for that generation alone, so that this rank takes no packets and requests
//! of any other. The founders' hellos hold the offers to each other, for they all meet at once.

use serde::{Deserialize, Serialize};

use super::error::TeamError;
use super::holder::Holder;
use super::limits::VERSION;
use super::meeting::exchange::Exchange;
use super::qps::set::QpOffer;
use super::windows::shown::{WindowOffer, WindowShape, check_handle};
use crate::config::PathConfig;
use crate::fabric::{Identity, PSN_BITS, PortRecord};

/// The hello of one generation of a rank: the record in which it introduces itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::team) struct Hello {
    pub(in crate::team) version: u32,
    /// The port of the rank on each rail.
    pub(in crate::team) rails: Vec<PortRecord>,
    pub(in crate::team) identity: Identity,
    /// Settings that all ranks must have alike: name and value.
    pub(in crate::team) agreed: Vec<(String, String)>,
    /// Choices of the rank that cost something, in words. Other ranks of its machine need not tell them again.
    pub(in crate::team) costs: Vec<String>,
    /// The windows of the rank; `None` from a founder, which has made none yet.
    pub(in crate::team) windows: Option<Vec<WindowShape>>,
    /// The offers of a founder to the other founders; empty in the hello of a rank that joins later.
    pub(in crate::team) offers: Vec<Offer>,
}

/// The offer of one generation of a rank to one generation of another rank: QPs and keys.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::team) struct Offer {
    pub(in crate::team) version: u32,
    /// The rank that reads the offer.
    pub(in crate::team) rank: u32,
    pub(in crate::team) generation: u32,
    /// The QPs, by number.
    pub(in crate::team) qps: Vec<QpOffer>,
    /// The offers of windows, by window: what the reader needs to write each.
    pub(in crate::team) windows: Vec<WindowOffer>,
}

impl Offer {
    /// Returns the rank and generation that the offer is for.
    pub(in crate::team) fn reader(&self) -> Holder {
        Holder::new(self.rank, self.generation)
    }

    /// Returns whether both offers name the same QPs and windows. Packet numbers are not compared: they differ from one life of the
    /// QPs to the next.
    pub(in crate::team) fn leads_where(&self, other: &Self) -> bool {
        let qps = |offer: &Self| -> Vec<(u32, u32)> {
            offer.qps.iter().map(|qp| (qp.qpn, qp.ece)).collect()
        };
        let to = |offer: &Self| (offer.version, offer.rank, offer.generation);
        to(self) == to(other) && qps(self) == qps(other) && self.windows == other.windows
    }
}

/// The values that this rank compares the records of another rank with.
#[derive(Clone, Copy, Debug)]
pub(in crate::team) struct Wanted<'a> {
    pub(in crate::team) exchange: &'a Exchange,
    /// This rank and its generation.
    pub(in crate::team) own: Holder,
    pub(in crate::team) hello: &'a Hello,
    pub(in crate::team) qps_per_peer: u32,
    pub(in crate::team) path: PathConfig,
}

impl Wanted<'_> {
    /// Refuses a hello of `rank` that does not fit this rank and its `windows`.
    pub(in crate::team) fn check_hello(
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
    pub(in crate::team) fn check_offer(
        &self,
        rank: u32,
        key: &str,
        offer: &Offer,
        windows: &[WindowShape],
    ) -> Result<(), TeamError> {
        self.check_version(rank, key, offer.version)?;
        let refuse = |reason: String| Err(self.exchange.record(rank, key, &reason));
        if offer.reader() != self.own {
            let (rank, generation) = (offer.rank, offer.generation);
            return refuse(format!("it is for rank {rank} of generation {generation}"));
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
