//! Ports of InfiniBand with several LIDs: the path bits of a QP choose the LID that its packets leave from.

use mlx5_prm::be::{Be16, Be32};
use mlx5_prm::cqe::CqeOpcode;
use mlx5_prm::qp::Ads;
use mlx5_prm::wqe::{CtrlSeg, DatagramSeg, WqeOpcode};
use softhca::link::Link;
use softhca::wire::config::CarrierConfig;
use softhca::{Hca, HcaConfig};
use softhca_rig::{End, Kind, QKEY, inline};
use std::net::Ipv4Addr;

const SIGNALLED: u8 = CtrlSeg::CE_ALWAYS;

fn with_lmc(lmc: u8, loopback: bool) -> HcaConfig {
    HcaConfig {
        loopback,
        link: Link::InfiniBand,
        lmc,
        ..HcaConfig::default()
    }
}

fn lid(hca: &Hca, path_bits: u8) -> u16 {
    hca.lid() | u16::from(path_bits)
}

/// Returns the path from one LID to the LID of `to` with these path bits.
fn path(own: u8, to: &Hca, theirs: u8, grh: bool) -> Ads {
    let by_lid = Ads::default()
        .with_mlid(own.into())
        .with_rlid(lid(to, theirs).into());
    if grh {
        by_lid
            .with_grh(1)
            .with_rgid_rip(to.gid())
            .with_hop_limit(64)
    } else {
        by_lid
    }
}

/// Packets sent and received by the LID with these path bits, and by all others.
fn traffic(hca: &Hca, path_bits: u8) -> ([u64; 2], [u64; 2]) {
    let (mut own, mut others) = ([0; 2], [0; 2]);
    for (lid, bits) in hca.port_counters(1).unwrap().lids.iter().zip(0..) {
        let sum = if bits == path_bits {
            &mut own
        } else {
            &mut others
        };
        sum[0] += lid.sent;
        sum[1] += lid.received;
    }
    (own, others)
}

#[test]
fn packets_leave_from_the_lid_of_the_path_bits_and_go_to_that_of_the_path() {
    for (lmc, bits) in [
        (0, [0, 0]),
        (1, [0, 1]),
        (3, [0, 0]),
        (3, [7, 2]),
        (7, [127, 64]),
    ] {
        for (loopback, grh) in [(true, false), (false, false), (false, true)] {
            let hcas = [(); 2].map(|()| Hca::with_config(with_lmc(lmc, loopback)).unwrap());
            let mut ends = hcas.each_ref().map(|hca| End::hasty(hca, Kind::Rc));
            let qpns = ends.each_ref().map(|end| end.qpn);
            for side in [0, 1] {
                let path = path(bits[side], &hcas[1 - side], bits[1 - side], grh);
                ends[side].init();
                ends[side]
                    .ready_to_receive_by(path, qpns[1 - side], 7)
                    .unwrap();
                ends[side].ready_to_send(7);
                let kept = *ends[side].query().primary_address_path();
                assert_eq!(kept.mlid(), u32::from(bits[side]));
            }
            let case = format!("LMC {lmc}, {bits:?}, loopback {loopback}, GRH {grh}");
            let [a, b] = &mut ends;
            b.post_receive(0x100, 64);
            a.write_wqe(WqeOpcode::SEND, 0, SIGNALLED, 0, &inline(b"by path"));
            assert_eq!(a.run(1)[0].opcode(), CqeOpcode::REQ, "{case}");
            let cqe = b.completion();
            assert_eq!(cqe.opcode(), CqeOpcode::RESP_SEND);
            assert_eq!(cqe.slid.get(), lid(&hcas[0], bits[0]), "{case}");
            assert_eq!(cqe.ml_path, bits[1], "{case}");
            for (hca, path_bits) in hcas.iter().zip(bits) {
                assert_eq!(hca.port_counters(1).unwrap().lids.len(), 1 << lmc);
                let (own, others) = traffic(hca, path_bits);
                assert_eq!(others, [0, 0], "{case}");
                assert_eq!(own.iter().all(|packets| *packets > 0), !loopback, "{case}");
            }
        }
    }
}

#[test]
fn path_bits_beyond_the_lmc_are_refused() {
    for (lmc, beyond) in [(0, 1), (3, 8), (3, 127), (6, 64)] {
        let hca = Hca::with_config(with_lmc(lmc, true)).unwrap();
        let end = End::hasty(&hca, Kind::Rc);
        end.init();
        let refused = end
            .ready_to_receive_by(path(beyond, &hca, 0, false), end.qpn, 7)
            .unwrap_err()
            .to_string();
        assert!(
            refused.contains("mlid (the path bits) is not less than 2^LMC"),
            "{refused}"
        );
        let largest = (1u8 << lmc) - 1;
        end.ready_to_receive_by(path(largest, &hca, largest, false), end.qpn, 7)
            .unwrap();
    }
}

#[test]
fn a_qp_takes_no_packet_between_other_lids_than_its_own() {
    for loopback in [true, false] {
        // The peer sends from LID 2 to LID 5, and both are wrong in turn.
        for (own, theirs, arrives) in [(5, 2, true), (4, 2, false), (5, 3, false)] {
            let hcas = [(); 2].map(|()| Hca::with_config(with_lmc(3, loopback)).unwrap());
            let [mut a, b] = hcas.each_ref().map(|hca| End::hasty(hca, Kind::Rc));
            for (end, path, qpn) in [
                (&a, path(2, &hcas[1], 5, false), b.qpn),
                (&b, path(own, &hcas[0], theirs, false), a.qpn),
            ] {
                end.init();
                end.ready_to_receive_by(path, qpn, 7).unwrap();
                end.ready_to_send(7);
            }
            a.write_inline(b"written", b.data.address(), b.keys.rkey);
            let expected = if arrives {
                CqeOpcode::REQ
            } else {
                CqeOpcode::REQ_ERR
            };
            let case = format!("{own} {theirs}, loopback {loopback}");
            assert_eq!(a.run(1)[0].opcode(), expected, "{case}");
            let data = b.data.read(0, 7);
            assert_eq!(data == b"written", arrives, "{case}");
        }
    }
}

#[test]
fn a_datagram_names_the_lids_of_both_ends() {
    for loopback in [true, false] {
        let hcas = [(); 2].map(|()| Hca::with_config(with_lmc(2, loopback)).unwrap());
        let [mut a, mut b] = hcas.each_ref().map(|hca| End::hasty(hca, Kind::Ud));
        for end in [&a, &b] {
            end.init();
            end.ready_to_receive_by(Ads::default(), 0, 0).unwrap();
            end.ready_to_send(7);
        }
        // A WQE is not refused. With bits that the port does not have nothing arrives.
        for (from, to, grh) in [(5, 2, true), (0, 3, false), (3, 0, true)] {
            let segment = DatagramSeg {
                qkey: Be32::new(QKEY),
                dqp_dct: Be32::new(DatagramSeg::EXTENDED | b.qpn),
                fl_mlid: from,
                rlid: Be16::new(lid(&hcas[1], to)),
                grh_gid_fl: Be32::new(if grh { DatagramSeg::GRH } else { 0 }),
                rgid: if grh { hcas[1].gid() } else { [0; 16] },
                ..DatagramSeg::default()
            };
            b.post_receive(0x100, 128);
            let rest = [bytemuck::bytes_of(&segment), &inline(b"text")].concat();
            a.write_wqe(WqeOpcode::SEND, 0, SIGNALLED, 0, &rest);
            assert_eq!(a.run(1)[0].opcode(), CqeOpcode::REQ);
            if from >= 4 {
                continue;
            }
            let cqe = b.completion();
            assert_eq!(cqe.slid.get(), lid(&hcas[0], from));
            assert_eq!(cqe.ml_path, to);
            if grh {
                let header = b.data.read(0x100, 40);
                assert_eq!(
                    header[8..24],
                    hcas[0].gid(),
                    "of the port, for all its LIDs"
                );
                assert_eq!(header[24..], hcas[1].gid());
            }
        }
    }
}

#[test]
fn an_lmc_that_cannot_be_is_refused_with_value_and_limit() {
    let refused = |config: HcaConfig| Hca::with_config(config).unwrap_err().to_string();
    assert_eq!(refused(with_lmc(8, true)), "LMC is 8; it must be 0 to 7");
    let ethernet = HcaConfig {
        link: Link::Ethernet,
        ..with_lmc(1, true)
    };
    assert_eq!(
        refused(ethernet),
        "LMC is 1; on Ethernet, where a port has no LID, it must be 0"
    );
    let in_the_middle = HcaConfig {
        ip: Some(Ipv4Addr::new(127, 75, 1, 13)),
        ..with_lmc(3, true)
    };
    assert_eq!(
        refused(in_the_middle),
        "127.75.1.13 is not the first of 8 addresses: with LMC 3 its last 3 bits are 0b101; they must be 0"
    );
    let frames = HcaConfig {
        ip: Some(Ipv4Addr::new(127, 75, 1, 16)),
        carrier: CarrierConfig::Packet {
            interface: "lo".to_owned(),
        },
        ..with_lmc(3, true)
    };
    assert_eq!(
        refused(frames),
        "LMC is 3; it must be 0 with a carrier of Ethernet frames, which has one address"
    );
}
