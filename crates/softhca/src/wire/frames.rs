//! The frame carrier: an HCA as a host of its own on an Ethernet.
//!
//! It has an IP address and the MAC address that follows from it ([`mac_of`]), answers ARP for itself, and finds the MAC
//! address of a peer by ARP. Every peer is a neighbour: there is no routing. The headers are its own, so the ICRC is exact
//! in both directions, and what it captures is what was on the wire.
//!
//! Packets for a peer whose MAC address is not known yet wait for it, [`HELD_PACKETS`] at most, and are lost when it does not
//! answer [`ATTEMPTS`] times.

mod neighbours;
mod socket;

use super::capture::{Capture, Direction};
use super::carrier::{Carrier, CarrierCounters, MAX_PACKET_BYTES, PacketSink, Receiver, Source};
use super::frame::{Arp, BROADCAST, Frame, HEADER_BYTES, Mac, Route, headers, mac_of};
use neighbours::{Neighbours, Resolved};
use std::collections::VecDeque;
use std::io;
use std::net::Ipv4Addr;
use std::os::fd::{AsFd, BorrowedFd};

pub use neighbours::{ATTEMPTS, HELD_PACKETS};
pub use socket::FrameSocket;

/// Packets that the carrier holds before a flush, and frames that it takes in one call.
const BATCH: usize = 64;
/// The largest frame that is received: a jumbo frame, and all that rxe or another softhca sends.
const FRAME_BYTES: usize = 16 << 10;

/// An HCA on an Ethernet.
#[derive(Debug)]
pub struct FrameCarrier {
    socket: FrameSocket,
    address: Ipv4Addr,
    mac: Mac,
    neighbours: Neighbours,
    /// Whole frames, ready to go, before those in `bytes`.
    first: VecDeque<Vec<u8>>,
    /// Frames of the sink, one behind the other; `used` bytes of it.
    bytes: Box<[u8]>,
    used: usize,
    /// Lengths of the frames in `bytes`, and where the next one begins.
    lengths: VecDeque<usize>,
    sent: usize,
    /// Payloads that the HCA sent to itself.
    own: VecDeque<Vec<u8>>,
    received: Box<[u8; FRAME_BYTES]>,
    capture: Option<Capture>,
    counters: CarrierCounters,
}

impl FrameCarrier {
    /// The HCA at `address` behind `socket`.
    pub fn new(socket: FrameSocket, address: Ipv4Addr, capture: Option<Capture>) -> Self {
        Self {
            socket,
            address,
            mac: mac_of(address),
            neighbours: Neighbours::default(),
            first: VecDeque::new(),
            bytes: vec![0; BATCH * (HEADER_BYTES + MAX_PACKET_BYTES)].into_boxed_slice(),
            used: 0,
            lengths: VecDeque::with_capacity(BATCH),
            sent: 0,
            own: VecDeque::new(),
            received: Box::new([0; FRAME_BYTES]),
            capture,
            counters: CarrierCounters::default(),
        }
    }

    /// Takes one frame from the socket; false if there is none.
    fn receive_one(&mut self, packet: &mut Receiver<'_>) -> io::Result<bool> {
        let Some(bytes) = self.socket.receive(&mut self.received[..])? else {
            return Ok(false);
        };
        self.counters.receive_calls += 1;
        // A frame that does not fit is cut, and its lengths say so.
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
            }) if is_for_us && destination == self.address => {
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
            let frame = [&self.headers(mac, ip, &packet)[..], &packet].concat();
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

    fn headers(&self, mac: Mac, ip: Ipv4Addr, payload: &[u8]) -> [u8; HEADER_BYTES] {
        let route = Route {
            source_mac: self.mac,
            destination_mac: mac,
            source: Source::of_hca(self.address),
            destination: ip,
        };
        headers(&route, payload)
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

    /// Sends a frame; false if the socket takes no more for now.
    fn send(&mut self, frame: &Outgoing) -> bool {
        let bytes = match frame {
            Outgoing::First(frame) => frame,
            Outgoing::Queued { start, bytes } => &self.bytes[*start..start + bytes],
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
    Queued { start: usize, bytes: usize },
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
            if let Some(payload) = self.own.pop_front() {
                packet(Source::of_hca(self.address), &payload);
            } else if !self.receive_one(packet)? {
                more = false;
                break;
            }
        }
        // Answers to ARP, and what waited for one, do not wait for the HCA to send something.
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
        while let (true, Some(bytes)) = (done, self.lengths.pop_front()) {
            let start = self.sent;
            if self.send(&Outgoing::Queued { start, bytes }) {
                self.sent += bytes;
            } else {
                self.lengths.push_front(bytes);
                done = false;
            }
        }
        if self.lengths.is_empty() {
            (self.used, self.sent) = (0, 0);
        }
        if let Some(capture) = &mut self.capture {
            capture.flush();
        }
        done
    }

    fn is_blocked(&self) -> bool {
        !self.lengths.is_empty() || !self.first.is_empty()
    }

    fn deadline_ns(&self) -> Option<u64> {
        if self.own.is_empty() {
            self.neighbours.deadline_ns()
        } else {
            Some(0)
        }
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.socket.as_fd())
    }

    fn counters(&self) -> CarrierCounters {
        self.counters
    }
}

impl PacketSink for FrameCarrier {
    fn slot(&mut self) -> Option<&mut [u8]> {
        if self.sent > 0 || self.own.len() + self.lengths.len() >= BATCH {
            return None;
        }
        let start = self.used + HEADER_BYTES;
        self.bytes.get_mut(start..start + MAX_PACKET_BYTES)
    }

    fn commit(&mut self, bytes: usize, destination: Ipv4Addr) {
        let start = self.used + HEADER_BYTES;
        let payload = &self.bytes[start..start + bytes];
        if destination == self.address {
            if let Some(capture) = &mut self.capture {
                let route = Route::between(Source::of_hca(self.address), destination);
                capture.frame(Direction::Outbound, &[&headers(&route, payload), payload]);
            }
            self.own.push_back(payload.to_vec());
            return;
        }
        match self.neighbours.resolve(destination, payload) {
            Resolved::At(mac) => {
                let headers = self.headers(mac, destination, payload);
                self.bytes[self.used..start].copy_from_slice(&headers);
                self.lengths.push_back(HEADER_BYTES + bytes);
                self.used = start + bytes;
            }
            Resolved::Held => {}
            Resolved::Dropped => self.counters.refused += 1,
        }
    }
}

#[cfg(test)]
mod tests;
