//! The port of one HCA: its wire and the carrier of its packets.
//!
//! The engine calls [`Port::poll`] whenever the descriptor is ready, the deadline has come, or a QP got something to do. A call does a
//! bounded piece of work: it receives, then looks at the clock, then sends. In this order it never treats a packet as missing that has
//! arrived.

use super::carrier::Carrier;
use super::endpoint::{Endpoint, LidCounters, WireCounters};
use super::faults::{FaultLayer, FaultySink};
use super::udp::UdpCarrier;
use crate::envelope::Source;
use crate::transport::Device;
use crate::wire::faults::Direction;
use std::io;
use std::net::{IpAddr, Ipv4Addr, UdpSocket};
use std::os::fd::BorrowedFd;

/// Most rounds of sending in one poll.
const ROUNDS: usize = 4;

/// The interval at which the carrier is emptied while no QP is connected, so that its packets have no receiver.
const UNUSED_INTERVAL_NS: u64 = 1_000_000;

/// The wire of one HCA.
#[derive(Debug)]
pub struct Port<W> {
    endpoint: Endpoint<W>,
    carrier: Box<dyn Carrier>,
    /// The faults between endpoint and carrier; usually there are none.
    faults: Option<Box<FaultLayer>>,
    /// The time at which packets were last received from the carrier.
    received_ns: u64,
}

/// The work that a poll did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Activity {
    /// True if packets were received or sent. More may follow soon.
    pub busy: bool,
    /// True if the call ended before the work did, so that it must be repeated at once.
    pub unfinished: bool,
}

impl<W> Port<W> {
    /// Returns the port of the HCA at `address`.
    pub fn new(address: Ipv4Addr, carrier: Box<dyn Carrier>) -> Self {
        Self::with_lmc(address, 0, carrier)
    }

    /// Returns the port of the HCA that has 2^`lmc` addresses from `address` on.
    pub fn with_lmc(address: Ipv4Addr, lmc: u8, carrier: Box<dyn Carrier>) -> Self {
        let mut endpoint = Endpoint::with_lmc(address, lmc);
        if let Some(bytes) = carrier.buffer_bytes() {
            endpoint.set_buffer_bytes(bytes);
        }
        endpoint.set_kept(carrier.kept());
        Self {
            endpoint,
            carrier,
            faults: None,
            received_ns: 0,
        }
    }

    /// Returns a port over a socket that is bound to the HCA's IPv4 address and port 4791.
    ///
    /// # Errors
    /// The socket is not bound to an IPv4 address, or the kernel refuses an option.
    pub fn over_udp(socket: UdpSocket) -> io::Result<Self> {
        let IpAddr::V4(address) = socket.local_addr()?.ip() else {
            return Err(io::Error::new(
                io::ErrorKind::AddrNotAvailable,
                "the HCA has no IPv4 address",
            ));
        };
        Ok(Self::new(address, Box::new(UdpCarrier::new(socket)?)))
    }

    /// Returns the endpoint, which has the QPs and their operations.
    pub fn endpoint(&mut self) -> &mut Endpoint<W> {
        &mut self.endpoint
    }

    /// Returns the fault layer between endpoint and carrier. If there is none yet, it is added.
    pub fn faults(&mut self) -> &mut FaultLayer {
        self.faults
            .get_or_insert_with(|| Box::new(FaultLayer::new(0, &[], 0)))
    }

    /// Returns the fault layer, if [`Self::faults`] has ever been called.
    pub fn faults_if_any(&self) -> Option<&FaultLayer> {
        self.faults.as_deref()
    }

    /// Returns the counters of packets by the path bits of the own address.
    pub fn lids(&self) -> &[LidCounters] {
        self.endpoint.lids()
    }

    /// Returns the counters of the port.
    pub fn counters(&self) -> WireCounters {
        let carrier = self.carrier.counters();
        WireCounters {
            unsendable: carrier.refused,
            foreign_frames: carrier.foreign,
            ..self.endpoint.counters()
        }
    }

    /// Receives, looks at the clock and sends, for a bounded time. `now_ns` is CLOCK_MONOTONIC.
    ///
    /// # Errors
    /// The carrier is broken.
    pub fn poll<D: Device<Wqe = W>>(
        &mut self,
        now_ns: u64,
        device: &mut D,
    ) -> io::Result<Activity> {
        let mut activity = Activity::default();
        let since_ns = now_ns.saturating_sub(self.received_ns);
        if self.endpoint.is_unused() && since_ns < UNUSED_INTERVAL_NS {
            return Ok(activity);
        }
        self.received_ns = now_ns;
        let more = self.receive(now_ns, device, &mut activity)?;
        if !more {
            self.endpoint.on_clock(now_ns, device);
        }
        activity.unfinished = more;
        for _ in 0..ROUNDS {
            let left = self.transmit(now_ns, device);
            activity.busy |= self.carrier.is_blocked();
            if !self.carrier.flush(now_ns) {
                return Ok(activity); // the carrier says when it takes more
            }
            if !left {
                return Ok(activity);
            }
        }
        activity.unfinished = true;
        Ok(activity)
    }

    /// Receives a batch, so that answers do not wait for all arrived packets. Returns true if more may have arrived.
    fn receive<D: Device<Wqe = W>>(
        &mut self,
        now_ns: u64,
        device: &mut D,
        activity: &mut Activity,
    ) -> io::Result<bool> {
        let endpoint = &mut self.endpoint;
        let mut arrived = |source: Source, datagram: &[u8]| {
            activity.busy = true;
            endpoint.receive(now_ns, source, datagram, device);
        };
        match &mut self.faults {
            None => self.carrier.receive(now_ns, &mut arrived),
            Some(layer) => {
                let more = self.carrier.receive(now_ns, &mut |source, datagram| {
                    layer.receive(now_ns, source, datagram, &mut arrived);
                })?;
                layer.release(now_ns, Direction::In, |source, datagram| {
                    arrived(source, datagram);
                    true
                });
                Ok(more)
            }
        }
    }

    /// Hands packets to the carrier. Returns true if some are left for want of room.
    fn transmit<D: Device<Wqe = W>>(&mut self, now_ns: u64, device: &mut D) -> bool {
        let inner = self.carrier.sink();
        match &mut self.faults {
            None => self.endpoint.transmit(now_ns, device, inner),
            Some(layer) => {
                let mut sink = FaultySink {
                    layer,
                    inner,
                    now_ns,
                };
                sink.release();
                self.endpoint.transmit(now_ns, device, &mut sink)
            }
        }
    }

    /// Returns when time asks for the next call, in CLOCK_MONOTONIC nanoseconds.
    pub fn deadline_ns(&self) -> Option<u64> {
        let late = self.faults.as_ref().and_then(|layer| layer.deadline_ns());
        let arrival_ns = self.carrier.deadline_ns().map(|at_ns| {
            // While no QP is connected, packets wait as in `poll`.
            if self.endpoint.is_unused() {
                at_ns.max(self.received_ns.saturating_add(UNUSED_INTERVAL_NS))
            } else {
                at_ns
            }
        });
        let deadlines = [self.endpoint.deadline_ns(), arrival_ns, late];
        deadlines.into_iter().flatten().min()
    }

    /// Returns whether a poll now would have something to send.
    pub fn has_work(&self) -> bool {
        self.endpoint.has_work() && !self.carrier.is_blocked()
    }

    /// Returns the descriptors to wait for, with their events: `POLLIN`, and also `POLLOUT` for the socket of packets that wait.
    pub fn poll_events(&self) -> impl Iterator<Item = (BorrowedFd<'_>, i16)> {
        let waiting = if self.carrier.is_blocked() {
            libc::POLLOUT
        } else {
            0
        };
        let events = std::iter::once(libc::POLLIN | waiting).chain(std::iter::repeat(libc::POLLIN));
        self.carrier.descriptors().into_iter().zip(events)
    }
}

#[cfg(test)]
mod tests;
