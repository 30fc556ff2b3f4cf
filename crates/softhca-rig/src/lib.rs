//! Two QPs of two HCAs of this process, driven through the device model alone: registered memory, rings, records and
//! doorbell registers as software sees them.
//!
//! Besides, [`wire`] drives one HCA in each of several processes, [`fuzzing`] gives a device random bytes, and [`tools`] runs
//! programs from outside this project.

// UNSAFETY: registers memory, maps UAR pages, and reads and writes what the device shares.
#![expect(unsafe_code, reason = "plays the software side of a device")]

pub mod bringup;
pub mod engine_time;
pub mod fuzzing;
mod memory;
pub mod patience;
pub mod segments;
pub mod shared;
mod states;
pub mod tools;
pub mod wire;

pub use memory::{Memory, map_uar};
pub use segments::{data, inline, raddr};

use patience::HANG;
use shared::{SharedKind, SharedQueue, Xrc};

use mlx5_prm::be::Be32;
use mlx5_prm::cmd::{CreateOut, Opcode};
use mlx5_prm::cq::{Cqc, CreateCqIn};
use mlx5_prm::cqe::{Cqe64, CqeOpcode};
use mlx5_prm::doorbell::{cq_record, doorbell_value, uar};
use mlx5_prm::qp::{CreateQpIn, Qpc};
use mlx5_prm::wqe::{CtrlSeg, DataSeg, WqeOpcode};
use softhca::device::{
    Access, Context, DeviceError, DevxObject, Event, MrKeys, Simulation, UarPage, XrcFile,
};
use softhca::wire::config::CarrierConfig;
use softhca::wire::memory::Network;
use softhca::{Hca, HcaConfig};
use std::net::Ipv4Addr;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// How an end is made.
#[derive(Clone, Debug)]
pub struct Shape {
    /// The service.
    pub kind: Kind,
    /// By which file the XRC domain of a target is opened; otherwise it is a new one.
    pub xrc_file: Option<XrcFile>,
    /// log2 of WQEs of a shared receive queue.
    pub log_srq: Option<u32>,
    /// That queue is a ring, not a list.
    pub ring_srq: bool,
    /// log2 of send WQEBBs.
    pub log_depth: u32,
    /// No doorbell record: the doorbell says how far to run.
    pub no_record: bool,
    /// log2 of CQ entries; `None` is one collapsed entry.
    pub log_cq: Option<u32>,
    /// log2 of receive WQEs.
    pub log_receive: Option<u32>,
    /// Bytes of data memory, all of it registered.
    pub data_bytes: usize,
    /// Rights of the key: bits of the access flags.
    pub access: u32,
    /// Whether the peer may write.
    pub rwe: u32,
    /// Whether the peer may read.
    pub rre: u32,
    /// Whether the peer may do atomics.
    pub rae: u32,
    /// As the QP context has it.
    pub ack_timeout: u32,
    /// As the QP context has it.
    pub retry_count: u32,
    /// As the QP context has it.
    pub rnr_retry: u32,
    /// As the QP context has it.
    pub mtu: u32,
}

impl Default for Shape {
    fn default() -> Self {
        Self {
            kind: Kind::Rc,
            xrc_file: None,
            log_srq: None,
            ring_srq: false,
            log_depth: 6,
            no_record: false,
            log_cq: Some(8),
            log_receive: None,
            data_bytes: 1 << 16,
            access: 0xf,
            rwe: 1,
            rre: 1,
            rae: 1,
            // 137 s, longer than a test waits: no machine is so slow that a live peer counts as dead.
            ack_timeout: 22,
            retry_count: 7,
            rnr_retry: 7,
            mtu: 3,
        }
    }
}

/// Transport service of an end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Reliable connection.
    Rc,
    /// Unreliable connection.
    Uc,
    /// Datagrams.
    Ud,
    /// Sends for an XRC domain.
    XrcInitiator,
    /// Receives for an XRC domain.
    XrcTarget,
}

/// Queue key of UD ends.
pub const QKEY: u32 = 0x1122_3344;
/// User index of the QPs.
pub const QP_INDEX: u32 = 0x777;
/// User index of SRQs of XRC domains.
pub const SRQ_INDEX: u32 = 0x555;

/// One QP with everything that it needs.
pub struct End {
    /// The context that all belong to.
    pub context: Context,
    /// The protection domain.
    pub pdn: u32,
    /// The registered memory.
    pub data: Memory,
    /// lkey and rkey of the registered memory.
    pub keys: MrKeys,
    control: Memory,
    /// Where doorbells are stored.
    pub page: UarPage,
    register: Memory,
    /// The completion queue.
    pub cqn: u32,
    /// The QP.
    pub qpn: u32,
    /// Its XRC domain.
    pub xrcd: Option<u32>,
    /// Its shared receive queue.
    pub srq: Option<SharedQueue>,
    /// Events of the context so far.
    pub events: Arc<Mutex<Vec<Event>>>,
    /// How it was made.
    pub shape: Shape,
    /// Index of the next WQE.
    pub index: u16,
    /// Entries consumed.
    pub consumed: u32,
    receives: u16,
}

const RECORD: usize = 0;
const CQ_RECORD: usize = 64;
const CQ_RING: usize = 4096;
const RECEIVE_STRIDE_LOG: u32 = 2;

impl End {
    /// An end on `hca`, whose QP is reset.
    pub fn new(hca: &Hca, shape: Shape) -> Self {
        Self::build(hca.open().unwrap(), shape, None, None)
    }

    /// An end that gives up after a few milliseconds.
    pub fn hasty(hca: &Hca, kind: Kind) -> Self {
        let shape = Shape {
            kind,
            ack_timeout: 8, // a millisecond
            retry_count: 0,
            log_receive: Some(4),
            ..Shape::default()
        };
        Self::new(hca, shape)
    }

    /// Another end in the context of this one, on its SRQ. Both go when the first of them does.
    pub fn beside(&self, shape: Shape) -> Self {
        let shared = self.srq.as_ref().map(|srq| srq.number);
        Self::build(self.context.clone(), shape, shared, None)
    }

    /// Another end in the context of this one, whose doorbells go to the same register.
    pub fn beside_in_page(&self, shape: Shape) -> Self {
        Self::build(self.context.clone(), shape, None, Some(self.page))
    }

    fn build(context: Context, shape: Shape, shared: Option<u32>, page: Option<UarPage>) -> Self {
        let pdn = context.alloc_pd().unwrap();
        let events = Arc::new(Mutex::new(Vec::new()));
        let sink = Arc::clone(&events);
        context.set_event_handler(move |event| sink.lock().unwrap().push(event));
        let data = Memory::new(shape.data_bytes);
        let address = data.address();
        // SAFETY: the end owns both the memory and the registration.
        let keys =
            unsafe { context.reg_mr(pdn, address, data.bytes(), address, Access(shape.access)) }
                .unwrap();
        let receive_bytes = shape.log_receive.map_or(0, |log| 64usize << log);
        let wq_at = CQ_RING + (64 << shape.log_cq.unwrap_or(0));
        let control =
            Memory::new((wq_at + receive_bytes + (64 << shape.log_depth)).next_multiple_of(4096));
        // SAFETY: as above.
        let umem =
            unsafe { context.reg_umem(control.address(), control.bytes(), Access(1)) }.unwrap();
        let page = page.unwrap_or_else(|| context.alloc_uar().unwrap());
        let register = map_uar(&context, &page);
        control.write(CQ_RING, &vec![0xff; wq_at - CQ_RING]);

        let eqn = context.eqn(0).unwrap();
        let cqc = Cqc::default()
            .with_dbr_umem_id(umem)
            .with_dbr_addr(CQ_RECORD as u64)
            .with_uar_page(page.page_id)
            .with_c_eqn(eqn)
            .with_log_cq_size(shape.log_cq.unwrap_or(0))
            .with_cc(u32::from(shape.log_cq.is_none()))
            .with_oi(u32::from(shape.log_cq.is_none()));
        let input = CreateCqIn::default()
            .with_opcode(Opcode::CREATE_CQ.0.into())
            .with_cqc(cqc)
            .with_cq_umem_offset(CQ_RING as u64)
            .with_cq_umem_id(umem);
        let cqn = create(&context, input.as_bytes()).unwrap().1;

        let is_target = shape.kind == Kind::XrcTarget;
        let xrcd = is_target.then(|| context.open_xrcd(shape.xrc_file, true, false).unwrap());
        let srq = shape.log_srq.map(|log| {
            let kind = match xrcd {
                Some(xrcd) => SharedKind::Xrc(Xrc {
                    xrcd,
                    cqn,
                    user_index: SRQ_INDEX,
                }),
                None if shape.ring_srq => SharedKind::Ring,
                None => SharedKind::List,
            };
            SharedQueue::new(&context, pdn, log, kind)
        });
        let shared = shared.or(srq.as_ref().map(|srq| srq.number));
        let qpc = Qpc::default()
            .with_st(match shape.kind {
                Kind::Rc => Qpc::ST_RC,
                Kind::Uc => Qpc::ST_UC,
                Kind::Ud => Qpc::ST_UD,
                Kind::XrcInitiator | Kind::XrcTarget => Qpc::ST_XRC,
            })
            .with_no_sq(is_target.into())
            .with_xrcd(xrcd.unwrap_or(0))
            .with_pd(pdn)
            .with_log_sq_size(shape.log_depth)
            .with_rq_type(match (shared, shape.log_receive) {
                (Some(_), _) => Qpc::RQ_TYPE_SRQ,
                (None, Some(_)) => Qpc::RQ_TYPE_REGULAR,
                (None, None) => Qpc::RQ_TYPE_NONE,
            })
            .with_srqn_rmpn_xrqn(shared.unwrap_or(0))
            .with_log_rq_size(shape.log_receive.unwrap_or(0))
            .with_log_rq_stride(RECEIVE_STRIDE_LOG)
            .with_uar_page(page.page_id)
            .with_user_index(QP_INDEX)
            .with_cqn_snd(cqn)
            .with_cqn_rcv(cqn)
            .with_send_dbr_mode(shape.no_record.into())
            .with_dbr_umem_id(umem)
            .with_dbr_addr(RECORD as u64);
        let input = CreateQpIn::default()
            .with_opcode(Opcode::CREATE_QP.0.into())
            .with_qpc(qpc)
            .with_wq_umem_offset(wq_at as u64)
            .with_wq_umem_id(umem);
        let qpn = create(&context, input.as_bytes()).unwrap().1;
        Self {
            context,
            pdn,
            data,
            keys,
            control,
            page,
            register,
            cqn,
            qpn,
            xrcd,
            srq,
            events,
            shape,
            index: 0,
            consumed: 0,
            receives: 0,
        }
    }

    fn ring_at(&self) -> usize {
        CQ_RING
            + (64 << self.shape.log_cq.unwrap_or(0))
            + self.shape.log_receive.map_or(0, |log| 64usize << log)
    }

    /// Writes a WQE at the next index: control segment from `opcode` and `flags`, then `rest`. Its index.
    pub fn write_wqe(
        &mut self,
        opcode: WqeOpcode,
        opmod: u8,
        flags: u8,
        imm: u32,
        rest: &[u8],
    ) -> u16 {
        let ds = 1 + rest.len().div_ceil(16);
        let mut ctrl =
            CtrlSeg::new(opcode, self.index, self.qpn, ds.try_into().unwrap()).with_opmod(opmod);
        ctrl.fm_ce_se = flags;
        ctrl.imm = Be32::new(imm);
        let mut wqe = bytemuck::bytes_of(&ctrl).to_vec();
        wqe.extend(rest);
        wqe.resize(ds * 16, 0);
        self.write_raw(&wqe)
    }

    /// Writes whole units at the next index, wrapping at the ring's end. Its index.
    pub fn write_raw(&mut self, wqe: &[u8]) -> u16 {
        let ring = 64usize << self.shape.log_depth;
        let index = self.index;
        for (unit, bytes) in wqe.chunks(16).enumerate() {
            let at = (usize::from(index) * 64 + unit * 16) & (ring - 1);
            self.control.write(self.ring_at() + at, bytes);
        }
        self.index = index.wrapping_add(u16::try_from(wqe.len().div_ceil(64)).unwrap());
        index
    }

    /// Overwrites bytes of the WQE at `index`.
    pub fn overwrite(&self, index: u16, offset: usize, bytes: &[u8]) {
        let ring = 64usize << self.shape.log_depth;
        let at = (usize::from(index) * 64 + offset) & (ring - 1);
        self.control.write(self.ring_at() + at, bytes);
    }

    /// A signalled RDMA WRITE of one segment from `offset` of the own data.
    pub fn write(&mut self, offset: u64, bytes: u32, remote: u64, rkey: u32) -> u16 {
        let rest = [
            raddr(remote, rkey).as_slice(),
            &data(bytes, self.keys.lkey, self.data.address() + offset),
        ]
        .concat();
        self.write_wqe(WqeOpcode::RDMA_WRITE, 0, CtrlSeg::CE_ALWAYS, 0, &rest)
    }

    /// A signalled RDMA WRITE of inline data.
    pub fn write_inline(&mut self, bytes: &[u8], remote: u64, rkey: u32) -> u16 {
        let rest = [raddr(remote, rkey).as_slice(), &inline(bytes)].concat();
        self.write_wqe(WqeOpcode::RDMA_WRITE, 0, CtrlSeg::CE_ALWAYS, 0, &rest)
    }

    /// Writes a NOP; its index.
    pub fn nop(&mut self, signalled: bool) -> u16 {
        let flags = if signalled { CtrlSeg::CE_ALWAYS } else { 0 };
        self.write_wqe(WqeOpcode::NOP, 0, flags, 0, &[])
    }

    /// Posts a receive WQE of one segment.
    pub fn post_receive(&mut self, offset: u64, bytes: u32) {
        let wqe = [
            data(bytes, self.keys.lkey, self.data.address() + offset).as_slice(),
            &data(0, DataSeg::INVALID_LKEY, 0),
        ]
        .concat();
        self.post_receive_bytes(&wqe);
    }

    /// Posts a receive WQE of up to 64 bytes.
    pub fn post_receive_bytes(&mut self, wqe: &[u8]) {
        let log = self.shape.log_receive.unwrap();
        let at = self.ring_at() - (64usize << log) + usize::from(self.receives) % (1 << log) * 64;
        self.control.write(at, wqe);
        self.receives = self.receives.wrapping_add(1);
        let counter = u32::from(self.receives);
        self.control
            .dword(RECORD)
            .store(counter.to_be(), Ordering::Release);
    }

    /// Writes the send counter into the doorbell record.
    pub fn record(&self) {
        self.record_as(self.index);
    }

    /// Writes `index` into the doorbell record.
    pub fn record_as(&self, index: u16) {
        self.control
            .dword(RECORD + 4)
            .store(u32::from(index).to_be(), Ordering::Release);
    }

    /// Stores the doorbell into register 0 of the page, or into that of queues without record.
    pub fn ring(&self) {
        if self.shape.no_record {
            self.ring_without_record(self.index);
        } else {
            self.ring_as(self.qpn);
        }
    }

    /// Stores the doorbell of queues without record, which names `index`.
    pub fn ring_without_record(&self, index: u16) {
        self.register
            .word(uar::NO_RECORD)
            .store(doorbell_value(index, self.qpn), Ordering::Release);
        softhca::engine::softhca_kick();
    }

    /// Stores a doorbell of `qpn` into register 0 of the page.
    pub fn ring_as(&self, qpn: u32) {
        self.register
            .word(uar::register(0))
            .store(doorbell_value(self.index, qpn), Ordering::Release);
        softhca::engine::softhca_kick();
    }

    /// Stores the first 8 bytes of the WQE at `index` into register 0 of the page, as libmlx5 does.
    pub fn ring_last(&self, index: u16) {
        self.store_beginning(index, uar::register(0));
    }

    /// Stores the first 8 bytes of the WQE at `index` into the register of queues without record.
    pub fn ring_without_record_by(&self, index: u16) {
        self.store_beginning(index, uar::NO_RECORD);
    }

    fn store_beginning(&self, index: u16, place: usize) {
        let ring = 64usize << self.shape.log_depth;
        let at = (usize::from(index) * 64) & (ring - 1);
        let bytes = self.control.read(self.ring_at() + at, 8);
        let word = u64::from_le_bytes(bytes.try_into().unwrap());
        self.register.word(place).store(word, Ordering::Release);
        softhca::engine::softhca_kick();
    }

    /// Makes the device execute the WQEs that were written: it writes the record, if the QP has one, and rings the doorbell.
    pub fn post(&self) {
        if !self.shape.no_record {
            self.record();
        }
        self.ring();
    }

    /// Arms the CQ for its next entry, as a program does the `sequence`th time: in the record, then by a store to the page.
    pub fn arm(&self, sequence: u32) {
        let word = (sequence & 3) << 28 | self.consumed & cq_record::INDEX_MASK;
        self.control
            .dword(CQ_RECORD + cq_record::ARM)
            .store(word.to_be(), Ordering::Release);
        let value = u64::from(word) << 32 | u64::from(self.cqn);
        self.register
            .word(uar::CQ_ARM)
            .store(value.to_be(), Ordering::Release);
        softhca::engine::softhca_kick();
    }

    /// The next entry of an ordinary CQ, or the entry of a collapsed one, if `wanted` likes it within `time`.
    pub fn poll_for(&mut self, time: Duration, wanted: impl Fn(&Cqe64) -> bool) -> Option<Cqe64> {
        let until = Instant::now() + time;
        loop {
            let found = self.entry();
            if let Some(cqe) = found.filter(|cqe| wanted(cqe)) {
                if self.shape.log_cq.is_some() {
                    self.consumed += 1;
                    self.control
                        .dword(CQ_RECORD)
                        .store((self.consumed & 0xff_ffff).to_be(), Ordering::Release);
                }
                return Some(cqe);
            }
            if Instant::now() > until {
                return None;
            }
            std::thread::yield_now();
        }
    }

    /// The next completion, which must come.
    pub fn completion(&mut self) -> Cqe64 {
        self.poll_for(HANG, |_| true).expect("the completion comes")
    }

    fn entry(&self) -> Option<Cqe64> {
        let (at, owner) = match self.shape.log_cq {
            Some(log) => (
                (self.consumed & ((1 << log) - 1)) as usize * 64,
                Some(self.consumed >> log & 1 == 1),
            ),
            None => (0, None),
        };
        let last = self
            .control
            .dword(CQ_RING + at + 60)
            .load(Ordering::Acquire);
        let op_own = last.to_ne_bytes()[3];
        if op_own >> 4 == CqeOpcode::INVALID.0
            || owner.is_some_and(|owner| (op_own & 1 == 1) != owner)
        {
            return None;
        }
        let bytes: [u8; 64] = self.control.read(CQ_RING + at, 64).try_into().unwrap();
        Some(bytemuck::cast(bytes))
    }

    /// Posts what was written and waits until `count` entries have come.
    pub fn run(&mut self, count: usize) -> Vec<Cqe64> {
        self.post();
        (0..count).map(|_| self.completion()).collect()
    }
}

impl Drop for End {
    fn drop(&mut self) {
        // Before the memory goes.
        self.context.close();
    }
}

/// Two HCAs with a connected QP each.
pub struct Pair {
    /// One end.
    pub a: End,
    /// The other end.
    pub b: End,
    /// The HCA on which `a` was made.
    pub hca_a: Hca,
    /// The HCA on which `b` was made.
    pub hca_b: Hca,
}

impl Pair {
    /// Two connected ends of the same shape.
    pub fn new(shape: Shape) -> Self {
        Self::with(&HcaConfig::default(), shape.clone(), shape)
    }

    /// Two connected ends of these shapes.
    pub fn with(config: &HcaConfig, shape_a: Shape, shape_b: Shape) -> Self {
        let hca_a = Hca::with_config(config.clone()).unwrap();
        let hca_b = Hca::with_config(config.clone()).unwrap();
        let a = End::new(&hca_a, shape_a);
        let b = End::new(&hca_b, shape_b);
        a.connect(hca_b.gid(), b.qpn, 0x1234);
        b.connect(hca_a.gid(), a.qpn, 0x1234);
        Self { a, b, hca_a, hca_b }
    }

    /// Nothing was found by the checkers.
    pub fn assert_clean(&self) {
        assert_eq!(self.hca_a.findings(), [""; 0]);
        assert_eq!(self.hca_b.findings(), [""; 0]);
    }
}

/// Two HCAs of a simulation as `config` says, on a network in memory: 10.0.0.1 and 10.0.0.2.
pub fn simulated_pair(simulation: &Simulation, network: &Network, config: &HcaConfig) -> [Hca; 2] {
    [1, 2].map(|number| {
        let config = HcaConfig {
            ip: Some(Ipv4Addr::new(10, 0, 0, number)),
            carrier: CarrierConfig::Memory(network.clone()),
            ..config.clone()
        };
        simulation.hca(&config).unwrap()
    })
}

/// Executes a create command: the object and its number.
pub fn create(context: &Context, input: &[u8]) -> Result<(DevxObject, u32), DeviceError> {
    let mut output = [0xff; 16];
    let object = context.devx_create(input, &mut output)?;
    Ok((object, CreateOut::from_bytes(&output).unwrap().number()))
}
