//! An opened device with one window of memory and QPs in Rts, whose WQEs are written here byte by byte.

// UNSAFETY: registers memory and waits on the engine's futex word.
#![expect(unsafe_code, reason = "plays the part of a user-space driver")]
use crate::patience::HANG;
use crate::{Memory, create, data, inline, map_uar, raddr};
use mlx5_prm::be::Be64;
use mlx5_prm::cmd::Opcode;
use mlx5_prm::cq::{Cqc, CreateCqIn};
use mlx5_prm::doorbell::{doorbell_value, qp_record, uar};
use mlx5_prm::qp::{Ads, CreateQpIn, QpModifyIn, Qpc};
use mlx5_prm::wqe::{AtomicSeg, CtrlSeg, WqeOpcode};
use softhca::device::{Access, Context, DevxObject};
use softhca::{Hca, HcaConfig};
use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

/// log2 of a send ring's WQEBBs.
const LOG_DEPTH: u32 = 8;
const DEPTH: u64 = 1 << LOG_DEPTH;
/// Control memory of a QP: ring, CQE, record of the QP, record of the CQ.
const CQE_AT: usize = 64 << LOG_DEPTH;
const QP_RECORD_AT: usize = CQE_AT + 64;
const CQ_RECORD_AT: usize = QP_RECORD_AT + 64;
const CONTROL_BYTES: usize = (CQ_RECORD_AT + 64).next_multiple_of(4096);

/// What a peer must know: address, window, QPNs.
#[derive(Clone, Debug, PartialEq)]
pub struct Peer {
    /// Of its HCA.
    pub ip: Ipv4Addr,
    /// Where its window begins.
    pub base: u64,
    /// The key of its window.
    pub rkey: u32,
    /// Its QPs.
    pub qpns: Vec<u32>,
}

impl Peer {
    /// As text without a line break.
    pub fn to_line(&self) -> String {
        let qpns: Vec<String> = self.qpns.iter().map(u32::to_string).collect();
        format!("{} {} {} {}", self.ip, self.base, self.rkey, qpns.join(","))
    }

    /// From that text.
    pub fn from_line(line: &str) -> Self {
        let parts: Vec<&str> = line.split_whitespace().collect();
        let [ip, base, rkey, qpns] = parts[..] else {
            panic!("not a peer: {line:?}")
        };
        Self {
            ip: ip.parse().unwrap(),
            base: base.parse().unwrap(),
            rkey: rkey.parse().unwrap(),
            qpns: qpns.split(',').map(|qpn| qpn.parse().unwrap()).collect(),
        }
    }
}

/// How a WQE ended: the syndrome of an error CQE.
type Outcome = Result<(), u8>;

/// Attributes of QPs that tests vary.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    /// As the QP context has it.
    pub ack_timeout: u32,
    /// As the QP context has it.
    pub retry_count: u32,
}

impl Patience {
    /// 137 s, longer than a test waits: no machine is so slow that a live peer counts as dead.
    pub const LONG: Self = Self {
        ack_timeout: 22,
        retry_count: 7,
    };
}

/// An HCA with registered memory and QPs whose rings the test writes.
pub struct Driver {
    /// The HCA that executes what the rings hold.
    pub hca: Hca,
    context: Context,
    window: Memory,
    lkey: u32,
    rkey: u32,
    qps: Vec<Qp>,
}

struct Qp {
    qpn: u32,
    control: Memory,
    page: Memory,
    posted: u64,
    completed: u64,
    remote: Option<Peer>,
}

impl Driver {
    /// A new HCA with `qps` QPs in reset and a window of `bytes` zero bytes.
    pub fn new(qps: usize, bytes: usize) -> Self {
        let hca = Hca::with_config(HcaConfig::default()).unwrap();
        let context = Context::open(hca.name()).unwrap();
        let pdn = context.alloc_pd().unwrap();
        let window = Memory::new(bytes);
        let all = Access(15);
        // SAFETY: the window stays mapped as long as the driver, which closes the context first.
        let keys =
            unsafe { context.reg_mr(pdn, window.address(), bytes as u64, window.address(), all) }
                .unwrap();
        let qps = (0..qps).map(|_| Qp::new(&context, pdn)).collect();
        Self {
            hca,
            context,
            window,
            lkey: keys.lkey,
            rkey: keys.rkey,
            qps,
        }
    }

    /// Returns what a peer must know to connect.
    pub fn describe(&self) -> Peer {
        let qpns = self.qps.iter().map(|qp| qp.qpn).collect();
        Peer {
            ip: self.hca.ip(),
            base: self.window.address(),
            rkey: self.rkey,
            qpns,
        }
    }

    /// Takes QP `qp` to Rts, connected with QP `remote_qp` of `peer`.
    pub fn connect(&mut self, qp: usize, peer: &Peer, remote_qp: usize) {
        self.connect_with(qp, peer, remote_qp, Patience::LONG);
    }

    /// [`Self::connect`], with this patience.
    pub fn connect_with(&mut self, qp: usize, peer: &Peer, remote_qp: usize, patience: Patience) {
        let mut gid = [0; 16];
        gid[10..12].fill(0xff);
        gid[12..].copy_from_slice(&peer.ip.octets());
        let path = Ads::default()
            .with_src_addr_index(3)
            .with_rgid_rip(gid)
            .with_vhca_port_num(1);
        let rights = Qpc::default()
            .with_rre(1)
            .with_rwe(1)
            .with_rae(1)
            .with_atomic_mode(Qpc::ATOMIC_MODE_UP_TO_8B)
            .with_primary_address_path(Ads::default().with_vhca_port_num(1));
        let receive = Qpc::default()
            .with_mtu(Qpc::MTU_4096)
            .with_log_msg_max(30)
            .with_remote_qpn(peer.qpns[remote_qp])
            .with_next_rcv_psn(0xff_fff0)
            .with_log_rra_max(4)
            .with_min_rnr_nak(12)
            .with_primary_address_path(path);
        let send = Qpc::default()
            .with_next_send_psn(0xff_fff0)
            .with_retry_count(patience.retry_count)
            .with_rnr_retry(7)
            .with_log_sra_max(4)
            .with_primary_address_path(path.with_ack_timeout(patience.ack_timeout));
        let qpn = self.qps[qp].qpn;
        for (opcode, qpc) in [
            (Opcode::RST2INIT_QP, rights),
            (Opcode::INIT2RTR_QP, receive),
            (Opcode::RTR2RTS_QP, send),
        ] {
            let input = QpModifyIn::default()
                .with_opcode(u32::from(opcode.0))
                .with_qpn(qpn)
                .with_qpc(qpc);
            self.context
                .devx_modify(DevxObject::Qp(qpn), input.as_bytes(), &mut [0; 16])
                .unwrap();
        }
        self.qps[qp].remote = Some(peer.clone());
    }

    /// Stores `data` at `offset` of the memory.
    pub fn fill(&mut self, offset: usize, data: &[u8]) {
        self.window.write(offset, data);
    }

    /// Loads the bytes at `offset` of the memory.
    pub fn read(&self, offset: usize, bytes: usize) -> Vec<u8> {
        self.window.read(offset, bytes)
    }

    /// Returns the 8-byte word at `offset` of the window.
    pub fn word(&self, offset: usize) -> u64 {
        self.window.word(offset).load(Ordering::Acquire)
    }

    /// Posts a WRITE of `bytes` from `local` to `remote`, offsets of the windows.
    pub fn post_write(&mut self, qp: usize, local: usize, remote: usize, bytes: u32) {
        let units = [self.raddr(qp, remote), self.data(local, bytes)];
        self.post(qp, WqeOpcode::RDMA_WRITE, &units);
    }

    /// Posts a WRITE of 12 bytes that lie in the WQE.
    pub fn post_inline(&mut self, qp: usize, bytes: &[u8; 12], remote: usize) {
        let data = inline(bytes).try_into().expect("one unit");
        let units = [self.raddr(qp, remote), data];
        self.post(qp, WqeOpcode::RDMA_WRITE, &units);
    }

    /// Posts an RDMA READ.
    pub fn post_read(&mut self, qp: usize, local: usize, remote: usize, bytes: u32) {
        let units = [self.raddr(qp, remote), self.data(local, bytes)];
        self.post(qp, WqeOpcode::RDMA_READ, &units);
    }

    /// Posts a fetch and add; the original value goes to `local`.
    pub fn post_fetch_add(&mut self, qp: usize, local: usize, remote: usize, add: u64) {
        let operands = AtomicSeg {
            swap_add: Be64::new(add),
            compare: Be64::new(0),
        };
        let units = [
            self.raddr(qp, remote),
            bytemuck::cast(operands),
            self.data(local, 8),
        ];
        self.post(qp, WqeOpcode::ATOMIC_FA, &units);
    }

    /// Posts a WRITE with a key that the peer does not have.
    pub fn post_bad_key(&mut self, qp: usize) {
        let units = [raddr(4096, 0x00de_ad00), self.data(0, 8)];
        self.post(qp, WqeOpcode::RDMA_WRITE, &units);
    }

    /// WQEs of `qp` that can be posted now.
    pub fn room(&mut self, qp: usize) -> u64 {
        let qp = &mut self.qps[qp];
        qp.poll().unwrap();
        DEPTH - (qp.posted - qp.completed)
    }

    /// Waits until all WQEs of `qp` are over; the last completion's outcome.
    pub fn wait(&mut self, qp: usize) -> Outcome {
        let end = Instant::now() + HANG;
        let qp = &mut self.qps[qp];
        while qp.completed < qp.posted {
            let seen = wake_word().load(Ordering::Acquire);
            qp.poll()?;
            assert!(
                Instant::now() < end,
                "{} of {} WQEs completed",
                qp.completed,
                qp.posted
            );
            sleep_while(seen);
        }
        Ok(())
    }

    /// Sleeps until the engine has something new, at most a millisecond. What came before the last [`Self::room`] of any QP
    /// may be missed that long.
    pub fn sleep_until_news(&self) {
        sleep_while(wake_word().load(Ordering::Acquire));
    }

    /// Waits until the 8-byte word at `offset` of the window is `word`.
    pub fn wait_for_word(&self, offset: usize, word: u64) {
        let end = Instant::now() + HANG;
        loop {
            let seen = wake_word().load(Ordering::Acquire);
            if self.word(offset) == word {
                return;
            }
            assert!(Instant::now() < end, "no word {word}");
            sleep_while(seen);
        }
    }

    fn raddr(&self, qp: usize, offset: usize) -> [u8; 16] {
        let remote = self.qps[qp].remote.as_ref().expect("connected");
        raddr(remote.base + offset as u64, remote.rkey)
    }

    fn data(&self, offset: usize, bytes: u32) -> [u8; 16] {
        data(bytes, self.lkey, self.window.address() + offset as u64)
    }

    /// Writes a WQE of one WQEBB, then the record, then the doorbell.
    fn post(&mut self, qp: usize, opcode: WqeOpcode, units: &[[u8; 16]]) {
        let qp = &mut self.qps[qp];
        assert!(qp.posted - qp.completed < DEPTH, "the ring is full");
        let index = low16(qp.posted);
        let mut ctrl = CtrlSeg::new(
            opcode,
            index,
            qp.qpn,
            u8::try_from(1 + units.len()).unwrap(),
        );
        ctrl.fm_ce_se = CtrlSeg::CE_ALWAYS;
        let slot = usize::try_from(qp.posted % DEPTH).unwrap() * 64;
        qp.control.write(slot, bytemuck::bytes_of(&ctrl));
        for (at, unit) in units.iter().enumerate() {
            qp.control.write(slot + 16 * (at + 1), unit);
        }
        qp.posted += 1;
        let next = low16(qp.posted);
        let record = qp.control.dword(QP_RECORD_AT + qp_record::SND);
        record.store(u32::from(next).to_be(), Ordering::Release);
        let register = qp.page.word(uar::register(0));
        register.store(doorbell_value(next, qp.qpn), Ordering::Release);
        softhca::engine::softhca_kick();
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        self.context.close();
    }
}

impl Qp {
    fn new(context: &Context, pdn: u32) -> Self {
        let control = Memory::new(CONTROL_BYTES);
        control.write(0, &[0xff; CQE_AT + 64]);
        // SAFETY: the driver closes the context before it unmaps the control memory.
        let umem = unsafe {
            context.reg_umem(control.address(), CONTROL_BYTES as u64, Access::LOCAL_WRITE)
        }
        .unwrap();
        let uar_page = context.alloc_uar().unwrap();
        let page = map_uar(context, &uar_page);
        let cqc = Cqc::default()
            .with_cc(1)
            .with_oi(1)
            .with_uar_page(uar_page.page_id)
            .with_c_eqn(context.eqn(0).unwrap())
            .with_dbr_umem_id(umem)
            .with_dbr_addr(CQ_RECORD_AT as u64);
        let input = CreateCqIn::default()
            .with_opcode(u32::from(Opcode::CREATE_CQ.0))
            .with_cqc(cqc)
            .with_cq_umem_id(umem)
            .with_cq_umem_offset(CQE_AT as u64);
        let (_, cqn) = create(context, input.as_bytes()).unwrap();
        let qpc = Qpc::default()
            .with_st(Qpc::ST_RC)
            .with_pm_state(Qpc::PM_STATE_MIGRATED)
            .with_pd(pdn)
            .with_uar_page(uar_page.page_id)
            .with_log_sq_size(LOG_DEPTH)
            .with_rq_type(Qpc::RQ_TYPE_NONE)
            .with_cqn_snd(cqn)
            .with_cqn_rcv(cqn)
            .with_dbr_umem_id(umem)
            .with_dbr_addr(QP_RECORD_AT as u64);
        let input = CreateQpIn::default()
            .with_opcode(u32::from(Opcode::CREATE_QP.0))
            .with_qpc(qpc)
            .with_wq_umem_id(umem);
        let (_, qpn) = create(context, input.as_bytes()).unwrap();
        Self {
            qpn,
            control,
            page,
            posted: 0,
            completed: 0,
            remote: None,
        }
    }

    /// Looks at the collapsed CQE.
    fn poll(&mut self) -> Outcome {
        let word = self
            .control
            .dword(CQE_AT + 60)
            .load(Ordering::Acquire)
            .to_ne_bytes();
        let counter = u16::from_be_bytes([word[0], word[1]]);
        let ahead = u64::from(counter.wrapping_add(1).wrapping_sub(low16(self.completed)));
        match word[3] >> 4 {
            0xf => Ok(()), // never written
            0 => {
                assert!(
                    self.completed + ahead <= self.posted,
                    "completion of WQE {counter}, which was not posted"
                );
                self.completed += ahead;
                Ok(())
            }
            _ => Err(self.control.read(CQE_AT + 55, 1)[0]),
        }
    }
}

fn low16(index: u64) -> u16 {
    u16::try_from(index & 0xffff).unwrap()
}

fn wake_word() -> &'static AtomicU32 {
    // SAFETY: the word is a static of the library.
    unsafe { AtomicU32::from_ptr(softhca::engine::softhca_wake_word().cast_mut()) }
}

/// Sleeps until the wake word is not `seen` any more, at most a millisecond.
fn sleep_while(seen: u32) {
    let word = wake_word();
    let limit = libc::timespec {
        tv_sec: 0,
        tv_nsec: 1_000_000,
    };
    let op = libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG;
    // SAFETY: a futex wait on that word with a time limit.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), op, seen, &raw const limit) };
}
