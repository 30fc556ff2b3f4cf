//! Packets.

use super::input::Input;
use super::wqes::IOVA;
use crate::{self as rig, End, Kind, Shape};
use mlx5_prm::qp::QpState;
use mlx5_prm::wqe::{CtrlSeg, WqeOpcode};
use softhca::HcaConfig;
use softhca::device::{Access, Simulation};
use softhca::wire::carrier::Carrier;
use softhca::wire::config::CarrierConfig;
use softhca::wire::icrc::Flow;
use softhca::wire::memory::Network;
use std::net::Ipv4Addr;

const DEVICE: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const PEER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
const PEER_QPN: u32 = 0x42;
const FIRST_PSN: u32 = 0x1000;

/// What kind of QP; then packets: flags, length, bytes from BTH to payload.
#[expect(unsafe_code, reason = "the end owns the memory that it registers")]
pub fn packets(data: &[u8]) {
    let mut input = Input(data);
    let simulation = Simulation::new();
    let network = Network::default();
    let mut wire = network.plug(PEER).unwrap();
    let hca = simulation
        .hca(&HcaConfig {
            ip: Some(DEVICE),
            carrier: CarrierConfig::Memory(network.clone()),
            ..HcaConfig::default()
        })
        .unwrap();
    let kind = [Kind::Rc, Kind::Uc, Kind::Ud, Kind::Rc][usize::from(input.u8() & 3)];
    let mut end = End::new(
        &hca,
        Shape {
            kind,
            log_receive: Some(4),
            ..Shape::default()
        },
    );
    let (address, bytes) = (end.data.address(), end.data.bytes());
    // SAFETY: the end closes its context before its memory goes.
    unsafe {
        end.context
            .reg_mr(end.pdn, address, bytes, IOVA, Access(15))
    }
    .unwrap();
    let mut gid = [0; 16];
    gid[10..12].fill(0xff);
    gid[12..].copy_from_slice(&PEER.octets());
    end.connect(gid, PEER_QPN, FIRST_PSN);
    let mut now_ns = simulation.now_ns();
    while !input.is_empty() {
        let flags = input.u8();
        let length = usize::from(input.u16() % 4200);
        let mut packet = input.piece(length).to_vec();
        if flags & 1 == 0 && packet.len() >= 12 {
            // For the QP, with a number that is near.
            packet[5..8].copy_from_slice(&end.qpn.to_be_bytes()[1..]);
            let expected = end.query().next_rcv_psn();
            let psn = expected.wrapping_add(u32::from(packet[11] & 3)) & 0xff_ffff;
            packet[9..12].copy_from_slice(&psn.to_be_bytes()[1..]);
        }
        if flags & 2 != 0 {
            end.post_receive(u64::from(flags) * 64, 4000);
        }
        if flags & 4 != 0 && end.query().state() == u32::from(QpState::RTS.0) && end.index < 60 {
            post(&mut end, flags);
        }
        if flags & 8 == 0 {
            packet.resize(packet.len().next_multiple_of(4), 0);
            let icrc = Flow::v4(PEER, DEVICE).icrc(&packet);
            packet.extend(icrc.to_le_bytes());
        }
        let sink = wire.sink();
        if let Some(slot) = sink.slot() {
            slot[..packet.len()].copy_from_slice(&packet);
            sink.commit(packet.len(), DEVICE.into());
        }
        wire.flush(now_ns);
        let step = simulation.step(now_ns);
        if flags & 0x10 != 0 {
            now_ns = step.deadline_ns.unwrap_or(now_ns);
        }
        let _ = wire.receive(now_ns, &mut |_, _| {});
    }
    drop(end);
    assert_eq!(hca.live_objects().total(), 0);
}

/// A READ, an atomic or a SEND whose answer may be among the packets.
fn post(end: &mut End, flags: u8) {
    let place = rig::data(8, end.keys.lkey, end.data.address());
    let remote = rig::raddr(0x1000, 0x77);
    let rest = match flags >> 5 & 3 {
        0 => [remote.as_slice(), &place].concat(),
        1 => [remote.as_slice(), &[0; 16], &place].concat(),
        _ => place.to_vec(),
    };
    let opcode = match flags >> 5 & 3 {
        0 => WqeOpcode::RDMA_READ,
        1 => WqeOpcode::ATOMIC_FA,
        _ => WqeOpcode::SEND,
    };
    end.write_wqe(opcode, 0, CtrlSeg::CE_ALWAYS, 0, &rest);
    end.post();
}
