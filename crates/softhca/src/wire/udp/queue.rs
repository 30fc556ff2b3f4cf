//! The queue of packets that wait to be sent. They lie one after the other in memory, in runs that one message can carry.

use crate::envelope::Destination;
use crate::wire::carrier::{MAX_PACKET_BYTES, PacketSink};
use std::net::IpAddr;

/// Number of packets of the largest size that the queue holds.
const QUEUE_PACKETS: usize = 64;
/// Most bytes that fit into one UDP message.
const MESSAGE_BYTES: usize = 65_507;
/// Most segments of one message that every kernel takes.
const MESSAGE_SEGMENTS: usize = 64;

/// Packets that wait to be sent.
#[derive(Debug)]
pub(super) struct SendQueue {
    pub(super) bytes: Box<[u8]>,
    used: usize,
    pub(super) runs: Vec<Run>,
    /// Number of runs that are already sent.
    pub(super) sent: usize,
    /// True if packets may share a run.
    joins: bool,
}

/// Packets of one size for one destination. The last packet may be shorter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Run {
    pub(super) destination: IpAddr,
    /// Path bits of the own IPv4 address from which the packets go.
    pub(super) path_bits: u8,
    pub(super) start: usize,
    pub(super) bytes: usize,
    pub(super) segment_bytes: usize,
}

impl Run {
    /// Returns whether a packet of `bytes` may join the run. Over IPv4 packets may join only on the loopback interface, which does not
    /// segment. Elsewhere the kernel gives the segments of a message the identifications 0, 1, 2 and so on, with which their ICRC would be
    /// wrong. IPv6 has no identification.
    fn takes(&self, bytes: usize, destination: IpAddr, path_bits: u8) -> bool {
        (self.destination, self.path_bits) == (destination, path_bits)
            && (destination.is_ipv6() || destination.is_loopback())
            && bytes <= self.segment_bytes
            && self.bytes.is_multiple_of(self.segment_bytes)
            && self.bytes / self.segment_bytes < MESSAGE_SEGMENTS
            && self.bytes + bytes <= MESSAGE_BYTES
    }
}

impl SendQueue {
    pub(super) fn new(joins: bool) -> Self {
        Self {
            bytes: vec![0; QUEUE_PACKETS * MAX_PACKET_BYTES].into_boxed_slice(),
            used: 0,
            runs: Vec::with_capacity(4 * QUEUE_PACKETS),
            sent: 0,
            joins,
        }
    }

    pub(super) fn clear(&mut self) {
        self.used = 0;
        self.sent = 0;
        self.runs.clear();
    }

    /// Makes packets no longer share runs.
    pub(super) fn stop_joining(&mut self) {
        self.joins = false;
    }

    /// Gives every packet that waits a run of its own.
    pub(super) fn split(&mut self) {
        let waiting = self.runs.split_off(self.sent);
        for run in waiting {
            for start in (run.start..run.start + run.bytes).step_by(run.segment_bytes) {
                let bytes = run.segment_bytes.min(run.start + run.bytes - start);
                self.runs.push(Run {
                    start,
                    bytes,
                    segment_bytes: bytes,
                    ..run
                });
            }
        }
    }
}

impl PacketSink for SendQueue {
    fn slot(&mut self) -> Option<&mut [u8]> {
        // Packets that wait for the socket go first. No more are taken before they are sent.
        if self.sent > 0 {
            None
        } else {
            self.bytes.get_mut(self.used..self.used + MAX_PACKET_BYTES)
        }
    }

    fn commit(&mut self, bytes: usize, destination: Destination) {
        let Destination {
            address,
            envelope,
            path_bits,
        } = destination;
        let destination = match envelope.ipv6_subnet() {
            None => IpAddr::V4(address),
            Some(subnet) => IpAddr::V6(subnet.address(address)),
        };
        match self.runs.last_mut() {
            Some(run) if self.joins && run.takes(bytes, destination, path_bits) => {
                run.bytes += bytes
            }
            _ => self.runs.push(Run {
                destination,
                path_bits,
                start: self.used,
                bytes,
                segment_bytes: bytes,
            }),
        }
        self.used += bytes;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::envelope::Envelope;
    use std::net::Ipv4Addr;

    const HERE: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);
    const THERE: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 3);

    fn queue(joins: bool, packets: &[(usize, Ipv4Addr)]) -> SendQueue {
        let mut queue = SendQueue::new(joins);
        for (bytes, destination) in packets {
            queue.slot().unwrap();
            queue.commit(*bytes, (*destination).into());
        }
        queue
    }

    fn shape(queue: &SendQueue) -> Vec<(usize, usize, usize)> {
        queue
            .runs
            .iter()
            .map(|run| (run.start, run.bytes, run.segment_bytes))
            .collect()
    }

    #[test]
    fn packets_of_one_size_and_destination_share_a_run_up_to_a_shorter_one() {
        let packets = [
            (100, HERE),
            (100, HERE),
            (40, HERE),
            (40, HERE),
            (40, THERE),
            (60, THERE),
        ];
        let joined = queue(true, &packets);
        assert_eq!(
            shape(&joined),
            [(0, 240, 100), (240, 40, 40), (280, 40, 40), (320, 60, 60)]
        );
        assert_eq!(queue(false, &packets).runs.len(), packets.len());
    }

    #[test]
    fn packets_that_leave_the_machine_do_not_share_a_run() {
        let far = Ipv4Addr::new(10, 0, 0, 2);
        assert_eq!(queue(true, &[(100, far), (100, far)]).runs.len(), 2);
    }

    #[test]
    fn packets_from_two_own_addresses_do_not_share_a_run() {
        let mut queue = SendQueue::new(true);
        for path_bits in [1, 1, 2, 1] {
            let there = Destination {
                path_bits,
                ..THERE.into()
            };
            queue.slot().unwrap();
            queue.commit(100, there);
        }
        let runs = queue.runs.iter().map(|run| (run.path_bits, run.bytes));
        assert!(runs.eq([(1, 200), (2, 100), (1, 100)]));
    }

    #[test]
    fn packets_share_a_run_only_with_packets_of_the_same_ip_version() {
        let far = Ipv4Addr::new(10, 0, 0, 2);
        let subnet = "fd00:5::".parse().unwrap();
        let by_ipv6 = Destination {
            address: far,
            envelope: Envelope::within(subnet),
            path_bits: 0,
        };
        let mut queue = SendQueue::new(true);
        for there in [far.into(), by_ipv6, by_ipv6] {
            queue.slot().unwrap();
            queue.commit(100, there);
        }
        let runs: Vec<_> = queue
            .runs
            .iter()
            .map(|run| (run.destination, run.bytes))
            .collect();
        let ipv6 = subnet.address(far);
        assert_eq!(runs, [(far.into(), 100), (ipv6.into(), 200)]);
    }

    #[test]
    fn a_run_keeps_to_the_limits_of_a_message() {
        let long = queue(true, &[(4168, HERE); 20]);
        assert_eq!(
            shape(&long),
            [(0, 15 * 4168, 4168), (15 * 4168, 5 * 4168, 4168)]
        );
        let small = queue(true, &[(20, HERE); 100]);
        assert_eq!(shape(&small), [(0, 64 * 20, 20), (64 * 20, 36 * 20, 20)]);
    }

    #[test]
    fn splitting_leaves_every_packet_in_its_place() {
        let mut queue = queue(true, &[(100, HERE), (100, HERE), (40, HERE), (50, THERE)]);
        queue.stop_joining();
        queue.split();
        assert_eq!(
            shape(&queue),
            [(0, 100, 100), (100, 100, 100), (200, 40, 40), (240, 50, 50)]
        );
        queue.commit(50, THERE.into());
        assert_eq!(queue.runs.len(), 5);
    }

    #[test]
    fn a_full_queue_and_one_that_is_partly_sent_take_no_more() {
        let mut queue = SendQueue::new(true);
        let mut taken = 0;
        while queue.slot().is_some() {
            queue.commit(MAX_PACKET_BYTES, HERE.into());
            taken += 1;
        }
        assert_eq!(taken, QUEUE_PACKETS);
        queue.clear();
        queue.commit(100, HERE.into());
        queue.sent = 1;
        assert!(queue.slot().is_none());
    }
}
