//! The frame carrier, which makes an HCA a host of its own on an Ethernet.
//!
//! The HCA has an IP address and the MAC address that follows from it ([`mac_of`]), and the carrier answers ARP for it. The carrier finds
//! the MAC address of a peer by ARP, or in the peer's link-local GID. For a peer with an IPv6 address it asks by ARP for the IPv4 address
//! in that, so only software HCAs are reached by IPv6. Every peer is a neighbour: routing is not supported. The carrier writes the headers
//! itself. So RoCE v1 and v2 have their real headers, the ICRC is exact in both directions, and captures show the packets as they are on
//! the wire.
//!
//! Packets for a peer without a known MAC address wait for its answer, [`HELD_PACKETS`] at most. The carrier drops them when the peer has
//! not answered [`ATTEMPTS`] requests.

mod neighbours;
mod socket;

pub use neighbours::{ATTEMPTS, HELD_PACKETS};
pub use socket::FrameSocket;

use crate::envelope::{Destination, Kept, Name, Source};
use crate::link::{Mac, mac_of};
use crate::subnet::Ipv6Subnet;
use crate::wire::capture::{Capture, Direction};
use crate::wire::carrier::{Carrier, CarrierCounters, MAX_PACKET_BYTES, PacketSink, Receiver};
use crate::wire::frame::{Arp, BROADCAST, Frame, Headers, MAX_HEADER_BYTES, Route, headers};
use crate::wire::frames::neighbours::{Neighbours, Resolved};
use std::collections::VecDeque;
use std::io;
use std::net::Ipv4Addr;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd};

/// Number of packets that the carrier holds before a flush, and of frames that it takes in one call.
const BATCH: usize = 64;
/// Length of the largest frame that is received: it holds a jumbo frame, and every frame of rxe or another softhca.
const FRAME_BYTES: usize = 16 << 10;

/// The carrier of an HCA on an Ethernet.
#[derive(Debug)]
pub struct FrameCarrier {
    socket: FrameSocket,
    address: Ipv4Addr,
    /// The subnet of its IPv6 address, if it has one.
    subnet: Option<Ipv6Subnet>,
    mac: Mac,
    neighbours: Neighbours,
    /// Whole frames that are sent before those in `bytes`.
    first: VecDeque<Vec<u8>>,
    /// Frames of the sink, one after the other, with gaps. They take up `used` bytes.
    bytes: Box<[u8]>,
    used: usize,
    /// The places of the frames in `bytes` that are to be sent. `partly_sent`: some frames in `bytes` have been sent already.
    queued: VecDeque<Range<usize>>,
    partly_sent: bool,
    /// Packets that the HCA sent to itself.
    own: VecDeque<(Source, Vec<u8>)>,
    received: Box<[u8; FRAME_BYTES]>,
    capture: Option<Capture>,
    counters: CarrierCounters,
}

impl FrameCarrier {
    /// Returns the carrier of the HCA at `address`, which sends and receives by `socket`.
    pub fn new(socket: FrameSocket, address: Ipv4Addr, capture: Option<Capture>) -> Self {
        Self {
            socket,
            address,
            subnet: None,
            mac: mac_of(address),
            neighbours: Neighbours::default(),
            first: VecDeque::new(),
            bytes: vec![0; BATCH * (MAX_HEADER_BYTES + MAX_PACKET_BYTES)].into_boxed_slice(),
            used: 0,
            queued: VecDeque::with_capacity(BATCH),
            partly_sent: false,
            own: VecDeque::new(),
            received: Box::new([0; FRAME_BYTES]),
            capture,
            counters: CarrierCounters::default(),
        }
    }

    /// Returns this carrier for an HCA that also has an address of `subnet`, if one is given.
    #[must_use]
    pub fn with_subnet(self, subnet: Option<Ipv6Subnet>) -> Self {
        Self { subnet, ..self }
    }

    /// Returns whether this HCA has an address by that kind of name.
    fn has(&self, name: Name) -> bool {
        match name {
            Name::Ip | Name::LinkLocal => true,
            Name::Ipv6(subnet) => self.subnet == Some(subnet),
        }
    }

    /// Takes one frame from the socket. Returns false if none has arrived.
    fn receive_one(&mut self, packet: &mut Receiver<'_>) -> io::Result<bool> {
        let Some(bytes) = self.socket.receive(&mut self.received[..])? else {
            return Ok(false);
        };
        self.counters.receive_calls += 1;
        // A frame that does not fit is cut off, and then its lengths do not match.
        let frame = &self.received[..bytes.min(FRAME_BYTES)];
        let is_for_us = frame
            .first_chunk()
            .is_some_and(|mac| *mac == self.mac || *mac == BROADCAST);
        match Frame::parse(frame) {
            Ok(Frame::Arp(arp)) if arp.sender.1 != self.mac => {
                record(&mut self.capture, Direction::Inbound, frame);
                self.handle_arp(&arp);
            }
            Ok(Frame::Roce {
                source,
                destination,
                payload,
            }) if is_for_us
                && destination == self.address
                && self.has(source.envelope.destination) =>
            {
                record(&mut self.capture, Direction::Inbound, frame);
                packet(source, payload);
            }
            Ok(_) | Err(_) => self.counters.foreign += 1,
        }
        Ok(true)
    }

    fn handle_arp(&mut self, arp: &Arp) {
        let (ip, mac) = arp.sender;
        let asks_us = arp.is_request && arp.target.0 == self.address;
        for packet in self
            .neighbours
            .learn(ip, mac, asks_us || arp.target.1 == self.mac)
        {
            let (envelope, packet) = packet;
            let there = Destination {
                address: ip,
                envelope,
                path_bits: 0,
            };
            let frame = [&self.headers(mac, &there, &packet)[..], &packet].concat();
            self.first.push_back(frame);
        }
        if asks_us {
            let answer = Arp {
                is_request: false,
                sender: (self.address, self.mac),
                target: arp.sender,
            };
            self.first.push_back(answer.frame().to_vec());
        }
    }

    fn headers(&self, mac: Mac, there: &Destination, payload: &[u8]) -> Headers {
        let route = Route {
            source_mac: self.mac,
            destination_mac: mac,
            source: self.source(there),
            destination: there.address,
        };
        headers(&route, payload)
    }

    /// Returns this HCA as the sender of packets to that address.
    fn source(&self, there: &Destination) -> Source {
        Source {
            envelope: there.envelope,
            ..Source::of_hca(self.address)
        }
    }

    /// Returns the MAC address to which a packet goes. If it is not known yet, the packet is held or dropped.
    fn resolve(&mut self, there: &Destination, start: usize, bytes: usize) -> Resolved {
        if there.envelope.destination == Name::LinkLocal {
            return Resolved::At(mac_of(there.address));
        }
        let payload = &self.bytes[start..start + bytes];
        self.neighbours.resolve(there, payload)
    }

    fn ask(&mut self, now_ns: u64) {
        let (questions, lost) = self.neighbours.due(now_ns);
        self.counters.refused += lost;
        for ip in questions {
            let question = Arp {
                is_request: true,
                sender: (self.address, self.mac),
                target: (ip, [0; 6]),
            };
            self.first.push_back(question.frame().to_vec());
        }
    }

    /// Sends a frame. Returns false if the socket takes no more for now.
    fn send(&mut self, frame: &Outgoing) -> bool {
        let bytes = match frame {
            Outgoing::First(frame) => frame,
            Outgoing::Queued(place) => &self.bytes[place.clone()],
        };
        match self.socket.send(bytes) {
            Ok(()) => {
                self.counters.send_calls += 1;
                record(&mut self.capture, Direction::Outbound, bytes);
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return false,
            Err(_) => self.counters.refused += 1,
        }
        true
    }
}

/// A frame that is to be sent.
enum Outgoing {
    First(Vec<u8>),
    Queued(Range<usize>),
}

fn record(capture: &mut Option<Capture>, direction: Direction, frame: &[u8]) {
    if let Some(capture) = capture {
        capture.frame(direction, &[frame]);
    }
}

impl Carrier for FrameCarrier {
    fn receive(&mut self, now_ns: u64, packet: &mut Receiver<'_>) -> io::Result<bool> {
        let mut more = true;
        for _ in 0..BATCH {
            if let Some((source, payload)) = self.own.pop_front() {
                packet(source, &payload);
            } else if !self.receive_one(packet)? {
                more = false;
                break;
            }
        }
        // Answers to ARP, and packets that waited for one, must not wait until the HCA sends something.
        self.flush(now_ns);
        Ok(more)
    }

    fn sink(&mut self) -> &mut dyn PacketSink {
        self
    }

    fn flush(&mut self, now_ns: u64) -> bool {
        self.ask(now_ns);
        let mut done = true;
        while let Some(frame) = self.first.pop_front() {
            let frame = Outgoing::First(frame);
            if !self.send(&frame) {
                let Outgoing::First(frame) = frame else { break };
                self.first.push_front(frame);
                done = false;
                break;
            }
        }
        while let (true, Some(place)) = (done, self.queued.pop_front()) {
            if self.send(&Outgoing::Queued(place.clone())) {
                self.partly_sent = true;
            } else {
                self.queued.push_front(place);
                done = false;
            }
        }
        if self.queued.is_empty() {
            (self.used, self.partly_sent) = (0, false);
        }
        if let Some(capture) = &mut self.capture {
            capture.flush();
        }
        done
    }

    fn is_blocked(&self) -> bool {
        !self.queued.is_empty() || !self.first.is_empty()
    }

    fn deadline_ns(&self) -> Option<u64> {
        if self.own.is_empty() {
            self.neighbours.deadline_ns()
        } else {
            Some(0)
        }
    }

    fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        vec![self.socket.as_fd()]
    }

    fn counters(&self) -> CarrierCounters {
        self.counters
    }

    fn kept(&self) -> Kept {
        Kept::All
    }
}

impl PacketSink for FrameCarrier {
    fn slot(&mut self) -> Option<&mut [u8]> {
        if self.partly_sent || self.own.len() + self.queued.len() >= BATCH {
            return None;
        }
        let start = self.used + MAX_HEADER_BYTES;
        self.bytes.get_mut(start..start + MAX_PACKET_BYTES)
    }

    fn commit(&mut self, bytes: usize, destination: Destination) {
        let start = self.used + MAX_HEADER_BYTES;
        let end = start + bytes;
        if destination.address == self.address {
            let payload = &self.bytes[start..end];
            let source = self.source(&destination);
            if let Some(capture) = &mut self.capture {
                let route = Route::between(source, destination.address);
                capture.frame(Direction::Outbound, &[&headers(&route, payload), payload]);
            }
            self.own.push_back((source, payload.to_vec()));
            return;
        }
        match self.resolve(&destination, start, bytes) {
            Resolved::At(mac) => {
                let headers = self.headers(mac, &destination, &self.bytes[start..end]);
                // The headers stand directly in front of the payload, whatever their length is.
                let first = start - headers.len();
                self.bytes[first..start].copy_from_slice(&headers);
                self.queued.push_back(first..end);
                self.used = end;
            }
            Resolved::Held => {}
            Resolved::Dropped => self.counters.refused += 1,
        }
    }
}

#[cfg(test)]
mod tests;
