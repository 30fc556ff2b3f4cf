//! The lanes of a connection: which lanes take slices, and by which rails the slices go.

use std::sync::atomic::{AtomicU32, Ordering};

use crate::engine::limits::MOST_QPS;
use crate::engine::route::crossing::{Crossing, NO_RAIL};

/// The lanes of one connection. Lanes of QPs come first; the lanes after them copy within the machine.
#[derive(Debug)]
pub(in crate::engine) struct Lanes {
    /// The crossings of the lanes of QPs, by lane.
    crossings: [Crossing; MOST_QPS],
    /// The number of lanes of QPs.
    qps: usize,
    /// True if slices enter by rails near the memory of the peer.
    is_near: bool,
    /// A bit for each lane that takes slices. The bits change under the lock of the fences.
    open: AtomicU32,
    /// A bit for each lane that has failed, until its rail learns of the failure.
    failed: AtomicU32,
}

impl Lanes {
    /// Returns `count` lanes of QPs, which all take slices.
    pub(super) fn new(count: usize) -> Self {
        Self {
            crossings: [Crossing::default(); MOST_QPS],
            qps: count,
            is_near: false,
            open: AtomicU32::new((1 << count) - 1),
            failed: AtomicU32::new(0),
        }
    }

    /// Notes that the lanes from number `qps` on copy within the machine.
    pub(super) fn set_qps(&mut self, qps: usize) {
        self.qps = qps;
    }

    /// Sets the crossings of the first lanes.
    pub(super) fn set_crossings(&mut self, crossings: &[Crossing]) {
        for (place, crossing) in self.crossings.iter_mut().zip(crossings) {
            *place = *crossing;
        }
    }

    /// Notes whether slices enter by rails near the memory of the peer.
    pub(super) fn set_near(&mut self, is_near: bool) {
        self.is_near = is_near;
    }

    /// Lets the lane take no more slices. Returns a bit for each lane that was open before.
    pub(super) fn close(&self, lane: usize) -> u32 {
        self.open.fetch_and(!(1 << lane), Ordering::SeqCst)
    }

    /// Lets the lane take slices again.
    pub(super) fn open_again(&self, lane: usize) {
        self.open.fetch_or(1 << lane, Ordering::SeqCst);
    }

    /// Notes that the HCA has failed the QP of the lane.
    pub(super) fn note_failure(&self, lane: usize) {
        self.failed.fetch_or(1 << lane, Ordering::AcqRel);
    }

    /// Returns whether the HCA has failed the QP of the lane since the last call for it.
    pub(in crate::engine) fn take_failure(&self, lane: usize) -> bool {
        self.failed.fetch_and(!(1 << lane), Ordering::AcqRel) & 1 << lane != 0
    }

    /// Returns whether a lane that copies takes slices.
    pub(super) fn has_copies(&self) -> bool {
        self.open.load(Ordering::Acquire) >> self.qps != 0
    }

    /// Returns the number of lanes of QPs. The lanes after them copy.
    pub(in crate::engine) fn qps(&self) -> usize {
        self.qps
    }

    /// Returns by which rails the lane goes.
    pub(in crate::engine) fn crossing(&self, lane: usize) -> Crossing {
        let of_qp = self.crossings.get(lane).filter(|_| lane < self.qps);
        let copies = Crossing {
            own: NO_RAIL,
            theirs: 0,
        };
        of_qp.copied().unwrap_or(copies)
    }

    /// Returns whether the lane takes slices.
    pub(in crate::engine) fn is_open(&self, lane: usize) -> bool {
        self.open.load(Ordering::Acquire) & 1 << lane != 0
    }

    /// Returns the lanes that take slices.
    pub(super) fn open(&self) -> impl Iterator<Item = usize> {
        lanes_of(self.open.load(Ordering::Acquire))
    }

    /// Returns a bit for each lane of a QP that takes slices.
    pub(in crate::engine) fn open_qps(&self) -> u32 {
        bits(self.open().filter(|lane| *lane < self.qps))
    }

    /// Returns whether slices enter by rails near the memory of the peer.
    pub(in crate::engine) fn is_near(&self) -> bool {
        self.is_near
    }

    /// Returns whether a slice for memory near these rails of the peer waits for another lane than a lane with this crossing.
    pub(in crate::engine) fn is_far(&self, crossing: Crossing, near: u8) -> bool {
        let is_near = near & 1 << crossing.theirs != 0;
        near != 0 && crossing.own != NO_RAIL && !is_near && self.near(near) != 0
    }

    /// Returns a bit for each lane that takes slices and enters by one of these rails.
    pub(in crate::engine) fn near(&self, near: u8) -> u32 {
        let enters =
            |lane: &usize| *lane < self.qps && near & 1 << self.crossing(*lane).theirs != 0;
        bits(self.open().filter(enters))
    }

    /// Returns a bit for each lane that takes slices and may take a slice that has failed on the lanes whose bits are set in `tried`. These
    /// are the lanes with the fewest doubts. A lane that copies takes no slice that is for the NIC.
    pub(in crate::engine) fn others(&self, tried: u32, is_for_nic: bool) -> u32 {
        let failed: Vec<Crossing> = lanes_of(tried).map(|lane| self.crossing(lane)).collect();
        let doubts = |lane: usize| self.crossing(lane).doubts(&failed);
        let lanes = || {
            let open = self.open();
            open.filter(|lane| !is_for_nic || *lane < self.qps)
        };
        let least = lanes().map(doubts).min();
        bits(lanes().filter(|lane| Some(doubts(*lane)) == least))
    }

    /// Returns whether a lane with this crossing, which takes slices, is one of [`others`](Self::others).
    pub(in crate::engine) fn takes(
        &self,
        crossing: Crossing,
        tried: u32,
        is_for_nic: bool,
    ) -> bool {
        lanes_of(self.others(tried, is_for_nic)).any(|lane| self.crossing(lane) == crossing)
    }

    /// Returns whether a lane takes slices whose crossing `is_meant` does not accept.
    pub(in crate::engine) fn has_way_beside(&self, is_meant: impl Fn(Crossing) -> bool) -> bool {
        self.open().any(|lane| !is_meant(self.crossing(lane)))
    }
}

/// Returns the lanes whose bits are set.
fn lanes_of(bits: u32) -> impl Iterator<Item = usize> {
    (0..u32::BITS as usize).filter(move |lane| bits & 1 << lane != 0)
}

/// Returns a word with a bit for each of these numbers.
fn bits(numbers: impl Iterator<Item = usize>) -> u32 {
    numbers.fold(0, |bits, number| bits | 1 << number)
}
