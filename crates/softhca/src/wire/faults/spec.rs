//! Which packets get lost, doubled, late, out of order or damaged.

use std::net::Ipv4Addr;
use std::time::Duration;

/// Something that happens to packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PacketFault {
    /// What happens.
    pub what: Mishap,
    /// To which of the packets that the other fields select.
    pub when: When,
    /// Only in this direction; `None` is both.
    pub direction: Option<Direction>,
    /// Only from or to this address.
    pub peer: Option<Ipv4Addr>,
    /// Only during this time.
    pub window: Window,
}

/// What happens to a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mishap {
    /// It is lost.
    Drop,
    /// It comes twice.
    Duplicate,
    /// Up to [`REORDER_DISTANCE`] packets that come after it overtake it.
    Reorder,
    /// It is late by a time between these two.
    Delay(Duration, Duration),
    /// One of its bits is inverted, its ICRC is not.
    Corrupt,
}

/// How many packets overtake a displaced one, at most.
pub const REORDER_DISTANCE: u32 = 4;
/// A displaced packet that no other overtakes goes on after this time.
pub const REORDER_PATIENCE_NS: u64 = 1_000_000;

/// To which packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// To so many of a million, by chance.
    PerMillion(u32),
    /// To the n-th only, counted from 1.
    Nth(u64),
}

impl When {
    /// To every packet.
    pub const ALWAYS: Self = Self::PerMillion(1_000_000);
}

/// Where a packet goes, as seen from the HCA.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From a peer.
    In,
    /// To a peer.
    Out,
}

/// A span of time since the faults were asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Window {
    /// Its beginning.
    pub from: Duration,
    /// Its end; `None` is never.
    pub to: Option<Duration>,
}

impl Window {
    /// `after` lies in it.
    #[must_use]
    pub fn contains(&self, after: Duration) -> bool {
        after >= self.from && self.to.is_none_or(|to| after < to)
    }
}

impl PacketFault {
    /// `what` happens to packets of both directions and all peers, at all times.
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
