use super::*;
use crate::wire::icrc::ROCE_PORT;
use crate::wire::testing::HANG;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::time::Instant;

fn pair() -> (UdpCarrier, UdpCarrier) {
    // The carriers send to the port of RoCE. So both sockets need that port, on addresses of their own.
    let make = || {
        for _ in 0..1000 {
            let ip = Ipv4Addr::new(
                127,
                fastrand::u8(1..255),
                fastrand::u8(..),
                fastrand::u8(1..255),
            );
            if let Ok(socket) = UdpSocket::bind((ip, ROCE_PORT)) {
                return UdpCarrier::new(socket).unwrap();
            }
        }
        panic!("no loopback address is free");
    };
    (make(), make())
}

fn ip(carrier: &UdpCarrier) -> Ipv4Addr {
    match carrier.ipv4[0].local_addr().unwrap().ip() {
        IpAddr::V4(ip) => ip,
        IpAddr::V6(ip) => panic!("{ip}"),
    }
}

fn put(carrier: &mut UdpCarrier, destination: Ipv4Addr, packets: &[Vec<u8>]) {
    let sink = carrier.sink();
    for packet in packets {
        sink.slot().unwrap()[..packet.len()].copy_from_slice(packet);
        sink.commit(packet.len(), destination.into());
    }
}

fn collect(carrier: &mut UdpCarrier, count: usize) -> Vec<(SocketAddrV4, Vec<u8>)> {
    let mut packets = vec![];
    let end = Instant::now() + HANG;
    while packets.len() < count && Instant::now() < end {
        carrier
            .receive(0, &mut |source, data| {
                packets.push((source.address, data.to_vec()))
            })
            .unwrap();
    }
    packets
}

fn check_that_packets_arrive_as_sent(joins: bool) {
    let (mut here, mut there) = pair();
    here.queue = SendQueue::new(joins);
    let sizes = [20, 4168, 4168, 4168, 500, 20, 20, 60, 1, 4168];
    let packets: Vec<Vec<u8>> = (0..)
        .zip(sizes)
        .map(|(tag, bytes)| vec![tag; bytes])
        .collect();
    put(&mut here, ip(&there), &packets);
    assert!(here.flush(0) && !here.is_blocked());
    let source = SocketAddrV4::new(ip(&here), ROCE_PORT);
    let expected: Vec<_> = packets.into_iter().map(|packet| (source, packet)).collect();
    assert_eq!(collect(&mut there, expected.len()), expected);
}

#[test]
fn packets_arrive_as_they_were_sent_in_joined_messages() {
    check_that_packets_arrive_as_sent(true);
}

#[test]
fn packets_arrive_as_they_were_sent_in_a_message_each() {
    check_that_packets_arrive_as_sent(false);
}

#[test]
fn a_packet_refused_by_the_kernel_is_counted_and_does_not_block_the_next() {
    let (mut here, mut there) = pair();
    put(&mut here, Ipv4Addr::BROADCAST, &[vec![1; 30]]);
    put(&mut here, ip(&there), &[vec![2; 30]]);
    assert!(here.flush(0));
    assert_eq!(here.counters().refused, 1);
    assert_eq!(collect(&mut there, 1)[0].1, vec![2; 30]);
}

#[test]
fn nothing_there_is_not_an_error() {
    let (mut here, _there) = pair();
    assert!(
        !here
            .receive(0, &mut |_, _| panic!("no packet was sent"))
            .unwrap()
    );
}
