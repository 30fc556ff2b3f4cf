//! The port of one HCA: its wire and the socket that carries it.
//!
//! The engine calls [`Port::poll`] whenever the descriptor is ready, the deadline has come, or a QP got something to do. A
//! call does a bounded piece of work: it receives, then looks at the clock (so that what has arrived is not taken for
//! missing), then sends.

use super::endpoint::{Endpoint, WireCounters};
use super::udp::UdpCarrier;
use crate::engine::transport::Device;
use std::io;
use std::net::{IpAddr, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};

/// Batches that one poll receives, and rounds that it sends, at most.
const ROUNDS: usize = 4;

/// How often the socket is emptied while no QP is connected: what comes then is for nobody.
const UNUSED_INTERVAL_NS: u64 = 1_000_000;

/// The wire of one HCA over UDP.
#[derive(Debug)]
pub struct Port<W> {
    endpoint: Endpoint<W>,
    carrier: UdpCarrier,
    /// When the socket was last looked at.
    received_ns: u64,
}

/// What a poll did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Activity {
    /// Packets were received or sent: more may follow soon.
    pub busy: bool,
    /// The call ended before the work did: poll again at once.
    pub unfinished: bool,
}

impl<W> Port<W> {
    /// Takes over a socket that is bound to the HCA's IPv4 address and port 4791.
    ///
    /// # Errors
    /// The socket is not bound to an IPv4 address, or the kernel refuses an option.
    pub fn new(socket: UdpSocket) -> io::Result<Self> {
        let IpAddr::V4(address) = socket.local_addr()?.ip() else {
            return Err(io::Error::new(
                io::ErrorKind::AddrNotAvailable,
                "the HCA has no IPv4 address",
            ));
        };
        Ok(Self {
            endpoint: Endpoint::new(address),
            carrier: UdpCarrier::new(socket)?,
            received_ns: 0,
        })
    }

    /// QPs and operations.
    pub fn endpoint(&mut self) -> &mut Endpoint<W> {
        &mut self.endpoint
    }

    /// What has been seen so far.
    pub fn counters(&self) -> WireCounters {
        WireCounters {
            unsendable: self.carrier.counters().refused,
            ..self.endpoint.counters()
        }
    }

    /// Receives, looks at the clock and sends, for a bounded time. `now_ns` is CLOCK_MONOTONIC.
    ///
    /// # Errors
    /// The socket is broken.
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
        let mut more = true;
        for _ in 0..ROUNDS {
            more = self.carrier.receive(|source, datagram| {
                activity.busy = true;
                self.endpoint.receive(now_ns, source, datagram, device);
            })?;
            if !more {
                break;
            }
        }
        if !more {
            self.endpoint.on_clock(now_ns, device);
        }
        activity.unfinished = more;
        for _ in 0..ROUNDS {
            let left = self.endpoint.transmit(now_ns, device, self.carrier.sink());
            activity.busy |= self.carrier.is_blocked();
            if !self.carrier.flush() {
                return Ok(activity); // The socket says when it takes more.
            }
            if !left {
                return Ok(activity);
            }
        }
        activity.unfinished = true;
        Ok(activity)
    }

    /// The next call that time asks for, in CLOCK_MONOTONIC nanoseconds.
    pub fn deadline_ns(&self) -> Option<u64> {
        self.endpoint.deadline_ns()
    }

    /// Something waits to be sent: a poll now would not be idle.
    pub fn has_work(&self) -> bool {
        self.endpoint.has_work() && !self.carrier.is_blocked()
    }

    /// Events of the descriptor to wait for: `POLLIN`, and `POLLOUT` while packets wait for the socket.
    pub fn poll_events(&self) -> i16 {
        if self.carrier.is_blocked() {
            libc::POLLIN | libc::POLLOUT
        } else {
            libc::POLLIN
        }
    }
}

impl<W> AsFd for Port<W> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.carrier.as_fd()
    }
}

#[cfg(test)]
mod tests;
