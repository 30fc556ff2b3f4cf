//! What carries packets from one HCA to others: the boundary between the endpoint and sockets.
//!
//! A carrier moves packets (BTH to ICRC) between HCAs, which it knows by their IPv4 addresses, may lose and reorder them, and
//! never blocks. Carriers can be layers: one that holds another and looks at what passes ([`super::capture`]), or interferes
//! with it.
//!
//! | carrier | what it is |
//! |---|---|
//! | [`super::udp`] | a UDP socket: the default, needs no privilege |
//! | [`crate::wire::frames`] | Ethernet frames: a packet socket, or UDP as QEMU has it |
//! | [`super::memory`] | queues inside the process: every run the same |

pub use crate::envelope::Source;

use crate::envelope::{Destination, Kept};
use std::fmt::Debug;
use std::io;
use std::os::fd::BorrowedFd;

/// The largest packet: path MTU 4096 and everything around it, rounded up.
pub const MAX_PACKET_BYTES: usize = (4096 + super::packet::MAX_OVERHEAD_BYTES).next_multiple_of(64);

/// Takes what arrives: where it came from and the UDP payload.
pub type Receiver<'a> = dyn FnMut(Source, &[u8]) + 'a;

/// Carries packets. Times are CLOCK_MONOTONIC in nanoseconds, or a test's own clock.
pub trait Carrier: Debug + Send {
    /// Hands over a batch of arrived packets; true if it may have more.
    ///
    /// # Errors
    /// The carrier is broken. An empty batch is no error.
    fn receive(&mut self, now_ns: u64, packet: &mut Receiver<'_>) -> io::Result<bool>;

    /// Where packets are put; [`Self::flush`] sends them.
    fn sink(&mut self) -> &mut dyn PacketSink;

    /// Sends the packets of the sink; false if it could take no more for now and some of it waits.
    fn flush(&mut self, now_ns: u64) -> bool;

    /// Packets wait: for the descriptor to become writable, or for the next [`Self::flush`].
    fn is_blocked(&self) -> bool;

    /// When [`Self::receive`] or [`Self::flush`] has something to do though nothing arrives and nothing is sent.
    fn deadline_ns(&self) -> Option<u64> {
        None
    }

    /// Returns what becomes readable when something arrives; none if arrivals cannot be waited for. The first becomes writable when
    /// packets that wait can go.
    fn descriptors(&self) -> Vec<BorrowedFd<'_>>;

    /// Returns what happened so far.
    fn counters(&self) -> CarrierCounters;

    /// Bytes that wait on the receiving side, at most, before packets are dropped; `None` if that is not known. The peers'
    /// are taken to be the same.
    fn buffer_bytes(&self) -> Option<usize> {
        None
    }

    /// Which packets travel in the [`Envelope`](crate::envelope::Envelope) that they are committed with, and arrive with it in their
    /// [`Source`]. No others are committed.
    fn kept(&self) -> Kept {
        Kept::default()
    }
}

/// Where packets go: a carrier's queue.
pub trait PacketSink {
    /// Space for one more packet of any size, or `None` when the queue is full. The same space until [`Self::commit`].
    fn slot(&mut self) -> Option<&mut [u8]>;
    /// The slot's first `bytes` are a packet for `destination`.
    fn commit(&mut self, bytes: usize, destination: Destination);
}

/// What happened at a carrier.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CarrierCounters {
    /// Packets that could not be sent: refused by the kernel, or for an address that no HCA has.
    pub refused: u64,
    /// Calls that sent something.
    pub send_calls: u64,
    /// Calls that received something.
    pub receive_calls: u64,
    /// Frames of no use here: not for this HCA, or not RoCE.
    pub foreign: u64,
}
