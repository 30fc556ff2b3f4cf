//! HCAs with two ports: a QP sends by the port that it was made for, and each port has its own addresses, state and events.

use mlx5_prm::be::{Be16, Be32};
use mlx5_prm::cqe::{CqeOpcode, Syndrome};
use mlx5_prm::qp::Ads;
use mlx5_prm::wqe::{CtrlSeg, DatagramSeg, WqeOpcode};
use softhca::device::Event;
use softhca::link::Link;
use softhca::profile::Profile;
use softhca::wire::config::CarrierConfig;
use softhca::{Hca, HcaConfig};
use softhca_rig::tools::programs::devinfo;
use softhca_rig::{End, Kind, QKEY, inline};
use std::fs;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::sync::mpsc::channel;

const SIGNALLED: u8 = CtrlSeg::CE_ALWAYS;
const LINKS: [Link; 2] = [Link::Ethernet, Link::InfiniBand];

fn two_ports(link: Link, loopback: bool) -> HcaConfig {
    HcaConfig {
        ports: 2,
        loopback,
        link,
        ..HcaConfig::default()
    }
}

/// Returns the path to a port of `to`.
fn path(link: Link, to: &Hca, port: u8) -> Ads {
    let (gid, lid, _) = to.ports()[usize::from(port) - 1];
    match link {
        Link::Ethernet => Ads::default()
            .with_rgid_rip(gid)
            .with_src_addr_index(3)
            .with_hop_limit(64),
        Link::InfiniBand => Ads::default().with_rlid(lid.into()),
    }
}

/// Two HCAs with an end each, on these ports, connected.
fn pair(link: Link, loopback: bool, ports: [u8; 2]) -> ([Hca; 2], [End; 2]) {
    let hcas = [(); 2].map(|()| Hca::with_config(two_ports(link, loopback)).unwrap());
    let ends = hcas.each_ref().map(|hca| End::hasty(hca, Kind::Rc));
    for side in [0, 1] {
        let other = 1 - side;
        ends[side].init_on(ports[side]).unwrap();
        ends[side]
            .ready_to_receive_by(path(link, &hcas[other], ports[other]), ends[other].qpn, 7)
            .unwrap();
        ends[side].ready_to_send(7);
    }
    (hcas, ends)
}

/// WQEs, packets sent and packets received of a port.
fn traffic(hca: &Hca, port: u8) -> [u64; 3] {
    let counters = hca.port_counters(port).unwrap();
    [counters.wqes, counters.sent(), counters.received()]
}

#[test]
fn a_qp_sends_by_the_port_that_it_was_made_for_and_by_no_other() {
    for link in LINKS {
        for ports in [[1, 1], [2, 2], [1, 2], [2, 1]] {
            for loopback in [true, false] {
                let case = format!("{link}, ports {ports:?}, loopback {loopback}");
                let (hcas, [mut a, b]) = pair(link, loopback, ports);
                let kept = *a.query().primary_address_path();
                assert_eq!(kept.vhca_port_num(), u32::from(ports[0]), "{case}");
                a.write_inline(b"by port", b.data.address(), b.keys.rkey);
                assert_eq!(a.run(1)[0].opcode(), CqeOpcode::REQ, "{case}");
                assert_eq!(b.data.read(0, 7), b"by port");
                for (hca, used) in hcas.iter().zip(ports) {
                    assert_eq!(traffic(hca, 3 - used), [0; 3], "{case}");
                    let [_, sent, received] = traffic(hca, used);
                    assert_eq!(sent > 0 && received > 0, !loopback, "{case}");
                }
                assert_eq!(traffic(&hcas[0], ports[0])[0], 1, "{case}");
            }
        }
    }
}

#[test]
fn a_qp_of_another_port_than_its_peer_names_is_silent() {
    for link in LINKS {
        for loopback in [true, false] {
            let hcas = [(); 2].map(|()| Hca::with_config(two_ports(link, loopback)).unwrap());
            let [mut a, b] = hcas.each_ref().map(|hca| End::hasty(hca, Kind::Rc));
            // The QP of b is for port 2, and a sends to port 1.
            for (end, port, path, qpn) in [
                (&a, 1, path(link, &hcas[1], 1), b.qpn),
                (&b, 2, path(link, &hcas[0], 1), a.qpn),
            ] {
                end.init_on(port).unwrap();
                end.ready_to_receive_by(path, qpn, 7).unwrap();
                end.ready_to_send(7);
            }
            a.write_inline(b"lost", b.data.address(), b.keys.rkey);
            let cqe = a.run(1)[0];
            assert_eq!(cqe.opcode(), CqeOpcode::REQ_ERR, "{link} {loopback}");
            assert_eq!(cqe.as_error().reason(), Syndrome::TRANSPORT_RETRY_EXC_ERR);
            assert_ne!(b.data.read(0, 4), b"lost");
        }
    }
}

#[test]
fn the_ports_of_one_hca_reach_each_other() {
    for link in LINKS {
        for loopback in [true, false] {
            let hca = Hca::with_config(two_ports(link, loopback)).unwrap();
            let mut a = End::hasty(&hca, Kind::Rc);
            let b = a.beside(a.shape.clone());
            for (end, port, qpn) in [(&a, 1, b.qpn), (&b, 2, a.qpn)] {
                end.init_on(port).unwrap();
                end.ready_to_receive_by(path(link, &hca, 3 - port), qpn, 7)
                    .unwrap();
                end.ready_to_send(7);
            }
            a.write_inline(b"across", b.data.address(), b.keys.rkey);
            assert_eq!(a.run(1)[0].opcode(), CqeOpcode::REQ, "{link} {loopback}");
            assert_eq!(b.data.read(0, 6), b"across");
        }
    }
}

#[test]
fn a_datagram_meets_the_qps_of_the_port_that_it_goes_to() {
    for loopback in [true, false] {
        let link = Link::InfiniBand;
        let hcas = [(); 2].map(|()| Hca::with_config(two_ports(link, loopback)).unwrap());
        let [mut a, mut b] = hcas.each_ref().map(|hca| End::hasty(hca, Kind::Ud));
        for end in [&a, &b] {
            end.init_on(2).unwrap();
            end.ready_to_receive_by(Ads::default(), 0, 0).unwrap();
            end.ready_to_send(7);
        }
        b.post_receive(0x100, 128);
        b.post_receive(0x200, 128);
        for (port, text) in [(1, b"first "), (2, b"second")] {
            let (_, lid, _) = hcas[1].ports()[port - 1];
            let to = DatagramSeg {
                qkey: Be32::new(QKEY),
                dqp_dct: Be32::new(DatagramSeg::EXTENDED | b.qpn),
                rlid: Be16::new(lid),
                ..DatagramSeg::default()
            };
            let rest = [bytemuck::bytes_of(&to), &inline(text)].concat();
            a.write_wqe(WqeOpcode::SEND, 0, SIGNALLED, 0, &rest);
            assert_eq!(a.run(1)[0].opcode(), CqeOpcode::REQ);
        }
        let cqe = b.completion();
        assert_eq!(cqe.slid.get(), hcas[0].ports()[1].1, "from port 2");
        assert_eq!(b.data.read(0x100 + 40, 6), b"second", "loopback {loopback}");
    }
}

#[test]
fn a_port_that_the_device_lacks_is_refused() {
    for (ports, lacks) in [(1, 2), (2, 3), (2, 255)] {
        let config = HcaConfig {
            ports,
            ..HcaConfig::default()
        };
        let hca = Hca::with_config(config).unwrap();
        assert!(hca.port_counters(lacks).is_none());
        let end = End::hasty(&hca, Kind::Rc);
        let text = end.init_on(lacks).unwrap_err().to_string();
        assert!(
            text.contains("the device has no port of this number"),
            "{text}"
        );
        end.init_on(ports).unwrap();
    }
}

#[test]
fn a_port_that_is_down_leaves_the_other_one_at_work() {
    for loopback in [true, false] {
        for down in [1, 2] {
            let up = 3 - down;
            let link = Link::Ethernet;
            let (hcas, [mut a, b]) = pair(link, loopback, [up, up]);
            let (sender, events) = channel();
            a.context.set_event_handler(move |event| {
                let _ = sender.send(event);
            });
            hcas[0].set_port_of(down, false);
            assert_eq!(events.recv().unwrap(), Event::PortDown(down));
            assert!(a.context.port_is_up(up) && !a.context.port_is_up(down));
            a.write_inline(b"by the other", b.data.address(), b.keys.rkey);
            assert_eq!(a.run(1)[0].opcode(), CqeOpcode::REQ);
            hcas[0].set_port_of(up, false);
            assert_eq!(events.recv().unwrap(), Event::PortDown(up));
            a.write_inline(b"by none", b.data.address(), b.keys.rkey);
            let cqe = a.run(1)[0];
            assert_eq!(cqe.as_error().reason(), Syndrome::TRANSPORT_RETRY_EXC_ERR);
            hcas[0].set_port_of(down, true);
            assert_eq!(events.recv().unwrap(), Event::PortActive(down));
        }
    }
}

#[test]
fn the_tree_shows_the_state_and_the_addresses_of_each_port() {
    let hca = Hca::with_config(two_ports(Link::InfiniBand, true)).unwrap();
    let root = PathBuf::from(std::env::var_os("SYSFS_PATH").unwrap());
    let read = |port: u8, name: &str| {
        let file = format!("class/infiniband/{}/ports/{port}/{name}", hca.name());
        fs::read_to_string(root.join(file))
            .unwrap()
            .trim()
            .to_owned()
    };
    for (port, (_, lid, _)) in (1..).zip(hca.ports()) {
        assert_eq!(read(port, "lid"), format!("{lid:#x}"));
    }
    hca.set_port_of(2, false);
    assert_eq!(read(1, "state"), "4: ACTIVE");
    assert_eq!(read(2, "state"), "1: DOWN");
    assert_eq!(read(2, "phys_state"), "3: Disabled");
    hca.set_port_of(2, true);
    assert_eq!(read(2, "state"), "4: ACTIVE");
    assert_eq!(read(2, "hw_counters/port_wqes"), "0");
}

#[test]
fn the_counters_of_a_port_count_its_packets_on_the_wire() {
    let (hcas, [mut a, b]) = pair(Link::Ethernet, false, [2, 1]);
    let root = PathBuf::from(std::env::var_os("SYSFS_PATH").unwrap());
    let read = |hca: &Hca, port: u8, name: &str| {
        let file = format!(
            "class/infiniband/{}/ports/{port}/counters/{name}",
            hca.name()
        );
        let text = fs::read_to_string(root.join(file)).unwrap();
        text.trim().parse::<u64>().unwrap()
    };
    let text = [7; 100];
    a.write_inline(&text, b.data.address(), b.keys.rkey);
    assert_eq!(a.run(1)[0].opcode(), CqeOpcode::REQ);
    // A write of 100 bytes, and its acknowledgement: BTH 12, RETH 16, AETH 4, ICRC 4.
    let (write, ack) = ((12 + 16 + 100 + 4) / 4, (12 + 4 + 4) / 4);
    for (hca, port, data) in [(&hcas[0], 2, [write, ack]), (&hcas[1], 1, [ack, write])] {
        let words = ["port_xmit_data", "port_rcv_data"].map(|name| read(hca, port, name));
        assert_eq!(words, data);
        let packets = ["port_xmit_packets", "unicast_rcv_packets"];
        assert_eq!(packets.map(|name| read(hca, port, name)), [1, 1]);
        assert_eq!(read(hca, port, "port_rcv_errors"), 0);
        assert_eq!(read(hca, 3 - port, "port_xmit_data"), 0, "the other port");
    }
}

#[test]
fn threads_that_read_a_state_at_the_same_time_all_find_it_whole() {
    let hca = Hca::with_config(two_ports(Link::Ethernet, true)).unwrap();
    let root = PathBuf::from(std::env::var_os("SYSFS_PATH").unwrap());
    let state = root.join(format!("class/infiniband/{}/ports/1/state", hca.name()));
    let read = || {
        for _ in 0..1000 {
            assert_eq!(fs::read_to_string(&state).unwrap(), "4: ACTIVE\n");
        }
    };
    std::thread::scope(|scope| (0..4).for_each(|_| drop(scope.spawn(read))));
    let left = fs::read_dir(&root).unwrap();
    let names: Vec<_> = left.map(|entry| entry.unwrap().file_name()).collect();
    let news = |name: &&std::ffi::OsString| name.to_string_lossy().starts_with("new.");
    assert_eq!(names.iter().filter(news).count(), 0, "{names:?}");
}

#[test]
fn ports_that_cannot_be_are_refused_with_value_and_limit() {
    let refused = |config: HcaConfig| Hca::with_config(config).unwrap_err().to_string();
    let of = |ports| HcaConfig {
        ports,
        ..HcaConfig::default()
    };
    for ports in [0, 3] {
        let told = format!("the number of ports is {ports}; it must be 1 to 2");
        assert_eq!(refused(of(ports)), told);
    }
    let frames = HcaConfig {
        ip: Some(Ipv4Addr::new(127, 75, 2, 1)),
        carrier: CarrierConfig::Packet {
            interface: "lo".to_owned(),
        },
        ..of(2)
    };
    assert_eq!(
        refused(frames),
        "the number of ports is 2; with a carrier of Ethernet frames it must be 1"
    );
    let bond = HcaConfig {
        profile: Profile::ConnectX7Lag,
        ..of(2)
    };
    assert_eq!(
        refused(bond),
        "the number of ports is 2; with a bond, which a program sees as one port, it must be 1"
    );
    let last = HcaConfig {
        ip: Some(Ipv4Addr::new(127, 75, 0xbf, 0xff)),
        ..two_ports(Link::InfiniBand, true)
    };
    assert!(refused(last).contains("127.75.192.0 has no LID"));
    let fault = HcaConfig {
        faults: Some("port-down=2@1s".parse().unwrap()),
        ..of(1)
    };
    assert_eq!(
        refused(fault),
        "a fault is for port 2; it must be 1 to 1, as the HCA has 1"
    );
    let text = "port-down=3@1s".parse::<softhca::FaultSpec>().unwrap_err();
    assert!(text.to_string().contains("a port, 1 or 2"), "{text}");
}

#[test]
fn ibv_devinfo_shows_both_ports() {
    let of_two_ports = [
        ("SOFTHCA_PORTS", "2"),
        ("SOFTHCA_IP", "127.76.2.1"),
        ("SOFTHCA_FAULT", "port-down=2"),
    ];
    let Some(ended) = devinfo("ibv_devinfo of two ports", &of_two_ports) else {
        return;
    };
    assert!(ended.is_success(), "{}", ended.report());
    let words: Vec<Vec<&str>> = ended
        .printed
        .lines()
        .map(|line| line.split_whitespace().collect())
        .collect();
    for expected in [
        ["phys_port_cnt:", "2"],
        ["port:", "1"],
        ["port:", "2"],
        ["state:", "PORT_ACTIVE"],
        ["state:", "PORT_DOWN"],
    ] {
        let is_there = words.iter().any(|words| words.starts_with(&expected));
        assert!(is_there, "{expected:?}: {}", ended.report());
    }
    for gid in ["::ffff:127.76.2.1", "::ffff:127.76.2.2"] {
        assert!(ended.printed.contains(gid), "{gid}: {}", ended.report());
    }
}
