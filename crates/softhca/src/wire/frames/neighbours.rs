//! The MAC addresses of hosts, and the packets that wait for an answer of ARP.

use crate::envelope::{Destination, Envelope};
use crate::link::Mac;
use std::collections::BTreeMap;
use std::net::Ipv4Addr;

/// Most packets that wait for the MAC address of one peer.
pub const HELD_PACKETS: usize = 32;
/// The number of times that a peer is asked for its MAC address.
pub const ATTEMPTS: u32 = 5;
const INTERVAL_NS: u64 = 100_000_000;

/// The hosts whose MAC addresses are known or asked for.
#[derive(Debug, Default)]
pub(crate) struct Neighbours {
    known: BTreeMap<Ipv4Addr, Mac>,
    asked: BTreeMap<Ipv4Addr, Question>,
}

/// A host whose MAC address is not known.
#[derive(Debug, Default)]
struct Question {
    held: Vec<(Envelope, Vec<u8>)>,
    asked: u32,
    /// The time at which the host is asked again.
    next_ns: u64,
}

/// The fate of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Resolved {
    /// The packet can be sent to this address.
    At(Mac),
    /// The packet was taken, and waits.
    Held,
    /// The packet is dropped: too many wait already.
    Dropped,
}

impl Neighbours {
    /// Returns where a packet for the HCA at `there` goes, or keeps it until its MAC address is known.
    pub(crate) fn resolve(&mut self, there: &Destination, packet: &[u8]) -> Resolved {
        if let Some(mac) = self.known.get(&there.address) {
            return Resolved::At(*mac);
        }
        let question = self.asked.entry(there.address).or_default();
        if question.held.len() >= HELD_PACKETS {
            return Resolved::Dropped;
        }
        question.held.push((there.envelope, packet.to_vec()));
        Resolved::Held
    }

    /// Notes that `ip` has said that it is at `mac`. Returns the packets that waited for that. Unknown hosts are noted only if they spoke
    /// `to_us`.
    pub(crate) fn learn(
        &mut self,
        ip: Ipv4Addr,
        mac: Mac,
        to_us: bool,
    ) -> Vec<(Envelope, Vec<u8>)> {
        let question = self.asked.remove(&ip);
        if to_us || question.is_some() || self.known.contains_key(&ip) {
            self.known.insert(ip, mac);
        }
        question.map(|question| question.held).unwrap_or_default()
    }

    /// Returns the hosts to ask now, and the number of packets that are dropped because their hosts did not answer.
    pub(crate) fn due(&mut self, now_ns: u64) -> (Vec<Ipv4Addr>, u64) {
        let (mut questions, mut lost) = (vec![], 0);
        self.asked.retain(|ip, question| {
            if question.next_ns > now_ns {
                return true;
            }
            if question.asked == ATTEMPTS {
                lost += question.held.len() as u64;
                return false;
            }
            question.asked += 1;
            question.next_ns = now_ns.saturating_add(INTERVAL_NS);
            questions.push(*ip);
            true
        });
        (questions, lost)
    }

    /// Returns when [`Self::due`] has something to do.
    pub(crate) fn deadline_ns(&self) -> Option<u64> {
        self.asked.values().map(|question| question.next_ns).min()
    }
}
