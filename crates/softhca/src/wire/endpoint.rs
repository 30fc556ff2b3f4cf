//! The wire of one HCA without its socket: QPs, destinations, timers, and who may send next.
//!
//! Time, packets and memory come as arguments: the same code runs over UDP and in tests on a virtual clock. QPs take turns:
//! one that may have something to send stands in a queue, and a turn is at most `TURN_PACKETS` packets, answers first.

use super::carrier::{PacketSink, Source};
use super::icrc::{Addresses, Flow, ROCE_PORT};
use super::number_map::NumberMap;
use super::packet::{Packet, icrc_matches, seal};
use super::psn::Psn;
use super::requester::{Feedback, Requester, RequesterConfig};
use super::responder::{Arrival, Responder, ResponderConfig};
use super::window::Window;
use crate::engine::transport::{Device, Operation};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::net::Ipv4Addr;

/// Packets of one kind that a QP sends before the next has its turn.
const TURN_PACKETS: u32 = 16;

/// What the wire of an HCA has seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WireCounters {
    /// Packets sent, those sent again included.
    pub packets_sent: u64,
    /// Packets received and taken to a QP.
    pub packets_received: u64,
    /// Request packets sent again.
    pub retransmissions: u64,
    /// Requests received that had been carried out before.
    pub duplicates: u64,
    /// Requests received ahead of a missing one, and dropped.
    pub out_of_order: u64,
    /// Datagrams that are no packet of an RC QP.
    pub malformed: u64,
    /// Packets whose ICRC is wrong.
    pub bad_icrc: u64,
    /// Packets for a QP that is not there or not ready.
    pub unknown_qp: u64,
    /// Packets for a QP from an address that is not its peer's.
    pub unknown_source: u64,
    /// Packets that the kernel did not send: no route, or larger than the path's MTU.
    pub unsendable: u64,
}

/// The wire of one HCA.
#[derive(Debug)]
pub struct Endpoint<W> {
    address: Ipv4Addr,
    qps: NumberMap<Qp<W>>,
    /// By address, as a number.
    destinations: NumberMap<Destination>,
    /// QPs that may have something to send.
    ready: VecDeque<u32>,
    /// When to look at which QP; may be too early, never too late.
    timers: BinaryHeap<Reverse<(u64, u32)>>,
    counters: WireCounters,
}

#[derive(Debug)]
struct Qp<W> {
    remote: Ipv4Addr,
    /// `None` once the QP is in the error state for a reason of its own.
    responder: Option<Responder>,
    requester: Option<Requester<W>>,
    /// Stands in `ready`.
    is_ready: bool,
    /// Stands in its destination's `waiting`.
    is_waiting: bool,
    /// Earliest entry in `timers`.
    armed_ns: u64,
    /// Packets of this QP that its destination's window counts.
    accounted: u32,
}

#[derive(Debug)]
struct Destination {
    window: Window,
    /// QPs that wait for the window.
    waiting: Vec<u32>,
    qps: usize,
}

impl<W> Endpoint<W> {
    /// The wire of the HCA at `address`.
    pub fn new(address: Ipv4Addr) -> Self {
        Self {
            address,
            qps: NumberMap::default(),
            destinations: NumberMap::default(),
            ready: VecDeque::new(),
            timers: BinaryHeap::new(),
            counters: WireCounters::default(),
        }
    }

    /// The HCA's address.
    pub fn address(&self) -> Ipv4Addr {
        self.address
    }

    /// What has been seen so far.
    pub fn counters(&self) -> WireCounters {
        self.counters
    }

    /// Ready to receive: requests from `remote` are carried out from now on. Replaces what `qpn` was before.
    pub fn connect(&mut self, qpn: u32, remote: Ipv4Addr, config: ResponderConfig) {
        self.disconnect(qpn);
        let responder = Some(Responder::new(config));
        let qp = Qp {
            remote,
            responder,
            requester: None,
            is_ready: false,
            is_waiting: false,
            armed_ns: u64::MAX,
            accounted: 0,
        };
        self.qps.insert(qpn, qp);
        let destination = self
            .destinations
            .entry(remote.into())
            .or_insert_with(|| Destination {
                window: Window::new(),
                waiting: vec![],
                qps: 0,
            });
        destination.qps += 1;
    }

    /// Ready to send: operations are taken from now on. Without effect on a QP that is not connected.
    pub fn start(&mut self, qpn: u32, config: RequesterConfig) {
        if let Some(qp) = self.qps.get_mut(&qpn) {
            qp.requester = Some(Requester::new(config));
        }
    }

    /// The QP is in the error state: operations end as flushed, nothing more is carried out. A responder that has
    /// refused a request goes on to repeat that.
    pub fn fail<D: Device<Wqe = W>>(&mut self, qpn: u32, device: &mut D) {
        if let Some(qp) = self.qps.get_mut(&qpn) {
            qp.responder.take_if(|responder| !responder.has_refused());
            if let Some(requester) = &mut qp.requester {
                requester.flush();
            }
        }
        self.after_change(qpn, Feedback::default(), device);
    }

    /// The QP is in reset, or gone: packets for it are unknown, and its operations are forgotten without a word.
    pub fn disconnect(&mut self, qpn: u32) {
        let Some(qp) = self.qps.remove(&qpn) else {
            return;
        };
        self.ready.retain(|other| *other != qpn);
        let Some(destination) = self.destinations.get_mut(&qp.remote.into()) else {
            return;
        };
        destination.qps -= 1;
        destination.waiting.retain(|other| *other != qpn);
        destination.window.account(qp.accounted, 0);
        if destination.qps == 0 {
            self.destinations.remove(&qp.remote.into());
        } else {
            self.wake_waiting(qp.remote);
        }
    }

    /// Number of the request that `qpn` expects next.
    pub fn expected_psn(&self, qpn: u32) -> Option<Psn> {
        let responder = self.qps.get(&qpn)?.responder.as_ref()?;
        Some(responder.expected_psn())
    }

    /// [`Self::submit`] would take another operation.
    pub fn has_room(&self, qpn: u32) -> bool {
        self.requester(qpn).is_some_and(Requester::has_room)
    }

    /// Takes an operation of a started QP.
    ///
    /// # Errors
    /// Gives the WQE back if there is no room (ask again after the next completion) or the QP is not started.
    pub fn submit(&mut self, qpn: u32, wqe: W, operation: Operation) -> Result<(), W> {
        let Some(qp) = self.qps.get_mut(&qpn) else {
            return Err(wqe);
        };
        let Some(requester) = &mut qp.requester else {
            return Err(wqe);
        };
        requester.submit(wqe, operation)?;
        self.make_ready(qpn);
        Ok(())
    }

    /// Handles a datagram.
    pub fn receive<D: Device<Wqe = W>>(
        &mut self,
        now_ns: u64,
        source: impl Into<Source>,
        datagram: &[u8],
        device: &mut D,
    ) {
        let source: Source = source.into();
        let Ok(packet) = Packet::parse(datagram) else {
            self.counters.malformed += 1;
            return;
        };
        let qpn = packet.head.dest_qpn;
        let Some(qp) = self.qps.get_mut(&qpn) else {
            self.counters.unknown_qp += 1;
            return;
        };
        if qp.remote != *source.address.ip() {
            self.counters.unknown_source += 1;
            return;
        }
        let flow = Flow {
            addresses: Addresses::V4(*source.address.ip(), self.address),
            source_port: source.address.port(),
            destination_port: ROCE_PORT,
            fragment_fields: source.fragment_fields,
        };
        if !icrc_matches(datagram, &flow) {
            self.counters.bad_icrc += 1;
            return;
        }
        let mut feedback = Feedback::default();
        if packet.body.opcode().is_response() {
            let Some(requester) = &mut qp.requester else {
                self.counters.unknown_qp += 1;
                return;
            };
            feedback = requester.on_response(now_ns, qpn, &packet, device);
        } else {
            let Some(responder) = &mut qp.responder else {
                self.counters.unknown_qp += 1;
                return;
            };
            match responder.on_request(qpn, &packet, device) {
                Arrival::Duplicate => self.counters.duplicates += 1,
                Arrival::OutOfOrder => self.counters.out_of_order += 1,
                Arrival::Executed | Arrival::Refused | Arrival::Dropped => {}
            }
        }
        self.counters.packets_received += 1;
        self.after_change(qpn, feedback, device);
    }

    /// Looks at the clock. Datagrams that have arrived should be handled first.
    pub fn on_clock<D: Device<Wqe = W>>(&mut self, now_ns: u64, device: &mut D) {
        while let Some(&Reverse((at_ns, qpn))) = self.timers.peek() {
            if at_ns > now_ns {
                return;
            }
            self.timers.pop();
            let Some(qp) = self.qps.get_mut(&qpn).filter(|qp| qp.armed_ns == at_ns) else {
                continue;
            };
            qp.armed_ns = u64::MAX;
            let feedback = qp
                .requester
                .as_mut()
                .map(|requester| requester.on_clock(now_ns))
                .unwrap_or_default();
            self.after_change(qpn, feedback, device);
        }
    }

    /// When [`Self::on_clock`] wants to be called.
    pub fn deadline_ns(&self) -> Option<u64> {
        self.timers.peek().map(|Reverse((at_ns, _))| *at_ns)
    }

    /// No QP is connected.
    pub fn is_unused(&self) -> bool {
        self.qps.is_empty()
    }

    /// [`Self::transmit`] may have something to send.
    pub fn has_work(&self) -> bool {
        !self.ready.is_empty()
    }

    /// Fills `sink` with what may be sent now; true if something is left for want of space.
    pub fn transmit<D: Device<Wqe = W>, S: PacketSink + ?Sized>(
        &mut self,
        now_ns: u64,
        device: &mut D,
        sink: &mut S,
    ) -> bool {
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

    /// Lets a QP send; false if the sink is full.
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
        let Some(destination) = self.destinations.get_mut(&qp.remote.into()) else {
            return true;
        };
        let flow = Flow::v4(self.address, qp.remote);
        if let Some(responder) = &mut qp.responder {
            for _ in 0..TURN_PACKETS {
                let Some(out) = sink.slot() else { return false };
                let Some(used) = responder.poll_transmit(qpn, device, out) else {
                    break;
                };
                let bytes = seal(out, used, &flow);
                sink.commit(bytes, qp.remote);
                self.counters.packets_sent += 1;
            }
        }
        let Some(requester) = &mut qp.requester else {
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
            let bytes = seal(out, used, &flow);
            sink.commit(bytes, qp.remote);
            self.counters.packets_sent += 1;
            destination
                .window
                .account(qp.accounted, requester.in_flight());
            qp.accounted = requester.in_flight();
        }
        self.counters.retransmissions += requester.retransmitted() - retransmitted;
        space_left
    }

    /// Brings everything that hangs on a QP's state up to date: completions, window, timer, turn.
    fn after_change<D: Device<Wqe = W>>(&mut self, qpn: u32, feedback: Feedback, device: &mut D) {
        let Some(qp) = self.qps.get_mut(&qpn) else {
            return;
        };
        let remote = qp.remote;
        let mut has_work = qp.responder.as_ref().is_some_and(Responder::has_answer);
        let mut room = false;
        if let Some(requester) = &mut qp.requester {
            while let Some(completion) = requester.take_completion() {
                device.complete(qpn, completion.wqe, completion.outcome);
            }
            let in_flight = requester.in_flight();
            if let Some(destination) = self.destinations.get_mut(&remote.into()) {
                destination.window.acked(feedback.acked);
                if feedback.lost {
                    destination.window.lost();
                }
                room = destination.window.account(qp.accounted, in_flight);
            }
            qp.accounted = in_flight;
            has_work |= requester.wants_to_send() && !qp.is_waiting;
            let deadline_ns = requester.deadline_ns();
            if let Some(deadline_ns) = deadline_ns.filter(|deadline_ns| *deadline_ns < qp.armed_ns)
            {
                qp.armed_ns = deadline_ns;
                self.timers.push(Reverse((deadline_ns, qpn)));
            }
        }
        if has_work {
            self.make_ready(qpn);
        }
        if room {
            self.wake_waiting(remote);
        }
    }

    /// The window of `remote` has room: those that wait for it stand in line again.
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
            destination.waiting = waiting; // Keeps its capacity.
        }
    }

    fn make_ready(&mut self, qpn: u32) {
        if let Some(qp) = self.qps.get_mut(&qpn).filter(|qp| !qp.is_ready) {
            qp.is_ready = true;
            self.ready.push_back(qpn);
        }
    }

    fn requester(&self, qpn: u32) -> Option<&Requester<W>> {
        self.qps.get(&qpn)?.requester.as_ref()
    }
}

#[cfg(test)]
mod tests;
