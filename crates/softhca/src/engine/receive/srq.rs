//! Receive WQEs of shared receive queues. The SRQ is the one that the QP was made with, or the one that an XRC packet names.

use super::refusal::{BROKEN, INVALID};
use crate::device::Event;
use crate::device::check::Finding;
use crate::device::memory::keys::KeyUser;
use crate::device::objects::qp::{Qp, Receiving};
use crate::device::objects::srq::TakeError;
use crate::device::state::HcaState;
use crate::transport::ReceiveError;

/// Takes the next WQE of SRQ `srqn` for a message to QP `qpn`.
pub(in crate::engine) fn take(
    hca: &mut HcaState,
    qpn: u32,
    srqn: u32,
) -> Result<Receiving, ReceiveError> {
    let xrcd = hca.qps.get(qpn).and_then(Qp::xrcd);
    // A basic SRQ has no XRC domain, and neither has a QP that was made with a basic SRQ.
    let Some(srq) = hca.srqs.get_mut(srqn).filter(|srq| srq.xrcd() == xrcd) else {
        hca.checker.note(Finding::RemoteRight, qpn, || {
            format!(
                "QP {qpn:#x}: the peer names SRQ {srqn:#x}, which is not one of the QP's XRC domain"
            )
        });
        return Err(INVALID);
    };
    let (context, user) = (srq.context, KeyUser { pdn: srq.pdn, qpn });
    let entries = srq.entries();
    match srq.take() {
        Ok((index, pieces)) => {
            if srq.passes_limit() {
                hca.raise(context, Event::SrqLimit(srqn));
            }
            Ok(Receiving {
                srqn: Some(srqn),
                user,
                index,
                pieces,
            })
        }
        Err(TakeError::Empty) => Err(ReceiveError::NotReady),
        Err(TakeError::Broken) => Err(BROKEN),
        Err(error) => {
            hca.checker.note(Finding::SrqList, srqn, || match error {
                TakeError::Link { index } => format!(
                    "SRQ {srqn:#x}: a WQE names {index} as the next; it must be below {entries}"
                ),
                TakeError::BeyondQueue { ahead } => format!(
                    "SRQ {srqn:#x}: the counter of the doorbell record is {ahead} ahead of the device; it must be \
                     at most {entries}"
                ),
                TakeError::Empty | TakeError::Broken => String::new(),
            });
            hca.raise(context, Event::SrqError(srqn));
            Err(BROKEN)
        }
    }
}
