//! The HCA as the wire sees it, and as an HCA of the same process does: memory, receive WQEs, completions.

use super::{atomics, message};
use crate::device::Event;
use crate::device::check::Finding;
use crate::device::memory::keys::KeyUser;
use crate::device::memory::umr::{self, UmrError};
use crate::device::memory::{Access, KeyError, Region, regions};
use crate::device::objects::qp::Qp;
use crate::device::objects::work::Work;
use crate::device::objects::{path, qp_state};
use crate::device::state::HcaState;
use crate::engine::intake::decode;
use crate::engine::send::datagram;
use crate::engine::{completion, local};
use crate::envelope::Destination;
use crate::transport::{Datagram, Device, Failure, NakCode, ReceiveError, Received, RemoteAccess};
use crate::wire::headers::AtomicEth;
use file_memory::Gone;
use mlx5_prm::cqe::Syndrome;
use mlx5_prm::qp::QpState;

impl HcaState {
    /// Refuses a request for a QP that is missing or whose state takes no requests.
    fn need_receiving(&self, qpn: u32) -> Result<(), NakCode> {
        let qp = self.qps.get(qpn);
        qp.filter(|qp| qp_state::receives(qp.state))
            .map(|_| ())
            .ok_or(NakCode::REMOTE_OPERATIONAL_ERROR)
    }

    /// Appends to `out` the memory that a peer's request names, piece by piece, if QP `qpn` grants the access.
    fn grant(
        &mut self,
        qpn: u32,
        rkey: u32,
        va: u64,
        bytes: u64,
        need: Access,
        out: &mut Vec<Region>,
    ) -> Result<(), NakCode> {
        message::established(self, qpn);
        let qp = self.qps.get(qpn).ok_or(NakCode::REMOTE_OPERATIONAL_ERROR)?;
        let (right, name) = match need {
            Access::REMOTE_WRITE => (qp.qpc.rwe(), "writes"),
            Access::REMOTE_READ => (qp.qpc.rre(), "reads"),
            _ => (qp.qpc.rae(), "atomics"),
        };
        if right == 0 {
            self.checker.note(Finding::RemoteRight, qpn, || {
                format!("QP {qpn:#x}: the peer's request is refused: remote {name} are not allowed")
            });
            return Err(NakCode::INVALID_REQUEST);
        }
        let user = KeyUser {
            pdn: self.remote_domain(qp, rkey),
            qpn,
        };
        let found = self.resolve(rkey, user, va, bytes, need, out);
        found.map_err(|error| {
            if !matches!(error, KeyError::NoKey | KeyError::Stale { .. })
                || !self
                    .checker
                    .note_if_ended(qpn, rkey, self.now_ns, "its peer uses")
            {
                self.checker.note(Finding::RemoteKey, qpn, || {
                    format!(
                        "QP {qpn:#x}: the peer's request is refused: rkey {rkey:#x} does not give {bytes:#x} bytes at \
                         {va:#x}: {error}"
                    )
                });
            }
            NakCode::REMOTE_ACCESS_ERROR
        })
    }

    /// Reports that a page is gone to which a peer's request leads by its key. Returns the code for the NAK.
    pub(in crate::engine) fn refuse_gone(&mut self, qpn: u32, rkey: u32, gone: Gone) -> NakCode {
        self.checker.note(Finding::RemoteKey, qpn, || {
            format!("QP {qpn:#x}: the peer's request by rkey {rkey:#x} is refused: {gone}")
        });
        NakCode::REMOTE_ACCESS_ERROR
    }

    /// Returns the protection domain that keys of a peer's requests must have. An XRC target has no domain of its own. Its requests may use
    /// a key if one of the SRQs of its XRC domain has the domain of the key. The specification asks for the very SRQ that the request
    /// names.
    fn remote_domain(&self, qp: &Qp, rkey: u32) -> u32 {
        let Some(xrcd) = qp.xrcd() else {
            return qp.pdn;
        };
        let pdn = self.keys.get(rkey >> 8).map_or(0, |key| key.pdn);
        let shared = self
            .srqs
            .iter()
            .any(|(_, srq)| srq.xrcd() == Some(xrcd) && srq.pdn == pdn);
        if shared { pdn } else { 0 }
    }

    /// Returns the memory that a peer writes or reads, piece by piece. The vector is the HCA's scratch: the caller gives it back to the
    /// field `granted` after use.
    pub(in crate::engine) fn grant_remote(
        &mut self,
        qpn: u32,
        access: RemoteAccess,
        rkey: u32,
        va: u64,
        bytes: u64,
    ) -> Result<Vec<Region>, NakCode> {
        self.need_receiving(qpn)?;
        self.granted(qpn, access, rkey, va, bytes)
    }

    /// Does what [`Self::grant_remote`] does, also for a QP that has refused a later request meanwhile.
    fn granted(
        &mut self,
        qpn: u32,
        access: RemoteAccess,
        rkey: u32,
        va: u64,
        bytes: u64,
    ) -> Result<Vec<Region>, NakCode> {
        let need = match access {
            RemoteAccess::Write => Access::REMOTE_WRITE,
            RemoteAccess::Read => Access::REMOTE_READ,
        };
        let mut granted = std::mem::take(&mut self.granted);
        granted.clear();
        match self.grant(qpn, rkey, va, bytes, need, &mut granted) {
            Ok(()) => Ok(granted),
            Err(code) => {
                self.granted = granted;
                Err(code)
            }
        }
    }

    /// Invalidates `key`, as a message of the peer asks.
    pub(super) fn invalidate(&mut self, qpn: u32, key: u32) -> Result<(), UmrError> {
        let pdn = self
            .qps
            .get(qpn)
            .map_or(0, |qp| self.remote_domain(qp, key));
        umr::invalidate_remotely(&mut self.keys, key, KeyUser { pdn, qpn })
    }

    /// Ends the parked NOPs whose earlier operations on the wire are all over.
    fn release_parked(&mut self, qpn: u32) {
        while let Some(qp) = self.qps.get_mut(qpn)
            && let Some((after, _)) = qp.send.parked.front()
            && *after <= qp.send.completed
        {
            let well = !matches!(qp.state, QpState::ERR | QpState::SQER);
            let Some((_, work)) = qp.send.parked.pop_front() else {
                return;
            };
            if well {
                completion::complete_send(self, qpn, &work, self.now_ns);
            } else {
                let flushed = Syndrome::WR_FLUSH_ERR;
                completion::fail_send(self, qpn, work.index, work.blocks, work.opcode, flushed);
            }
        }
    }
}

impl Device for HcaState {
    type Wqe = Work;

    fn gather(&mut self, qpn: u32, wqe: &Work, offset: u64, out: &mut [u8]) -> Result<(), Failure> {
        local::gather(self, qpn, &wqe.local, offset, out)
    }

    fn destination(&self, wqe: &Work, to: &Datagram) -> Option<Destination> {
        path::datagram_destination(self.identity.port(wqe.port)?, wqe.source_gid, to)
    }

    fn scatter(&mut self, qpn: u32, wqe: &Work, offset: u64, data: &[u8]) -> Result<(), Failure> {
        local::scatter(self, qpn, wqe.local.segments(), offset, data)?;
        self.counters.bytes_received += data.len() as u64;
        Ok(())
    }

    fn complete(&mut self, qpn: u32, wqe: Work, outcome: Result<(), Failure>) {
        let Some(qp) = self.qps.get_mut(qpn) else {
            return;
        };
        qp.send.completed += 1;
        match outcome {
            Ok(()) => completion::complete_send(self, qpn, &wqe, self.now_ns),
            Err(failure) => {
                let syndrome = Syndrome(failure.syndrome());
                completion::fail_send(self, qpn, wqe.index, wqe.blocks, wqe.opcode, syndrome);
                completion::send_failed(self, qpn);
            }
        }
        self.release_parked(qpn);
        // There is room for the next operation now.
        self.schedule(qpn);
    }

    fn check_remote(
        &mut self,
        qpn: u32,
        access: RemoteAccess,
        rkey: u32,
        va: u64,
        bytes: u32,
    ) -> Result<(), NakCode> {
        self.granted = self.grant_remote(qpn, access, rkey, va, bytes.into())?;
        Ok(())
    }

    fn remote_write(&mut self, qpn: u32, rkey: u32, va: u64, data: &[u8]) -> Result<(), NakCode> {
        let bytes = data.len() as u64;
        let targets = self.grant_remote(qpn, RemoteAccess::Write, rkey, va, bytes)?;
        let written = if self.pending_writes.is_active() {
            self.accept(qpn, rkey, &targets, data.to_vec())
        } else {
            regions::write(&targets, data)
        };
        self.granted = targets;
        written.map_err(|gone| self.refuse_gone(qpn, rkey, gone))?;
        self.counters.bytes_received += data.len() as u64;
        self.news = true;
        Ok(())
    }

    fn remote_read(&mut self, qpn: u32, rkey: u32, va: u64, out: &mut [u8]) -> Result<(), NakCode> {
        let bytes = out.len() as u64;
        // The QP accepted this request earlier: its answer goes out before the refusal of a later request.
        let sources = self.granted(qpn, RemoteAccess::Read, rkey, va, bytes)?;
        self.pending_writes.before_read(qpn, self.order_of(qpn));
        let read = regions::read(&sources, out);
        self.granted = sources;
        read.map_err(|gone| self.refuse_gone(qpn, rkey, gone))?;
        self.counters.bytes_sent += out.len() as u64;
        Ok(())
    }

    fn remote_atomic(&mut self, qpn: u32, atomic: &AtomicEth) -> Result<u64, NakCode> {
        let bytes = decode::operand_bytes(&atomic.op);
        let (rkey, va) = (atomic.rkey, atomic.va);
        self.need_receiving(qpn)?;
        let mut granted = std::mem::take(&mut self.granted);
        granted.clear();
        let outcome = self.grant(qpn, rkey, va, bytes, Access::REMOTE_ATOMIC, &mut granted);
        let operand = granted
            .first()
            .copied()
            .filter(|operand| operand.bytes() == bytes && operand.address().is_multiple_of(bytes));
        self.granted = granted;
        outcome?;
        let Some(operand) = operand.filter(|_| va.is_multiple_of(bytes)) else {
            self.checker.note(Finding::RemoteRight, qpn, || {
                format!(
                    "QP {qpn:#x}: the peer's atomic of {bytes} bytes at {va:#x} is off its boundary"
                )
            });
            return Err(NakCode::INVALID_REQUEST);
        };
        self.pending_writes.before_atomic(qpn, self.order_of(qpn));
        self.news = true;
        atomics::apply(&atomic.op, &operand).map_err(|gone| self.refuse_gone(qpn, rkey, gone))
    }

    fn accepts_datagram(&mut self, qpn: u32, qkey: u32) -> bool {
        datagram::accepts_datagram(self, qpn, qkey)
    }

    fn receive_begin(&mut self, qpn: u32, srqn: Option<u32>) -> Result<(), ReceiveError> {
        message::begin(self, qpn, srqn)
    }

    fn receive_bytes(&mut self, qpn: u32, offset: u64, data: &[u8]) -> Result<(), NakCode> {
        message::bytes(self, qpn, offset, data)
    }

    fn receive_done(&mut self, qpn: u32, received: &Received) -> Result<(), NakCode> {
        self.pending_writes.force(qpn);
        message::done(self, qpn, received)
    }

    fn answering(&mut self, qpn: u32) {
        self.pending_writes.force(qpn);
    }

    fn responder_failed(&mut self, qpn: u32, code: NakCode) {
        let Some(qp) = self.qps.get(qpn) else {
            return;
        };
        let context = qp.context;
        completion::enter_error(self, qpn);
        self.raise(
            context,
            if code == NakCode::REMOTE_ACCESS_ERROR {
                Event::QpAccessError(qpn)
            } else {
                Event::QpRequestError(qpn)
            },
        );
    }
}
