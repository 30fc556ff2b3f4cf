//! Remote ranges that are being changed. Operations of different QPs have no order between them. So if two operations are under way at once
//! and change the same bytes, the bytes of either may remain. This module looks for that if
//! [`CheckConfig::overlap`](crate::device::CheckConfig) is set.

use crate::device::check::Finding;
use crate::device::check::flight::Flight;
use crate::device::state::HcaState;
use crate::transport::{Operation, OperationKind};

/// Notes that WQE `index`, which asks for `operation`, has been fetched. Reports an overlap with an operation of another QP.
pub(super) fn begun(hca: &mut HcaState, qpn: u32, index: u16, operation: &Operation) {
    if !hca.checker.config().overlap {
        return;
    }
    let start = match operation.kind {
        OperationKind::Write { va, .. } => va,
        OperationKind::Atomic(atomic) => atomic.va,
        OperationKind::Read { .. } | OperationKind::Send { .. } => return,
    };
    let Some(qp) = hca.qps.get(qpn) else {
        return;
    };
    let Some(length) = u64::from(operation.bytes).checked_sub(1) else {
        return; // it changes no bytes
    };
    let flight = Flight {
        qpn,
        index,
        peer: qp.remote,
        start,
        last: start.saturating_add(length),
    };
    let other = hca.flights.iter().copied().find(|other| {
        other.qpn != qpn
            && other.peer == flight.peer
            && other.start <= flight.last
            && flight.start <= other.last
    });
    if let Some(other) = other {
        hca.checker.note(Finding::Overlap, qpn, || {
            format!(
                "QP {qpn:#x}: WQE {index} changes {:#x}..={:#x} of its peer while WQE {} of QP {:#x} changes {:#x}..={:#x}: \
                 nothing orders the two",
                flight.start, flight.last, other.index, other.qpn, other.start, other.last
            )
        });
    }
    hca.flights.push(flight);
}

/// Forgets WQE `index`, which is over.
pub(in crate::engine) fn ended(hca: &mut HcaState, qpn: u32, index: u16) {
    if !hca.flights.is_empty() {
        hca.flights
            .retain(|flight| flight.qpn != qpn || flight.index != index);
    }
}
