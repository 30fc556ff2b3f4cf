//! Tests of UC, UD and XRC QPs.

use super::*;
use crate::transport::{Datagram, OperationKind, SendWith, Target};
use crate::wire::testing::{QKEY, operation};

/// Returns two hosts with a QP 7 each, connected by these services.
fn two_hosts(near: Service, far: Service) -> Network {
    let mut network = Network::full_mesh(2, 4096, 64);
    for (here, service) in [(0, near), (1, far)] {
        let (remote_qpn, first_psn) = (7, Psn::new(0));
        let host = &mut network.hosts[here];
        host.endpoint.connect(
            7,
            address(1 - here),
            ResponderConfig {
                service,
                remote_qpn,
                first_psn,
                mtu: MTU,
                min_rnr_timer: 12,
                max_read_atomic: 16,
            },
        );
        host.endpoint.start(
            7,
            RequesterConfig {
                service,
                remote_qpn,
                first_psn,
                mtu: MTU,
                retry_count: 7,
                rnr_retry: 7,
                ack_timeout: 14,
                max_read_atomic: 16,
                window: 16,
            },
        );
    }
    network
}

#[test]
fn packets_of_another_service_or_direction_are_counted_and_dropped() {
    let xrc = Target::Srq(3);
    let cases = [
        (Service::Uc, Service::Rc, Target::Connected),
        (Service::Rc, Service::Uc, Target::Connected),
        (Service::Rc, Service::XrcTarget, Target::Connected),
        (Service::XrcInitiator, Service::Rc, xrc),
        (Service::XrcInitiator, Service::XrcInitiator, xrc),
    ];
    for (near, far, to) in cases {
        let mut network = two_hosts(near, far);
        let mut operation = write(0, 10);
        operation.to = to;
        let host = &mut network.hosts[0];
        host.endpoint
            .submit(7, TestWqe::new(0, vec![1; 10]), operation)
            .unwrap();
        network.run_host(0);
        network.run_host(1);
        let counters = network.hosts[1].endpoint.counters();
        assert_eq!(counters.wrong_service, 1, "{near:?} {far:?}");
        assert_eq!(network.hosts[1].device.memory, vec![0; 4096]);
    }
}

#[test]
fn an_xrc_target_sends_no_requests_and_an_initiator_carries_out_none() {
    let mut network = two_hosts(Service::XrcInitiator, Service::XrcTarget);
    let mut operation = write(0, 10);
    operation.to = Target::Srq(3);
    assert!(!network.hosts[1].endpoint.has_room(7));
    network.hosts[0]
        .endpoint
        .submit(7, TestWqe::new(0, vec![1; 10]), operation)
        .unwrap();
    for host in [0, 1, 0] {
        network.run_host(host);
    }
    assert_eq!(network.hosts[0].device.completed, [(0, Ok(()))]);
    assert_eq!(network.hosts[1].device.memory[..10], [1; 10]);
}

#[test]
fn datagrams_pass_between_qps_that_are_not_connected() {
    let mut network = Network::full_mesh(3, 4096, 64);
    for host in &mut network.hosts {
        let (mtu, first_psn) = (MTU, Psn::new(0));
        host.endpoint.open_datagram(
            8,
            DatagramConfig {
                mtu,
                first_psn,
                lmc: 0,
            },
        );
        host.device.receives = [0, 0].into();
    }
    let mut message = operation(
        OperationKind::Send {
            with: SendWith::Nothing,
        },
        100,
    );
    for there in [1, 2] {
        message.to = Target::Datagram(Datagram {
            gid: address(there).to_ipv6_mapped().octets(),
            has_grh: true,
            qpn: 8,
            qkey: QKEY,
            hop_limit: 64,
            traffic_class: 0,
            path_bits: 0,
        });
        let wqe = TestWqe::new(there, vec![u8::try_from(there).unwrap(); 100]);
        let endpoint = &mut network.hosts[0].endpoint;
        endpoint.submit(8, wqe, message).unwrap();
    }
    (0..3).for_each(|host| network.run_host(host));
    assert_eq!(
        network.hosts[0].device.completed,
        [(1, Ok(())), (2, Ok(()))]
    );
    for there in [1, 2] {
        let received = &network.hosts[there].device.received;
        let source = received[0].0.source.unwrap();
        assert_eq!(source.qpn, 8);
        assert_eq!(source.address, address(0));
        assert_eq!(received[0].1, [u8::try_from(there).unwrap(); 100]);
    }
    // In the error state every operation comes back as flushed.
    let host = &mut network.hosts[0];
    host.endpoint.fail(8, &mut host.device);
    let wqe = TestWqe::new(9, vec![0; 100]);
    host.endpoint.submit(8, wqe, message).unwrap();
    network.run_host(0);
    assert_eq!(
        network.hosts[0].device.completed[2],
        (9, Err(Failure::Flushed))
    );
}
