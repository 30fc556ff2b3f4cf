//! The receive WQE of a message: it is taken when the message begins, filled as its bytes come, and completed with the message.

use super::refusal::{BROKEN, INVALID};
use super::{grh, own, srq};
use crate::device::Event;
use crate::device::check::Finding;
use crate::device::objects::qp::Receiving;
use crate::device::objects::qp_state;
use crate::device::state::HcaState;
use crate::engine::send::datagram;
use crate::engine::{completion, local};
use crate::transport::{NakCode, ReceiveError, Received, SendWith, Service};
use mlx5_prm::cqe::Syndrome;
use mlx5_prm::qp::QpState;

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
        None => own::take(hca, qpn)?,
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
