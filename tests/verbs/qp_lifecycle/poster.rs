//! Posts WQEs built byte by byte on a QP of any mode, and takes its completions.

// UNSAFETY: stores to a doorbell register.
#![expect(unsafe_code, reason = "a device register")]

use std::sync::atomic::{AtomicU64, Ordering, fence};
use std::time::Instant;

use mlx5_prm::be::{Be32, Be64};
use mlx5_prm::cqe::{Cqe64, CqeOpcode};
use mlx5_prm::doorbell::{doorbell_value, qp_record};
use mlx5_prm::wqe::{CtrlSeg, DataSeg, RaddrSeg, WqeOpcode};
use softhca::Hca;
use test_support::limits::HANG;
use warpverbs::verbs::{CqKind, Doorbell, Qp, QpConfig, QpLayout, Rts};

use test_support::hca::{hca, kick};
use test_support::node::{Node, Window};

/// Bytes of a window.
pub(crate) const WINDOW: u32 = 4096;

/// One end: an HCA, a node, a registered window.
pub(crate) struct End {
    pub(crate) window: Window,
    pub(crate) node: Node,
    pub(crate) hca: Hca,
}

impl End {
    /// With control heaps in device and in host memory.
    pub(crate) fn new() -> Self {
        let hca = hca();
        let node = Node::open(&hca, 1 << 20).unwrap();
        let node = node.with_host(1 << 20).unwrap();
        let window = node.window(WINDOW as usize).unwrap();
        Self { window, node, hca }
    }

    pub(crate) fn fill(&self, byte: u8) {
        let gpu = &self.node.gpu;
        gpu.write(self.window.addr(), &[byte; WINDOW as usize])
            .unwrap();
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut out = vec![0; WINDOW as usize];
        self.node.gpu.read(self.window.addr(), &mut out).unwrap();
        out
    }

    /// Its last word is read last and written last: what is in front of it is whole only when it is read once more.
    fn cqe(&self, addr: u64) -> Cqe64 {
        let mut bytes = [0; 64];
        self.node.read(addr, &mut bytes);
        bytemuck::pod_read_unaligned(&bytes)
    }
}

/// Posts on one QP in its present life.
pub(crate) struct Poster<'a> {
    end: &'a End,
    layout: QpLayout,
    config: QpConfig,
    /// Index of the next WQEBB, `base` included.
    next: u64,
    /// Completions taken from a wide CQ, and from that of the receive queue, since it was made.
    consumed: u32,
    received: u32,
}

impl<'a> Poster<'a> {
    pub(crate) fn new(end: &'a End, qp: &Qp<Rts>, base: u64) -> Self {
        let layout = *qp.layout();
        Self {
            end,
            config: *qp.config(),
            next: base,
            consumed: layout.produced,
            received: layout.recv.map_or(0, |recv| recv.produced),
            layout,
        }
    }

    /// Writes a signalled RDMA WRITE of the whole window into the ring, with an immediate if one is given. Does not ring.
    pub(crate) fn write(&mut self, peer: &End, imm: Option<u32>) -> u64 {
        self.write_to((peer.window.addr(), peer.window.rkey()), imm)
    }

    /// As `write`, to an address of the peer's, under this key.
    pub(crate) fn write_to(&mut self, (addr, rkey): (u64, u32), imm: Option<u32>) -> u64 {
        let index = self.next;
        let low = u16::try_from(index & 0xffff).unwrap();
        let opcode = match imm {
            Some(_) => WqeOpcode::RDMA_WRITE_IMM,
            None => WqeOpcode::RDMA_WRITE,
        };
        let mut ctrl = CtrlSeg::new(opcode, low, self.layout.qpn, 3);
        ctrl.fm_ce_se = CtrlSeg::CE_ALWAYS;
        ctrl.imm = Be32::new(imm.unwrap_or(0));
        let raddr = RaddrSeg {
            raddr: Be64::new(addr),
            rkey: Be32::new(rkey),
            ..RaddrSeg::default()
        };
        let data = DataSeg {
            byte_count: Be32::new(WINDOW),
            lkey: Be32::new(self.end.window.lkey()),
            addr: Be64::new(self.end.window.addr()),
        };
        let place = self.layout.sq_addr + index % u64::from(self.layout.depth) * 64;
        let segments = [
            bytemuck::bytes_of(&ctrl),
            bytemuck::bytes_of(&raddr),
            bytemuck::bytes_of(&data),
        ];
        self.end.node.write(place, &segments.concat());
        self.next += 1;
        index
    }

    /// Rings for all that was written, as the mode wants it.
    pub(crate) fn ring(&self) {
        let node = &self.end.node;
        let low = u16::try_from(self.next & 0xffff).unwrap();
        if self.config.doorbell != Doorbell::NoRecord {
            let record = self.layout.dbrec_addr + qp_record::SND as u64;
            node.write(record, &u32::from(low).to_be_bytes());
        }
        if let Some(mailbox) = self.layout.mailbox_addr {
            fence(Ordering::Release);
            node.write(mailbox, &self.next.to_le_bytes());
            return;
        }
        let addr = usize::try_from(self.layout.doorbell_addr).unwrap();
        let register = std::ptr::with_exposed_provenance_mut(addr);
        let value = doorbell_value(low, self.layout.qpn);
        // SAFETY: the register is mapped while the QP lives, and only stored to. Release: after ring and record.
        unsafe { AtomicU64::from_ptr(register) }.store(value, Ordering::Release);
        kick();
    }

    /// The completion of `index`: of a collapsed CQ the newest, of a wide one the next.
    #[track_caller]
    pub(crate) fn completion(&mut self, index: u64) -> Cqe64 {
        let low = u16::try_from(index & 0xffff).unwrap();
        if self.config.cq == CqKind::Wide {
            let first = (self.layout.cqe_addr, self.layout.depth);
            let cqe = next_entry(self.end, first, &mut self.consumed);
            assert_eq!(cqe.wqe_counter.get(), low, "{cqe:?}");
            return cqe;
        }
        let deadline = Instant::now() + HANG;
        loop {
            let cqe = self.end.cqe(self.layout.cqe_addr);
            if cqe.opcode() != CqeOpcode::INVALID && cqe.wqe_counter.get() == low {
                return self.end.cqe(self.layout.cqe_addr);
            }
            assert!(Instant::now() < deadline, "WQE {index:#x}: {cqe:?}");
            std::thread::yield_now();
        }
    }

    /// The next completion of the receive queue, whose WQE is posted again.
    #[track_caller]
    pub(crate) fn receive(&mut self) -> Cqe64 {
        let recv = self.layout.recv.expect("a receive queue");
        let first = (recv.cqe_addr, recv.depth);
        let cqe = next_entry(self.end, first, &mut self.received);
        let posted = self.received.wrapping_sub(recv.produced) + recv.depth;
        let record = self.layout.dbrec_addr + qp_record::RCV as u64;
        self.end
            .node
            .write(record, &(posted & 0xffff).to_be_bytes());
        cqe
    }
}

/// The entry of a ring that comes next, once its owner bit says that it has come.
#[track_caller]
fn next_entry(end: &End, (first, depth): (u64, u32), consumed: &mut u32) -> Cqe64 {
    let place = first + u64::from(*consumed % depth) * 64;
    let lap = u8::try_from((*consumed / depth) & 1).unwrap();
    let deadline = Instant::now() + HANG;
    loop {
        let cqe = end.cqe(place);
        if cqe.opcode() != CqeOpcode::INVALID && cqe.op_own & 1 == lap {
            *consumed = (*consumed + 1) & 0xff_ffff;
            return end.cqe(place);
        }
        assert!(Instant::now() < deadline, "entry {consumed}: {cqe:?}");
        std::thread::yield_now();
    }
}
