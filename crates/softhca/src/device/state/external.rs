//! External HCAs of a fabric: the tables of their executor follow the objects, and the objects follow what the executor does.

use super::attached::{Attached, failed};
use super::fabric::Fabric;
use super::hca::HcaState;
use super::tables::{Counted, Tables};
use crate::device::check::Finding;
use crate::device::executor::execution::Execution;
use crate::device::objects::cq::Cq;
use crate::device::objects::watch::Look;
use crate::device::{DeviceError, Event};
use gpuhca_abi::{
    Executor, FAILED_RESPONDER, ODD_BACKWARDS, ODD_BEYOND_RING, ODD_INDEX, ODD_LENGTH,
    ODD_LOCAL_KEY, ODD_QPN, ODD_REMOTE_KEY, ODD_SEGMENT,
};
use mlx5_prm::qp::QpState;

impl Fabric {
    /// Attaches an executor. See [`crate::device::external::softhca_attach`].
    pub(in crate::device) fn attach_executor(
        &mut self,
        executor: Executor,
    ) -> Result<(), DeviceError> {
        let mut attached = Attached::new(executor)?;
        if self.external.is_some() {
            return Err(failed("softhca_attach", libc::EBUSY));
        }
        crate::engine::serve_executor(true);
        // If the kernel of the executor has failed at once or does not run, this call reports it.
        let settled = attached.settle();
        let settled = match attached.broken() {
            Some(errno) => Err(failed("softhca_attach", errno)),
            None => settled,
        };
        self.external = Some(Tables::new(attached));
        let written = settled.and_then(|()| {
            let mut all = self.external_hcas().into_iter();
            all.try_for_each(|number| self.write_through(number))
        });
        if written.is_err() {
            self.detach_executor();
        }
        written
    }

    /// Detaches the executor. See [`crate::device::external::softhca_detach`].
    pub(crate) fn detach_executor(&mut self) {
        for number in self.external_hcas() {
            self.count(number);
            if let Some(hca) = self.hca(number) {
                for (_, uar) in hca.uars.iter() {
                    uar.page.set_twin(0);
                }
            }
        }
        self.external = None;
        crate::engine::serve_executor(false);
    }

    fn external_hcas(&self) -> Vec<usize> {
        let external = self
            .all()
            .filter(|slot| slot.state.execution == Execution::External);
        external.map(|slot| slot.state.number).collect()
    }

    /// Returns whether an executor is attached and answers, so that it runs the WQEs of external HCAs.
    pub(crate) fn has_executor(&self) -> bool {
        self.external.as_ref().is_some_and(Tables::executor_answers)
    }

    /// Brings the executor's tables up to date with HCA `number`, if it is an external HCA. When this returns, the executor uses no object
    /// that has ended.
    ///
    /// # Errors
    ///
    /// A table is full, or the executor has failed or does not answer.
    pub(crate) fn write_through(&mut self, number: usize) -> Result<(), DeviceError> {
        let is_external = self
            .hca(number)
            .is_none_or(|hca| hca.execution == Execution::External);
        if !is_external {
            return Ok(());
        }
        let Some(mut tables) = self.external.take() else {
            return Ok(());
        };
        let outcome = self.write_with(&mut tables, number);
        self.external = Some(tables);
        outcome
    }

    fn write_with(&mut self, tables: &mut Tables, number: usize) -> Result<(), DeviceError> {
        let now_ns = self.clock.now_ns();
        if let Some(hca) = self.hca(number) {
            hca.now_ns = now_ns;
        }
        let gone = tables.update(number, self.hca(number).as_deref())?;
        for (qpn, place) in gone.qps {
            self.count_one(tables, number, place)?;
            tables.free_qp(number, qpn, place);
        }
        tables.free_cqs(number, &gone.cqs);
        tables.free_pages(number, self.hca(number).as_deref());
        Ok(())
    }

    /// Begins a new life of a QP, which has been reset. Doorbells from before do not count any more, and the executor begins anew when the
    /// QP is ready again. The entry of the QP must have ended.
    ///
    /// # Errors
    ///
    /// The executor failed.
    pub(crate) fn new_life(&mut self, number: usize, qpn: u32) -> Result<(), DeviceError> {
        let tables = self.external.as_ref();
        let Some(place) = tables.and_then(|tables| tables.place_of(number, qpn)) else {
            return Ok(());
        };
        // A doorbell from before the reset does not count for the new life.
        self.carry_doorbells(number, Look::Everywhere);
        let Some(mut tables) = self.external.take() else {
            return Ok(());
        };
        let counted = self.count_one(&mut tables, number, place);
        tables.begin_life(place);
        let qp = self.hca(number).and_then(|hca| hca.qps.get(qpn));
        let page_id = qp.map_or(0, |qp| qp.uar);
        let cleared = counted.and_then(|()| tables.clear_doorbells(number, page_id, qpn));
        self.external = Some(tables);
        cleared
    }

    /// Brings the model of QP `qpn` up to date with what the executor has done.
    pub(crate) fn look_at_progress(&mut self, number: usize, qpn: u32) {
        let tables = self.external.as_ref();
        let Some(progress) = tables.and_then(|tables| tables.qp_progress(number, qpn)) else {
            return;
        };
        let Some(hca) = self.hca(number) else {
            return;
        };
        let Some(qp) = hca.qps.get_mut(qpn) else {
            return;
        };
        let psn = |first: u32, count: u32| first.wrapping_add(count) & 0x00ff_ffff;
        qp.send_psn = psn(qp.qpc.next_send_psn(), progress.sent);
        qp.receive_psn = psn(qp.qpc.next_rcv_psn(), progress.received);
        let index = |count: u32| (count & 0xffff) as u16;
        qp.send.posted = index(progress.posted);
        qp.send.fetched = index(progress.fetched);
        qp.send.retired = index(progress.retired);
        if progress.failed != 0 && matches!(qp.state, QpState::RTR | QpState::RTS | QpState::SQD) {
            qp.state = QpState::ERR;
            let context = qp.context;
            if progress.failed & FAILED_RESPONDER != 0 {
                const REMOTE_ACCESS: u32 = 0x13;
                let access = progress.failed & 0xff == REMOTE_ACCESS;
                hca.raise(
                    context,
                    if access {
                        Event::QpAccessError(qpn)
                    } else {
                        Event::QpRequestError(qpn)
                    },
                );
            }
        }
    }

    /// Brings the model of CQ `cqn` up to date with what the executor has written.
    pub(crate) fn look_at_cq(&mut self, number: usize, cqn: u32) {
        let tables = self.external.as_ref();
        let Some(progress) = tables.and_then(|tables| tables.cq_progress(number, cqn)) else {
            return;
        };
        let Some(hca) = self.hca(number) else {
            return;
        };
        let Some(cq) = hca.cqs.get_mut(cqn) else {
            return;
        };
        cq.producer = progress.producer;
        if progress.overrun != 0 {
            cq.overrun = true;
            cq.cqc.set_status(Cq::STATUS_OVERRUN);
        }
    }

    /// Brings the model up to date with QPs that the executor has failed since the last look. Returns whether the executor has reported
    /// any.
    pub(crate) fn look_for_failures(&mut self) -> bool {
        let Some(tables) = &mut self.external else {
            return false;
        };
        if !tables.has_failed_qps() {
            return false;
        }
        for (number, qpn) in tables.all_qps() {
            self.look_at_progress(number, qpn);
        }
        true
    }

    /// Adds to the counters of HCA `number` what the executor has counted since the last time.
    pub(crate) fn count(&mut self, number: usize) {
        let Some(mut tables) = self.external.take() else {
            return;
        };
        // QPs of other HCAs are counted, too, if their peers are on this HCA: their bytes count for it.
        for (hca, place) in tables.qps_about(number) {
            // If the progress cannot be read now, it is counted later.
            let _ = self.count_one(&mut tables, hca, place);
        }
        self.external = Some(tables);
    }

    /// Adds to the counters of HCA `number` what the executor has counted of its QP of entry `place`.
    fn count_one(
        &mut self,
        tables: &mut Tables,
        number: usize,
        place: u32,
    ) -> Result<(), DeviceError> {
        let Some(Counted { entry, before, now }) = tables.count(place)? else {
            return Ok(());
        };
        if let Some(hca) = self.hca(number) {
            note_odd(hca, entry.qpn, now.odd & !before.odd);
            let counters = &mut hca.counters;
            counters.wqes += now.wqes.wrapping_sub(before.wqes);
            counters.doorbells += now.doorbells.wrapping_sub(before.doorbells);
            counters.cqes += now.cqes.wrapping_sub(before.cqes);
            counters.error_cqes += now.error_cqes.wrapping_sub(before.error_cqes);
            counters.bytes_sent += now.bytes_written.wrapping_sub(before.bytes_written);
            counters.bytes_received += now.bytes_read.wrapping_sub(before.bytes_read);
            counters.write_requests += now.writes.wrapping_sub(before.writes);
            counters.inline_write_requests += now.inline_writes.wrapping_sub(before.inline_writes);
            counters.read_requests += now.reads.wrapping_sub(before.reads);
            counters.atomic_requests += now.atomics.wrapping_sub(before.atomics);
        }
        if let Some(peer) = self
            .hca(entry.remote_hca as usize)
            .filter(|_| entry.qpn != 0)
        {
            peer.counters.bytes_received += now.bytes_written.wrapping_sub(before.bytes_written);
            peer.counters.bytes_sent += now.bytes_read.wrapping_sub(before.bytes_read);
        }
        Ok(())
    }

    /// Carries the doorbells that were stored in UAR pages over to the twins of the pages. Returns whether it found one. `look`: how far to
    /// look.
    pub(crate) fn carry_doorbells(&mut self, number: usize, look: Look) -> bool {
        let mut rung = Vec::new();
        if let Some(hca) = self.hca(number) {
            hca.watch.choose(&hca.uars, look);
            for &page_id in hca.watch.due() {
                if let Some(uar) = hca.uars.get(page_id) {
                    uar.page
                        .take_places(|place, _, value| rung.push((page_id, place, value)));
                }
            }
            for (page_id, ..) in &rung {
                hca.watch.found(*page_id);
            }
        }
        let Some(tables) = &self.external else {
            return !rung.is_empty();
        };
        for &(page_id, place, value) in &rung {
            tables.ring(number, page_id, place, value);
        }
        if !rung.is_empty() {
            crate::engine::announce();
        }
        !rung.is_empty()
    }
}

/// Reports the mistakes `odd` of a QP to the checker.
fn note_odd(hca: &mut HcaState, qpn: u32, odd: u64) {
    const NAMES: [(u32, Finding, &str); 8] = [
        (
            ODD_BACKWARDS,
            Finding::DoorbellBackwards,
            "a doorbell went backwards",
        ),
        (
            ODD_BEYOND_RING,
            Finding::DoorbellBeyondRing,
            "a doorbell goes further than the ring: WQEs were overwritten before they were fetched",
        ),
        (
            ODD_INDEX,
            Finding::WqeIndex,
            "the slot that is due holds a WQE of another index: it was rung before it was written, or overwritten before it was run",
        ),
        (ODD_QPN, Finding::WqeQpn, "a WQE names another QP"),
        (
            ODD_LENGTH,
            Finding::WqeLength,
            "a WQE has a length of 0, more than the ring, or more than its doorbell allows",
        ),
        (
            ODD_SEGMENT,
            Finding::WqeSegment,
            "the segments of a WQE make no sense",
        ),
        (
            ODD_LOCAL_KEY,
            Finding::LocalKey,
            "an lkey does not give the memory that a WQE names",
        ),
        (
            ODD_REMOTE_KEY,
            Finding::RemoteKey,
            "an rkey does not give the memory that the peer asks for",
        ),
    ];
    for (bit, finding, text) in NAMES {
        if odd & u64::from(bit) != 0 {
            hca.checker
                .note(finding, qpn, || format!("QP {qpn:#x}: {text}"));
        }
    }
}
