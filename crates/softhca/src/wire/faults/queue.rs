//! Queues of packets that are held back, until their time has come or other packets have overtaken them.

use crate::envelope::Source;
use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

/// Most packets held at once in one direction. Further packets are lost, as in a full buffer.
const MAX_HELD: usize = 1 << 16;

/// A packet on its way from or to a peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Held {
    pub(super) due_ns: u64,
    /// A running number, which keeps packets with equal times in order.
    number: u64,
    pub(super) peer: Source,
    pub(super) bytes: Vec<u8>,
}

impl Ord for Held {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.due_ns, self.number).cmp(&(other.due_ns, other.number))
    }
}

impl PartialOrd for Held {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// The held packets of one direction.
#[derive(Debug, Default)]
pub(super) struct Queue {
    late: BinaryHeap<Reverse<Held>>,
    /// The displaced packets, each with the number of packets that are still to overtake it.
    displaced: Vec<(u32, Held)>,
    count: u64,
}

impl Queue {
    /// Holds a packet back until `due_ns`. Returns false if the queue is full.
    pub(super) fn hold(&mut self, due_ns: u64, peer: Source, bytes: &[u8]) -> bool {
        let fits = self.len() < MAX_HELD;
        if fits {
            let held = self.make(due_ns, peer, bytes);
            self.late.push(Reverse(held));
        }
        fits
    }

    /// Holds a packet back until `overtakers` others have passed, and at most until `due_ns`. Returns false if the queue is full.
    pub(super) fn displace(
        &mut self,
        overtakers: u32,
        due_ns: u64,
        peer: Source,
        bytes: &[u8],
    ) -> bool {
        let fits = self.len() < MAX_HELD;
        if fits {
            let held = self.make(due_ns, peer, bytes);
            self.displaced.push((overtakers, held));
        }
        fits
    }

    fn make(&mut self, due_ns: u64, peer: Source, bytes: &[u8]) -> Held {
        self.count += 1;
        Held {
            due_ns,
            number: self.count,
            peer,
            bytes: bytes.to_vec(),
        }
    }

    /// Notes that a packet from or to `peer` passes. Packets that have now been overtaken often enough become due.
    pub(super) fn passed(&mut self, now_ns: u64, peer: Source) {
        let mut at = 0;
        while let Some((overtakers, held)) = self.displaced.get_mut(at) {
            if held.peer.address.ip() == peer.address.ip() {
                *overtakers = overtakers.saturating_sub(1);
                if *overtakers == 0 {
                    let (_, mut held) = self.displaced.remove(at);
                    held.due_ns = now_ns;
                    self.late.push(Reverse(held));
                    continue;
                }
            }
            at += 1;
        }
    }

    /// Takes the next packet whose time has come.
    pub(super) fn due(&mut self, now_ns: u64) -> Option<Held> {
        while let Some(at) = self
            .displaced
            .iter()
            .position(|(_, held)| held.due_ns <= now_ns)
        {
            let (_, held) = self.displaced.remove(at);
            self.late.push(Reverse(held));
        }
        let Reverse(first) = self.late.peek()?;
        if first.due_ns > now_ns {
            return None;
        }
        self.late.pop().map(|Reverse(held)| held)
    }

    /// Takes a packet back that the carrier had no room for.
    pub(super) fn put_back(&mut self, held: Held) {
        self.late.push(Reverse(held));
    }

    pub(super) fn deadline_ns(&self) -> Option<u64> {
        let late = self.late.peek().map(|Reverse(held)| held.due_ns);
        let displaced = self.displaced.iter().map(|(_, held)| held.due_ns).min();
        [late, displaced].into_iter().flatten().min()
    }

    pub(super) fn clear(&mut self) {
        self.late.clear();
        self.displaced.clear();
    }

    fn len(&self) -> usize {
        self.late.len() + self.displaced.len()
    }
}
