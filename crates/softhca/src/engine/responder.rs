//! The HCA as its wire sees it, and as an HCA of the same process does: memory, receive WQEs, completions.

use super::{atomics, completion, decode, local};
use crate::device::Event;
use crate::device::checker::Finding;
use crate::device::keys::{Access, KeyError, KeyUser};
use crate::device::memory::Region;
use crate::device::qp::ReceiveQueue;
use crate::device::state::HcaState;
use crate::device::umr::{self, UmrError};
use crate::device::work::{Segment, Work};
use crate::device::{qp_state, regions};
use crate::engine::transport::{Device, Failure, ReceiveError, Received, RemoteAccess, SendWith};
use crate::wire::headers::{AtomicEth, NakCode};
use mlx5_prm::cqe::Syndrome;
use mlx5_prm::qp::QpState;
use mlx5_prm::wqe::{DataSeg, SEG_BYTES};

impl HcaState {
    /// The memory that a peer's request names, if QP `qpn` grants the access, piece by piece, appended to `out`.
    fn grant(
        &mut self,
        qpn: u32,
        rkey: u32,
        va: u64,
        bytes: u64,
        need: Access,
        out: &mut Vec<Region>,
    ) -> Result<(), NakCode> {
        let qp = self
            .qps
            .get(qpn)
            .filter(|qp| qp_state::receives(qp.state))
            .ok_or(NakCode::REMOTE_OPERATIONAL_ERROR)?;
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
        let user = KeyUser { pdn: qp.pdn, qpn };
        let found = self.resolve(rkey, user, va, bytes, need, out);
        found.map_err(|error| {
            if error != KeyError::NoKey
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

    /// The memory that a peer writes or reads, piece by piece. The vector is the HCA's scratch: it goes back to
    /// [`HcaState::granted`] after use.
    pub(super) fn grant_remote(
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

    /// Invalidates `key` because the peer says so.
    fn invalidate(&mut self, qpn: u32, key: u32) -> Result<(), UmrError> {
        let pdn = self.qps.get(qpn).map_or(0, |qp| qp.pdn);
        umr::invalidate_remotely(&mut self.keys, key, KeyUser { pdn, qpn })
    }

    /// Ends NOPs that waited for `completed` operations on the wire.
    fn release_parked(&mut self, qpn: u32) {
        while let Some(qp) = self.qps.get_mut(qpn)
            && let Some((after, _)) = qp.send.parked.front()
            && *after <= qp.send.completed
        {
            let well = qp.state != QpState::ERR;
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
                completion::enter_error(self, qpn);
            }
        }
        self.release_parked(qpn);
        // There is room for the next operation.
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
        regions::write(&targets, data);
        self.granted = targets;
        self.counters.bytes_received += data.len() as u64;
        self.news = true;
        Ok(())
    }

    fn remote_read(&mut self, qpn: u32, rkey: u32, va: u64, out: &mut [u8]) -> Result<(), NakCode> {
        let bytes = out.len() as u64;
        let sources = self.grant_remote(qpn, RemoteAccess::Read, rkey, va, bytes)?;
        regions::read(&sources, out);
        self.granted = sources;
        self.counters.bytes_sent += out.len() as u64;
        Ok(())
    }

    fn remote_atomic(&mut self, qpn: u32, atomic: &AtomicEth) -> Result<u64, NakCode> {
        let bytes = decode::operand_bytes(&atomic.op);
        let (rkey, va) = (atomic.rkey, atomic.va);
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
        self.news = true;
        Ok(atomics::apply(&atomic.op, &operand))
    }

    fn accepts_datagram(&mut self, _: u32, _: u32) -> bool {
        false // No QP of this device has that service.
    }

    fn receive_begin(&mut self, qpn: u32, _: Option<u32>) -> Result<(), ReceiveError> {
        let refused = ReceiveError::Refused;
        let qp = self
            .qps
            .get_mut(qpn)
            .filter(|qp| qp_state::receives(qp.state))
            .ok_or(refused(NakCode::REMOTE_OPERATIONAL_ERROR))?;
        let posted = qp.receive_record();
        let Some(queue) = &mut qp.receive else {
            self.checker.note(Finding::RemoteRight, qpn, || {
                format!("QP {qpn:#x}: the peer's message needs a receive WQE, and there is no receive queue")
            });
            return Err(refused(NakCode::INVALID_REQUEST));
        };
        let index = queue.taken;
        let ahead = posted.wrapping_sub(index);
        if ahead == 0 {
            return Err(ReceiveError::NotReady);
        }
        let entries = queue.entries();
        if u64::from(ahead) > entries {
            self.checker.note(Finding::ReceiveBeyondRing, qpn, || {
                format!(
                    "QP {qpn:#x}: the receive counter of the doorbell record is {ahead} ahead of the device, the ring \
                     has {entries} WQEs"
                )
            });
            return Err(refused(NakCode::REMOTE_OPERATIONAL_ERROR));
        }
        queue.taken = index.wrapping_add(1);
        queue.current = Some(crate::device::qp::Received {
            index,
            pieces: pieces(queue, index),
        });
        Ok(())
    }

    fn receive_bytes(&mut self, qpn: u32, offset: u64, data: &[u8]) -> Result<(), NakCode> {
        let Some(current) = self
            .qps
            .get_mut(qpn)
            .and_then(|qp| qp.receive.as_mut()?.current.take())
        else {
            return Err(NakCode::REMOTE_OPERATIONAL_ERROR);
        };
        let room: u64 = current.pieces.iter().map(|piece| piece.bytes).sum();
        let (syndrome, code) = if offset.saturating_add(data.len() as u64) > room {
            (Syndrome::LOCAL_LENGTH_ERR, NakCode::INVALID_REQUEST)
        } else if local::scatter(self, qpn, &current.pieces, offset, data).is_err() {
            (Syndrome::LOCAL_PROT_ERR, NakCode::REMOTE_OPERATIONAL_ERROR)
        } else {
            self.counters.bytes_received += data.len() as u64;
            if let Some(queue) = self.qps.get_mut(qpn).and_then(|qp| qp.receive.as_mut()) {
                queue.current = Some(current);
            }
            return Ok(());
        };
        completion::fail_receive(self, qpn, current.index, syndrome);
        Err(code)
    }

    fn receive_done(&mut self, qpn: u32, received: &Received) -> Result<(), NakCode> {
        let Some(current) = self
            .qps
            .get_mut(qpn)
            .and_then(|qp| qp.receive.as_mut()?.current.take())
        else {
            return Ok(());
        };
        if let SendWith::Invalidate(key) = received.with
            && let Err(error) = self.invalidate(qpn, key)
        {
            self.checker.note(Finding::RemoteKey, qpn, || {
                format!("QP {qpn:#x}: the peer's request to invalidate rkey {key:#x} is refused: {error}")
            });
            let syndrome = Syndrome::LOCAL_ACCESS_ERR;
            completion::fail_receive(self, qpn, current.index, syndrome);
            return Err(NakCode::REMOTE_ACCESS_ERROR);
        }
        completion::complete_receive(self, qpn, current.index, received, self.now_ns);
        Ok(())
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

/// The segments of receive WQE `index`: up to the invalid key, those of length 0 skipped.
fn pieces(queue: &ReceiveQueue, index: u16) -> Vec<Segment> {
    let start = u64::from(index) % queue.entries() * queue.stride;
    let Some(slot) = queue.ring.part(start, queue.stride) else {
        return Vec::new();
    };
    let mut wqe = vec![0; slot.length()];
    slot.read(0, &mut wqe);
    wqe.chunks_exact(SEG_BYTES)
        .filter_map(|unit| bytemuck::try_pod_read_unaligned::<DataSeg>(unit).ok())
        .take_while(|data| data.lkey.get() != DataSeg::INVALID_LKEY)
        .filter(|data| data.byte_count.get() != 0)
        .map(|data| Segment {
            lkey: data.lkey.get(),
            address: data.addr.get(),
            bytes: data.byte_count.get().into(),
        })
        .collect()
}
