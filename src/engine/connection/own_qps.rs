//! The queues of this end of a connection, and a check of offers that name one of them. A stranger that sends back what this engine offers
//! has no queue of its own.

use crate::provider::{HostOffer, HostPort, OfiError};

/// The queues of this end, by lane.
#[derive(Clone, Debug, Default)]
pub(in crate::engine) struct OwnQps(Vec<OwnLane>);

/// One lane of a connection.
#[derive(Clone, Debug)]
pub(in crate::engine) struct OwnLane {
    /// What this end has offered.
    pub(in crate::engine) offer: HostOffer,
    pub(in crate::engine) port: HostPort,
    /// The port of the other end.
    pub(in crate::engine) theirs: HostPort,
}

/// An offer that is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(in crate::engine) enum BadOffer {
    /// It names a queue of this end.
    #[error("it offers {0}, which is this engine's own")]
    Own(HostOffer),
    /// It names no queue.
    #[error(transparent)]
    Wrong(#[from] OfiError),
}

impl OwnQps {
    pub(in crate::engine) fn new(lanes: impl Iterator<Item = OwnLane>) -> Self {
        Self(lanes.collect())
    }

    /// Refuses a queue of the other end that this lane may not have.
    pub(in crate::engine) fn check(&self, lane: usize, offer: &HostOffer) -> Result<(), BadOffer> {
        let Some(at) = self.0.get(lane).map(|lane| &lane.theirs) else {
            return Ok(());
        };
        offer.check(at)?;
        let is_it = |own: &OwnLane| own.offer.is_of(&own.port, offer, at);
        if self.0.iter().any(is_it) {
            Err(BadOffer::Own(offer.clone()))
        } else {
            Ok(())
        }
    }
}
