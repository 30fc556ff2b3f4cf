//! The tables of an executor: which entry each object has, what the entries hold, and how they follow the objects.

use super::attached::Attached;
use super::changes::Changes;
use super::hca::HcaState;
use super::places::{Name, Places};
use crate::device::DeviceError;
use crate::device::external::{HcaCq, HcaCqProgress, HcaKey, HcaQp, HcaQpProgress};
use crate::device::memory::keys::{Backing, MemoryKey};
use crate::device::objects::path;
use crate::device::objects::qp::{Qp as QueuePair, Route};
use crate::sysfs::port_number;
use crate::wire::headers::rnr_delay_ns;
use crate::wire::timer::patience_ns;
use bytemuck::Zeroable;
use gpuhca_abi::{
    CQ_COLLAPSED, CQ_IGNORES_OVERRUN, CQS, HCAS, KEYS, NO_ENTRY, PAGES, QP_DOWN, QP_NO_RECORD,
    QP_PAUSED, QP_RIGHT_ATOMIC, QP_RIGHT_READ, QP_RIGHT_WRITE, QPS,
};
use mlx5_prm::doorbell::{doorbell_qpn, uar};
use mlx5_prm::qp::QpState;
use std::collections::BTreeMap;

/// Offsets in a UAR page at which doorbells are stored.
const PLACES: [usize; 5] = [
    uar::register(0),
    uar::register(0) + uar::HALF,
    uar::register(1),
    uar::register(1) + uar::HALF,
    uar::NO_RECORD,
];

/// The tables of the executor that is attached, as softhca has written them.
#[derive(Debug)]
pub(super) struct Tables {
    executor: Attached,
    qps: Places<HcaQp>,
    cqs: Places<HcaCq>,
    pages: Places<u8>,
    /// The HCA whose keys a block of the key table holds, for each block.
    hcas: Vec<Option<usize>>,
    keys: Vec<HcaKey>,
    /// The progress of QPs as it was last counted, by entry.
    counted: BTreeMap<u32, HcaQpProgress>,
    announced_qps: u64,
}

/// Objects of an HCA that do not exist any more. Their entries have ended and are not free yet.
#[derive(Default)]
pub(super) struct Gone {
    /// Numbers of QPs, each with its entry.
    pub(super) qps: Vec<(u32, u32)>,
    /// Numbers of CQs.
    pub(super) cqs: Vec<u32>,
}

/// What the executor has done for a QP since it was last counted.
pub(super) struct Counted {
    /// The entry of the QP.
    pub(super) entry: HcaQp,
    pub(super) before: HcaQpProgress,
    pub(super) now: HcaQpProgress,
}

impl Tables {
    /// Returns the tables of an executor to which nothing has been written.
    pub(super) fn new(executor: Attached) -> Self {
        Self {
            executor,
            qps: Places::new("queue pair of an executor", QPS),
            cqs: Places::new("completion queue of an executor", CQS),
            pages: Places::new("UAR page of an executor", PAGES),
            hcas: Vec::new(),
            keys: Vec::new(),
            counted: BTreeMap::new(),
            announced_qps: 0,
        }
    }

    /// Returns whether the executor has not ended and answers.
    pub(super) fn executor_answers(&self) -> bool {
        self.executor.broken().is_none()
    }

    /// Brings the tables up to date with HCA `number`; `hca` is `None` if it does not exist any more. When this returns, the executor uses
    /// no object that has ended. Such objects are returned. The caller counts their QPs and then frees their entries.
    ///
    /// # Errors
    ///
    /// A table is full, or the executor has failed or does not answer.
    pub(super) fn update(
        &mut self,
        number: usize,
        hca: Option<&HcaState>,
    ) -> Result<Gone, DeviceError> {
        let mut changes = Changes::default();
        if let Some(hca) = hca {
            self.take_places(hca)?;
            self.compare(hca, &mut changes)?;
        }
        let gone = self.end_gone(number, hca, &mut changes);
        self.write(&changes)?;
        Ok(gone)
    }

    /// Gives each object of an HCA an entry.
    fn take_places(&mut self, hca: &HcaState) -> Result<(), DeviceError> {
        self.keys_of(hca.number)?;
        let number = hca.number;
        for (page_id, uar) in hca.uars.iter() {
            if self.pages.get((number, page_id)).is_none() {
                let place = self.pages.take((number, page_id))?;
                uar.page.set_twin(self.executor.twin(place));
            }
        }
        for (cqn, _) in hca.cqs.iter() {
            self.cqs.take((number, cqn))?;
        }
        for (qpn, _) in hca.qps.iter() {
            self.qps.take((number, qpn))?;
        }
        Ok(())
    }

    /// Compares the entries that an HCA's objects need with those that were written, and adds the changes.
    fn compare(&mut self, hca: &HcaState, changes: &mut Changes) -> Result<(), DeviceError> {
        let number = hca.number;
        let keys = self.keys_of(number)?;
        for (cqn, cq) in hca.cqs.iter() {
            let place = self.cqs.take((number, cqn))?;
            let flag = |set: u32, flag: u32| if set != 0 { flag } else { 0 };
            let wanted = HcaCq {
                head: self.cqs.life(place),
                ring: cq.ring.address(),
                record: cq.record.address(),
                entries: cq.entries(),
                stride: 64 << cq.cqc.cqe_sz(),
                flags: flag(cq.cqc.cc(), CQ_COLLAPSED) | flag(cq.cqc.oi(), CQ_IGNORES_OVERRUN),
                cqn,
                ..HcaCq::zeroed()
            };
            let address = self.executor.cq(place);
            changes.entry(address, self.cqs.written_mut(place), &wanted);
        }
        for index in 0..KEYS {
            let at = (keys + index) as usize;
            let number = hca.keys.base() + index;
            let wanted = hca
                .keys
                .get(number)
                .map_or_else(HcaKey::zeroed, |key| key_entry(number, key));
            let address = self.executor.key(at);
            changes.entry(address, &mut self.keys[at], &wanted);
        }
        for (qpn, qp) in hca.qps.iter() {
            let place = self.qps.take((number, qpn))?;
            let wanted = self.qp_entry(hca, keys, qp, qpn, place);
            let address = self.executor.qp(place);
            changes.entry(address, self.qps.written_mut(place), &wanted);
        }
        Ok(())
    }

    /// Returns where the keys of an HCA begin in the key table. If the HCA has no block of keys, it gets one.
    fn keys_of(&mut self, hca: usize) -> Result<u32, DeviceError> {
        let found = self.hcas.iter().position(|other| *other == Some(hca));
        let place = match found.or_else(|| self.hcas.iter().position(Option::is_none)) {
            Some(place) => place,
            None if self.hcas.len() < HCAS as usize => {
                self.hcas.push(None);
                let keys = self.hcas.len() * KEYS as usize;
                self.keys.resize(keys, HcaKey::zeroed());
                self.hcas.len() - 1
            }
            None => {
                let limit = HCAS as usize;
                let what = "HCA of an executor";
                return Err(DeviceError::Full { what, limit });
            }
        };
        self.hcas[place] = Some(hca);
        // The place is less than HCAS.
        Ok(u32::try_from(place).unwrap_or(0) * KEYS)
    }

    /// Returns the entry of a QP as an executor shall see it. The entry is all zero if the executor shall not see the QP.
    fn qp_entry(&self, hca: &HcaState, keys: u32, qp: &QueuePair, qpn: u32, place: u32) -> HcaQp {
        let live = matches!(
            qp.state,
            QpState::RTR | QpState::RTS | QpState::SQD | QpState::SQER | QpState::ERR
        );
        let Route::Process(remote_hca) = qp.route else {
            return HcaQp::zeroed();
        };
        let (Some(ring), true) = (qp.send.ring, live) else {
            return HcaQp::zeroed();
        };
        let number = |hca: usize| u32::try_from(hca).unwrap_or(u32::MAX);
        let flag = |set: bool, flag: u32| if set { flag } else { 0 };
        let path_timeout = qp.qpc.primary_address_path().ack_timeout();
        let receive = qp.receive.as_ref();
        HcaQp {
            head: self.qps.life(place) << 8 | u64::from(qp.state.0),
            ring: ring.address(),
            record: qp.record.map_or(0, |record| record.address()),
            page: self.twin(hca.number, qp.uar),
            receive_ring: receive.map_or(0, |queue| queue.ring.address()),
            patience_ns: patience_ns(path::byte(path_timeout), path::byte(qp.qpc.retry_count()))
                .unwrap_or(u64::MAX),
            rnr_delay_ns: rnr_delay_ns(path::byte(qp.qpc.min_rnr_nak())),
            depth: qp.send.depth().into(),
            qpn,
            remote_qpn: qp.qpc.remote_qpn(),
            peer: self
                .qps
                .get((remote_hca, qp.qpc.remote_qpn()))
                .unwrap_or(NO_ENTRY),
            hca: number(hca.number),
            remote_hca: number(remote_hca),
            pdn: qp.pdn,
            flags: flag(qp.qpc.rwe() != 0, QP_RIGHT_WRITE)
                | flag(qp.qpc.rre() != 0, QP_RIGHT_READ)
                | flag(qp.qpc.rae() != 0, QP_RIGHT_ATOMIC)
                | flag(qp.send.rung.is_some(), QP_NO_RECORD)
                | flag(hca.paused_until_ns > hca.now_ns, QP_PAUSED)
                | flag(hca.is_down(port_number(&qp.qpc)) || hca.dead, QP_DOWN),
            mtu: path::mtu_bytes(&qp.qpc),
            send_psn: qp.qpc.next_send_psn(),
            receive_psn: qp.qpc.next_rcv_psn(),
            send_cq: self.cqs.get((hca.number, qp.send_cqn)).unwrap_or(NO_ENTRY),
            receive_cq: self
                .cqs
                .get((hca.number, qp.receive_cqn))
                .unwrap_or(NO_ENTRY),
            user_index: qp.qpc.user_index(),
            first_key: hca.keys.base(),
            keys,
            receive_entries: receive.map_or(0, |queue| u32::try_from(queue.entries()).unwrap_or(0)),
            receive_stride: receive.map_or(0, |queue| u32::try_from(queue.stride).unwrap_or(0)),
            rnr_retry: qp.qpc.rnr_retry(),
            ..HcaQp::zeroed()
        }
    }

    /// Ends the entries of objects of HCA `number` that do not exist any more, and returns its QPs and CQs among them.
    fn end_gone(&mut self, number: usize, hca: Option<&HcaState>, changes: &mut Changes) -> Gone {
        let mut gone = Gone::default();
        for (qpn, place) in self.qps.of_hca(number) {
            if hca.is_none_or(|hca| hca.qps.get(qpn).is_none()) {
                let address = self.executor.qp(place);
                changes.entry(address, self.qps.written_mut(place), &HcaQp::zeroed());
                gone.qps.push((qpn, place));
            }
        }
        for (cqn, place) in self.cqs.of_hca(number) {
            if hca.is_none_or(|hca| hca.cqs.get(cqn).is_none()) {
                let address = self.executor.cq(place);
                changes.entry(address, self.cqs.written_mut(place), &HcaCq::zeroed());
                gone.cqs.push(cqn);
            }
        }
        if hca.is_none()
            && let Some(place) = self.hcas.iter().position(|other| *other == Some(number))
        {
            let first = place * KEYS as usize;
            for index in first..first + KEYS as usize {
                let address = self.executor.key(index);
                changes.entry(address, &mut self.keys[index], &HcaKey::zeroed());
            }
            self.hcas[place] = None;
        }
        gone
    }

    fn write(&mut self, changes: &Changes) -> Result<(), DeviceError> {
        changes.write_to(&mut self.executor)?;
        let qps = self.qps.len() as u64;
        if qps != self.announced_qps {
            self.executor.announce_qps(qps)?;
            self.announced_qps = qps;
        }
        if changes.has_entries() {
            crate::engine::announce();
        }
        Ok(())
    }

    /// Frees the entry `place` of a QP that is gone.
    pub(super) fn free_qp(&mut self, number: usize, qpn: u32, place: u32) {
        self.counted.remove(&place);
        self.qps.leave((number, qpn));
    }

    /// Frees the entries of CQs that are gone.
    pub(super) fn free_cqs(&mut self, number: usize, cqns: &[u32]) {
        for &cqn in cqns {
            self.cqs.leave((number, cqn));
        }
    }

    /// Frees the twins of UAR pages that do not exist any more.
    pub(super) fn free_pages(&mut self, number: usize, hca: Option<&HcaState>) {
        for (page_id, _) in self.pages.of_hca(number) {
            if hca.is_none_or(|hca| hca.uars.get(page_id).is_none()) {
                self.pages.leave((number, page_id));
            }
        }
    }

    /// Returns the entry of a QP.
    pub(super) fn place_of(&self, number: usize, qpn: u32) -> Option<u32> {
        self.qps.get((number, qpn))
    }

    /// Returns whether the executor has failed a QP since the last call of this function.
    pub(super) fn has_failed_qps(&mut self) -> bool {
        self.executor.has_failed_qps()
    }

    /// Returns all QPs that have entries.
    pub(super) fn all_qps(&self) -> Vec<Name> {
        self.qps.all().map(|(name, _)| name).collect()
    }

    /// Returns the QPs of HCA `number`, and the QPs of other HCAs whose peers are on HCA `number`: the HCA of each, and its entry.
    pub(super) fn qps_about(&self, number: usize) -> Vec<(usize, u32)> {
        let all = self.qps.all().map(|((hca, _), place)| (hca, place));
        let about = all.filter(|&(hca, place)| {
            hca == number || self.qps.written(place).remote_hca as usize == number
        });
        about.collect()
    }

    /// Begins a new life of the QP of entry `place`.
    pub(super) fn begin_life(&mut self, place: u32) {
        self.counted.remove(&place);
        self.qps.begin_life(place);
    }

    /// Returns what the executor has done for the QP of entry `place` since the last call of this function; `None` if it has not begun the
    /// QP's present life.
    ///
    /// # Errors
    ///
    /// The executor has failed.
    pub(super) fn count(&mut self, place: u32) -> Result<Option<Counted>, DeviceError> {
        let now = self.executor.qp_progress(place)?;
        if now.life != self.qps.life(place) {
            return Ok(None);
        }
        let before = self.counted.insert(place, now).unwrap_or_default();
        Ok(Some(Counted {
            entry: *self.qps.written(place),
            before,
            now,
        }))
    }

    /// Returns what the executor keeps of the present life of a QP, if there is something and it can be read.
    pub(super) fn qp_progress(&self, number: usize, qpn: u32) -> Option<HcaQpProgress> {
        let place = self.qps.get((number, qpn))?;
        let progress = self.executor.qp_progress(place).ok()?;
        (progress.life == self.qps.life(place)).then_some(progress)
    }

    /// Returns what the executor keeps of the present life of a CQ, if there is something and it can be read. The progress is of an earlier
    /// life until the first entry is written.
    pub(super) fn cq_progress(&self, number: usize, cqn: u32) -> Option<HcaCqProgress> {
        let place = self.cqs.get((number, cqn))?;
        let progress = self.executor.cq_progress(place).ok()?;
        (progress.life == self.cqs.life(place)).then_some(progress)
    }

    /// Stores doorbell `value` at offset `at` of the twin of a UAR page, if it has one.
    pub(super) fn ring(&self, number: usize, page_id: u32, at: usize, value: u64) {
        let twin = self.twin(number, page_id);
        if twin != 0 {
            // If the executor's memory is gone, the doorbell is lost. Each wait for its effect has a deadline.
            let _ = self.executor.write(twin + at as u64, &value.to_ne_bytes());
        }
    }

    /// Takes doorbells of QP `qpn` out of the twin of a UAR page, if it has one.
    ///
    /// # Errors
    ///
    /// The executor has failed.
    pub(super) fn clear_doorbells(
        &self,
        number: usize,
        page_id: u32,
        qpn: u32,
    ) -> Result<(), DeviceError> {
        let twin = self.twin(number, page_id);
        if twin == 0 {
            return Ok(());
        }
        for place in PLACES {
            let at = twin + place as u64;
            let value: u64 = self.executor.read(at)?;
            if value != 0 && doorbell_qpn(value) == qpn {
                self.executor.write(at, &0u64.to_ne_bytes())?;
            }
        }
        Ok(())
    }

    /// Returns the address of the twin of a UAR page; 0 if it has none.
    fn twin(&self, hca: usize, page_id: u32) -> u64 {
        let place = self.pages.get((hca, page_id));
        place.map_or(0, |place| self.executor.twin(place))
    }
}

fn key_entry(index: u32, key: &MemoryKey) -> HcaKey {
    let Backing::Direct(region) = &key.backing else {
        return HcaKey::zeroed();
    };
    if key.free {
        return HcaKey::zeroed();
    }
    HcaKey {
        head: 1 << 32 | u64::from(index << 8 | u32::from(key.variant)),
        iova: key.iova,
        bytes: key.bytes,
        address: region.address(),
        access: key.access.0,
        pdn: key.pdn,
        qpn: key.qpn.unwrap_or(0),
        ..HcaKey::zeroed()
    }
}
