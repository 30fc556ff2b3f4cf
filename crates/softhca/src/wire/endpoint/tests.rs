//! Tests with many HCAs on a virtual network: small socket buffers, few cores, dead and late peers.

mod services;

use super::*;
use crate::transport::{Failure, Service};
use crate::wire::carrier::PacketSink;
use crate::wire::icrc::ROCE_PORT;
use crate::wire::packet::MAX_OVERHEAD_BYTES;
use crate::wire::psn::Psn;
use crate::wire::testing::{TestDevice, TestWqe, read, write};
use std::net::SocketAddrV4;

const MTU: u32 = 1024;

/// A queue with room for a limited number of packets, like that of a socket.
struct Queue {
    packets: Vec<(Ipv4Addr, Vec<u8>)>,
    scratch: Vec<u8>,
    room: usize,
}

impl PacketSink for Queue {
    fn slot(&mut self) -> Option<&mut [u8]> {
        (self.packets.len() < self.room).then_some(&mut self.scratch)
    }

    fn commit(&mut self, bytes: usize, destination: Destination) {
        self.packets
            .push((destination.address, self.scratch[..bytes].to_vec()));
    }
}

struct Host {
    endpoint: Endpoint<TestWqe>,
    device: TestDevice,
    /// The datagrams that the kernel holds for this host, each with its source.
    arrived: VecDeque<(Ipv4Addr, Vec<u8>)>,
    dropped: u64,
}

struct Network {
    hosts: Vec<Host>,
    /// Number of packets that a host's socket holds.
    buffer_packets: usize,
    now_ns: u64,
}

fn address(index: usize) -> Ipv4Addr {
    Ipv4Addr::from(0x7f00_0001 + u32::try_from(index).unwrap())
}

/// Returns the number of the QP at `here` for the peer `there`.
fn qpn(here: usize, there: usize) -> u32 {
    u32::try_from(1000 * (here + 1) + there).unwrap()
}

impl Network {
    /// Returns `count` hosts, each with a QP to each other host.
    fn full_mesh(count: usize, memory: usize, buffer_packets: usize) -> Self {
        let hosts = (0..count).map(|here| {
            let mut endpoint = Endpoint::new(address(here));
            for there in (0..count).filter(|there| *there != here) {
                let (remote_qpn, first_psn) = (qpn(there, here), Psn::new(0));
                let receive = ResponderConfig {
                    service: Service::Rc,
                    remote_qpn,
                    first_psn,
                    mtu: MTU,
                    min_rnr_timer: 12,
                    max_read_atomic: 16,
                };
                endpoint.connect(qpn(here, there), address(there), receive);
                let (retry_count, rnr_retry, ack_timeout) = (7, 7, 14);
                let (max_read_atomic, window) = (16, 16);
                let send = RequesterConfig {
                    service: Service::Rc,
                    remote_qpn,
                    first_psn,
                    mtu: MTU,
                    retry_count,
                    rnr_retry,
                    ack_timeout,
                    max_read_atomic,
                    window,
                };
                endpoint.start(qpn(here, there), send);
            }
            let device = TestDevice::new(vec![0; memory]);
            Host {
                endpoint,
                device,
                arrived: VecDeque::new(),
                dropped: 0,
            }
        });
        Self {
            hosts: hosts.collect(),
            buffer_packets,
            now_ns: 0,
        }
    }

    fn submit(&mut self, here: usize, there: usize, wqe: TestWqe, operation: Operation) {
        self.hosts[here]
            .endpoint
            .submit(qpn(here, there), wqe, operation)
            .unwrap();
    }

    /// Gives host `index` the core: it handles what has arrived and sends what it may.
    fn run_host(&mut self, index: usize) {
        let host = &mut self.hosts[index];
        while let Some((source, datagram)) = host.arrived.pop_front() {
            let source = SocketAddrV4::new(source, ROCE_PORT);
            host.endpoint
                .receive(self.now_ns, source, &datagram, &mut host.device);
        }
        host.endpoint.on_clock(self.now_ns, &mut host.device);
        loop {
            let scratch = vec![0; MTU as usize + MAX_OVERHEAD_BYTES];
            let mut queue = Queue {
                packets: vec![],
                scratch,
                room: 64,
            };
            let host = &mut self.hosts[index];
            let left = host
                .endpoint
                .transmit(self.now_ns, &mut host.device, &mut queue);
            for (destination, datagram) in queue.packets {
                let to = (u32::from(destination) - 0x7f00_0001) as usize;
                let Some(to) = self.hosts.get_mut(to) else {
                    continue;
                };
                if to.arrived.len() < self.buffer_packets {
                    to.arrived.push_back((address(index), datagram));
                } else {
                    to.dropped += 1;
                }
            }
            if !left {
                return;
            }
        }
    }

    /// Gives the core to hosts in random order, `slice_ns` each, until `done`; panics after `limit_ns`.
    fn run(&mut self, seed: u64, slice_ns: u64, limit_ns: u64, done: impl Fn(&Self) -> bool) {
        let mut random = fastrand::Rng::with_seed(seed);
        let end_ns = self.now_ns + limit_ns;
        while !done(self) {
            assert!(
                self.now_ns < end_ns,
                "seed {seed}: not done after {limit_ns} ns"
            );
            self.run_host(random.usize(..self.hosts.len()));
            self.now_ns += random.u64(1..=2 * slice_ns);
        }
    }

    fn retransmissions(&self) -> u64 {
        self.hosts
            .iter()
            .map(|host| host.endpoint.counters().retransmissions)
            .sum()
    }
}

/// Lets all hosts write `messages` x `bytes` to all others. Returns the number of retransmissions per packet needed.
fn all_to_all(
    seed: u64,
    count: usize,
    buffer_packets: usize,
    slice_ns: u64,
    messages: usize,
    bytes: usize,
) -> f64 {
    let area = messages * bytes;
    let mut network = Network::full_mesh(count, count * area, buffer_packets);
    let fill = |here: usize, there: usize, message: usize| {
        let tag = u8::try_from((here * 31 + there * 7 + message) % 255).unwrap();
        vec![tag + 1; bytes]
    };
    for here in 0..count {
        for there in (0..count).filter(|there| *there != here) {
            for message in 0..messages {
                let va = (here * area + message * bytes) as u64;
                network.submit(
                    here,
                    there,
                    TestWqe::new(message, fill(here, there, message)),
                    write(va, bytes),
                );
            }
        }
    }
    let total = messages * (count - 1);
    network.run(seed, slice_ns, 120_000_000_000, |network| {
        network
            .hosts
            .iter()
            .all(|host| host.device.completed.len() == total)
    });
    for (there, host) in network.hosts.iter().enumerate() {
        assert!(
            host.device
                .completed
                .iter()
                .all(|(_, outcome)| outcome.is_ok()),
            "seed {seed}"
        );
        for here in (0..count).filter(|here| *here != there) {
            for message in 0..messages {
                let start = here * area + message * bytes;
                assert_eq!(
                    host.device.memory[start..start + bytes],
                    fill(here, there, message),
                    "seed {seed}"
                );
            }
        }
    }
    let needed = count * total * bytes.div_ceil(MTU as usize);
    println!(
        "seed {seed}: {} ms, {:.3} sent again",
        network.now_ns / 1_000_000,
        network.retransmissions() as f64 / needed as f64
    );
    network.retransmissions() as f64 / needed as f64
}

#[test]
fn all_to_all_ends_also_with_buffers_of_fifty_packets() {
    for seed in 0..4 {
        let again = all_to_all(seed, 8, 50, 50_000, 4, 65_536);
        assert!(
            again < 0.5,
            "seed {seed}: {again} of the packets were sent again"
        );
    }
}

#[test]
fn all_to_all_with_large_buffers_loses_nothing_while_hosts_wait_for_cores() {
    // A host waits some 8 ms for its turn; the shortest timeout is 20 ms.
    for seed in 0..4 {
        let again = all_to_all(seed, 8, 1000, 1_000_000, 4, 65_536);
        assert!(
            again < 0.02,
            "seed {seed}: {again} of the packets were sent again"
        );
    }
}

#[test]
fn starved_hosts_do_not_collapse_the_network() {
    // A host has its turn every 160 ms on average: all timers run out again and again.
    for seed in 0..4 {
        let again = all_to_all(seed, 8, 1000, 20_000_000, 2, 16_384);
        assert!(
            again < 0.5,
            "seed {seed}: {again} of the packets were sent again"
        );
    }
}

#[test]
fn a_dead_destination_does_not_hold_up_the_others() {
    let mut network = Network::full_mesh(3, 1 << 20, 100);
    for message in 0..8 {
        network.submit(
            0,
            1,
            TestWqe::new(message, vec![1; 65_536]),
            write(0, 65_536),
        );
        network.submit(
            0,
            2,
            TestWqe::new(100 + message, vec![2; 65_536]),
            write(0, 65_536),
        );
    }
    // Host 1 never gets the core.
    for _ in 0..10_000 {
        network.run_host(0);
        network.run_host(2);
        network.now_ns += 1_000_000;
    }
    let completed = &network.hosts[0].device.completed;
    let living: Vec<usize> = completed.iter().take(8).map(|(tag, _)| *tag).collect();
    assert_eq!(living, (100..108).collect::<Vec<_>>());
    assert_eq!(completed[8], (0, Err(Failure::RetryExceeded)));
    assert_eq!(completed.len(), 16);
    assert_eq!(
        network.hosts[0].endpoint.deadline_ns(),
        None,
        "nothing is left to wait for"
    );
}

#[test]
fn reads_of_all_hosts_at_once_keep_to_the_window() {
    let (count, bytes) = (6, 100_000);
    let mut network = Network::full_mesh(count, bytes, 400);
    for here in 0..count {
        network.hosts[here]
            .device
            .memory
            .fill(u8::try_from(here).unwrap());
        for there in (0..count).filter(|there| *there != here) {
            network.submit(here, there, TestWqe::new(there, vec![]), read(0, bytes));
        }
    }
    network.run(7, 50_000, 60_000_000_000, |network| {
        network
            .hosts
            .iter()
            .all(|host| host.device.completed.len() == count - 1)
    });
    for host in &network.hosts {
        for (tag, data) in &host.device.returned {
            assert_eq!(data.len(), bytes);
            assert!(data.iter().all(|byte| usize::from(*byte) == *tag));
        }
    }
}

#[test]
fn a_failed_qp_flushes_and_a_disconnected_one_is_forgotten() {
    let mut network = Network::full_mesh(2, 4096, 100);
    network.submit(0, 1, TestWqe::new(0, vec![1; 10]), write(0, 10));
    let host = &mut network.hosts[0];
    host.endpoint.fail(qpn(0, 1), &mut host.device);
    assert_eq!(host.device.completed, [(0, Err(Failure::Flushed))]);
    network.submit(0, 1, TestWqe::new(1, vec![1; 10]), write(0, 10));
    let host = &mut network.hosts[0];
    host.endpoint.disconnect(qpn(0, 1));
    assert!(
        host.endpoint
            .submit(qpn(0, 1), TestWqe::new(2, vec![]), write(0, 0))
            .is_err()
    );
    assert!(!host.endpoint.has_room(qpn(0, 1)));
    assert_eq!(host.device.completed.len(), 1);
    // The peer still has its QP: the packet that it sends is counted as unknown.
    network.submit(1, 0, TestWqe::new(0, vec![1; 10]), write(0, 10));
    network.run_host(1);
    network.run_host(0);
    assert_eq!(network.hosts[0].endpoint.counters().unknown_qp, 1);
    assert_eq!(network.hosts[0].device.memory, vec![0; 4096]);
}

#[test]
fn a_qp_that_is_disconnected_leaves_its_window_to_the_others() {
    let mut network = Network::full_mesh(2, 1 << 16, 0);
    // There are eight QPs to host 1, which gets no packet. A QP that is disconnected must not go on holding what it had in flight.
    for extra in 0..8 {
        let host = &mut network.hosts[0];
        let (remote_qpn, first_psn) = (1, Psn::new(0));
        let receive = ResponderConfig {
            service: Service::Rc,
            remote_qpn,
            first_psn,
            mtu: MTU,
            min_rnr_timer: 12,
            max_read_atomic: 16,
        };
        host.endpoint.connect(extra, address(1), receive);
        let send = RequesterConfig {
            service: Service::Rc,
            remote_qpn,
            first_psn,
            mtu: MTU,
            retry_count: 7,
            rnr_retry: 7,
            ack_timeout: 14,
            max_read_atomic: 16,
            window: 16,
        };
        host.endpoint.start(extra, send);
        host.endpoint
            .submit(extra, TestWqe::new(0, vec![0; 16_384]), write(0, 16_384))
            .unwrap();
    }
    network.run_host(0);
    assert_eq!(network.hosts[0].endpoint.counters().packets_sent, 64);
    for extra in 0..4 {
        network.hosts[0].endpoint.disconnect(extra);
    }
    network.run_host(0);
    assert_eq!(network.hosts[0].endpoint.counters().packets_sent, 128);
}
