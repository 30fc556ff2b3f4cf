//! The wire of one HCA without its socket. It has the QPs, the destinations and the timers, and chooses the QP that may send next.
//!
//! Time, packets and memory come as arguments: the code runs over UDP and, in tests, on a virtual clock. QPs take turns. A QP that may have
//! something to send stands in a queue, and a turn is at most `TURN_PACKETS` packets of each kind, answers first.

mod qp;

use super::carrier::PacketSink;
use super::headers::Bth;
use super::icrc::Flow;
use super::number_map::NumberMap;
use super::opcode::BthOpcode;
use super::packet::{Packet, icrc_matches, seal};
use super::psn::Psn;
use super::requester::{Feedback, Requester, RequesterConfig};
use super::responder::{Arrival, Responder, ResponderConfig};
use super::window::{self, Window};
use crate::envelope::{Destination, Envelope, Kept, Source};
use crate::partition;
use crate::transport::{Device, Operation, Service};
use crate::wire::datagram::{self, DatagramConfig, Datagrams};
use qp::{Connection, Kind, Qp};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::net::Ipv4Addr;

/// Number of packets of one kind that a QP sends before the next QP has its turn.
const TURN_PACKETS: u32 = 16;

/// The wire of one HCA.
#[derive(Debug)]
pub struct Endpoint<W> {
    /// The first address of the HCA.
    address: Ipv4Addr,
    /// Counters of packets by the path bits of the HCA's address.
    lids: Vec<LidCounters>,
    qps: NumberMap<Qp<W>>,
    /// The HCAs at the other end, by address, as a number.
    destinations: NumberMap<Neighbour>,
    /// QPs that may have something to send.
    ready: VecDeque<u32>,
    /// The times at which QPs must be looked at, each with its QP. An entry may be too early, never too late.
    timers: BinaryHeap<Reverse<(u64, u32)>>,
    counters: WireCounters,
    /// Upper bound of the windows of destinations.
    window_limit: u32,
    /// The envelopes that the carrier keeps.
    kept: Kept,
    /// The QP of the last packets, and their feedback. The feedback is used when packets for another QP come.
    touched: Option<(u32, Feedback)>,
}

/// An HCA that QPs are connected with.
#[derive(Debug)]
struct Neighbour {
    window: Window,
    /// QPs that wait for room in the window.
    waiting: Vec<u32>,
    qps: usize,
}

/// Counters of packets of one address of an HCA, that is, one LID of a port of `InfiniBand`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LidCounters {
    /// Packets sent from the address, retransmissions included.
    pub sent: u64,
    /// Packets that have come to the address, whatever became of them.
    pub received: u64,
    /// Bytes of the packets sent, from the base transport header to the ICRC.
    pub sent_bytes: u64,
    /// Bytes of the packets that have come, counted like `sent_bytes`.
    pub received_bytes: u64,
}

/// Counters of the wire of an HCA.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WireCounters {
    /// Packets sent, retransmissions included.
    pub packets_sent: u64,
    /// Packets received and handed to a QP.
    pub packets_received: u64,
    /// Request packets sent again.
    pub retransmissions: u64,
    /// Requests received that had been carried out before.
    pub duplicates: u64,
    /// Requests received ahead of a missing request, and dropped.
    pub out_of_order: u64,
    /// Datagrams that cannot be read as packets.
    pub malformed: u64,
    /// Congestion notifications, which are ignored.
    pub congestion: u64,
    /// Packets of another service than that of the QP.
    pub wrong_service: u64,
    /// Packets whose ICRC is wrong.
    pub bad_icrc: u64,
    /// Packets for a QP that does not exist or is not ready.
    pub unknown_qp: u64,
    /// Packets for a QP from another address than that of its peer.
    pub unknown_source: u64,
    /// Packets for a QP to another LID of its port than the LID of the QP.
    pub wrong_lid: u64,
    /// Packets of another partition than that of the QP.
    pub wrong_partition: u64,
    /// Packets that the kernel did not send: no route, or larger than the path's MTU.
    pub unsendable: u64,
    /// Frames on the HCA's Ethernet that are for other hosts, or neither RoCE nor ARP.
    pub foreign_frames: u64,
}

impl<W> Endpoint<W> {
    /// Returns the wire of the HCA at `address`.
    pub fn new(address: Ipv4Addr) -> Self {
        Self::with_lmc(address, 0)
    }

    /// Returns the wire of the HCA that has 2^`lmc` addresses from `address` on.
    pub fn with_lmc(address: Ipv4Addr, lmc: u8) -> Self {
        Self {
            address,
            lids: vec![LidCounters::default(); 1 << lmc],
            qps: NumberMap::default(),
            destinations: NumberMap::default(),
            ready: VecDeque::new(),
            timers: BinaryHeap::new(),
            counters: WireCounters::default(),
            window_limit: window::USUAL_LIMIT,
            kept: Kept::default(),
            touched: None,
        }
    }

    /// Sets the size of the receive buffers of peers' sockets. It counts for destinations that are added later.
    pub fn set_buffer_bytes(&mut self, bytes: usize) {
        self.window_limit = window::limit_for(bytes);
    }

    /// Sets the envelopes that the carrier keeps. They count for QPs that are connected later.
    pub fn set_kept(&mut self, kept: Kept) {
        self.kept = kept;
    }

    /// Returns the HCA's address.
    pub fn address(&self) -> Ipv4Addr {
        self.address
    }

    /// Returns the counters of the wire.
    pub fn counters(&self) -> WireCounters {
        self.counters
    }

    /// Returns the counters of packets by the path bits of the HCA's address.
    pub fn lids(&self) -> &[LidCounters] {
        &self.lids
    }

    /// Counts a packet of `bytes` bytes to `remote`.
    fn count_sent(
        counters: &mut WireCounters,
        lids: &mut [LidCounters],
        remote: &Destination,
        bytes: usize,
    ) {
        counters.packets_sent += 1;
        if let Some(lid) = lids.get_mut(usize::from(remote.path_bits)) {
            lid.sent += 1;
            lid.sent_bytes += bytes as u64;
        }
    }

    /// Makes `qpn` ready to receive: requests from `remote` are carried out from now on. This replaces what `qpn` was before.
    pub fn connect(&mut self, qpn: u32, remote: impl Into<Destination>, config: ResponderConfig) {
        self.disconnect(qpn);
        let mut remote: Destination = remote.into();
        if !self.kept.holds(remote.envelope) {
            remote.envelope = Envelope::V2_IPV4;
        }
        let service = config.service;
        let connection = Connection {
            remote,
            service,
            responder: (service != Service::XrcInitiator).then(|| Responder::new(config)),
            requester: None,
        };
        self.qps.insert(qpn, Qp::new(Kind::Connected(connection)));
        let destination = self
            .destinations
            .entry(remote.address.into())
            .or_insert_with(|| Neighbour {
                window: Window::new(self.window_limit),
                waiting: vec![],
                qps: 0,
            });
        destination.qps += 1;
    }

    /// Sets the partition key of `qpn`, until the QP is connected anew. A QP begins in the default partition.
    pub fn set_pkey(&mut self, qpn: u32, pkey: u16) {
        if let Some(qp) = self.qps.get_mut(&qpn) {
            qp.pkey = pkey;
        }
    }

    /// Makes `qpn` ready to send: operations are taken from now on. This has no effect on a QP that is not connected, and on an XRC target.
    pub fn start(&mut self, qpn: u32, config: RequesterConfig) {
        if let Some(qp) = self.qps.get_mut(&qpn)
            && let Kind::Connected(connection) = &mut qp.kind
            && connection.service != Service::XrcTarget
        {
            connection.requester = Some(Requester::new(config));
        }
    }

    /// Opens `qpn` for datagrams, from and to any address. This replaces what `qpn` was before.
    pub fn open_datagram(&mut self, qpn: u32, config: DatagramConfig) {
        self.disconnect(qpn);
        self.qps
            .insert(qpn, Qp::new(Kind::Datagram(Datagrams::new(config))));
    }

    /// Handles that the QP is in the error state: operations end as flushed, and no more are carried out. A responder that has refused a
    /// request goes on to repeat the refusal.
    pub fn fail<D: Device<Wqe = W>>(&mut self, qpn: u32, device: &mut D) {
        if let Some(qp) = self.qps.get_mut(&qpn) {
            qp.fail();
        }
        self.after_change(qpn, Feedback::default(), device);
    }

    /// Handles that the QP is in reset, or gone: packets for it are unknown, and its operations are forgotten without a completion.
    pub fn disconnect(&mut self, qpn: u32) {
        let Some(qp) = self.qps.remove(&qpn) else {
            return;
        };
        self.ready.retain(|other| *other != qpn);
        self.touched.take_if(|(last, _)| *last == qpn);
        let Some(remote) = qp.remote() else {
            return;
        };
        let Some(destination) = self.destinations.get_mut(&remote.into()) else {
            return;
        };
        destination.qps -= 1;
        destination.waiting.retain(|other| *other != qpn);
        destination.window.account(qp.accounted, 0);
        if destination.qps == 0 {
            self.destinations.remove(&remote.into());
        } else {
            self.wake_waiting(remote);
        }
    }

    /// Returns the number of the request packet that `qpn` expects next.
    pub fn expected_psn(&self, qpn: u32) -> Option<Psn> {
        let Kind::Connected(connection) = &self.qps.get(&qpn)?.kind else {
            return None;
        };
        let responder = connection.responder.as_ref()?;
        Some(responder.expected_psn())
    }

    /// Returns whether [`Self::submit`] would take another operation.
    pub fn has_room(&self, qpn: u32) -> bool {
        self.qps.get(&qpn).is_some_and(Qp::has_room)
    }

    /// Takes an operation of a started QP.
    ///
    /// # Errors
    /// The queue is full (ask again after the next completion) or the QP is not started. The error gives the WQE back.
    pub fn submit(&mut self, qpn: u32, wqe: W, operation: Operation) -> Result<(), W> {
        let Some(qp) = self.qps.get_mut(&qpn) else {
            return Err(wqe);
        };
        qp.submit(wqe, operation)?;
        self.make_ready(qpn);
        Ok(())
    }

    /// Handles a datagram that has arrived. Its effects are seen at the latest after the next [`Self::on_clock`] or [`Self::transmit`].
    pub fn receive<D: Device<Wqe = W>>(
        &mut self,
        now_ns: u64,
        source: impl Into<Source>,
        datagram: &[u8],
        device: &mut D,
    ) {
        let source: Source = source.into();
        if let Some(lid) = self.lids.get_mut(usize::from(source.path_bits)) {
            lid.received += 1;
            lid.received_bytes += datagram.len() as u64;
        }
        let Ok(packet) = Packet::parse(datagram) else {
            if datagram.first() == Some(&BthOpcode::CONGESTION.0) {
                self.counters.congestion += 1;
            } else {
                self.counters.malformed += 1;
            }
            return;
        };
        let qpn = packet.head.dest_qpn;
        let Some(qp) = self.qps.get_mut(&qpn) else {
            self.counters.unknown_qp += 1;
            return;
        };
        if qp
            .remote()
            .is_some_and(|remote| remote != *source.address.ip())
        {
            self.counters.unknown_source += 1;
            return;
        }
        if qp.path_bits().is_some_and(|own| own != source.path_bits) {
            self.counters.wrong_lid += 1;
            return;
        }
        if !icrc_matches(datagram, &Flow::inbound(&source, self.address)) {
            self.counters.bad_icrc += 1;
            return;
        }
        if !partition::matches(Bth::pkey_of(datagram), qp.pkey) {
            self.counters.wrong_partition += 1;
            return;
        }
        let mut feedback = Feedback::default();
        let arrival = match &mut qp.kind {
            Kind::Connected(connection) => {
                if !connection.takes(&packet) {
                    self.counters.wrong_service += 1;
                    return;
                }
                if packet.opcode().is_response() {
                    let Some(requester) = &mut connection.requester else {
                        self.counters.unknown_qp += 1;
                        return;
                    };
                    feedback = requester.on_response(now_ns, qpn, &packet, device);
                    Arrival::Executed
                } else {
                    let Some(responder) = &mut connection.responder else {
                        self.counters.unknown_qp += 1;
                        return;
                    };
                    responder.on_request(qpn, &packet, device)
                }
            }
            Kind::Datagram(_) => datagram::receive(qpn, &source, &packet, device),
        };
        match arrival {
            Arrival::Duplicate => self.counters.duplicates += 1,
            Arrival::OutOfOrder => self.counters.out_of_order += 1,
            Arrival::Executed | Arrival::Refused | Arrival::Dropped => {}
        }
        self.counters.packets_received += 1;
        match &mut self.touched {
            Some((last, sum)) if *last == qpn => {
                sum.acked = sum.acked.saturating_add(feedback.acked);
                sum.lost |= feedback.lost;
            }
            _ => {
                self.settle(device);
                self.touched = Some((qpn, feedback));
            }
        }
    }

    /// Applies the feedback of the packets received last.
    fn settle<D: Device<Wqe = W>>(&mut self, device: &mut D) {
        if let Some((qpn, feedback)) = self.touched.take() {
            self.after_change(qpn, feedback, device);
        }
    }

    /// Handles the timers that have run out. Datagrams that have arrived should be handled first.
    pub fn on_clock<D: Device<Wqe = W>>(&mut self, now_ns: u64, device: &mut D) {
        self.settle(device);
        while let Some(&Reverse((at_ns, qpn))) = self.timers.peek() {
            if at_ns > now_ns {
                return;
            }
            self.timers.pop();
            let Some(qp) = self.qps.get_mut(&qpn).filter(|qp| qp.armed_ns == at_ns) else {
                continue;
            };
            qp.armed_ns = u64::MAX;
            let feedback = match &mut qp.kind {
                Kind::Connected(Connection {
                    requester: Some(requester),
                    ..
                }) => requester.on_clock(now_ns),
                _ => Feedback::default(),
            };
            self.after_change(qpn, feedback, device);
        }
    }

    /// Returns when [`Self::on_clock`] must be called next.
    pub fn deadline_ns(&self) -> Option<u64> {
        self.timers.peek().map(|Reverse((at_ns, _))| *at_ns)
    }

    /// Returns whether no QP is connected.
    pub fn is_unused(&self) -> bool {
        self.qps.is_empty()
    }

    /// Returns whether [`Self::transmit`] may have something to send.
    pub fn has_work(&self) -> bool {
        !self.ready.is_empty()
    }

    /// Fills `sink` with packets that may be sent now. Returns true if packets are left for want of space.
    pub fn transmit<D: Device<Wqe = W>, S: PacketSink + ?Sized>(
        &mut self,
        now_ns: u64,
        device: &mut D,
        sink: &mut S,
    ) -> bool {
        self.settle(device);
        while let Some(qpn) = self.ready.pop_front() {
            let Some(qp) = self.qps.get_mut(&qpn) else {
                continue;
            };
            qp.is_ready = false;
            let space_left = self.turn(qpn, now_ns, device, sink);
            self.after_change(qpn, Feedback::default(), device);
            if !space_left {
                return true;
            }
        }
        false
    }

    /// Lets a QP send. Returns false if the sink is full.
    fn turn<D: Device<Wqe = W>, S: PacketSink + ?Sized>(
        &mut self,
        qpn: u32,
        now_ns: u64,
        device: &mut D,
        sink: &mut S,
    ) -> bool {
        let Some(qp) = self.qps.get_mut(&qpn) else {
            return true;
        };
        let connection = match &mut qp.kind {
            Kind::Connected(connection) => connection,
            Kind::Datagram(datagrams) => {
                for _ in 0..TURN_PACKETS {
                    let Some(out) = sink.slot() else { return false };
                    let kept = self.kept;
                    let Some(outgoing) = datagrams.poll_transmit(qpn, kept, device, out) else {
                        break;
                    };
                    let flow = Flow::outbound(self.address, &outgoing.destination);
                    Bth::set_pkey(out, qp.pkey);
                    let bytes = seal(out, outgoing.used, &flow);
                    sink.commit(bytes, outgoing.destination);
                    Self::count_sent(
                        &mut self.counters,
                        &mut self.lids,
                        &outgoing.destination,
                        bytes,
                    );
                }
                return true;
            }
        };
        let remote = connection.remote;
        let Some(destination) = self.destinations.get_mut(&remote.address.into()) else {
            return true;
        };
        let flow = Flow::outbound(self.address, &remote);
        if let Some(responder) = &mut connection.responder {
            for _ in 0..TURN_PACKETS {
                let Some(out) = sink.slot() else { return false };
                let Some(used) = responder.poll_transmit(qpn, device, out) else {
                    break;
                };
                Bth::set_pkey(out, qp.pkey);
                let bytes = seal(out, used, &flow);
                sink.commit(bytes, remote);
                Self::count_sent(&mut self.counters, &mut self.lids, &remote, bytes);
            }
        }
        let Some(requester) = &mut connection.requester else {
            return true;
        };
        let retransmitted = requester.retransmitted();
        let mut space_left = true;
        for _ in 0..TURN_PACKETS {
            let Some(out) = sink.slot() else {
                space_left = false;
                break;
            };
            let allowance = destination.window.allowance();
            let Some(used) = requester.poll_transmit(now_ns, qpn, allowance, device, out) else {
                if requester.wants_to_send() && !qp.is_waiting {
                    qp.is_waiting = true;
                    destination.waiting.push(qpn);
                }
                break;
            };
            Bth::set_pkey(out, qp.pkey);
            let bytes = seal(out, used, &flow);
            sink.commit(bytes, remote);
            Self::count_sent(&mut self.counters, &mut self.lids, &remote, bytes);
            destination
                .window
                .account(qp.accounted, requester.in_flight());
            qp.accounted = requester.in_flight();
        }
        self.counters.retransmissions += requester.retransmitted() - retransmitted;
        space_left
    }

    /// Brings everything that depends on a QP's state up to date: completions, window, timer, turn.
    fn after_change<D: Device<Wqe = W>>(&mut self, qpn: u32, feedback: Feedback, device: &mut D) {
        let Some(qp) = self.qps.get_mut(&qpn) else {
            return;
        };
        qp.report(qpn, device);
        let mut room = None;
        if let Kind::Connected(Connection {
            remote,
            requester: Some(requester),
            ..
        }) = &mut qp.kind
        {
            let in_flight = requester.in_flight();
            if let Some(destination) = self.destinations.get_mut(&remote.address.into()) {
                destination.window.acked(feedback.acked);
                if feedback.lost {
                    destination.window.lost();
                }
                let has_room = destination.window.account(qp.accounted, in_flight);
                room = has_room.then_some(remote.address);
            }
            qp.accounted = in_flight;
            let deadline_ns = requester.deadline_ns();
            if let Some(deadline_ns) = deadline_ns.filter(|deadline_ns| *deadline_ns < qp.armed_ns)
            {
                qp.armed_ns = deadline_ns;
                self.timers.push(Reverse((deadline_ns, qpn)));
            }
        }
        let has_work = qp.has_work();
        if has_work {
            self.make_ready(qpn);
        }
        if let Some(remote) = room {
            self.wake_waiting(remote);
        }
    }

    /// Puts the QPs that wait for the window of `remote` in line again: the window has room.
    fn wake_waiting(&mut self, remote: Ipv4Addr) {
        let Some(destination) = self.destinations.get_mut(&remote.into()) else {
            return;
        };
        let mut waiting = std::mem::take(&mut destination.waiting);
        for qpn in waiting.drain(..) {
            if let Some(qp) = self.qps.get_mut(&qpn) {
                qp.is_waiting = false;
            }
            self.make_ready(qpn);
        }
        if let Some(destination) = self.destinations.get_mut(&remote.into()) {
            destination.waiting = waiting; // keeps its capacity
        }
    }

    fn make_ready(&mut self, qpn: u32) {
        if let Some(qp) = self.qps.get_mut(&qpn).filter(|qp| !qp.is_ready) {
            qp.is_ready = true;
            self.ready.push_back(qpn);
        }
    }
}

#[cfg(test)]
mod tests;
