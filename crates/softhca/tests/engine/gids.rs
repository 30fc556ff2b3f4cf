//! Each entry of the GID table at each end, for each service, by memory, by UDP and by Ethernet frames; and GIDs that lead
//! nowhere.

use mlx5_prm::cqe::{CqeOpcode, Syndrome};
use mlx5_prm::qp::Ads;
use mlx5_prm::wqe::{CtrlSeg, WqeOpcode};
use softhca::wire::config::CarrierConfig;
use softhca::wire::envelope::Name;
use softhca::{Hca, HcaConfig};
use softhca_rig::segments::{datagram_from, xrc};
use softhca_rig::{End, Kind, QKEY, Shape, data, inline};
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};

const SIGNALLED: u8 = CtrlSeg::CE_ALWAYS;

/// The four entries: the GID, RoCE v1 or v2, what a datagram from that entry begins with, and bits of its CQE. A datagram begins
/// with the version of its first header and its next header. The bits name the kind (`MLX5_CQE_ROCE_L3_HEADER_TYPE_*`).
const ENTRIES: [(Name, u8, (u8, u8), u32); 4] = [
    (Name::LinkLocal, 1, (6, 0x1b), 0),
    (Name::LinkLocal, 2, (6, 17), 1),
    (Name::Ip, 1, (6, 0x1b), 0),
    (Name::Ip, 2, (4, 17), 2),
];

/// What carries packets between the HCAs of a test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Medium {
    Memory,
    Udp,
    Frames,
}

const WAYS: [Medium; 3] = [Medium::Memory, Medium::Udp, Medium::Frames];

fn free_port() -> SocketAddr {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.local_addr().unwrap()
}

fn hcas(way: Medium) -> [Hca; 2] {
    let (one, two) = (free_port(), free_port());
    let third = fastrand::u8(..);
    [(1, one, two), (2, two, one)].map(|(last, local, remote)| {
        let config = match way {
            Medium::Memory => HcaConfig::default(),
            Medium::Udp => HcaConfig {
                loopback: false,
                ..HcaConfig::default()
            },
            Medium::Frames => HcaConfig {
                loopback: false,
                ip: Some(Ipv4Addr::new(10, 77, third, last)),
                carrier: CarrierConfig::Frames { local, remote },
                ..HcaConfig::default()
            },
        };
        Hca::with_config(config).unwrap()
    })
}

fn shape(kind: Kind) -> Shape {
    Shape {
        kind,
        log_receive: (!matches!(kind, Kind::XrcInitiator | Kind::XrcTarget)).then_some(4),
        log_srq: (kind == Kind::XrcTarget).then_some(4),
        ..Shape::default()
    }
}

/// Returns the path from entry `index` to the GID `name` of `to`.
fn path(index: usize, name: Name, to: &Hca) -> Ads {
    Ads::default()
        .with_src_addr_index(index.try_into().unwrap())
        .with_rgid_rip(name.gid(to.ip()))
        .with_hop_limit(64)
}

fn connect(end: &End, path: Ads, remote_qpn: u32) {
    end.init();
    end.ready_to_receive_by(path, remote_qpn, 7).unwrap();
    end.ready_to_send(7);
}

/// Two HCAs with a QP for datagrams each.
fn datagram_ends(way: Medium) -> ([Hca; 2], End, End) {
    let hcas = hcas(way);
    let [a, b] = hcas.each_ref().map(|hca| End::new(hca, shape(Kind::Ud)));
    connect(&a, Ads::default(), 0);
    connect(&b, Ads::default(), 0);
    (hcas, a, b)
}

#[test]
fn connections_carry_traffic_by_every_entry_at_both_ends() {
    for way in WAYS {
        for (near, far) in [
            (Kind::Rc, Kind::Rc),
            (Kind::Uc, Kind::Uc),
            (Kind::XrcInitiator, Kind::XrcTarget),
        ] {
            for (index, (name, ..)) in ENTRIES.into_iter().enumerate() {
                // The peer uses the same GID, by the same version or by the other one.
                for other in [index, index ^ 1] {
                    let case = format!("{way:?} {near:?}: entry {index} to {other}");
                    let [hca_a, hca_b] = hcas(way);
                    let mut a = End::new(&hca_a, shape(near));
                    let mut b = End::new(&hca_b, shape(far));
                    // The MAC follows from the GID, and only v2 has UDP: neither is looked at.
                    let path_a = path(index, name, &hca_b)
                        .with_rmac([2, 0xff, 3, 4, 5, 6])
                        .with_udp_sport(0xc123);
                    connect(&a, path_a, b.qpn);
                    connect(&b, path(other, name, &hca_a), a.qpn);
                    let kept = *a.query().primary_address_path();
                    assert_eq!(kept.src_addr_index() as usize, index, "{case}");
                    assert_eq!(kept.rgid_rip(), name.gid(hca_b.ip()), "{case}");

                    let to = match (&mut b.srq, far) {
                        (Some(srq), Kind::XrcTarget) => {
                            srq.post(&[(0x2000, b.keys.lkey, b.data.address() + 0x4000)]);
                            xrc(srq.number).to_vec()
                        }
                        _ => {
                            b.post_receive(0x4000, 0x2000);
                            vec![]
                        }
                    };
                    let text: Vec<u8> = (0..5000u32).map(|n| n.to_le_bytes()[0] ^ 0x55).collect();
                    a.data.write(0, &text);
                    let bytes = data(5000, a.keys.lkey, a.data.address());
                    let rest = [to.as_slice(), &bytes].concat();
                    a.write_wqe(WqeOpcode::SEND, 0, SIGNALLED, 0, &rest);
                    assert_eq!(a.run(1)[0].opcode(), CqeOpcode::REQ, "{case}");
                    assert_eq!(b.completion().opcode(), CqeOpcode::RESP_SEND, "{case}");
                    assert_eq!(b.data.read(0x4000, 5000), text, "{case}");
                    assert_eq!(
                        hca_b.counters().packets_received == 0,
                        way == Medium::Memory
                    );
                    for hca in [&hca_a, &hca_b] {
                        assert_eq!(hca.findings(), [""; 0], "{case}");
                    }
                }
            }
        }
    }
}

#[test]
fn a_datagram_brings_the_header_of_the_entry_that_it_was_sent_from() {
    for way in WAYS {
        let ([hca_a, hca_b], mut a, mut b) = datagram_ends(way);
        for (index, (name, roce, header, kind)) in (0..).zip(ENTRIES) {
            let case = format!("{way:?}: entry {index}");
            // A GRH holds any two GIDs.
            let far = if roce == 1 {
                vec![Name::LinkLocal, Name::Ip]
            } else {
                vec![name]
            };
            for to_name in far {
                b.data.write(0x100, &[0x5a; 80]);
                b.post_receive(0x100, 128);
                let to = datagram_from(index, to_name.gid(hca_b.ip()), b.qpn, QKEY);
                let rest = [to.as_slice(), &inline(b"twelve bytes")].concat();
                a.write_wqe(WqeOpcode::SEND, 0, SIGNALLED, 0, &rest);
                assert_eq!(a.run(1)[0].opcode(), CqeOpcode::REQ, "{case}");
                let cqe = b.completion();
                assert_eq!(cqe.opcode(), CqeOpcode::RESP_SEND, "{case}");
                assert_eq!(cqe.byte_cnt.get(), 52, "{case}");
                assert_eq!(cqe.flags_rqpn.get() & 0xff_ffff, a.qpn, "{case}");
                assert_eq!(cqe.flags_rqpn.get() >> 28 & 3, 1, "{case}: there is a GRH");
                assert_eq!(cqe.flags_rqpn.get() >> 24 & 3, kind, "{case}");
                let found = b.data.read(0x100, 52);
                assert_eq!(found[40..], *b"twelve bytes", "{case}");
                // BTH, DETH, data, ICRC; with v2 a UDP header, with IPv4 its own.
                let packet = 12 + 8 + 12 + 4;
                if header.0 == 4 {
                    assert_eq!(found[..20], [0; 20], "{case}");
                    assert_eq!((found[20], found[29]), (0x45, 17), "{case}");
                    assert_eq!(found[22..24], [0, 20 + 8 + packet], "{case}");
                    assert_eq!(found[32..36], hca_a.ip().octets(), "{case}");
                    assert_eq!(found[36..40], hca_b.ip().octets(), "{case}");
                } else {
                    assert_eq!((found[0] >> 4, found[6]), header, "{case}");
                    let udp = if roce == 2 { 8 } else { 0 };
                    assert_eq!(found[4..6], [0, udp + packet], "{case}");
                    assert_eq!(found[8..24], name.gid(hca_a.ip()), "{case}");
                    assert_eq!(found[24..40], to_name.gid(hca_b.ip()), "{case}");
                }
            }
        }
        for hca in [&hca_a, &hca_b] {
            assert_eq!(hca.findings(), [""; 0], "{way:?}");
        }
    }
}

#[test]
fn an_hca_reaches_itself_by_every_entry() {
    for way in WAYS {
        for (index, (name, ..)) in ENTRIES.into_iter().enumerate() {
            let [hca, _other] = hcas(way);
            let (mut a, mut b) = (
                End::new(&hca, shape(Kind::Rc)),
                End::new(&hca, shape(Kind::Rc)),
            );
            connect(&a, path(index, name, &hca), b.qpn);
            connect(&b, path(index, name, &hca), a.qpn);
            b.post_receive(0, 64);
            a.write_wqe(WqeOpcode::SEND, 0, SIGNALLED, 0, &inline(b"me"));
            assert_eq!(a.run(1)[0].opcode(), CqeOpcode::REQ, "{way:?} {index}");
            assert_eq!(b.completion().opcode(), CqeOpcode::RESP_SEND);
            assert_eq!(b.data.read(0, 2), b"me");
        }
    }
}

#[test]
fn a_gid_that_no_port_has_exhausts_the_retries() {
    for way in WAYS {
        for (index, (name, ..)) in ENTRIES.into_iter().enumerate() {
            let [hca, _other] = hcas(way);
            let patience = Shape {
                ack_timeout: 8, // a millisecond
                retry_count: 0,
                ..shape(Kind::Rc)
            };
            let mut a = End::new(&hca, patience);
            let [x, y, z, last] = hca.ip().octets();
            let nobody = name.gid(Ipv4Addr::new(x, y, z, last ^ 0x40));
            connect(&a, path(index, name, &hca).with_rgid_rip(nobody), 0x77);
            a.write_wqe(WqeOpcode::SEND, 0, SIGNALLED, 0, &inline(b"hello"));
            let cqe = a.run(1)[0];
            assert_eq!(cqe.opcode(), CqeOpcode::REQ_ERR, "{way:?} {index}");
            let reason = cqe.as_error().reason();
            assert_eq!(reason, Syndrome::TRANSPORT_RETRY_EXC_ERR, "{way:?} {index}");
        }
    }
}

#[test]
fn paths_that_lead_nowhere_are_refused_by_reason() {
    let [hca_a, hca_b] = hcas(Medium::Memory);
    let (a, b) = (
        End::new(&hca_a, shape(Kind::Rc)),
        End::new(&hca_b, shape(Kind::Rc)),
    );
    a.init();
    let refused = |path: Ads| {
        let error = a.ready_to_receive_by(path, b.qpn, 7).unwrap_err();
        assert_eq!(error.errno(), libc::EREMOTEIO);
        error.to_string()
    };
    for (index, (name, roce, ..)) in ENTRIES.into_iter().enumerate() {
        for gid in [
            "::",
            "::ffff:0.0.0.0",
            "::ffff:224.0.0.1",
            "ff02::1",
            "2001:db8::1",
            "fe80::1",
        ] {
            let gid: std::net::Ipv6Addr = gid.parse().unwrap();
            let text = refused(path(index, name, &hca_b).with_rgid_rip(gid.octets()));
            assert!(
                text.contains("the remote GID is none of a"),
                "{gid}: {text}"
            );
        }
        if roce == 2 {
            let other = if name == Name::Ip {
                Name::LinkLocal
            } else {
                Name::Ip
            };
            let text = refused(path(index, other, &hca_b));
            assert!(
                text.contains("src_addr_index 1 (link-local), 3 (IPv4)"),
                "{index}: {text}"
            );
        }
    }
    for index in [4, 255] {
        let text = refused(path(index, Name::Ip, &hca_b));
        assert!(text.contains("no entry of the GID table: 0 to 3"), "{text}");
    }
    a.ready_to_receive_by(path(0, Name::LinkLocal, &hca_b), b.qpn, 7)
        .unwrap();
}

#[test]
fn datagrams_by_an_entry_that_is_not_there_are_gone() {
    for way in WAYS {
        let ([_hca_a, hca_b], mut a, mut b) = datagram_ends(way);
        b.post_receive(0, 128);
        let ip = hca_b.ip();
        for (index, gid, text) in [
            (4, Name::Ip.gid(ip), "lost"),
            (255, Name::LinkLocal.gid(ip), "lost"),
            // No IP packet has these two addresses.
            (1, Name::Ip.gid(ip), "lost"),
            (3, Name::LinkLocal.gid(ip), "lost"),
            (0, [0; 16], "lost"),
            (0, Name::LinkLocal.gid(ip), "here"),
        ] {
            let to = datagram_from(index, gid, b.qpn, QKEY);
            let rest = [to.as_slice(), &inline(text.as_bytes())].concat();
            a.write_wqe(WqeOpcode::SEND, 0, SIGNALLED, 0, &rest);
        }
        for cqe in a.run(6) {
            assert_eq!(cqe.opcode(), CqeOpcode::REQ, "{way:?}");
        }
        assert_eq!(b.completion().byte_cnt.get(), 44, "{way:?}");
        assert_eq!(
            b.data.read(40, 4),
            b"here",
            "{way:?}: the first that arrives"
        );
    }
}
