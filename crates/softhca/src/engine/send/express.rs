//! The fast path for common WQEs: WRITEs and READs, of one WQEBB, of an RC QP to a QP of this process. [The
//! engine](crate::engine#the-fast-path) says when it is taken, and why its effects are the same as those of the slow path.
//!
//! Both ends are looked up once for a whole run of WQEs, and written back after it. The lock is held, so nothing else changes the ends,
//! their keys or their queue meanwhile. If a WQE is of another kind or would fail, this module leaves it untouched, and the slow path
//! begins with it anew. So this module has no errors, and all its effects are effects that the slow path has too.

use super::{End, loopback, pending};
use crate::device::memory::keys::{self, KeyUser, MemoryKey};
use crate::device::memory::{Access, Region};
use crate::device::objects::arming::Notice;
use crate::device::objects::cq::{Cq, Overrun};
use crate::device::objects::path;
use crate::device::objects::qp::Route;
use crate::device::state::{Fabric, HcaState};
use crate::device::table::Table;
use crate::engine::completion::{self, arming};
use crate::transport::Service;
use crate::wire::psn::Psn;
use mlx5_prm::be::{Be16, Be32, Be64};
use mlx5_prm::cqe::{Cqe64, CqeOpcode};
use mlx5_prm::qp::QpState;
use mlx5_prm::wqe::{CtrlSeg, DataSeg, InlineHeader, RaddrSeg, SEG_BYTES, WQEBB_BYTES, WqeOpcode};

/// Longest message of the fast path. Between parts of longer messages other QPs have their turn.
const MAX_BYTES: u64 = 1 << 20;

/// The outcome of a run.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Ran {
    pub(super) wqes: usize,
    pub(super) bytes: u64,
}

/// Runs WQEs of a QP as long as they are common ones: up to `budget` WQEs, or about `limit` bytes.
pub(super) fn run(
    fabric: &mut Fabric,
    own: End,
    budget: usize,
    limit: u64,
    now_ns: u64,
) -> Option<Ran> {
    let (mut ends, peer) = Ends::find(fabric, own, now_ns)?;
    let mut done = Done::default();
    {
        let (hca, other) = both(fabric, own.hca, peer.hca)?;
        let mut memory = Memory {
            near: Keys::new(&hca.keys, ends.near),
            far: Keys::new(
                other.as_deref().map_or(&hca.keys, |other| &other.keys),
                ends.far,
            ),
        };
        let cq = hca.cqs.get_mut(ends.cqn)?;
        while done.wqes < budget && done.sent + done.fetched < limit && ends.index != ends.posted {
            let mut wqe = [0; WQEBB_BYTES];
            ends.ring.read(ends.offset(), &mut wqe);
            if !memory.carry_out(&ends, &wqe, &mut done) {
                break;
            }
            ends.finish(cq, &wqe, &mut done, now_ns);
            if !matches!(done.outcome, Outcome::Entry) {
                break;
            }
        }
    }
    ends.write_back(fabric, own, peer, &done);
    Some(Ran {
        wqes: done.wqes,
        bytes: done.sent + done.fetched,
    })
}

/// The state of both ends during a run.
#[derive(Clone, Copy)]
struct Ends {
    qpn: u32,
    ring: Region,
    /// Index of the next WQE. `posted` is the index after the last one.
    index: u16,
    posted: u16,
    psn: Psn,
    mtu: u32,
    cqn: u32,
    user_index: u32,
    near: KeyUser,
    far: KeyUser,
    /// The rights that the peer's QP gives: remote writes and remote reads.
    writes: bool,
    reads: bool,
}

impl Ends {
    /// Returns the state of both ends, and where the peer is; `None` if the QP has no common WQE to run.
    fn find(fabric: &mut Fabric, own: End, now_ns: u64) -> Option<(Self, End)> {
        let hca = fabric.hca(own.hca)?;
        let config = hca.checker.config();
        let watched = config.overlap || config.wqe_bytes || !hca.flights.is_empty();
        if watched || hca.dead || !hca.faults.spare_entries() {
            return None;
        }
        let qp = hca.qps.get(own.qpn)?;
        let send = &qp.send;
        let Route::Process(peer_hca) = qp.route else {
            return None;
        };
        let idle = send.current.is_none() && send.is_drained() && !send.failed_by_fault;
        if qp.service != Service::Rc || qp.state != QpState::RTS || !idle {
            return None;
        }
        let ring = send.ring.filter(|_| send.fetched != send.posted)?;
        let mut ends = Self {
            qpn: own.qpn,
            ring,
            index: send.fetched,
            posted: send.posted,
            psn: Psn::new(qp.send_psn),
            mtu: path::mtu_bytes(&qp.qpc),
            cqn: qp.send_cqn,
            user_index: qp.qpc.user_index(),
            near: KeyUser {
                pdn: qp.pdn,
                qpn: own.qpn,
            },
            far: KeyUser { pdn: 0, qpn: 0 },
            writes: false,
            reads: false,
        };
        let mut opcode = [0; 4];
        ring.read(ends.offset(), &mut opcode);
        if !is_common(WqeOpcode(opcode[3])) {
            return None;
        }
        let peer = loopback::find_peer(fabric, own, peer_hca, now_ns).ok()?;
        if pending::is_active(fabric, peer) {
            return None;
        }
        let other = fabric.hca(peer.hca)?.qps.get(peer.qpn)?;
        // The first request that a peer in Rtr receives raises an event. The slow path does that.
        if other.state == QpState::RTR {
            return None;
        }
        ends.far = KeyUser {
            pdn: other.pdn,
            qpn: peer.qpn,
        };
        ends.writes = other.qpc.rwe() != 0;
        ends.reads = other.qpc.rre() != 0;
        Some((ends, peer))
    }

    /// Returns the offset of the next WQE in the ring, whose length is a power of two.
    fn offset(&self) -> usize {
        (usize::from(self.index) * WQEBB_BYTES) & (self.ring.length() - 1)
    }

    /// Completes the WQE that has just been carried out.
    fn finish(&mut self, cq: &mut Cq, wqe: &[u8; WQEBB_BYTES], done: &mut Done, now_ns: u64) {
        let ctrl: CtrlSeg = segment(wqe, 0);
        let index = self.index;
        self.index = index.wrapping_add(1);
        self.psn = self.psn.add(done.last.div_ceil(self.mtu).max(1));
        done.wqes += 1;
        if ctrl.fm_ce_se & CtrlSeg::CE_MASK != CtrlSeg::CE_ALWAYS {
            return;
        }
        let cqe = Cqe64 {
            srqn_uidx: Be32::new(self.user_index),
            byte_cnt: Be32::new(done.last),
            timestamp: Be64::new(now_ns),
            sop_drop_qpn: Be32::new(u32::from(ctrl.opcode().0) << 24 | self.qpn),
            wqe_counter: Be16::new(index),
            op_own: CqeOpcode::REQ.0 << 4,
            ..Cqe64::default()
        };
        match cq.push(bytemuck::cast(cqe)) {
            Ok(written) => {
                done.cqes += u64::from(written);
                if written {
                    done.outcome = match cq.entry_written(false, now_ns) {
                        Notice::Nothing => Outcome::Entry,
                        notice => Outcome::Notice(notice),
                    };
                }
            }
            Err(overrun) => done.outcome = Outcome::Overrun(overrun),
        }
    }

    /// Writes the results of the run into both ends.
    fn write_back(&self, fabric: &mut Fabric, own: End, peer: End, done: &Done) {
        if done.wqes == 0 {
            return;
        }
        if let Some(hca) = fabric.hca(own.hca) {
            if let Some(qp) = hca.qps.get_mut(own.qpn) {
                qp.send.fetched = self.index;
                qp.send.retired = self.index;
                qp.send_psn = self.psn.value();
                hca.counters.on_port(&qp.qpc, done.wqes as u64);
            }
            let counters = &mut hca.counters;
            counters.wqes += done.wqes as u64;
            counters.cqes += done.cqes;
            counters.write_requests += done.writes;
            counters.inline_write_requests += done.inline_writes;
            counters.read_requests += done.reads;
            counters.bytes_sent += done.sent;
            counters.bytes_received += done.fetched;
            hca.news |= done.cqes + done.fetched != 0;
            match done.outcome {
                Outcome::Entry => {}
                Outcome::Notice(notice) => arming::follow(hca, self.cqn, notice),
                Outcome::Overrun(overrun) => completion::overran(hca, self.cqn, &overrun),
            }
        }
        if let Some(hca) = fabric.hca(peer.hca) {
            if let Some(qp) = hca.qps.get_mut(peer.qpn) {
                qp.receive_psn = self.psn.value();
            }
            hca.counters.bytes_received += done.sent;
            hca.counters.bytes_sent += done.fetched;
            hca.news |= done.sent != 0;
        }
    }
}

/// Returns the HCAs of both ends; `None` for the second if both ends are on one HCA.
fn both(
    fabric: &mut Fabric,
    own: usize,
    peer: usize,
) -> Option<(&mut HcaState, Option<&mut HcaState>)> {
    if own == peer {
        return Some((fabric.hca(own)?, None));
    }
    let [own, peer] = fabric.hcas.get_disjoint_mut([own, peer]).ok()?;
    Some((&mut own.as_mut()?.state, Some(&mut peer.as_mut()?.state)))
}

fn is_common(opcode: WqeOpcode) -> bool {
    matches!(opcode, WqeOpcode::RDMA_WRITE | WqeOpcode::RDMA_READ)
}

/// The work that a run has done so far.
#[derive(Default)]
struct Done {
    wqes: usize,
    cqes: u64,
    writes: u64,
    inline_writes: u64,
    reads: u64,
    /// Number of bytes written to the peer. `fetched` is the number of bytes read from the peer.
    sent: u64,
    fetched: u64,
    /// Number of bytes that the last WQE moved.
    last: u32,
    outcome: Outcome,
}

/// The outcome of the last completion entry.
#[derive(Clone, Copy, Default)]
enum Outcome {
    /// The entry raises no event.
    #[default]
    Entry,
    Notice(Notice),
    Overrun(Overrun),
}

/// The memory keys of both ends.
struct Memory<'a> {
    near: Keys<'a>,
    far: Keys<'a>,
}

impl Memory<'_> {
    /// Moves the bytes of a WQE. Returns `false` if the WQE is one for the slow path, and then nothing has happened.
    fn carry_out(&mut self, ends: &Ends, wqe: &[u8; WQEBB_BYTES], done: &mut Done) -> bool {
        let ctrl: CtrlSeg = segment(wqe, 0);
        let opcode = ctrl.opcode();
        if ctrl.index() != ends.index || ctrl.qpn() != ends.qpn || !is_common(opcode) {
            return false;
        }
        let remote: RaddrSeg = segment(wqe, 1);
        let (rkey, va) = (remote.rkey.get(), remote.raddr.get());
        let data: DataSeg = segment(wqe, 2);
        let (ds, count) = (usize::from(ctrl.ds()), data.byte_count.get());
        let inline = count & InlineHeader::INLINE != 0;
        let count = if inline {
            count & InlineHeader::LENGTH_MASK
        } else {
            count
        };
        let moved = if inline {
            const START: usize = 2 * SEG_BYTES + size_of::<InlineHeader>();
            let end = START + count as usize;
            let Some(bytes) = wqe.get(START..end).filter(|bytes| !bytes.is_empty()) else {
                return false;
            };
            if end.div_ceil(SEG_BYTES) != ds || opcode != WqeOpcode::RDMA_WRITE || !ends.writes {
                return false;
            }
            let need = Access::REMOTE_WRITE;
            let far = self.far.region(rkey, va, bytes.len() as u64, need);
            done.inline_writes += u64::from(far.is_some());
            far.map(|far| far.write(0, bytes))
        } else {
            let bytes = u64::from(count);
            if ds != 3 || bytes == 0 || bytes > MAX_BYTES {
                return false;
            }
            let (near_need, far_need, granted) = if opcode == WqeOpcode::RDMA_WRITE {
                (Access::LOCAL_READ, Access::REMOTE_WRITE, ends.writes)
            } else {
                (Access::LOCAL_WRITE, Access::REMOTE_READ, ends.reads)
            };
            if !granted {
                return false;
            }
            let near = self
                .near
                .region(data.lkey.get(), data.addr.get(), bytes, near_need);
            let far = self.far.region(rkey, va, bytes, far_need);
            near.zip(far).and_then(|(near, far)| {
                let moved = match opcode {
                    WqeOpcode::RDMA_WRITE => near.copy_to(&far),
                    _ => far.copy_to(&near),
                };
                moved.ok()
            })
        };
        if moved.is_none() {
            return false;
        }
        done.last = count;
        if opcode == WqeOpcode::RDMA_WRITE {
            done.writes += 1;
            done.sent += u64::from(done.last);
        } else {
            done.reads += 1;
            done.fetched += u64::from(done.last);
        }
        true
    }
}

/// The keys of one end, and the key used last.
struct Keys<'a> {
    all: &'a Table<MemoryKey>,
    user: KeyUser,
    last: Option<(u32, &'a MemoryKey)>,
}

impl<'a> Keys<'a> {
    fn new(all: &'a Table<MemoryKey>, user: KeyUser) -> Self {
        Self {
            all,
            user,
            last: None,
        }
    }

    /// Returns the memory that a key gives, if it lies in one piece and its pages cannot go.
    fn region(&mut self, key: u32, va: u64, bytes: u64, need: Access) -> Option<Region> {
        let found = match self.last {
            Some((last, found)) if last == key => found,
            _ => {
                let found = keys::find(self.all, key).ok()?;
                self.last = Some((key, found));
                found
            }
        };
        let piece = found.piece(self.user, va, bytes, need)?;
        Some(piece).filter(|piece| !piece.may_shrink())
    }
}

/// Returns the segment at unit `at` of the WQE.
fn segment<T: bytemuck::AnyBitPattern>(wqe: &[u8; WQEBB_BYTES], at: usize) -> T {
    let start = at * SEG_BYTES;
    bytemuck::pod_read_unaligned(&wqe[start..start + size_of::<T>()])
}
