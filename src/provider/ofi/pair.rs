//! This side's end of a lane, through all its lives. Each life has an endpoint of its own.

use std::sync::Arc;

use super::cq::Cq;
use super::endpoint::Endpoint;
use super::error::OfiError;
use super::greeting::greet;
use super::lane::OfiLane;
use super::lanes::Lanes;
use super::offer::OfiOffer;
use super::rkeys::Knower;
#[cfg(test)]
use super::trial::Planted;
#[cfg(test)]
use crate::provider::Counted;
use crate::provider::LaneCounts;

/// This side's end of a lane.
#[derive(Debug)]
pub(crate) struct OfiPair {
    /// It is closed when the lane is dropped or ended, or by this.
    endpoint: Arc<Endpoint>,
    stage: Stage,
    lanes: Arc<Lanes>,
    cq: Arc<Cq>,
    /// The connection, which may know all keys of its time.
    knower: Knower,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// The other end has not offered its endpoint.
    Offered,
    /// It receives what the other end writes.
    Receives,
    /// A lane posts to it.
    Sends,
}

impl OfiPair {
    pub(super) fn new(lanes: &Arc<Lanes>, cq: &Arc<Cq>) -> Result<Self, OfiError> {
        Self::begin(Arc::clone(lanes), Arc::clone(cq), lanes.knower())
    }

    fn begin(lanes: Arc<Lanes>, cq: Arc<Cq>, knower: Knower) -> Result<Self, OfiError> {
        Ok(Self {
            endpoint: Arc::new(lanes.endpoint(&cq)?),
            stage: Stage::Offered,
            lanes,
            cq,
            knower,
        })
    }

    /// Returns what the other end needs. Returns None for an endpoint that is connected.
    pub(crate) fn offer(&self) -> Option<OfiOffer> {
        if self.stage != Stage::Offered {
            return None;
        }
        let (address, tag) = (self.endpoint.address(), self.endpoint.tag());
        Some(OfiOffer::new(address, tag, self.lanes.greets()))
    }

    /// Takes the endpoint of the other end, and writes to it once.
    pub(crate) fn receive(self, theirs: &OfiOffer) -> Result<Self, OfiError> {
        if self.stage != Stage::Offered {
            return Ok(self);
        }
        self.endpoint.meet(&theirs.address()?, theirs.tag)?;
        let (keys, source) = (self.lanes.keys(), self.lanes.source());
        greet(&self.endpoint, keys, source, theirs.greets);
        Ok(Self {
            stage: Stage::Receives,
            ..self
        })
    }

    /// Lets the endpoint send, by the lane that is returned.
    pub(crate) fn send(self) -> (Self, Option<OfiLane>) {
        if self.stage != Stage::Receives {
            return (self, None);
        }
        let lane = self.lanes.lane(&self.endpoint);
        let pair = Self {
            stage: Stage::Sends,
            ..self
        };
        (pair, Some(lane))
    }

    /// Returns whether the endpoint is closed.
    pub(crate) fn has_failed(&self) -> bool {
        self.endpoint.is_closed()
    }

    /// Ends an endpoint that has no lane. The worker of a lane ends it with its operations.
    pub(crate) fn end(&self) -> Result<(), OfiError> {
        match self.stage {
            Stage::Offered | Stage::Receives => self.endpoint.close(),
            Stage::Sends => Ok(()),
        }
    }

    /// Returns what has counted in this life. Before that it ends the endpoint, so that nothing of this life is done or counted later.
    /// None: a worker has the lane.
    pub(crate) fn counts(&self) -> Result<Option<LaneCounts>, OfiError> {
        self.endpoint.close()?;
        let counts = match self.stage {
            // What the other end has written is done there, and nobody has seen it here.
            Stage::Offered | Stage::Receives => Some(LaneCounts::default()),
            Stage::Sends => self.endpoint.counts(),
        };
        #[cfg(test)]
        if self.endpoint.planted() == Some(Planted::LostCount) {
            return Ok(counts.map(|counts| LaneCounts {
                done: Counted::default(),
                ..counts
            }));
        }
        Ok(counts)
    }

    /// Begins the next life, with a new endpoint. Nothing of this life lands here any more.
    pub(crate) fn renew(self) -> Result<Self, OfiError> {
        self.endpoint.close()?;
        Self::begin(self.lanes, self.cq, self.knower)
    }

    /// Ends the endpoint, whose lane is dropped: nothing of it lands any more.
    pub(crate) fn reset(self) -> Result<(), OfiError> {
        self.endpoint.close()
    }
}
