//! QPs made by `verbs` execute work: WQEs built here byte by byte, doorbell record, doorbell register, CQE.

// UNSAFETY: stores to a doorbell register.
#![expect(unsafe_code, reason = "a device register")]

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use mlx5_prm::be::{Be32, Be64};
use mlx5_prm::cqe::{Cqe64, CqeOpcode, Syndrome};
use mlx5_prm::doorbell::{doorbell_value, qp_record};
use mlx5_prm::wqe::{CtrlSeg, DataSeg, RaddrSeg, WqeOpcode};
use softhca::Hca;
use test_support::hca::{hca, kick};
use test_support::limits::HANG;
use test_support::node::{Node, Window, connect, connect_reset};
use warpverbs::verbs::{Qp, QpConfig, QpLayout, QpState, Rts};

const WINDOW: u16 = 8192;

/// One end: an HCA, a node, a registered window.
struct End {
    window: Window,
    node: Node,
    hca: Hca,
}

impl End {
    fn new() -> Self {
        let hca = hca();
        let node = Node::open(&hca, 1 << 20).unwrap();
        let window = node.window(WINDOW.into()).unwrap();
        Self { window, node, hca }
    }

    fn fill(&self, byte: u8) {
        self.node
            .gpu
            .write(self.window.addr(), &[byte; WINDOW as usize])
            .unwrap();
    }

    fn byte(&self, offset: u64) -> u8 {
        let mut out = [0];
        self.node
            .gpu
            .read(self.window.addr() + offset, &mut out)
            .unwrap();
        out[0]
    }
}

/// Posts on one QP, whose next WQEBB has this 16-bit index.
struct Poster<'a> {
    end: &'a End,
    layout: QpLayout,
    next: u16,
}

impl<'a> Poster<'a> {
    fn new(end: &'a End, qp: &Qp<Rts>) -> Self {
        Self {
            end,
            layout: *qp.layout(),
            next: 0,
        }
    }

    /// Writes a signalled RDMA WRITE of the whole window into the ring, and the doorbell record; does not ring.
    fn write(&mut self, peer: &End, rkey: u32) -> u16 {
        let index = self.next;
        let mut ctrl = CtrlSeg::new(WqeOpcode::RDMA_WRITE, index, self.layout.qpn, 3);
        ctrl.fm_ce_se = CtrlSeg::CE_ALWAYS;
        let raddr = RaddrSeg {
            raddr: Be64::new(peer.window.addr()),
            rkey: Be32::new(rkey),
            ..RaddrSeg::default()
        };
        let data = DataSeg {
            byte_count: Be32::new(WINDOW.into()),
            lkey: Be32::new(self.end.window.lkey()),
            addr: Be64::new(self.end.window.addr()),
        };
        let gpu = &self.end.node.gpu;
        let place = self.layout.sq_addr + u64::from(u32::from(index) % self.layout.depth) * 64;
        let segments = [
            bytemuck::bytes_of(&ctrl),
            bytemuck::bytes_of(&raddr),
            bytemuck::bytes_of(&data),
        ];
        gpu.write(place, &segments.concat()).unwrap();
        self.next = index.wrapping_add(1);
        let record = self.layout.dbrec_addr + qp_record::SND as u64;
        gpu.write(record, &u32::from(self.next).to_be_bytes())
            .unwrap();
        index
    }

    fn ring(&self) {
        let addr = usize::try_from(self.layout.doorbell_addr).unwrap();
        let register = std::ptr::with_exposed_provenance_mut(addr);
        let value = doorbell_value(self.next, self.layout.qpn);
        // SAFETY: the register is mapped while the QP lives, and only stored to. Release: after ring and record.
        unsafe { AtomicU64::from_ptr(register) }.store(value, Ordering::Release);
        kick();
    }

    /// The newest completion, once it is that of `index`; None after `patience`.
    fn completion(&self, index: u16, patience: Duration) -> Option<Cqe64> {
        let deadline = Instant::now() + patience;
        let read = || -> Cqe64 {
            let mut bytes = [0; 64];
            let gpu = &self.end.node.gpu;
            gpu.read(self.layout.cqe_addr, &mut bytes).unwrap();
            bytemuck::pod_read_unaligned(&bytes)
        };
        while Instant::now() < deadline {
            let cqe = read();
            if cqe.opcode() != CqeOpcode::INVALID && cqe.wqe_counter.get() == index {
                // The last word is written last: what is in front of it is whole only now.
                return Some(read());
            }
            std::thread::yield_now();
        }
        None
    }
}

#[test]
fn a_write_arrives_when_it_is_rung_and_not_before() {
    let (a, b) = (End::new(), End::new());
    let [qp, _peer] = connect([&a.node, &b.node], &QpConfig::default()).unwrap();
    a.fill(0x5a);
    let mut poster = Poster::new(&a, &qp);
    let index = poster.write(&b, b.window.rkey());
    assert!(
        poster
            .completion(index, Duration::from_millis(50))
            .is_none(),
        "without a doorbell"
    );
    assert_eq!(b.byte(0), 0);
    poster.ring();
    let cqe = poster.completion(index, HANG).expect("a completion");
    assert_eq!(cqe.opcode(), CqeOpcode::REQ);
    assert_eq!((b.byte(0), b.byte(u64::from(WINDOW) - 1)), (0x5a, 0x5a));
    assert_eq!(qp.query().unwrap().hw_sq_wqebb_counter, 1);
    assert_eq!((a.hca.findings(), b.hca.findings()), (vec![], vec![]));
}

#[test]
fn a_wrong_key_is_an_error_cqe_and_a_reset_with_a_new_base_works_again() {
    let (a, b) = (End::new(), End::new());
    let qps = connect([&a.node, &b.node], &QpConfig::default()).unwrap();
    let mut poster = Poster::new(&a, &qps[0]);
    a.fill(1);
    let index = poster.write(&b, b.window.rkey() ^ 0x5500);
    poster.ring();
    let cqe = poster.completion(index, HANG).expect("a completion");
    assert_eq!(cqe.opcode(), CqeOpcode::REQ_ERR);
    assert_eq!(cqe.as_error().reason(), Syndrome::REMOTE_ACCESS_ERR);
    assert_eq!(qps[0].query().unwrap().state, QpState::ERR);
    assert_eq!(b.byte(0), 0);
    let [qp, peer] = qps.map(|qp| qp.reset().unwrap());
    a.node.write_image(&qp, 65_536);
    b.node.write_image(&peer, 65_536);
    let [qp, _peer] = connect_reset([&a.node, &b.node], [qp, peer]).unwrap();
    // The HCA counts from 0 again.
    let mut poster = Poster::new(&a, &qp);
    for round in 2..10 {
        a.fill(round);
        let index = poster.write(&b, b.window.rkey());
        poster.ring();
        let cqe = poster.completion(index, HANG).expect("a completion");
        assert_eq!((cqe.opcode(), b.byte(100)), (CqeOpcode::REQ, round));
    }
}
