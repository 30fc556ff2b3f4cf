//! The layer, which decides the fate of each packet.

use super::queue::Queue;
use crate::envelope::Source;
use crate::wire::faults::spec::{
    Direction, Mishap, PacketFault, REORDER_DISTANCE, REORDER_PATIENCE_NS, When,
};
use std::iter::Sum;
use std::time::Duration;

/// Most packets that are kept for a replay.
const MAX_RECORDED: usize = 4096;
/// Offset of the byte of a packet that the ICRC does not cover (congestion bits and reserved bits).
const UNCOVERED: usize = 4;

/// Counters of what has happened to packets so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct FaultCounts {
    /// Packets lost, including those of a partition and of a port that is down.
    pub dropped: u64,
    /// Packets that passed twice.
    pub duplicated: u64,
    /// Packets that were held back until others overtook them.
    pub reordered: u64,
    /// Packets that were held back for a time.
    pub delayed: u64,
    /// Packets with an inverted bit.
    pub corrupted: u64,
    /// Recorded packets that arrived again.
    pub replayed: u64,
}

impl Sum for FaultCounts {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        all.fold(Self::default(), |sum, of| Self {
            dropped: sum.dropped + of.dropped,
            duplicated: sum.duplicated + of.duplicated,
            reordered: sum.reordered + of.reordered,
            delayed: sum.delayed + of.delayed,
            corrupted: sum.corrupted + of.corrupted,
            replayed: sum.replayed + of.replayed,
        })
    }
}

/// The fate of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// The packet passes.
    Pass,
    /// The packet passes with some bits of a byte inverted.
    Damaged {
        /// The offset of the byte.
        at: usize,
        /// The inverted bits.
        bits: u8,
    },
    /// The packet does not pass now. If it is only late, the layer holds it.
    Gone,
}

/// A packet as the carrier brought it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recorded {
    /// The sender of the packet.
    pub source: Source,
    /// The datagram, from the BTH to the ICRC.
    pub bytes: Vec<u8>,
}

/// The faults of one HCA's packets.
#[derive(Debug)]
pub struct FaultLayer {
    /// The faults, each with the number of packets that it has selected.
    faults: Vec<(PacketFault, u64)>,
    start_ns: u64,
    random: [fastrand::Rng; 2],
    held: [Queue; 2],
    down: bool,
    recording: Option<u32>,
    recorded: Vec<Recorded>,
    counts: FaultCounts,
}

impl FaultLayer {
    /// Returns a layer with faults that begin at `now_ns`.
    #[must_use]
    pub fn new(seed: u64, faults: &[PacketFault], now_ns: u64) -> Self {
        Self {
            faults: faults.iter().map(|fault| (*fault, 0)).collect(),
            start_ns: now_ns,
            random: [seed, !seed].map(fastrand::Rng::with_seed),
            held: [Queue::default(), Queue::default()],
            down: false,
            recording: None,
            recorded: Vec::new(),
            counts: FaultCounts::default(),
        }
    }

    /// Replaces the faults. Packets that are held back stay so.
    pub fn set(&mut self, seed: u64, faults: &[PacketFault], now_ns: u64) {
        self.faults = faults.iter().map(|fault| (*fault, 0)).collect();
        self.start_ns = now_ns;
        self.random = [seed, !seed].map(fastrand::Rng::with_seed);
    }

    /// Sets whether the link is down. While it is down nothing passes, and held-back packets are lost.
    pub fn set_down(&mut self, down: bool) {
        self.down = down;
        if down {
            self.held.iter_mut().for_each(Queue::clear);
        }
    }

    /// Returns the counters of what has happened so far.
    #[must_use]
    pub fn counts(&self) -> FaultCounts {
        self.counts
    }

    /// Keeps packets that arrive for `qpn` from now on, and forgets those kept before. `None` stops that.
    pub fn record(&mut self, qpn: Option<u32>) {
        self.recording = qpn;
        if qpn.is_some() {
            self.recorded.clear();
        }
    }

    /// Returns the packets that were kept.
    #[must_use]
    pub fn recorded(&self) -> &[Recorded] {
        &self.recorded
    }

    /// Lets a packet arrive as if the carrier had brought it.
    pub fn inject(&mut self, now_ns: u64, packet: &Recorded) {
        self.counts.replayed += 1;
        self.held[Direction::In as usize].hold(now_ns, packet.source, &packet.bytes);
    }

    /// Decides the fate of a packet.
    pub fn judge(
        &mut self,
        now_ns: u64,
        direction: Direction,
        peer: Source,
        packet: &[u8],
    ) -> Fate {
        if direction == Direction::In {
            self.keep(peer, packet);
        }
        if self.down {
            self.counts.dropped += 1;
            return Fate::Gone;
        }
        let after = Duration::from_nanos(now_ns.saturating_sub(self.start_ns));
        let lane = direction as usize;
        let random = &mut self.random[lane];
        let held = &mut self.held[lane];
        let mut damage = None;
        let mut due_ns = now_ns;
        let mut overtakers = 0;
        let mut copies = 0;
        for (fault, seen) in &mut self.faults {
            if !fault.selects(direction, *peer.address.ip(), after) {
                continue;
            }
            *seen += 1;
            let happens = match fault.when {
                When::PerMillion(chance) => random.u32(0..1_000_000) < chance,
                When::Nth(nth) => *seen == nth,
            };
            if !happens {
                continue;
            }
            match fault.what {
                Mishap::Drop => {
                    self.counts.dropped += 1;
                    return Fate::Gone;
                }
                Mishap::Duplicate => copies += 1,
                Mishap::Reorder => overtakers = random.u32(1..=REORDER_DISTANCE),
                Mishap::Delay(from, to) => {
                    due_ns = due_ns.saturating_add(between(random, from, to));
                }
                Mishap::Corrupt => damage = Some(damaged(random, packet.len())),
            }
        }
        self.counts.duplicated += copies;
        for _ in 0..copies {
            held.hold(now_ns, peer, packet);
        }
        self.counts.corrupted += u64::from(damage.is_some());
        let late = due_ns > now_ns;
        if !late && overtakers == 0 {
            held.passed(now_ns, peer);
            return damage.map_or(Fate::Pass, |(at, bits)| Fate::Damaged { at, bits });
        }
        let mut bytes = packet.to_vec();
        if let Some((at, bits)) = damage {
            invert(&mut bytes, at, bits);
        }
        let has_room = if late {
            self.counts.delayed += 1;
            held.hold(due_ns, peer, &bytes)
        } else {
            self.counts.reordered += 1;
            held.displace(overtakers, now_ns + REORDER_PATIENCE_NS, peer, &bytes)
        };
        self.counts.dropped += u64::from(!has_room);
        Fate::Gone
    }

    /// Takes a packet from the carrier. `deliver` gets the packet if it passes.
    pub fn receive(
        &mut self,
        now_ns: u64,
        source: Source,
        packet: &[u8],
        mut deliver: impl FnMut(Source, &[u8]),
    ) {
        match self.judge(now_ns, Direction::In, source, packet) {
            Fate::Pass => deliver(source, packet),
            Fate::Damaged { at, bits } => {
                let mut copy = packet.to_vec();
                invert(&mut copy, at, bits);
                deliver(source, &copy);
            }
            Fate::Gone => {}
        }
    }

    /// Hands the held packets of this direction whose time has come to `take`, one by one, as long as `take` has room for them.
    pub fn release(
        &mut self,
        now_ns: u64,
        direction: Direction,
        mut take: impl FnMut(Source, &[u8]) -> bool,
    ) {
        let held = &mut self.held[direction as usize];
        while let Some(packet) = held.due(now_ns) {
            if !take(packet.peer, &packet.bytes) {
                held.put_back(packet);
                return;
            }
        }
    }

    /// Returns when the next held packet is due.
    #[must_use]
    pub fn deadline_ns(&self) -> Option<u64> {
        self.held.iter().filter_map(Queue::deadline_ns).min()
    }

    fn keep(&mut self, source: Source, packet: &[u8]) {
        let Some(qpn) = self.recording else {
            return;
        };
        let is_wanted = packet
            .get(5..8)
            .is_some_and(|found| *found == qpn.to_be_bytes()[1..]);
        if is_wanted && self.recorded.len() < MAX_RECORDED {
            self.recorded.push(Recorded {
                source,
                bytes: packet.to_vec(),
            });
        }
    }
}

/// Inverts `bits` of the byte at `at`, if the packet has it.
pub(super) fn invert(packet: &mut [u8], at: usize, bits: u8) {
    if let Some(byte) = packet.get_mut(at) {
        *byte ^= bits;
    }
}

fn between(random: &mut fastrand::Rng, from: Duration, to: Duration) -> u64 {
    let [from, to] = [from, to].map(|time| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX / 4));
    random.u64(from..=to.max(from))
}

/// Returns the offset of a byte that the ICRC covers, or that is part of the ICRC, and one of its bits.
fn damaged(random: &mut fastrand::Rng, bytes: usize) -> (usize, u8) {
    let mut at = random.usize(0..bytes.max(1));
    if at == UNCOVERED && bytes > UNCOVERED + 1 {
        at += 1;
    }
    (at, 1 << random.u32(0..8))
}
