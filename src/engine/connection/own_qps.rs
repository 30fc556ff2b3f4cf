//! The QPs of this end of a connection, and a check of offers that name one of them. A stranger that sends back what this engine offers has
//! no QP of its own.

use crate::fabric::PortRecord;
use crate::provider::mlx5::Offer;

/// The QPs of this end, by lane.
#[derive(Clone, Debug, Default)]
pub(in crate::engine) struct OwnQps(Vec<OwnLane>);

/// One lane of a connection.
#[derive(Clone, Copy, Debug)]
pub(in crate::engine) struct OwnLane {
    /// The number of this end's QP.
    pub(in crate::engine) qpn: u32,
    pub(in crate::engine) port: PortRecord,
    /// The port of the other end.
    pub(in crate::engine) theirs: PortRecord,
}

/// An offer that names a QP of this end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("it offers QP {0:#x}, which is this engine's own")]
pub(in crate::engine) struct OwnQp(u32);

impl OwnQps {
    pub(in crate::engine) fn new(lanes: impl Iterator<Item = OwnLane>) -> Self {
        Self(lanes.collect())
    }

    /// Refuses a QP of the other end that this lane may not have.
    pub(in crate::engine) fn check(&self, lane: usize, offer: &Offer) -> Result<(), OwnQp> {
        let port = self.0.get(lane).map(|lane| lane.theirs);
        let is_it =
            |own: &OwnLane| own.qpn == offer.qpn && port.is_some_and(|port| port.is_at(&own.port));
        if self.0.iter().any(is_it) {
            Err(OwnQp(offer.qpn))
        } else {
            Ok(())
        }
    }
}
