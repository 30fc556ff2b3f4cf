//! Send WQEs.

use super::input::Input;
use crate::{End, Kind, Shape, simulated_pair};
use mlx5_prm::qp::QpState;
use mlx5_prm::wqe::CtrlSeg;
use softhca::HcaConfig;
use softhca::device::{Access, Simulation};
use softhca::wire::memory::Network;
use std::time::Duration;

/// By which address WQEs name the data memory of both ends, and by which key: the same in every run.
pub const IOVA: u64 = 0x10_0000;

/// Turns of the engine for a WQE.
const TURNS: usize = 300;

/// Posts random WQEs between two ends. The first bytes of `data` say how the ends are made. The rest are WQEs: for each its number of
/// units, its flags and its bytes.
#[expect(unsafe_code, reason = "the ends own the memory that they register")]
pub fn wqes(data: &[u8]) {
    let mut input = Input(data);
    let how = input.u8();
    let kind = [Kind::Rc, Kind::Uc, Kind::Ud, Kind::Rc][usize::from(how >> 1 & 3)];
    let simulation = Simulation::new();
    let network = Network::default();
    let config = HcaConfig {
        loopback: how & 1 == 0,
        ..HcaConfig::default()
    };
    let hcas = simulated_pair(&simulation, &network, &config);
    let shape = Shape {
        kind,
        log_receive: Some(4),
        ack_timeout: 8,
        retry_count: 1,
        rnr_retry: 1,
        ..Shape::default()
    };
    let mut ends = [0, 1].map(|side| End::new(&hcas[side], shape.clone()));
    for end in &ends {
        let (address, bytes) = (end.data.address(), end.data.bytes());
        // SAFETY: the end closes its context before its memory goes.
        unsafe {
            end.context
                .reg_mr(end.pdn, address, bytes, IOVA, Access(15))
        }
        .unwrap();
    }
    let mut psn = 0;
    let connect = |ends: &[End; 2], psn| {
        ends[0].connect(hcas[1].gid(), ends[1].qpn, psn);
        ends[1].connect(hcas[0].gid(), ends[0].qpn, psn);
    };
    connect(&ends, psn);
    while !input.is_empty() {
        let flags = input.u8();
        let units = usize::from(input.u8() & 0x3f).max(1);
        let mut wqe = input.piece(units * 16).to_vec();
        wqe.resize(units * 16, 0);
        let [own, peer] = &mut ends;
        if flags & 1 == 0 {
            // The place and the QP are right.
            let mut ctrl: CtrlSeg = bytemuck::pod_read_unaligned(&wqe[..16]);
            let right = CtrlSeg::new(
                ctrl.opcode(),
                own.index,
                own.qpn,
                u8::try_from(units).unwrap(),
            );
            ctrl.opmod_idx_opcode = right.with_opmod(ctrl.opmod()).opmod_idx_opcode;
            ctrl.qpn_ds = right.qpn_ds;
            wqe[..16].copy_from_slice(bytemuck::bytes_of(&ctrl));
        }
        if flags & 2 != 0 {
            peer.post_receive(u64::from(flags) * 64, 4000);
        }
        own.write_raw(&wqe);
        own.post();
        let _ = simulation.run(TURNS);
        let failed = |end: &End| end.query().state() != u32::from(QpState::RTS.0);
        for end in &mut ends {
            while end.poll_for(Duration::ZERO, |_| true).is_some() {}
        }
        if ends.iter().any(failed) {
            psn = (psn + 0x1_0000) & 0xff_ffff;
            for end in &mut ends {
                end.reset();
            }
            connect(&ends, psn);
        }
    }
    drop(ends);
    assert_eq!(hcas.map(|hca| hca.live_objects().total()), [0, 0]);
}

/// Returns the keys by which WQEs name the data memory of their own end and of the peer.
#[expect(unsafe_code, reason = "the ends own the memory that they register")]
pub fn wqe_keys() -> (u32, u32) {
    let simulation = Simulation::new();
    let network = Network::default();
    let [own, peer] = simulated_pair(&simulation, &network, &HcaConfig::default()).map(|hca| {
        let end = End::new(&hca, Shape::default());
        let (address, bytes) = (end.data.address(), end.data.bytes());
        // SAFETY: the end closes its context before its memory goes.
        unsafe {
            end.context
                .reg_mr(end.pdn, address, bytes, IOVA, Access(15))
        }
        .unwrap()
        .rkey
    });
    (own, peer)
}
