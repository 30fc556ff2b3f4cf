//! One QP of a connection, from its creation to its reset.

use std::sync::Arc;

use super::lane::Mlx5Lane;
use crate::fabric::far_from;
use crate::provider::rc::RcOffer;
use crate::verbs::{Init, PathAttr, Qp, QpState, Reset, Rtr, Rts, SendAttr, VerbsError};

/// A QP of a connection, by its state.
#[derive(Debug)]
pub(crate) enum Pair {
    Init(Qp<Init>, u32),
    Rtr(Qp<Rtr>, u32),
    /// A lane posts to it.
    Rts(Arc<Qp<Rts>>),
}

impl Pair {
    pub(crate) fn new(qp: Qp<Reset>, psn: u32) -> Result<Self, VerbsError> {
        qp.clear_queues();
        Ok(Self::Init(qp.init()?, psn))
    }

    /// Returns the numbers that the other end needs. Returns None for a QP that is connected.
    pub(crate) fn offer(&self) -> Option<RcOffer> {
        match self {
            Self::Init(qp, psn) => Some(RcOffer {
                qpn: qp.qpn(),
                psn: *psn,
                ece: qp.ece(),
            }),
            _ => None,
        }
    }

    /// Makes the QP ready to receive what the peer's QP sends.
    pub(crate) fn receive(self, path: &PathAttr, theirs: RcOffer) -> Result<Self, VerbsError> {
        let path = path.with_remote_qpn(theirs.qpn);
        let path = path.with_psn(theirs.psn).with_ece(theirs.ece);
        match self {
            Self::Init(qp, psn) => Ok(Self::Rtr(qp.ready_to_receive(&path)?, psn)),
            further => Ok(further),
        }
    }

    /// Makes the QP ready to send, by the lane that is returned. If the HCA refuses, the QP is returned as it was.
    pub(crate) fn send(
        self,
        attr: &SendAttr,
    ) -> Result<(Self, Option<Mlx5Lane>), (Self, VerbsError)> {
        match self {
            Self::Rtr(qp, psn) => {
                let sends = qp.ready_to_send(&attr.with_psn(psn));
                let qp = sends.map_err(|error| (Self::Rtr(error.qp, psn), error.source))?;
                let qp = Arc::new(qp);
                let lane = Mlx5Lane::new(Arc::clone(&qp));
                Ok((Self::Rts(qp), Some(lane)))
            }
            further => Ok((further, None)),
        }
    }

    /// Returns whether the HCA has put the QP into the error state.
    pub(crate) fn has_failed(&self) -> bool {
        let status = match self {
            Self::Init(qp, _) => qp.query(),
            Self::Rtr(qp, _) => qp.query(),
            Self::Rts(qp) => qp.query(),
        };
        status.is_ok_and(|status| status.state == QpState::ERR)
    }

    /// Returns a number for the first packet of the QP's next life, far from the numbers of this one.
    pub(crate) fn next_psn(&self) -> Result<u32, VerbsError> {
        match self {
            Self::Rts(qp) => Ok(far_from(qp.query()?.next_send_psn)),
            Self::Init(_, psn) | Self::Rtr(_, psn) => Ok(far_from(*psn)),
        }
    }

    /// Puts the QP into the error state: all WQEs that its lane has posted complete, in error if they are not done.
    pub(crate) fn end(&self) -> Result<(), VerbsError> {
        match self {
            Self::Rts(qp) => qp.to_error(),
            Self::Rtr(qp, _) => qp.to_error(),
            Self::Init(..) => Ok(()),
        }
    }

    /// Resets the QP, whose lane is dropped: no packet of its life lands or is sent any more.
    pub(crate) fn into_reset(self) -> Result<Qp<Reset>, VerbsError> {
        self.reset().map_err(|(_, error)| {
            let lane = || VerbsError::argument("lanes of a QP that is reset", 1, "0".to_owned());
            error.unwrap_or_else(lane)
        })
    }

    /// Resets the QP: no packet of its life lands or is sent any more. The QP is returned as it was if its lane is not dropped yet, or the
    /// HCA refuses.
    pub(crate) fn reset(self) -> Result<Qp<Reset>, (Self, Option<VerbsError>)> {
        match self {
            Self::Init(qp, psn) => {
                let reset = qp.reset();
                reset.map_err(|error| (Self::Init(error.qp, psn), Some(error.source)))
            }
            Self::Rtr(qp, psn) => {
                let reset = qp.reset();
                reset.map_err(|error| (Self::Rtr(error.qp, psn), Some(error.source)))
            }
            Self::Rts(qp) => match Arc::try_unwrap(qp) {
                Ok(qp) => {
                    let reset = qp.reset();
                    reset.map_err(|error| (Self::Rts(Arc::new(error.qp)), Some(error.source)))
                }
                Err(qp) => Err((Self::Rts(qp), None)),
            },
        }
    }
}
