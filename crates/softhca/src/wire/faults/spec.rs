//! Specs of faults of packets: which packets get lost, doubled, late, out of order or damaged.

use std::net::Ipv4Addr;
use std::time::Duration;

/// What happens to which packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PacketFault {
    /// The mishap that strikes the packets.
    pub what: Mishap,
    /// The rule that chooses, among the packets that the other fields select, those that the mishap strikes.
    pub when: When,
    /// The direction of the packets; `None` is both.
    pub direction: Option<Direction>,
    /// The peer from or to which the packets go; `None` is any.
    pub peer: Option<Ipv4Addr>,
    /// The time during which it happens.
    pub window: Window,
}

/// The mishap of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mishap {
    /// The packet is lost.
    Drop,
    /// The packet comes twice.
    Duplicate,
    /// Up to [`REORDER_DISTANCE`] later packets overtake the packet.
    Reorder,
    /// The packet is late by a time between these two.
    Delay(Duration, Duration),
    /// One bit of the packet is inverted. Its ICRC is not corrected.
    Corrupt,
}

/// Most packets that overtake a displaced packet.
pub const REORDER_DISTANCE: u32 = 4;
/// The time after which a displaced packet passes even if no other has overtaken it.
pub const REORDER_PATIENCE_NS: u64 = 1_000_000;

/// The rule that chooses, among the selected packets, those that a fault strikes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// This many packets of a million, by chance.
    PerMillion(u32),
    /// Only the n-th packet, counted from 1.
    Nth(u64),
}

impl When {
    /// Every packet.
    pub const ALWAYS: Self = Self::PerMillion(1_000_000);
}

/// The direction of a packet, as seen from the HCA.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// The packet comes from a peer.
    In,
    /// The packet goes to a peer.
    Out,
}

/// A span of time, counted from the moment when the faults were set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Window {
    /// The beginning of the span.
    pub from: Duration,
    /// The end of the span; `None` means that it has no end.
    pub to: Option<Duration>,
}

impl Window {
    /// Returns whether `after` lies in the span.
    #[must_use]
    pub fn contains(&self, after: Duration) -> bool {
        after >= self.from && self.to.is_none_or(|to| after < to)
    }
}

impl PacketFault {
    /// Returns the fault that `what` happens to packets of both directions and all peers, at all times.
    #[must_use]
    pub const fn new(what: Mishap, when: When) -> Self {
        Self {
            what,
            when,
            direction: None,
            peer: None,
            window: Window {
                from: Duration::ZERO,
                to: None,
            },
        }
    }

    pub(super) fn selects(&self, direction: Direction, peer: Ipv4Addr, after: Duration) -> bool {
        self.direction.is_none_or(|only| only == direction)
            && self.peer.is_none_or(|only| only == peer)
            && self.window.contains(after)
    }
}
