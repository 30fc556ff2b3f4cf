//! The boundary between the endpoint and sockets: a carrier brings packets from one HCA to others.
//!
//! A carrier moves packets (BTH to ICRC) between HCAs, which it knows by their IPv4 addresses. It may lose and reorder packets, and it
//! never blocks. Carriers can be layers: a carrier may hold another one and look at what passes ([`super::capture`]), or interfere with it.
//!
//! | carrier | what it is |
//! |---|---|
//! | [`super::udp`] | a UDP socket: the default, needs no privilege |
//! | [`crate::wire::frames`] | Ethernet frames: a packet socket, or UDP as in QEMU |
//! | [`super::memory`] | queues inside the process: all runs are alike |

pub use crate::envelope::Source;

use crate::envelope::{Destination, Kept};
use std::fmt::Debug;
use std::io;
use std::os::fd::BorrowedFd;

/// Length of the largest packet: path MTU 4096 and all headers and trailers, rounded up.
pub const MAX_PACKET_BYTES: usize = (4096 + super::packet::MAX_OVERHEAD_BYTES).next_multiple_of(64);

/// A function that takes an arrived packet: its source and the UDP payload.
pub type Receiver<'a> = dyn FnMut(Source, &[u8]) + 'a;

/// A carrier of packets. Times are CLOCK_MONOTONIC in nanoseconds, or a test's own clock.
pub trait Carrier: Debug + Send {
    /// Hands over a batch of arrived packets. Returns true if there may be more.
    ///
    /// # Errors
    /// The carrier is broken. An empty batch is no error.
    fn receive(&mut self, now_ns: u64, packet: &mut Receiver<'_>) -> io::Result<bool>;

    /// Returns the queue into which packets are put; [`Self::flush`] sends them.
    fn sink(&mut self) -> &mut dyn PacketSink;

    /// Sends the packets of the sink. Returns false if the carrier could take no more for now and some packets wait.
    fn flush(&mut self, now_ns: u64) -> bool;

    /// Returns whether packets wait: for the descriptor to become writable, or for the next [`Self::flush`].
    fn is_blocked(&self) -> bool;

    /// Returns when [`Self::receive`] or [`Self::flush`] has something to do though nothing arrives and nothing is sent.
    fn deadline_ns(&self) -> Option<u64> {
        None
    }

    /// Returns the descriptors that become readable when a packet arrives; none if arrivals cannot be waited for. The first one becomes
    /// writable when packets that wait can be sent.
    fn descriptors(&self) -> Vec<BorrowedFd<'_>>;

    /// Returns the counters of what happened so far.
    fn counters(&self) -> CarrierCounters;

    /// Returns the most bytes that wait on the receiving side before packets are dropped; `None` if that is not known. The buffers of peers
    /// are taken to be equally large.
    fn buffer_bytes(&self) -> Option<usize> {
        None
    }

    /// Returns which [`Envelope`](crate::envelope::Envelope)s the carrier keeps. A packet that is committed with such an envelope travels
    /// in it, and arrives with it in its [`Source`]. Packets with other envelopes are not committed.
    fn kept(&self) -> Kept {
        Kept::default()
    }
}

/// The queue of a carrier, into which packets are put.
pub trait PacketSink {
    /// Returns space for one more packet of any size, or `None` when the queue is full. It is the same space until [`Self::commit`].
    fn slot(&mut self) -> Option<&mut [u8]>;
    /// Notes that the first `bytes` bytes of the slot are a packet for `destination`.
    fn commit(&mut self, bytes: usize, destination: Destination);
}

/// What a carrier has counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CarrierCounters {
    /// Packets that could not be sent: the kernel refused them, or no HCA has their address.
    pub refused: u64,
    /// Calls that sent a packet.
    pub send_calls: u64,
    /// Calls that received a packet.
    pub receive_calls: u64,
    /// Frames that the HCA does not use: they are not for it, or not RoCE.
    pub foreign: u64,
}
