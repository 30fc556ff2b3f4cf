use super::*;
use crate::transport::{Operation, Service};
use crate::wire::memory::Network;
use crate::wire::psn::Psn;
use crate::wire::requester::RequesterConfig;
use crate::wire::responder::ResponderConfig;
use crate::wire::testing::{TestDevice, TestWqe, read, write};
use std::net::Ipv4Addr;

/// Time of one turn of the ports. The tests count time by turns, however long these really take.
const TURN_NS: u64 = 100_000;
/// The most time that a test may take. A test needs much less.
const LIMIT_NS: u64 = 5_000_000_000;

struct Node {
    port: Port<TestWqe>,
    device: TestDevice,
    address: Ipv4Addr,
}

fn node(memory: usize) -> Node {
    for _ in 0..1000 {
        let address = Ipv4Addr::new(
            127,
            fastrand::u8(1..255),
            fastrand::u8(..),
            fastrand::u8(1..255),
        );
        if let Ok(socket) = UdpSocket::bind((address, 4791)) {
            let port = Port::over_udp(socket).unwrap();
            return Node {
                port,
                device: TestDevice::new(vec![0; memory]),
                address,
            };
        }
    }
    panic!("no loopback address is free");
}

fn connect(node: &mut Node, qpn: u32, remote: Ipv4Addr, remote_qpn: u32) {
    let first_psn = Psn::new(0xff_fffe);
    let endpoint = node.port.endpoint();
    endpoint.connect(
        qpn,
        remote,
        ResponderConfig {
            service: Service::Rc,
            remote_qpn,
            first_psn,
            mtu: 4096,
            min_rnr_timer: 12,
            max_read_atomic: 16,
        },
    );
    endpoint.start(
        qpn,
        RequesterConfig {
            service: Service::Rc,
            remote_qpn,
            first_psn,
            mtu: 4096,
            retry_count: 7,
            rnr_retry: 7,
            ack_timeout: 14,
            max_read_atomic: 16,
            window: 16,
        },
    );
}

fn pair(memory: usize) -> (Node, Node) {
    let (mut here, mut there) = (node(memory), node(memory));
    connect(&mut here, 5, there.address, 6);
    connect(&mut there, 6, here.address, 5);
    (here, there)
}

fn submit(node: &mut Node, qpn: u32, tag: usize, data: Vec<u8>, operation: Operation) {
    node.port
        .endpoint()
        .submit(qpn, TestWqe::new(tag, data), operation)
        .unwrap();
}

/// Polls both nodes until `done` returns true.
fn run(here: &mut Node, there: &mut Node, mut done: impl FnMut(&Node) -> bool) {
    let mut now_ns = 0;
    while !done(here) {
        assert!(now_ns < LIMIT_NS, "not done: {:?}", here.port);
        here.port.poll(now_ns, &mut here.device).unwrap();
        there.port.poll(now_ns, &mut there.device).unwrap();
        now_ns += TURN_NS;
    }
}

#[test]
fn writes_and_reads_pass_through_sockets() {
    let (mut here, mut there) = pair(1 << 20);
    let data: Vec<u8> = (0..1 << 20)
        .map(|index: u32| index.to_le_bytes()[1])
        .collect();
    submit(&mut here, 5, 0, data.clone(), write(0, 1 << 20));
    submit(&mut here, 5, 1, vec![], read(0, 1 << 20));
    run(&mut here, &mut there, |here| {
        here.device.completed.len() == 2
    });
    assert_eq!(there.device.memory, data);
    assert_eq!(here.device.completed, [(0, Ok(())), (1, Ok(()))]);
    assert_eq!(here.device.returned, [(1, data)]);
    assert_eq!(
        here.port.counters().malformed + there.port.counters().bad_icrc,
        0
    );
}

#[test]
fn strangers_are_counted_and_dropped() {
    let (mut here, mut there) = pair(64);
    let mut stranger = node(64);
    connect(&mut stranger, 5, there.address, 6);
    submit(&mut stranger, 5, 0, vec![1; 8], write(0, 8));
    stranger.port.poll(0, &mut stranger.device).unwrap();
    // These are a packet for a QP that `there` does not have, and bytes that are no packet.
    connect(&mut stranger, 7, there.address, 99);
    submit(&mut stranger, 7, 0, vec![1; 8], write(0, 8));
    stranger.port.poll(0, &mut stranger.device).unwrap();
    let garbage = UdpSocket::bind("127.0.0.1:0").unwrap();
    garbage.send_to(b"hello", (there.address, 4791)).unwrap();
    // The write of the real peer still arrives.
    submit(&mut here, 5, 0, vec![2; 8], write(8, 8));
    run(&mut here, &mut there, |here| {
        here.device.completed.len() == 1
    });
    let counters = there.port.counters();
    assert_eq!(
        (
            counters.unknown_source,
            counters.unknown_qp,
            counters.malformed
        ),
        (1, 1, 1)
    );
    assert_eq!(there.device.memory[..16], [[0; 8], [2; 8]].concat());
}

#[test]
fn a_receiver_that_sleeps_costs_retransmissions_and_no_data() {
    let (mut here, mut there) = pair(1 << 20);
    let data: Vec<u8> = (0..1 << 20)
        .map(|index: u32| index.to_le_bytes()[2])
        .collect();
    submit(&mut here, 5, 0, data.clone(), write(0, 1 << 20));
    let mut now_ns = 0;
    while here.device.completed.is_empty() {
        assert!(now_ns < LIMIT_NS, "{:?}", here.port.counters());
        here.port.poll(now_ns, &mut here.device).unwrap();
        if now_ns > 50_000_000 {
            there.port.poll(now_ns, &mut there.device).unwrap();
        }
        now_ns += TURN_NS;
    }
    assert_eq!(there.device.memory, data);
    let counters = here.port.counters();
    assert!((1..40).contains(&counters.retransmissions), "{counters:?}");
}

#[test]
fn many_senders_to_one_small_socket_buffer_all_arrive() {
    const SENDERS: usize = 6;
    const BYTES: usize = 1 << 20;
    let mut receiver = node(SENDERS * BYTES);
    // This is the buffer that an unprivileged process gets on a stock kernel: 208 KiB asked for, doubled.
    let socket = UdpSocket::bind((receiver.address, 0)).unwrap();
    drop(std::mem::replace(
        &mut receiver.port.carrier,
        Box::new(UdpCarrier::new(socket).unwrap()),
    ));
    let socket = UdpSocket::bind((receiver.address, 4791)).unwrap();
    receiver.port.carrier = Box::new(UdpCarrier::with_buffers(socket, 212_992).unwrap());
    let mut senders: Vec<Node> = (0..SENDERS).map(|_| node(0)).collect();
    for (rank, sender) in (0u32..).zip(&mut senders) {
        connect(sender, 1, receiver.address, 100 + rank);
        connect(&mut receiver, 100 + rank, sender.address, 1);
        let va = u64::from(rank) * BYTES as u64;
        let fill = u8::try_from(rank).unwrap() + 1;
        submit(sender, 1, 0, vec![fill; BYTES], write(va, BYTES));
    }
    let mut again = 0;
    for turn in 0.. {
        let now_ns = turn * TURN_NS;
        assert!(now_ns < LIMIT_NS, "{:?}", receiver.port.counters());
        for sender in &mut senders {
            sender.port.poll(now_ns, &mut sender.device).unwrap();
        }
        // The receiver is slower than all senders together.
        if turn % 2 == 0 {
            receiver.port.poll(now_ns, &mut receiver.device).unwrap();
        }
        if senders
            .iter()
            .all(|sender| !sender.device.completed.is_empty())
        {
            again = senders
                .iter()
                .map(|sender| sender.port.counters().retransmissions)
                .sum();
            break;
        }
    }
    for (rank, chunk) in (0u8..).zip(receiver.device.memory.chunks(BYTES)) {
        assert!(
            chunk.iter().all(|byte| *byte == rank + 1),
            "from sender {rank}"
        );
    }
    let needed = (SENDERS * BYTES / 4096) as u64;
    assert!(
        again < needed / 2,
        "{again} packets sent again, {needed} needed"
    );
}

#[test]
fn over_a_network_in_memory_time_is_what_the_caller_says() {
    const LATENCY_NS: u64 = 1000;
    let network = Network::with_latency(LATENCY_NS);
    let [mut here, mut there] = [1, 2].map(|host| {
        let address = Ipv4Addr::new(10, 0, 0, host);
        Node {
            port: Port::new(address, Box::new(network.plug(address).unwrap())),
            device: TestDevice::new(vec![0; 64]),
            address,
        }
    });
    connect(&mut here, 5, there.address, 6);
    connect(&mut there, 6, here.address, 5);
    submit(&mut here, 5, 0, vec![7; 64], write(0, 64));
    let mut now_ns = 0;
    loop {
        here.port.poll(now_ns, &mut here.device).unwrap();
        there.port.poll(now_ns, &mut there.device).unwrap();
        if !here.device.completed.is_empty() {
            break;
        }
        let deadlines = [here.port.deadline_ns(), there.port.deadline_ns()];
        let next_ns = deadlines.into_iter().flatten().min();
        now_ns = next_ns.expect("a QP waits");
    }
    // The request takes one latency to the peer, and the acknowledge takes one back.
    assert_eq!(now_ns, 2 * LATENCY_NS);
    assert_eq!(there.device.memory, [7; 64]);
}
