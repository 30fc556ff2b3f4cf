//! Requests of peers to a QP. [`responder`] finds the memory that they name by rkey and carries out their writes, reads and atomics.
//! Requests come from the wire or from an HCA of the same process.
//!
//! This module handles receive WQEs: it takes a WQE for a message ([`begin`]), fills it and completes it. The WQE comes from the QP's own
//! queue, from the QP's SRQ, or from the SRQ that an XRC packet names.

mod atomics;
pub(super) mod grh;
mod responder;
mod srq;

use super::{completion, local};
use crate::device::Event;
use crate::device::check::Finding;
use crate::device::memory::keys::KeyUser;
use crate::device::objects::qp::{Receiving, segments};
use crate::device::objects::qp_state;
use crate::device::state::HcaState;
use crate::engine::send::datagram;
use crate::transport::{NakCode, ReceiveError, Received, SendWith, Service};
use mlx5_prm::cqe::Syndrome;
use mlx5_prm::qp::QpState;

pub(super) const BROKEN: ReceiveError = ReceiveError::Refused(NakCode::REMOTE_OPERATIONAL_ERROR);
pub(super) const INVALID: ReceiveError = ReceiveError::Refused(NakCode::INVALID_REQUEST);

/// Takes the next receive WQE for a message. If the last message broke off, its WQE is used again.
pub(super) fn begin(hca: &mut HcaState, qpn: u32, srqn: Option<u32>) -> Result<(), ReceiveError> {
    established(hca, qpn);
    let qp = hca
        .qps
        .get_mut(qpn)
        .filter(|qp| qp_state::receives(qp.state))
        .ok_or(BROKEN)?;
    if qp.receiving.is_some() {
        return Ok(());
    }
    let shared = match qp.service {
        Service::XrcTarget => Some(srqn.ok_or(INVALID)?),
        _ => qp.srqn,
    };
    let receiving = match shared {
        Some(srqn) => srq::take(hca, qpn, srqn)?,
        None => take_own(hca, qpn)?,
    };
    if let Some(qp) = hca.qps.get_mut(qpn) {
        qp.receiving = Some(receiving);
    }
    Ok(())
}

/// Raises, once, the event that a request of the peer has reached a QP in Rtr, which is not ready to send yet.
pub(super) fn established(hca: &mut HcaState, qpn: u32) {
    if let Some(qp) = hca.qps.get_mut(qpn)
        && qp.state == QpState::RTR
        && qp.service != Service::Ud
        && !std::mem::replace(&mut qp.notices.established, true)
    {
        let context = qp.context;
        hca.raise(context, Event::QpEstablished(qpn));
    }
}

fn take_own(hca: &mut HcaState, qpn: u32) -> Result<Receiving, ReceiveError> {
    let qp = hca.qps.get_mut(qpn).ok_or(BROKEN)?;
    let posted = qp.receive_record();
    let user = KeyUser { pdn: qp.pdn, qpn };
    let Some(queue) = &mut qp.receive else {
        hca.checker.note(Finding::RemoteRight, qpn, || {
            format!(
                "QP {qpn:#x}: the peer's message needs a receive WQE, and the QP has no receive queue"
            )
        });
        return Err(INVALID);
    };
    let index = queue.taken;
    let ahead = posted.wrapping_sub(index);
    if ahead == 0 {
        return Err(ReceiveError::NotReady);
    }
    let entries = queue.entries();
    if u64::from(ahead) > entries {
        hca.checker.note(Finding::ReceiveBeyondRing, qpn, || {
            format!(
                "QP {qpn:#x}: the receive counter of the doorbell record is {ahead} ahead of the device, the ring has \
                 {entries} WQEs"
            )
        });
        return Err(BROKEN);
    }
    queue.taken = index.wrapping_add(1);
    let start = u64::from(index) % entries * queue.stride;
    let mut pieces = Vec::new();
    if let Some(slot) = queue.ring.part(start, queue.stride) {
        let mut wqe = vec![0; slot.length()];
        slot.read(0, &mut wqe);
        pieces = segments(&wqe);
    }
    Ok(Receiving {
        srqn: None,
        user,
        index,
        pieces,
    })
}

/// Writes `data` to `offset` of the current receive WQE.
pub(super) fn bytes(hca: &mut HcaState, qpn: u32, offset: u64, data: &[u8]) -> Result<(), NakCode> {
    let Some((receiving, front)) = current(hca, qpn) else {
        return Err(NakCode::REMOTE_OPERATIONAL_ERROR);
    };
    let outcome = fill(hca, &receiving, offset.saturating_add(front), data);
    match outcome {
        Ok(()) => {
            hca.counters.bytes_received += data.len() as u64;
            if let Some(qp) = hca.qps.get_mut(qpn) {
                qp.receiving = Some(receiving);
            }
            Ok(())
        }
        Err(syndrome) => Err(fail(hca, qpn, &receiving, syndrome)),
    }
}

/// Completes the current receive WQE: its message has arrived as a whole.
pub(super) fn done(hca: &mut HcaState, qpn: u32, received: &Received) -> Result<(), NakCode> {
    let Some((receiving, front)) = current(hca, qpn) else {
        return Ok(());
    };
    if let SendWith::Invalidate(key) = received.with
        && let Err(error) = hca.invalidate(qpn, key)
    {
        hca.checker.note(Finding::RemoteKey, qpn, || {
            format!(
                "QP {qpn:#x}: the peer's request to invalidate rkey {key:#x} is refused: {error}"
            )
        });
        fail(hca, qpn, &receiving, Syndrome::LOCAL_ACCESS_ERR);
        return Err(NakCode::REMOTE_ACCESS_ERROR);
    }
    let mut received = *received;
    if let Some(source) = received.source {
        // If the datagram has no GRH, the first 40 bytes of the buffer stay as they were.
        if let Some(header) = datagram::header(hca, qpn, &source, &received)
            && let Err(syndrome) = fill(hca, &receiving, 0, &header)
        {
            return Err(fail(hca, qpn, &receiving, syndrome));
        }
        received.bytes = received
            .bytes
            .saturating_add(u32::try_from(front).unwrap_or(0));
    }
    completion::complete_receive(hca, qpn, &receiving, &received, hca.now_ns);
    Ok(())
}

/// Takes the current receive WQE out of the QP. Returns it, and how many bytes of it a header takes in front of the message.
fn current(hca: &mut HcaState, qpn: u32) -> Option<(Receiving, u64)> {
    let qp = hca.qps.get_mut(qpn)?;
    let front = match qp.service {
        Service::Ud => grh::BYTES as u64,
        _ => 0,
    };
    Some((qp.receiving.take()?, front))
}

fn fill(
    hca: &mut HcaState,
    receiving: &Receiving,
    offset: u64,
    data: &[u8],
) -> Result<(), Syndrome> {
    if offset.saturating_add(data.len() as u64) > receiving.room() {
        return Err(Syndrome::LOCAL_LENGTH_ERR);
    }
    local::scatter_for(hca, receiving.user, &receiving.pieces, offset, data)
        .map_err(|_| Syndrome::LOCAL_PROT_ERR)
}

/// Fails the receive WQE. Returns the code for the peer's NAK. An unreliable QP sends no NAK and goes to the error state here, as
/// `ConnectX` does it. The specification would let it drop the message.
fn fail(hca: &mut HcaState, qpn: u32, receiving: &Receiving, syndrome: Syndrome) -> NakCode {
    let (srqn, index) = (receiving.srqn, receiving.index);
    completion::fail_receive(hca, qpn, srqn, index, syndrome);
    let reliable = hca.qps.get(qpn).is_some_and(|qp| qp.service.is_reliable());
    if !reliable {
        completion::enter_error(hca, qpn);
    }
    if syndrome == Syndrome::LOCAL_LENGTH_ERR {
        NakCode::INVALID_REQUEST
    } else {
        NakCode::REMOTE_OPERATIONAL_ERROR
    }
}
