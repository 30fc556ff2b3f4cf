//! Calls by which operations inside the process use the [pending writes](crate::device::memory::pending_writes) of the peer.

use super::End;
use crate::device::memory::{Region, regions};
use crate::device::objects::qp::Route;
use crate::device::objects::work::Current;
use crate::device::state::Fabric;
use crate::transport::RemoteAccess;
use file_memory::Gone;

/// Returns whether bytes for `peer` may wait for a while before they are in its memory.
pub(super) fn is_active(fabric: &mut Fabric, peer: End) -> bool {
    let hca = fabric.hca(peer.hca);
    hca.is_some_and(|hca| hca.pending_writes.is_active())
}

/// Notes that a READ or WRITE of memory of `peer` is about to be carried out. Before a READ, pending writes are placed as its order
/// demands.
pub(super) fn before_access(fabric: &mut Fabric, peer: End, access: RemoteAccess) {
    if let Some(hca) = fabric.hca(peer.hca)
        && access == RemoteAccess::Read
    {
        let order = hca.order_of(peer.qpn);
        hca.pending_writes.before_read(peer.qpn, order);
    }
}

/// Returns the bytes of `near`.
///
/// # Errors
///
/// A page of `near` is gone.
pub(super) fn gathered(near: &[Region]) -> Result<Vec<u8>, Gone> {
    let mut data = vec![0; near.iter().map(Region::length).sum()];
    regions::read(near, &mut data)?;
    Ok(data)
}

/// Hands `data` to the peer's HCA, which may place it later.
///
/// # Errors
///
/// A page of the peer's memory is gone already.
pub(super) fn accept(
    fabric: &mut Fabric,
    peer: End,
    rkey: u32,
    far: &[Region],
    data: Vec<u8>,
) -> Result<(), Gone> {
    let now_ns = fabric.clock.now_ns();
    match fabric.hca(peer.hca) {
        Some(hca) => {
            hca.now_ns = hca.now_ns.max(now_ns);
            hca.accept(peer.qpn, rkey, far, data)
        }
        None => Ok(()),
    }
}

/// Returns the time at which software learns that `current` of `own` is over, if that is later than now. If it returns None and software
/// gets a completion, all that `own` has sent so far is in the peer's memory when this returns.
pub(super) fn told_at(fabric: &mut Fabric, own: End, current: &Current, ok: bool) -> Option<u64> {
    if ok && !current.work.signalled {
        return None; // software gets no completion
    }
    let peer = peer_of(fabric, own)?;
    let pending = &mut fabric.hca(peer.hca)?.pending_writes;
    let told_ns = if ok && !current.carried_out {
        pending.told_at(peer.qpn)
    } else {
        None
    };
    if told_ns.is_none() {
        pending.force(peer.qpn);
    }
    told_ns
}

/// Places all that `own` has sent so far in the peer's memory: software is about to learn that it is done.
pub(super) fn force(fabric: &mut Fabric, own: End) {
    if let Some(peer) = peer_of(fabric, own)
        && let Some(hca) = fabric.hca(peer.hca)
    {
        hca.pending_writes.force(peer.qpn);
    }
}

/// Returns the other end of a QP whose peer is in this process.
fn peer_of(fabric: &mut Fabric, own: End) -> Option<End> {
    let qp = fabric.hca(own.hca)?.qps.get(own.qpn)?;
    let Route::Process(hca) = qp.route else {
        return None;
    };
    let qpn = qp.qpc.remote_qpn();
    Some(End { hca, qpn })
}
