//! The state of a QP after a failure.

use crate::device::state::HcaState;
use mlx5_prm::qp::QpState;

/// Moves a QP whose send WQE has failed to its next state. A reliable QP goes to the error state. An unreliable QP goes to SQER: its send
/// queue fails and its receive side goes on. Sources: InfiniBand specification, "Queue Pair and EE Context States", and the transition of
/// `mlx5_ib` from SQER back to Rts.
pub(in crate::engine) fn send_failed(hca: &mut HcaState, qpn: u32) {
    match hca.qps.get_mut(qpn) {
        Some(qp) if !qp.service.is_reliable() => {
            if matches!(qp.state, QpState::RTS | QpState::SQD) {
                qp.state = QpState::SQER;
                hca.schedule(qpn);
            }
        }
        _ => enter_error(hca, qpn),
    }
}

/// Moves a QP to the error state. What it has outstanding is flushed in its next turn.
pub(in crate::engine) fn enter_error(hca: &mut HcaState, qpn: u32) {
    if let Some(qp) = hca.qps.get_mut(qpn)
        && qp.state != QpState::ERR
    {
        qp.state = QpState::ERR;
        qp.wire_must_fail = true;
        hca.schedule(qpn);
    }
}
