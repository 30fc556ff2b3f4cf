//! Datagrams between QPs of one process, and the checks of a QP that receives a datagram from there or from the wire. Between QPs of one
//! process a datagram is over once it is sent, whether or not its peer takes it.

use crate::device::check::Finding;
use crate::device::objects::qp_state;
use crate::device::objects::work::Current;
use crate::device::state::{Fabric, HcaState};
use crate::engine::local;
use crate::engine::receive::grh;
use crate::engine::send::End;
use crate::engine::send::loopback::Step;
use crate::envelope::Addresses;
use crate::link::Link;
use crate::transport::{
    Datagram, DatagramSource, Device, OperationKind, Received, SendWith, Service,
};
use crate::{link, partition};

/// Longest datagram: the MTU of a port.
const MAX_BYTES: usize = 4096;
/// Pause between two looks at a peer that sleeps.
const SLEEP_STEP_NS: u64 = 100_000;

/// Carries a datagram of QP `own` to an HCA of this process.
#[inline(never)] // its buffer would be part of every turn's stack frame
pub(in crate::engine) fn step(
    fabric: &mut Fabric,
    own: End,
    peer_hca: usize,
    to: &Datagram,
    current: &Current,
    now_ns: u64,
) -> Step {
    let OperationKind::Send { with } = current.operation.kind else {
        return Step::Done(Ok(())); // the decoder makes no other operation of a datagram
    };
    if fabric
        .hca(peer_hca)
        .is_some_and(|hca| hca.paused_until_ns > now_ns)
    {
        return Step::Wait(now_ns + SLEEP_STEP_NS);
    }
    let there = fabric
        .hca(own.hca)
        .and_then(|hca| hca.destination(&current.work, to));
    let Some(there) = there else {
        return Step::Done(Ok(())); // no way leads to this HCA any more
    };
    let mut buffer = [0; MAX_BYTES];
    let length = usize::try_from(current.operation.bytes).map_or(MAX_BYTES, |b| b.min(MAX_BYTES));
    let data = &mut buffer[..length];
    let Some(hca) = fabric.hca(own.hca) else {
        return Step::Done(Ok(()));
    };
    if let Err(failure) = local::gather(hca, own.qpn, &current.work.local, 0, data) {
        return Step::Done(Err(failure));
    }
    hca.counters.bytes_sent += u64::from(current.operation.bytes);
    let port = hca.port_of(own.qpn);
    let pkey = hca.qps.get(own.qpn).map(|qp| port.pkey(&qp.qpc));
    let (address, lmc) = (port.address(there.path_bits), port.lmc);
    let own_path_bits = fabric
        .hca(peer_hca)
        .map_or(0, |hca| hca.port_of(to.qpn).path_bits_of(there.address));
    let address_of_peer = there.address;
    let is_within = fabric.hca(peer_hca).is_some_and(|there| {
        let port = there.port_of(to.qpn);
        // A datagram to one port does not reach QPs of another port.
        let theirs = there.qps.get(to.qpn).filter(|_| port.has(address_of_peer));
        let theirs = theirs.map(|qp| port.pkey(&qp.qpc));
        matches!((pkey, theirs), (Some(ours), Some(theirs)) if partition::matches(ours, theirs))
    });
    if !is_within {
        return Step::Done(Ok(())); // the two QPs are of different partitions
    }
    let source = DatagramSource {
        qpn: own.qpn,
        address,
        lmc,
        own_path_bits,
        envelope: there.envelope,
        has_grh: to.has_grh,
    };
    deliver(
        fabric,
        peer_hca,
        to,
        data,
        with,
        current.operation.solicited,
        source,
    );
    Step::Done(Ok(()))
}

/// Delivers a datagram at HCA `peer_hca`. If anything speaks against taking the datagram, it is dropped.
fn deliver(
    fabric: &mut Fabric,
    peer_hca: usize,
    to: &Datagram,
    data: &[u8],
    with: SendWith,
    solicited: bool,
    source: DatagramSource,
) {
    let Some(hca) = fabric.hca(peer_hca) else {
        return;
    };
    if !hca.accepts_datagram(to.qpn, to.qkey) || hca.receive_begin(to.qpn, None).is_err() {
        return;
    }
    if !data.is_empty() && hca.receive_bytes(to.qpn, 0, data).is_err() {
        return;
    }
    let received = Received {
        bytes: u32::try_from(data.len()).unwrap_or(0),
        send: true,
        with,
        solicited,
        source: Some(source),
    };
    // No requester learns what became of a datagram.
    let _ = hca.receive_done(to.qpn, &received);
}

/// Returns whether `qpn` takes datagrams with this queue key.
pub(in crate::engine) fn accepts_datagram(hca: &mut HcaState, qpn: u32, qkey: u32) -> bool {
    let Some(qp) = hca
        .qps
        .get(qpn)
        .filter(|qp| qp.service == Service::Ud && qp_state::receives(qp.state))
    else {
        return false;
    };
    let own = qp.qpc.q_key();
    if own != qkey {
        hca.checker.note(Finding::QueueKey, qpn, || {
            format!(
                "QP {qpn:#x}: a datagram with queue key {qkey:#x} is dropped, the QP has {own:#x}"
            )
        });
    }
    own == qkey
}

/// Returns the header in front of a received datagram, or None if it has none.
pub(in crate::engine) fn header(
    hca: &HcaState,
    qpn: u32,
    source: &DatagramSource,
    received: &Received,
) -> Option<[u8; grh::BYTES]> {
    let own = hca.port_of(qpn);
    let addresses = match own.link {
        Link::Ethernet => source.envelope.addresses(source.address, own.ip),
        Link::InfiniBand if source.has_grh => {
            let first = link::first_address(source.address, source.lmc);
            Addresses::Grh(link::gid(first).into(), own.gid().into())
        }
        Link::InfiniBand => return None,
    };
    let immediate = matches!(received.with, SendWith::Immediate(_));
    Some(grh::of_datagram(addresses, received.bytes, immediate))
}
