//! QPs of this end of a connection, and offers that name one of them: whoever sends back what this engine offers has no QP.

use crate::fabric::PortRecord;
use crate::provider::mlx5::Offer;

/// The QPs of this end, and the ports of the other, by lane.
#[derive(Clone, Debug, Default)]
pub(super) struct OwnQps {
    own: Vec<(PortRecord, u32)>,
    theirs: Vec<PortRecord>,
}

/// An offer that names a QP of this end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("it offers QP {0:#x}, which is this engine's own")]
pub(super) struct OwnQp(u32);

impl OwnQps {
    /// One more lane: this end's QP `qpn` at port `own`, and the port of the other end.
    pub(super) fn add(&mut self, (own, qpn): (PortRecord, u32), theirs: PortRecord) {
        self.own.push((own, qpn));
        self.theirs.push(theirs);
    }

    /// Whether this lane may have the QP that the other end offers.
    pub(super) fn check(&self, lane: usize, offer: &Offer) -> Result<(), OwnQp> {
        let port = self.theirs.get(lane);
        let is_it = |(own, qpn): &(PortRecord, u32)| {
            *qpn == offer.qpn && port.is_some_and(|port| port.is_at(own))
        };
        match self.own.iter().any(is_it) {
            true => Err(OwnQp(offer.qpn)),
            false => Ok(()),
        }
    }
}
