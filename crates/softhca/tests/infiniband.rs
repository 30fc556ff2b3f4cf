//! The InfiniBand link layer: peers named by LID, or by GID with a GRH. They are in one process, or programs that are not part of
//! this project. A program that is missing is reported as skipped.

use mlx5_prm::be::{Be16, Be32};
use mlx5_prm::cmd::Opcode;
use mlx5_prm::cqe::{Cqe64, CqeOpcode};
use mlx5_prm::hca_cap::{CapType, QueryHcaCapIn, QueryHcaCapOut};
use mlx5_prm::qp::Ads;
use mlx5_prm::wqe::{CtrlSeg, DatagramSeg, WqeOpcode};
use softhca::link::Link;
use softhca::{Hca, HcaConfig};
use softhca_rig::tools::pair::{self, Place, Places};
use softhca_rig::tools::programs::{LIMIT, Scratch, devinfo, is_installed};
use softhca_rig::{End, Kind, QKEY, Shape, inline};
use std::net::Ipv4Addr;

const SIGNALLED: u8 = CtrlSeg::CE_ALWAYS;

fn infiniband(loopback: bool) -> HcaConfig {
    HcaConfig {
        loopback,
        link: Link::InfiniBand,
        ..HcaConfig::default()
    }
}

/// Returns the path to `to`: by LID alone, or by LID and GID, or by GID alone.
fn paths(to: &Hca) -> [Ads; 3] {
    let by_lid = Ads::default().with_rlid(to.lid().into()).with_sl(3);
    let by_both = by_lid
        .with_grh(1)
        .with_rgid_rip(to.gid())
        .with_hop_limit(64);
    [by_lid, by_both, by_both.with_rlid(0)]
}

fn shape(kind: Kind) -> Shape {
    Shape {
        kind,
        log_receive: Some(4),
        ..Shape::default()
    }
}

/// Two HCAs in one subnet with an end each.
fn ends(loopback: bool, kind: Kind) -> (Hca, Hca, End, End) {
    let hca_a = Hca::with_config(infiniband(loopback)).unwrap();
    let hca_b = Hca::with_config(infiniband(loopback)).unwrap();
    let (a, b) = (End::new(&hca_a, shape(kind)), End::new(&hca_b, shape(kind)));
    (hca_a, hca_b, a, b)
}

/// Two HCAs with three partitions.
fn partitioned(loopback: bool) -> [Hca; 2] {
    [(); 2].map(|()| {
        let pkeys = "0xffff,0x8001,0x0001".parse().unwrap();
        let config = infiniband(loopback);
        Hca::with_config(HcaConfig { pkeys, ..config }).unwrap()
    })
}

/// A connection of QPs at these indices of the table; whether a message arrives.
fn connects(loopback: bool, partitions: [u32; 2]) -> bool {
    let hcas = partitioned(loopback);
    let patience = || Shape {
        ack_timeout: 8, // a millisecond
        retry_count: 0,
        ..shape(Kind::Rc)
    };
    let [mut a, b] = hcas.each_ref().map(|hca| End::new(hca, patience()));
    for (end, to, qpn, index) in [
        (&a, &hcas[1], b.qpn, partitions[0]),
        (&b, &hcas[0], a.qpn, partitions[1]),
    ] {
        end.init_in(index).unwrap();
        let path = paths(to)[0].with_pkey_index(index);
        end.ready_to_receive_by(path, qpn, 7).unwrap();
        end.ready_to_send(7);
        assert_eq!(end.query().primary_address_path().pkey_index(), index);
    }
    a.write_inline(b"written", b.data.address(), b.keys.rkey);
    a.run(1)[0].opcode() == CqeOpcode::REQ
}

/// A datagram between QPs at these indices, and after it one from a full member of the receiver's partition; whether the first
/// arrives.
fn is_taken(loopback: bool, [from, to]: [u32; 2]) -> bool {
    let hcas = partitioned(loopback);
    let member = to.min(1);
    let end = |hca, index| {
        let end = End::new(hca, shape(Kind::Ud));
        end.init_in(index).unwrap();
        end.ready_to_receive_by(Ads::default(), 0, 0).unwrap();
        end.ready_to_send(7);
        end
    };
    let senders = [end(&hcas[0], from), end(&hcas[0], member)];
    let mut receiver = end(&hcas[1], to);
    receiver.post_receive(0, 128);
    let first = senders[0].qpn;
    for mut sender in senders {
        let to = DatagramSeg {
            qkey: Be32::new(QKEY),
            dqp_dct: Be32::new(DatagramSeg::EXTENDED | receiver.qpn),
            rlid: Be16::new(hcas[1].lid()),
            ..DatagramSeg::default()
        };
        let rest = [bytemuck::bytes_of(&to), &inline(b"hello")].concat();
        sender.write_wqe(WqeOpcode::SEND, 0, SIGNALLED, 0, &rest);
        assert_eq!(sender.run(1)[0].opcode(), CqeOpcode::REQ);
    }
    receiver.completion().flags_rqpn.get() & 0xff_ffff == first
}

#[test]
fn qps_of_one_partition_talk_unless_both_are_limited_members() {
    let (default, full, limited) = (0, 1, 2);
    for loopback in [true, false] {
        for (partitions, expected) in [
            ([default, default], true),
            ([full, full], true),
            ([full, limited], true),
            ([limited, full], true),
            ([limited, limited], false),
            ([default, full], false),
            ([full, default], false),
        ] {
            let case = format!("{partitions:?}, loopback {loopback}");
            assert_eq!(connects(loopback, partitions), expected, "{case}");
            assert_eq!(is_taken(loopback, partitions), expected, "{case}");
        }
    }
}

#[test]
fn a_partition_that_the_table_lacks_is_refused_in_init_and_rtr() {
    let (_hca_a, hca_b, a, b) = ends(true, Kind::Rc);
    for index in [1, 127, 0xffff] {
        let text = a.init_in(index).unwrap_err().to_string();
        assert!(text.contains("no entry of the P_Key table"), "{text}");
    }
    a.init();
    let path = paths(&hca_b)[0].with_pkey_index(1);
    let text = a
        .ready_to_receive_by(path, b.qpn, 7)
        .unwrap_err()
        .to_string();
    assert!(text.contains("no entry of the P_Key table"), "{text}");
    let ethernet = HcaConfig {
        pkeys: "0xffff,0x8001".parse().unwrap(),
        ..HcaConfig::default()
    };
    let text = Hca::with_config(ethernet).unwrap_err().to_string();
    assert!(
        text.starts_with("partition keys 0xffff,0x8001 are for InfiniBand"),
        "{text}"
    );
}

fn lid_of(ip: Ipv4Addr) -> u16 {
    (u32::from(ip) & 0xffff).try_into().unwrap()
}

#[test]
fn connections_are_made_by_lid_and_by_gid() {
    for loopback in [true, false] {
        for (way, kind) in [(0, Kind::Rc), (1, Kind::Rc), (2, Kind::Rc), (0, Kind::Uc)] {
            let (hca_a, hca_b, mut a, mut b) = ends(loopback, kind);
            for (end, to, qpn) in [(&a, &hca_b, b.qpn), (&b, &hca_a, a.qpn)] {
                let path = paths(to)[way];
                end.init();
                end.ready_to_receive_by(path, qpn, 7).unwrap();
                end.ready_to_send(7);
                let kept = *end.query().primary_address_path();
                assert_eq!(kept.rlid(), path.rlid());
                assert_eq!(kept.grh(), path.grh());
                assert_eq!(kept.rgid_rip(), path.rgid_rip());
                assert_eq!(kept.sl(), 3);
            }
            b.post_receive(0x100, 64);
            a.write_wqe(WqeOpcode::SEND, 0, SIGNALLED, 0, &inline(b"by name"));
            a.write_inline(b"written", b.data.address(), b.keys.rkey);
            for cqe in a.run(1) {
                assert_eq!(cqe.opcode(), CqeOpcode::REQ, "{way} {loopback}");
            }
            let cqe = b.completion();
            assert_eq!(cqe.opcode(), CqeOpcode::RESP_SEND);
            assert_eq!(cqe.slid.get(), lid_of(hca_a.ip()));
            assert_eq!(b.data.read(0x100, 7), b"by name");
            assert_eq!(hca_b.counters().packets_received == 0, loopback);
        }
    }
}

#[test]
fn paths_to_no_port_are_refused() {
    let (_hca_a, hca_b, a, b) = ends(true, Kind::Rc);
    a.init();
    let [by_lid, by_both, by_gid] = paths(&hca_b);
    let refused = [
        by_lid.with_rlid(0),
        by_lid.with_rlid(0xc000),
        by_lid.with_rlid(0xffff),
        by_both.with_rlid(u32::from(hca_b.lid()) ^ 0x100),
        by_both.with_src_addr_index(1),
        by_gid.with_rgid_rip(hca_b.ip().to_ipv6_mapped().octets()),
    ];
    for path in refused {
        let error = a.ready_to_receive_by(path, b.qpn, 7).unwrap_err();
        println!("{error}");
    }
    a.ready_to_receive_by(by_lid, b.qpn, 7).unwrap();
}

#[test]
fn a_datagram_brings_a_grh_if_it_was_sent_with_one() {
    for loopback in [true, false] {
        let (hca_a, hca_b, mut a, mut b) = ends(loopback, Kind::Ud);
        for end in [&a, &b] {
            end.init();
            end.ready_to_receive_by(Ads::default(), 0, 0).unwrap();
            end.ready_to_send(7);
        }
        for grh in [false, true] {
            let to = DatagramSeg {
                qkey: Be32::new(QKEY),
                dqp_dct: Be32::new(DatagramSeg::EXTENDED | b.qpn),
                rlid: Be16::new(hca_b.lid()),
                grh_gid_fl: Be32::new(if grh { DatagramSeg::GRH } else { 0 }),
                rgid: if grh { hca_b.gid() } else { [0; 16] },
                ..DatagramSeg::default()
            };
            b.data.write(0x100, &[0x5a; 40]);
            b.post_receive(0x100, 128);
            let rest = [bytemuck::bytes_of(&to), &inline(b"text")].concat();
            a.write_wqe(WqeOpcode::SEND, 0, SIGNALLED, 0, &rest);
            assert_eq!(a.run(1)[0].opcode(), CqeOpcode::REQ);
            let cqe = b.completion();
            assert_eq!(cqe.opcode(), CqeOpcode::RESP_SEND);
            assert_eq!(cqe.byte_cnt.get(), 44);
            assert_eq!(cqe.slid.get(), hca_a.lid());
            assert_eq!(cqe.flags_rqpn.get() & 0xff_ffff, a.qpn);
            assert_eq!(cqe.flags_rqpn.get() >> 24, u32::from(grh) << 4);
            assert_eq!(b.data.read(0x100 + 40, 4), b"text");
            let header = b.data.read(0x100, 40);
            if grh {
                assert_eq!(header[0] >> 4, 6);
                assert_eq!(header[4..7], [0, 12 + 8 + 4 + 4, 0x1b]);
                assert_eq!(header[8..24], hca_a.gid());
                assert_eq!(header[24..], hca_b.gid());
            } else {
                assert_eq!(header, [0x5a; 40]);
            }
        }
    }
}

#[test]
fn the_entry_is_where_libmlx5_reads_it() {
    // `struct mlx5_cqe64` in rdma-core's mlx5dv.h: slid after 22 bytes, flags_rqpn after 24.
    let cqe = Cqe64 {
        slid: Be16::new(0x1234),
        flags_rqpn: Be32::new(0x1056_789a),
        ..Cqe64::default()
    };
    let bytes = bytemuck::bytes_of(&cqe);
    assert_eq!(bytes[22..28], [0x12, 0x34, 0x10, 0x56, 0x78, 0x9a]);
}

#[test]
fn capabilities_are_those_of_an_infiniband_port() {
    for link in [Link::InfiniBand, Link::Ethernet] {
        let config = HcaConfig {
            link,
            ..HcaConfig::default()
        };
        let hca = Hca::with_config(config).unwrap();
        let context = hca.open().unwrap();
        let input = QueryHcaCapIn::default()
            .with_opcode(Opcode::QUERY_HCA_CAP.0.into())
            .with_op_mod(u32::from(CapType::GENERAL.0) << 1 | 1);
        let mut output = [0; QueryHcaCapOut::BYTES];
        context.devx_general(input.as_bytes(), &mut output).unwrap();
        let output = QueryHcaCapOut::from_bytes(&output).unwrap();
        let ethernet = u32::from(link == Link::Ethernet);
        assert_eq!(output.cmd_hca_cap().port_type(), ethernet);
        assert_eq!(output.cmd_hca_cap().roce(), ethernet);
        context.close();
    }
}

#[test]
fn addresses_without_a_lid_are_refused() {
    for (ip, lid) in [([127, 74, 0, 0], 0), ([127, 74, 0xc0, 0], 0xc000)] {
        let config = HcaConfig {
            ip: Some(ip.into()),
            ..infiniband(true)
        };
        let error = Hca::with_config(config).unwrap_err().to_string();
        let expected = format!(
            "{} has no LID: on InfiniBand the low 16 bits of the address are the LID, which is 0x1 to 0xbfff, not {lid:#x}",
            Ipv4Addr::from(ip)
        );
        assert_eq!(error, expected);
    }
}

/// Two addresses of a subnet, of which no other test knows.
fn places(test: u8) -> Places {
    let place = |last| Place {
        ip: Some(Ipv4Addr::new(127, 75, test, last)),
        environment: vec![("SOFTHCA_LINK", "ib".to_owned())],
        ..Place::default()
    };
    Places {
        server: place(1),
        client: place(2),
        host: Ipv4Addr::LOCALHOST,
    }
}

/// Runs a tool as server and client once for each set of options.
fn check(test: u8, tool: &str, package: &str, complaints: &[&str], runs: &[&str]) {
    if !is_installed(tool, package, tool) {
        return;
    }
    let scratch = Scratch::new();
    for run in runs {
        let options: Vec<_> = ["-d", "mlx5_0"]
            .into_iter()
            .chain(run.split_whitespace())
            .collect();
        let ended = pair::run(&scratch, &places(test), tool, &options, LIMIT);
        println!("{tool} {run}: {:.2} s", ended.took().as_secs_f64());
        if let Err(report) = ended.check(complaints) {
            panic!("{report}");
        }
        // The LID that the other sent it, as one tool or the other prints it.
        let lid = u16::from_be_bytes([test, 2]);
        let found = [format!("0x{lid:04x}"), format!("{lid:#x}")]
            .iter()
            .any(|text| ended.server.printed.contains(text));
        assert!(found, "{}", ended.server.report());
    }
}

const PINGPONG: &[&str] = &["invalid data", "Failed", "Couldn't", "CQ event for unknown"];
const PERFTEST: &[&str] = &["rror", "ailed", "ouldn't", "nable to"];

#[test]
fn ibv_rc_pingpong_needs_no_gid() {
    let runs = ["-c -n 300", "-e -c -n 100", "-g 0 -c -n 100"];
    check(1, "ibv_rc_pingpong", "ibverbs-utils", PINGPONG, &runs);
}

#[test]
fn ibv_uc_pingpong_needs_no_gid() {
    let runs = ["-c -n 300", "-g 0 -n 100"];
    check(2, "ibv_uc_pingpong", "ibverbs-utils", PINGPONG, &runs);
}

#[test]
fn ibv_ud_pingpong_needs_no_gid() {
    let runs = ["-c -n 300", "-g 0 -c -n 100", "-s 4096 -c -n 50"];
    check(3, "ibv_ud_pingpong", "ibverbs-utils", PINGPONG, &runs);
}

#[test]
fn ibv_srq_pingpong_needs_no_gid() {
    let runs = ["-c -n 50", "-g 0 -c -n 50"];
    check(4, "ibv_srq_pingpong", "ibverbs-utils", PINGPONG, &runs);
}

#[test]
fn perftest_needs_no_gid() {
    for (test, tool) in [(5, "ib_write_bw"), (6, "ib_send_lat")] {
        check(
            test,
            tool,
            "perftest",
            PERFTEST,
            &["-F -n 200", "-F -x 0 -n 200"],
        );
    }
    check(7, "ib_send_lat", "perftest", PERFTEST, &["-F -c UD -n 200"]);
}

#[test]
fn ibv_devinfo_shows_an_infiniband_port() {
    let port = [
        ("SOFTHCA_LINK", "ib"),
        ("SOFTHCA_IP", "127.76.1.8"),
        ("SOFTHCA_LMC", "3"),
    ];
    let Some(ended) = devinfo("ibv_devinfo of an InfiniBand port", &port) else {
        return;
    };
    assert!(ended.is_success(), "{}", ended.report());
    for (key, value) in [
        ("link_layer", "InfiniBand"),
        ("port_lid", "264"),
        ("port_lmc", "0x03"),
        ("sm_lid", "1"),
        ("gid_tbl_len", "1"),
        ("GID[  0]", "fe80:0000:0000:0000:0200:7fff:fe4c:0108"),
    ] {
        let line = ended
            .printed
            .lines()
            .find_map(|line| line.trim().strip_prefix(key))
            .unwrap_or_else(|| panic!("no {key}: {}", ended.report()));
        let shown = line.trim_start_matches([':', '\t', ' ']);
        assert_eq!(shown, value, "{}", ended.report());
    }
}

#[test]
fn an_address_without_a_lid_is_reported_to_the_user() {
    let port = [("SOFTHCA_LINK", "ib"), ("SOFTHCA_IP", "127.76.0.0")];
    let Some(ended) = devinfo("an address without a LID", &port) else {
        return;
    };
    assert!(
        ended.printed.contains("127.76.0.0 has no LID"),
        "{}",
        ended.report()
    );
}
