//! The whole way once: QPs brought up through unmodified libmlx5, a WQE built by hand, its doorbell in the register that
//! libmlx5 mapped.

// UNSAFETY: reads and writes memory that is shared with the device.
#![expect(unsafe_code, reason = "plays the software side of a device")]

use crate::rdma_core::patience::wait_until;
use crate::rdma_core::{Device, Memory, Mr, Object, Pd, Uar, Umem};
use mlx5_prm::be::{Be32, Be64};
use mlx5_prm::cmd::{CmdOut, Opcode};
use mlx5_prm::cq::{Cqc, CreateCqIn, CreateCqOut};
use mlx5_prm::cqe::{Cqe64, CqeOpcode};
use mlx5_prm::doorbell::doorbell_value;
use mlx5_prm::qp::{Ads, CreateQpIn, CreateQpOut, QpModifyIn, Qpc};
use mlx5_prm::wqe::{CtrlSeg, DataSeg, RaddrSeg, WqeOpcode};
use softhca::Hca;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

const RECORD: usize = 0;
const CQ_RECORD: usize = 64;
const CQE: usize = 4096;
const RING: usize = 8192;
const ACCESS: u32 = 0x1 | 0x2;

/// A connected QP and what it stands on, in the order in which it may be taken down.
struct End {
    qp: Object,
    cq: Object,
    mr: Mr,
    umem: Umem,
    uar: Uar,
    pd: Pd,
    qpn: u32,
    control: Memory,
    data: Memory,
}

impl End {
    fn new(device: &Device) -> Self {
        let pd = device.alloc_pd().unwrap();
        let (control, data) = (Memory::new(1 << 14), Memory::new(1 << 16));
        control.write(CQE, &[0xff; 64]);
        let mr = pd.reg_mr(&data, ACCESS).unwrap();
        let umem = device.reg_umem(&control, 1).unwrap();
        let uar = device.alloc_uar(0).unwrap();
        let cqc = Cqc::default()
            .with_cc(1)
            .with_oi(1)
            .with_uar_page(uar.page_id)
            .with_c_eqn(device.eqn(0).unwrap())
            .with_dbr_umem_id(umem.id())
            .with_dbr_addr(CQ_RECORD as u64);
        let input = CreateCqIn::default()
            .with_opcode(Opcode::CREATE_CQ.0.into())
            .with_cqc(cqc)
            .with_cq_umem_offset(CQE as u64)
            .with_cq_umem_id(umem.id());
        let mut output = CreateCqOut::default();
        let cq = device
            .create(input.as_bytes(), output.as_bytes_mut())
            .unwrap();
        let qpc = Qpc::default()
            .with_pd(pd.pdn())
            .with_uar_page(uar.page_id)
            .with_log_sq_size(6)
            .with_rq_type(Qpc::RQ_TYPE_NONE)
            .with_cqn_snd(output.cqn())
            .with_cqn_rcv(output.cqn())
            .with_dbr_umem_id(umem.id())
            .with_dbr_addr(RECORD as u64);
        let input = CreateQpIn::default()
            .with_opcode(Opcode::CREATE_QP.0.into())
            .with_qpc(qpc)
            .with_wq_umem_offset(RING as u64)
            .with_wq_umem_id(umem.id());
        let mut output = CreateQpOut::default();
        let qp = device
            .create(input.as_bytes(), output.as_bytes_mut())
            .unwrap();
        Self {
            qp,
            cq,
            mr,
            umem,
            uar,
            pd,
            qpn: output.qpn(),
            control,
            data,
        }
    }

    fn connect(&self, gid: [u8; 16], remote_qpn: u32) {
        let path = Ads::default().with_vhca_port_num(1);
        let init = Qpc::default().with_rwe(1).with_primary_address_path(path);
        let path = Ads::default().with_rgid_rip(gid).with_src_addr_index(3);
        let rtr = Qpc::default()
            .with_mtu(Qpc::MTU_4096)
            .with_remote_qpn(remote_qpn)
            .with_next_rcv_psn(9)
            .with_primary_address_path(path);
        let path = Ads::default().with_ack_timeout(22);
        let rts = Qpc::default()
            .with_next_send_psn(9)
            .with_retry_count(7)
            .with_primary_address_path(path);
        for (opcode, qpc) in [
            (Opcode::RST2INIT_QP, init),
            (Opcode::INIT2RTR_QP, rtr),
            (Opcode::RTR2RTS_QP, rts),
        ] {
            let input = QpModifyIn::default()
                .with_opcode(opcode.0.into())
                .with_qpn(self.qpn)
                .with_qpc(qpc);
            let mut output = CmdOut::default();
            self.qp
                .modify(input.as_bytes(), output.as_bytes_mut())
                .unwrap();
        }
    }

    /// Writes, records and rings one WQE, the first of the ring.
    fn post(&self, wqe: &[u8]) {
        self.control.write(RING, wqe);
        // SAFETY: inside the live mapping, aligned.
        let record = unsafe { AtomicU32::from_ptr(self.control.address().add(RECORD + 4).cast()) };
        record.store(1u32.to_be(), Ordering::Release);
        // SAFETY: the register that libmlx5 mapped lives as long as `uar`, and is 8-byte aligned.
        let register = unsafe { AtomicU64::from_ptr(self.uar.reg_addr.cast()) };
        register.store(doorbell_value(1, self.qpn), Ordering::Release);
    }

    fn completion(&self) -> Cqe64 {
        // SAFETY: inside the live mapping, aligned.
        let last = unsafe { AtomicU32::from_ptr(self.control.address().add(CQE + 60).cast()) };
        wait_until("a completion", || {
            last.load(Ordering::Acquire).to_ne_bytes()[3] >> 4 != CqeOpcode::INVALID.0
        });
        // SAFETY: 64 bytes inside the live mapping; the device has written them.
        let bytes = unsafe {
            self.control
                .address()
                .add(CQE)
                .cast::<[u8; 64]>()
                .read_volatile()
        };
        bytemuck::cast(bytes)
    }
}

#[test]
fn a_write_between_two_devices_of_libmlx5_moves_bytes_and_leaves_nothing() {
    let hcas = [Hca::new().unwrap(), Hca::new().unwrap()];
    let devices = hcas.each_ref().map(|hca| Device::open(hca.name()).unwrap());
    let [a, b] = devices.each_ref().map(End::new);
    a.connect(hcas[1].gid(), b.qpn);
    b.connect(hcas[0].gid(), a.qpn);
    a.data.write(100, b"through libmlx5");

    let mut ctrl = CtrlSeg::new(WqeOpcode::RDMA_WRITE, 0, a.qpn, 3);
    ctrl.fm_ce_se = CtrlSeg::CE_ALWAYS;
    let raddr = RaddrSeg {
        raddr: Be64::new(b.data.address().addr() as u64 + 7),
        // lkey and rkey are the same number on this device.
        rkey: Be32::new(b.mr.lkey()),
        ..RaddrSeg::default()
    };
    let data = DataSeg {
        byte_count: Be32::new(15),
        lkey: Be32::new(a.mr.lkey()),
        addr: Be64::new(a.data.address().addr() as u64 + 100),
    };
    let wqe: [[u8; 16]; 3] = [
        bytemuck::cast(ctrl),
        bytemuck::cast(raddr),
        bytemuck::cast(data),
    ];
    a.post(&wqe.concat());
    let cqe = a.completion();
    assert_eq!(cqe.opcode(), CqeOpcode::REQ);
    assert_eq!(cqe.byte_cnt.get(), 15);
    // SAFETY: inside the live mapping; the completion says that it is written.
    let arrived = unsafe { b.data.address().add(7).cast::<[u8; 15]>().read_volatile() };
    assert_eq!(&arrived, b"through libmlx5");

    for end in [a, b] {
        end.qp.destroy().ok().unwrap();
        end.cq.destroy().ok().unwrap();
        end.mr.dereg().unwrap();
        drop((end.umem, end.uar));
        end.pd.dealloc().ok().unwrap();
    }
    drop(devices);
    for hca in &hcas {
        assert_eq!(hca.live_objects().total(), 0, "{:?}", hca.live_objects());
        assert_eq!(hca.findings(), [""; 0]);
    }
}
