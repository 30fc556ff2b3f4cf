//! Receive WQEs of a QP's own receive queue.

use super::refusal::{BROKEN, INVALID};
use crate::device::check::Finding;
use crate::device::memory::keys::KeyUser;
use crate::device::objects::qp::{Receiving, segments};
use crate::device::state::HcaState;
use crate::transport::ReceiveError;

/// Takes the next WQE of QP `qpn` for a message to it.
pub(super) fn take(hca: &mut HcaState, qpn: u32) -> Result<Receiving, ReceiveError> {
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
