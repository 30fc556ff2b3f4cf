//! One QP of a connection, from its creation to its reset.

use std::sync::Arc;

use super::lane::VerbsLane;
use crate::fabric::far_from;
use crate::provider::rc::RcOffer;
use crate::verbs::{PathAttr, PlainQp, SendAttr, VerbsError};

/// A QP of a connection, with the sizes that its lane has.
#[derive(Debug)]
pub(crate) struct VerbsPair {
    qp: Arc<PlainQp>,
    /// The number of the first packet that the QP sends.
    psn: u32,
    state: State,
    depth: u32,
    receives: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Init,
    Rtr,
    /// A lane posts to it.
    Rts,
}

impl VerbsPair {
    /// Takes a QP in Reset, whose lane takes `depth` WQEs and `receives` receive WQEs.
    pub(super) fn new(
        qp: PlainQp,
        psn: u32,
        depth: u32,
        receives: u32,
    ) -> Result<Self, VerbsError> {
        qp.init()?;
        Ok(Self {
            qp: Arc::new(qp),
            psn,
            state: State::Init,
            depth,
            receives,
        })
    }

    /// Returns the numbers that the other end needs. Returns None for a QP that is connected.
    pub(crate) fn offer(&self) -> Option<RcOffer> {
        (self.state == State::Init).then(|| RcOffer {
            qpn: self.qp.qpn(),
            psn: self.psn,
            ece: 0,
        })
    }

    /// Makes the QP ready to receive what the peer's QP sends.
    pub(crate) fn receive(mut self, path: &PathAttr, theirs: &RcOffer) -> Result<Self, VerbsError> {
        if self.state == State::Init {
            let path = path.with_remote_qpn(theirs.qpn).with_psn(theirs.psn);
            self.qp.ready_to_receive(&path)?;
            self.state = State::Rtr;
        }
        Ok(self)
    }

    /// Makes the QP ready to send, by the lane that is returned. If the NIC refuses, the QP is returned as it was.
    pub(crate) fn send(
        mut self,
        attr: &SendAttr,
    ) -> Result<(Self, Option<VerbsLane>), (Self, VerbsError)> {
        if self.state != State::Rtr {
            return Ok((self, None));
        }
        if let Err(error) = self.qp.ready_to_send(&attr.with_psn(self.psn)) {
            return Err((self, error));
        }
        self.state = State::Rts;
        let lane = VerbsLane::new(Arc::clone(&self.qp), self.depth, self.receives);
        Ok((self, Some(lane)))
    }

    /// Returns whether the NIC has put the QP into the error state.
    pub(crate) fn has_failed(&self) -> bool {
        self.qp.query().is_ok_and(|status| status.has_failed)
    }

    /// Puts the QP into the error state: all WQEs that its lane has posted complete, in error if they are not done.
    pub(crate) fn end(&self) -> Result<(), VerbsError> {
        match self.state {
            State::Init => Ok(()),
            State::Rtr | State::Rts => self.qp.to_error(),
        }
    }

    /// Begins the next life of the QP, whose lane is dropped. Its first packet has a number far from the numbers of this life.
    pub(crate) fn renew(self) -> Result<Self, VerbsError> {
        let psn = match self.state {
            State::Rts => far_from(self.qp.query()?.next_send_psn),
            State::Init | State::Rtr => far_from(self.psn),
        };
        let (depth, receives) = (self.depth, self.receives);
        Self::new(self.into_reset()?, psn, depth, receives)
    }

    /// Resets the QP, whose lane is dropped: no packet of its life lands or is sent any more.
    pub(crate) fn into_reset(self) -> Result<PlainQp, VerbsError> {
        let lane = |_| VerbsError::argument("lanes of a QP that is reset", 1, "0");
        let qp = Arc::try_unwrap(self.qp).map_err(lane)?;
        qp.reset()?;
        Ok(qp)
    }
}
