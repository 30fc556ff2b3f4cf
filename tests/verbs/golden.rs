//! The bytes of the commands that make and connect a QP, as the HCA gets them, for each kind of address. Bits are counted from the
//! first of the command, as in `mlx5_ifc.h` of rdma-core (`struct mlx5_ifc_create_qp_in_bits`, `mlx5_ifc_qpc_bits`,
//! `mlx5_ifc_ads_bits`): a bit that no line names is 0. `pyverbs_layouts` of mlx5-prm compares the offsets with the table of pyverbs.

use std::net::Ipv4Addr;

use mlx5_prm::cmd::Opcode;
use softhca::link::Link;
use softhca::profile::Profile;
use softhca::{Hca, HcaConfig};
use test_support::hca::hca_with;
use test_support::node::{Node, PSNS};
use warpverbs::verbs::{
    AddressVector, Gid, GlobalRoute, InfinibandAddress, Mtu, PathAttr, QpConfig, RoceAddress,
    SendAttr,
};

/// Bits of a command: where they begin, how many, their value, and what they mean.
type Field = (usize, usize, u64, &'static str);

/// The QP context in a transition.
const QPC: usize = 0xc0;
/// The primary address path in it.
const PATH: usize = QPC + 0xc0;

const UID: &str = "uid: the open context, set by the kernel";
const LAG: &str = "lag_tx_port_affinity: the port of a bond, 0 without one";

const PEER: u32 = 0x0a_bcde;
/// Options of enhanced connection establishment that the peer has. A software HCA has bits 0 and 1.
const PEER_ECE: u32 = 0b110;

/// The number that these bits of `command` are.
fn bits(command: &[u8], at: usize, width: usize) -> u64 {
    let bit = |at: usize| u64::from(command[at / 8] >> (7 - at % 8) & 1);
    (at..at + width).fold(0, |value, at| value << 1 | bit(at))
}

#[track_caller]
fn assert_golden(command: &[u8], fields: &[Field]) {
    let mut left = command.to_vec();
    for &(at, width, value, meaning) in fields {
        let found = bits(command, at, width);
        assert_eq!(found, value, "bit {at:#x}: {meaning}");
        for at in at..at + width {
            left[at / 8] &= !(1 << (7 - at % 8));
        }
    }
    let odd: Vec<String> = (0..8 * left.len())
        .filter(|at| bits(&left, *at, 1) == 1)
        .map(|at| format!("{at:#x}"))
        .collect();
    assert!(odd.is_empty(), "bits {} are set", odd.join(", "));
}

/// Returns what makes and connects a QP on `port` to a peer at `address`, by opcode in its order; and the number of the QP.
fn commands(hca: &Hca, port: u8, lag_port: u8, address: AddressVector) -> (Vec<Vec<u8>>, Made) {
    let node = Node::open_port(hca, port, 1 << 20).unwrap();
    let config = QpConfig::default()
        .with_own_counters(false)
        .with_lag_port(lag_port);
    // The register and the keys that all QPs of a node share are made before.
    drop(node.qp(&config).unwrap());
    hca.record_commands();
    let qp = node.qp(&config).unwrap();
    let made = Made {
        qpn: qp.qpn().into(),
        cqn: qp.layout().cqn.into(),
        port: port.into(),
        lag_port: lag_port.into(),
    };
    let path = PathAttr::new(PEER, address, PSNS[1])
        .with_mtu(Some(Mtu::B1024))
        .with_rail(3)
        .with_ece(PEER_ECE);
    let send = SendAttr::new(PSNS[0])
        .with_log_peer_reads(Some(2))
        .with_timeout(17);
    let qp = qp.init().unwrap().ready_to_receive(&path).unwrap();
    let qp = qp.ready_to_send(&send).unwrap();
    let all = hca.recorded_commands();
    drop(qp);
    (all, made)
}

struct Made {
    qpn: u64,
    cqn: u64,
    port: u64,
    lag_port: u64,
}

fn of(all: &[Vec<u8>], opcode: Opcode) -> &[u8] {
    let mut found = all
        .iter()
        .filter(|it| bits(it, 0, 16) == u64::from(opcode.0));
    let command = found.next().unwrap_or_else(|| panic!("no {opcode}"));
    assert!(found.next().is_none(), "{opcode} twice");
    command
}

/// A number that the HCA or the kernel has given: of it only the width is golden.
fn given(command: &[u8], at: usize, width: usize, meaning: &'static str) -> Field {
    (at, width, bits(command, at, width), meaning)
}

fn check_all_but_the_path(all: &[Vec<u8>], made: &Made) {
    let cq = of(all, Opcode::CREATE_CQ);
    assert_golden(
        cq,
        &[
            (0x00, 16, 0x400, "CREATE_CQ"),
            given(cq, 0x10, 16, UID),
            (0x86, 1, 1, "dbr_umem_valid: the record lies in a UMEM"),
            (0x8b, 1, 1, "cc: each CQE replaces the one before"),
            (0x8e, 1, 1, "oi: overrun is ignored"),
            given(cq, 0xa0, 32, "dbr_umem_id: the UMEM of the record"),
            (0xe3, 5, 0, "log_cq_size: one entry"),
            given(cq, 0xe8, 24, "uar_page: where it is armed"),
            given(cq, 0x120, 32, "c_eqn: the event queue of its vector"),
            given(cq, 0x240, 64, "dbr_addr: the record in its UMEM"),
            given(cq, 0x280, 64, "cq_umem_offset: the entry in its UMEM"),
            given(cq, 0x2c0, 32, "cq_umem_id: the UMEM of the entry"),
            (0x2e0, 1, 1, "cq_umem_valid: the entry lies in a UMEM"),
        ],
    );
    let create = of(all, Opcode::CREATE_QP);
    assert_golden(
        create,
        &[
            (0x00, 16, 0x500, "CREATE_QP"),
            given(create, 0x10, 16, UID),
            (QPC + 0x04, 4, made.lag_port, LAG),
            (QPC + 0x08, 8, 0, "st: RC"),
            (QPC + 0x13, 2, 3, "pm_state: migrated, no alternate path"),
            given(create, QPC + 0x28, 24, "pd: the domain"),
            (QPC + 0x51, 4, 10, "log_sq_size: 1,024 WQEBBs"),
            (QPC + 0x58, 2, 1, "ts_format: the device's default"),
            given(create, QPC + 0x68, 24, "uar_page: where it is rung"),
            (QPC + 0x3e8, 24, made.cqn, "cqn_snd: the CQ above"),
            (QPC + 0x4e8, 24, made.cqn, "cqn_rcv: the same"),
            given(create, QPC + 0x500, 64, "dbr_addr: the record in its UMEM"),
            (QPC + 0x565, 3, 3, "rq_type: none"),
            (
                QPC + 0x683,
                1,
                1,
                "dbr_umem_valid: the record lies in a UMEM",
            ),
            given(
                create,
                QPC + 0x720,
                32,
                "dbr_umem_id: the UMEM of the record",
            ),
            given(create, 0x800, 64, "wq_umem_offset: the ring in its UMEM"),
            given(create, 0x840, 32, "wq_umem_id: the UMEM of the ring"),
            (0x860, 1, 1, "wq_umem_valid: the ring lies in a UMEM"),
        ],
    );
    let init = of(all, Opcode::RST2INIT_QP);
    assert_golden(
        init,
        &[
            (0x00, 16, 0x502, "RST2INIT_QP"),
            given(init, 0x10, 16, UID),
            (0x48, 24, made.qpn, "qpn"),
            (QPC + 0x04, 4, made.lag_port, LAG),
            (QPC + 0x13, 2, 3, "pm_state: migrated, no alternate path"),
            (PATH + 0x10, 16, 0, "pkey_index: the first key of the port"),
            (
                PATH + 0x128,
                8,
                made.port,
                "vhca_port_num: the port of the device",
            ),
            (QPC + 0x48c, 4, 3, "atomic_mode: up to 8 bytes"),
            (
                QPC + 0x490,
                3,
                7,
                "rre, rwe, rae: the peer may read, write, do atomics",
            ),
        ],
    );
    let rts = of(all, Opcode::RTR2RTS_QP);
    assert_golden(
        rts,
        &[
            (0x00, 16, 0x504, "RTR2RTS_QP"),
            given(rts, 0x10, 16, UID),
            (0x48, 24, made.qpn, "qpn"),
            (0xa0, 32, 0b010, "ece: the options that both ends have"),
            (PATH + 0x40, 5, 17, "ack_timeout: 4.096 us * 2^17"),
            (QPC + 0x388, 3, 2, "log_sra_max: what the peer takes"),
            (QPC + 0x38d, 3, 7, "retry_count"),
            (QPC + 0x390, 3, 7, "rnr_retry: without end"),
            (QPC + 0x3c8, 24, PSNS[0].into(), "next_send_psn"),
        ],
    );
    check_the_port_of_a_bond(all, made);
}

/// RTS2RTS_QP, which names the port of a bond again; no other QP gets it.
fn check_the_port_of_a_bond(all: &[Vec<u8>], made: &Made) {
    if made.lag_port == 0 {
        let opcode = u64::from(Opcode::RTS2RTS_QP.0);
        assert!(all.iter().all(|command| bits(command, 0, 16) != opcode));
        return;
    }
    let again = of(all, Opcode::RTS2RTS_QP);
    assert_golden(
        again,
        &[
            (0x00, 16, 0x505, "RTS2RTS_QP"),
            given(again, 0x10, 16, UID),
            (0x48, 24, made.qpn, "qpn"),
            (0x80, 32, 1 << 15, "opt_param_mask: lag_tx_port_affinity"),
            (QPC + 0x04, 4, made.lag_port, LAG),
        ],
    );
}

/// INIT2RTR_QP without the address path.
fn receives(command: &[u8], made: &Made) -> Vec<Field> {
    let rights = 1 << 1 | 1 << 2 | 1 << 3;
    let affinity = u64::from(made.lag_port != 0) << 15;
    vec![
        (0x00, 16, 0x503, "INIT2RTR_QP"),
        given(command, 0x10, 16, UID),
        (0x48, 24, made.qpn, "qpn"),
        (0xa0, 32, 0b010, "ece: the options that both ends have"),
        (
            0x80,
            32,
            rights | affinity,
            "opt_param_mask: rre, rae, rwe; of a bond lag_tx_port_affinity",
        ),
        (QPC + 0x04, 4, made.lag_port, LAG),
        (QPC + 0x40, 3, 3, "mtu: 1,024 bytes"),
        (QPC + 0x43, 5, 30, "log_msg_max: messages of 1 GiB"),
        (QPC + 0xa8, 24, PEER.into(), "remote_qpn"),
        (
            PATH + 0x128,
            8,
            made.port,
            "vhca_port_num: the port of the device",
        ),
        (
            QPC + 0x488,
            3,
            4,
            "log_rra_max: 16 reads and atomics at once",
        ),
        (QPC + 0x48c, 4, 3, "atomic_mode: up to 8 bytes"),
        (
            QPC + 0x490,
            3,
            7,
            "rre, rwe, rae: the peer may read, write, do atomics",
        ),
        (QPC + 0x4a3, 5, 12, "min_rnr_nak: 0.64 ms"),
        (QPC + 0x4a8, 24, PSNS[1].into(), "next_rcv_psn"),
    ]
}

const MAC: [u8; 6] = [2, 0, 10, 0, 0, 9];

/// A RoCEv2 path from entry `source` of the GID table to `to`, of 16 bytes in two halves.
fn roce(command: &[u8], source: u64, [high, low]: [u64; 2]) -> Vec<Field> {
    vec![
        (
            PATH + 0x48,
            8,
            source,
            "src_addr_index: the GID that packets come from",
        ),
        (PATH + 0x58, 8, 9, "hop_limit"),
        (PATH + 0x64, 8, 104, "tclass"),
        (PATH + 0x80, 64, high, "rgid_rip, upper half"),
        (PATH + 0xc0, 64, low, "rgid_rip, lower half"),
        (PATH + 0x10a, 6, 26, "dscp: upper six bits of the class"),
        given(
            command,
            PATH + 0x110,
            16,
            "udp_sport: spreads QPs over paths",
        ),
        (PATH + 0x121, 3, 5, "eth_prio"),
        (
            PATH + 0x130,
            48,
            0x0200_0a00_0009,
            "rmac: the peer's, or its router's",
        ),
    ]
}

fn check(hca: &Hca, address: AddressVector, path: impl FnOnce(&[u8]) -> Vec<Field>) {
    check_from(hca, 1, 0, address, path);
}

/// As `check`, from this port of the HCA, and this one of a link aggregation group.
fn check_from(
    hca: &Hca,
    port: u8,
    lag_port: u8,
    address: AddressVector,
    path: impl FnOnce(&[u8]) -> Vec<Field>,
) {
    let (all, made) = commands(hca, port, lag_port, address);
    check_all_but_the_path(&all, &made);
    let rtr = of(&all, Opcode::INIT2RTR_QP);
    let fields = [receives(rtr, &made), path(rtr)].concat();
    assert_golden(rtr, &fields);
}

fn by_gid(address: &str) -> AddressVector {
    let gid = Gid(address.parse::<std::net::Ipv6Addr>().unwrap().octets());
    RoceAddress::new(gid)
        .with_remote_mac(Some(MAC))
        .with_hop_limit(9)
        .with_traffic_class(104)
        .with_priority(5)
        .into()
}

#[test]
fn a_path_over_ipv4() {
    let hca = hca_with(HcaConfig::default());
    check(&hca, by_gid("::ffff:127.9.8.7"), |rtr| {
        let path = roce(rtr, 3, [0, 0xffff_7f09_0807]);
        assert!(bits(rtr, PATH + 0x110, 16) >= 0xc000, "a port for flows");
        path
    });
}

#[test]
fn a_path_from_a_port_of_a_bond() {
    let hca = hca_with(HcaConfig {
        profile: Profile::ConnectX7Lag,
        ..HcaConfig::default()
    });
    check_from(&hca, 1, 2, by_gid("::ffff:127.9.8.7"), |rtr| {
        roce(rtr, 3, [0, 0xffff_7f09_0807])
    });
}

#[test]
fn a_path_from_a_bond_in_hash_mode_names_no_port() {
    let hca = hca_with(HcaConfig {
        profile: Profile::ConnectX7LagHash,
        ..HcaConfig::default()
    });
    check(&hca, by_gid("::ffff:127.9.8.7"), |rtr| {
        roce(rtr, 3, [0, 0xffff_7f09_0807])
    });
}

#[test]
fn a_path_over_ipv6() {
    let hca = hca_with(HcaConfig::default());
    // Entry 1 of a software HCA is its link-local IPv6 address.
    let to = Gid(softhca_link_local(Ipv4Addr::new(127, 9, 8, 7)));
    let [high, low] = halves(to);
    check(&hca, by_gid(&to.to_string()), |rtr| {
        roce(rtr, 1, [high, low])
    });
}

/// `fe80::` with the address, as [`Hca`] has it.
fn softhca_link_local(ip: Ipv4Addr) -> [u8; 16] {
    let [a, b, c, d] = ip.octets();
    [0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, a, 0xff, 0xfe, b, c, d]
}

fn halves(gid: Gid) -> [u64; 2] {
    bytemuck::cast::<_, [[u8; 8]; 2]>(gid.0).map(u64::from_be_bytes)
}

fn infiniband() -> Hca {
    hca_with(HcaConfig {
        link: Link::InfiniBand,
        ..HcaConfig::default()
    })
}

#[test]
fn a_path_from_the_second_port() {
    let hca = hca_with(HcaConfig {
        ports: 2,
        ..HcaConfig::default()
    });
    check_from(&hca, 2, 0, by_gid("::ffff:127.9.8.7"), |rtr| {
        roce(rtr, 3, [0, 0xffff_7f09_0807])
    });
}

#[test]
fn a_path_from_a_lid_of_the_second_port() {
    let hca = hca_with(HcaConfig {
        ports: 2,
        link: Link::InfiniBand,
        lmc: 3,
        ..HcaConfig::default()
    });
    for path_bits in [0, 7] {
        let address = InfinibandAddress::new(0x123).with_path_bits(path_bits);
        check_from(&hca, 2, 0, address.into(), |_| {
            vec![
                (PATH + 0x29, 7, path_bits.into(), "mlid: the path bits"),
                (PATH + 0x30, 16, 0x123, "rlid"),
            ]
        });
    }
}

#[test]
fn a_path_by_lid() {
    let (hca, peer) = (infiniband(), infiniband());
    let address = InfinibandAddress::new(peer.lid()).with_service_level(3);
    check(&hca, address.into(), |_| {
        vec![
            (PATH + 0x30, 16, peer.lid().into(), "rlid"),
            (PATH + 0x124, 4, 3, "sl"),
        ]
    });
}

#[test]
fn a_path_by_lid_and_gid() {
    let (hca, peer) = (infiniband(), infiniband());
    let route = GlobalRoute::new(Gid(peer.gid()))
        .with_hop_limit(7)
        .with_traffic_class(104);
    let address = InfinibandAddress::new(peer.lid()).with_grh(Some(route));
    let [high, low] = halves(Gid(peer.gid()));
    check(&hca, address.into(), |_| {
        vec![
            (PATH + 0x28, 1, 1, "grh"),
            (PATH + 0x30, 16, peer.lid().into(), "rlid"),
            (PATH + 0x48, 8, 0, "src_addr_index"),
            (PATH + 0x58, 8, 7, "hop_limit"),
            (PATH + 0x64, 8, 104, "tclass"),
            (PATH + 0x80, 64, high, "rgid_rip, upper half"),
            (PATH + 0xc0, 64, low, "rgid_rip, lower half"),
        ]
    });
}

#[test]
fn an_address_that_the_port_cannot_reach_is_refused_before_a_command() {
    let hca = infiniband();
    let node = Node::open(&hca, 1 << 20).unwrap();
    let mut qp = node.qp(&QpConfig::default()).unwrap().init().unwrap();
    let lid = InfinibandAddress::new(7);
    let bad: [(AddressVector, &str); 3] = [
        (
            Gid([1; 16]).into(),
            "link layer of the peer is Ethernet; it must be InfiniBand",
        ),
        (
            lid.with_path_bits(1).into(),
            "path bits is 1; it must be 0 to 0, as the port's LMC is 0",
        ),
        (
            lid.with_grh(Some(GlobalRoute::new(Gid([1; 16])).with_gid_index(1)))
                .into(),
            "GID index is 1; it must be one of [0]",
        ),
    ];
    hca.record_commands();
    for (address, reason) in bad {
        let path = PathAttr::new(PEER, address, 0);
        let refused = qp.ready_to_receive(&path).unwrap_err();
        let text = refused.source.to_string();
        assert!(text.starts_with(reason), "{text}");
        qp = refused.qp;
    }
    assert_eq!(hca.recorded_commands().len(), 0);
}
