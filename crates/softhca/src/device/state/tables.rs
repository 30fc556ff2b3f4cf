//! The tables of an executor: which entry each object has, what the tables hold, and how changes get into them.

// UNSAFETY: one word of host memory that the executor raises.
#![expect(unsafe_code, reason = "reads a word by its address")]

use crate::device::check::Finding;
use crate::device::executor::execution::Execution;
use crate::device::external::{HcaControl, HcaCq, HcaCqProgress, HcaKey, HcaQp, HcaQpProgress};
use crate::device::memory::keys::{Backing, MemoryKey};
use crate::device::objects::cq::Cq as CompletionQueue;
use crate::device::objects::path;
use crate::device::objects::qp::{Qp as QueuePair, Route};
use crate::device::objects::watch::Look;
use crate::device::state::{Fabric, HcaState};
use crate::device::{DeviceError, Event};
use crate::sysfs::port_number;
use crate::wire::headers::rnr_delay_ns;
use crate::wire::timer::patience_ns;
use bytemuck::{Pod, Zeroable};
use gpuhca_abi::{
    CQ_COLLAPSED, CQ_IGNORES_OVERRUN, CQS, Executor, FAILED_RESPONDER, HCAS, KEYS, NO_ENTRY,
    ODD_BACKWARDS, ODD_BEYOND_RING, ODD_INDEX, ODD_LENGTH, ODD_LOCAL_KEY, ODD_QPN, ODD_REMOTE_KEY,
    ODD_SEGMENT, PAGE_STRIDE, PAGES, QP_DOWN, QP_NO_RECORD, QP_PAUSED, QP_RIGHT_ATOMIC,
    QP_RIGHT_READ, QP_RIGHT_WRITE, QPS, VERSION,
};
use mlx5_prm::doorbell::{doorbell_qpn, uar};
use mlx5_prm::qp::QpState;
use std::collections::{BTreeMap, BTreeSet};
use std::mem::offset_of;
use std::sync::atomic::{AtomicU32, Ordering};

/// The number of an HCA, and the number of one of its objects.
type Name = (usize, u32);

/// Offsets in a UAR page at which doorbells are stored.
const PLACES: [usize; 5] = [
    uar::register(0),
    uar::register(0) + uar::HALF,
    uar::register(1),
    uar::register(1) + uar::HALF,
    uar::NO_RECORD,
];

/// The entries of one table, by object. The lowest free entry is taken first, so that an executor looks at few entries.
#[derive(Debug)]
struct Places<T> {
    what: &'static str,
    limit: u32,
    of: BTreeMap<Name, u32>,
    free: BTreeSet<u32>,
    /// Each entry as it was last written, with the life that it is in.
    written: Vec<(T, u64)>,
}

impl<T: Zeroable + Copy> Places<T> {
    const fn new(what: &'static str, limit: u32) -> Self {
        Self {
            what,
            limit,
            of: BTreeMap::new(),
            free: BTreeSet::new(),
            written: Vec::new(),
        }
    }

    fn get(&self, name: Name) -> Option<u32> {
        self.of.get(&name).copied()
    }

    /// Returns the entry of object `name`. If the object has none, it gets one.
    fn take(&mut self, name: Name) -> Result<u32, DeviceError> {
        if let Some(place) = self.get(name) {
            return Ok(place);
        }
        let place = match self.free.pop_first() {
            Some(place) => place,
            None => {
                let next = u32::try_from(self.written.len()).unwrap_or(u32::MAX);
                if next >= self.limit {
                    let limit = self.limit as usize;
                    let what = self.what;
                    return Err(DeviceError::Full { what, limit });
                }
                self.written.push((T::zeroed(), 0));
                next
            }
        };
        self.of.insert(name, place);
        // The entry begins a new life: what the executor keeps of an earlier owner does not count any more.
        self.written[place as usize].1 += 1;
        Ok(place)
    }

    /// Returns the objects of an HCA that have entries, each with its entry.
    fn of_hca(&self, hca: usize) -> Vec<(u32, u32)> {
        let all = self.of.range((hca, 0)..=(hca, u32::MAX));
        all.map(|(&(_, number), &place)| (number, place)).collect()
    }

    fn leave(&mut self, name: Name) {
        if let Some(place) = self.of.remove(&name) {
            self.free.insert(place);
        }
    }
}

/// The tables of the executor, as softhca has written them. Without an executor they are empty.
#[derive(Debug)]
pub(crate) struct Tables {
    executor: Option<Executor>,
    /// The `errno` of an executor that has ended (`ESHUTDOWN`) or does not answer any more. No call waits for it again.
    broken: Option<i32>,
    generation: u64,
    qps: Places<HcaQp>,
    cqs: Places<HcaCq>,
    pages: Places<u8>,
    /// The HCA whose keys a block of the key table holds, for each block.
    hcas: Vec<Option<usize>>,
    keys: Vec<HcaKey>,
    /// The progress of QPs as it was last counted, by entry.
    counted: BTreeMap<u32, HcaQpProgress>,
    attention: u32,
    announced_qps: u64,
}

impl Default for Tables {
    fn default() -> Self {
        Self::new()
    }
}

/// Changes to be written to the tables.
#[derive(Default)]
struct Changes {
    /// Addresses of heads that become 0 before anything else happens.
    ended: Vec<u64>,
    /// Addresses and new values of heads that change while the rest of the entry stays. Afterwards no block uses the entry as it was.
    heads: Vec<(u64, u64)>,
    /// Addresses of new entries and their bytes. The head of an entry is written last.
    entries: Vec<(u64, Vec<u8>)>,
}

impl Changes {
    /// Compares an entry as written with the wanted one, and adds what must change at `address`.
    fn entry<T: Pod + PartialEq>(&mut self, address: u64, written: &mut T, wanted: &T) {
        if written == wanted {
            return;
        }
        let head =
            |entry: &T| -> u64 { bytemuck::pod_read_unaligned(&bytemuck::bytes_of(entry)[..8]) };
        let body = |entry: &T| bytemuck::bytes_of(entry)[8..].to_vec();
        let (before, after) = (head(written), head(wanted));
        if before != 0 && after != 0 && body(written) == body(wanted) {
            self.heads.push((address, after));
        } else {
            if before != 0 {
                self.ended.push(address);
            }
            if after != 0 {
                self.entries
                    .push((address, bytemuck::bytes_of(wanted).to_vec()));
            }
        }
        *written = *wanted;
    }
}

impl Tables {
    pub(crate) const fn new() -> Self {
        Self {
            executor: None,
            broken: None,
            generation: 0,
            qps: Places::new("queue pair of an executor", QPS),
            cqs: Places::new("completion queue of an executor", CQS),
            pages: Places::new("UAR page of an executor", PAGES),
            hcas: Vec::new(),
            keys: Vec::new(),
            counted: BTreeMap::new(),
            attention: 0,
            announced_qps: 0,
        }
    }

    fn write(&self, executor: &Executor, address: u64, bytes: &[u8]) -> Result<(), DeviceError> {
        let write = executor.write.ok_or(failed("write", libc::EINVAL))?;
        match write(
            executor.context,
            address,
            bytes.as_ptr(),
            bytes.len() as u64,
        ) {
            0 => Ok(()),
            errno => Err(failed("the executor's write", errno)),
        }
    }

    fn read<T: Pod>(&self, executor: &Executor, address: u64) -> Result<T, DeviceError> {
        let mut value = T::zeroed();
        let bytes = bytemuck::bytes_of_mut(&mut value);
        let read = executor.read.ok_or(failed("read", libc::EINVAL))?;
        match read(
            executor.context,
            address,
            bytes.as_mut_ptr(),
            bytes.len() as u64,
        ) {
            0 => Ok(value),
            errno => Err(failed("the executor's read", errno)),
        }
    }

    /// Returns what the executor keeps of entry `place`, in its table that begins at `table`.
    fn progress<T: Pod>(
        &self,
        executor: &Executor,
        table: u64,
        place: u32,
    ) -> Result<T, DeviceError> {
        self.read(executor, table + u64::from(place) * size_of::<T>() as u64)
    }

    /// Waits until no block of the executor uses an entry that has ended.
    fn settle(&mut self, executor: &Executor) -> Result<(), DeviceError> {
        if let Some(errno) = self.broken {
            if errno == libc::ESHUTDOWN {
                return Ok(());
            }
            return Err(failed("the executor's settle", errno));
        }
        self.generation = self.generation.wrapping_add(1);
        self.write(
            executor,
            executor.control + offset_of!(HcaControl, generation) as u64,
            &self.generation.to_ne_bytes(),
        )?;
        // Kernels that run on the CPU may be asleep.
        crate::engine::announce();
        let settle = executor.settle.ok_or(failed("settle", libc::EINVAL))?;
        match settle(executor.context, self.generation) {
            0 => Ok(()),
            libc::ESHUTDOWN => {
                self.broken = Some(libc::ESHUTDOWN);
                Ok(())
            }
            errno => {
                self.broken = Some(errno);
                Err(failed("the executor's settle", errno))
            }
        }
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
            head: self.qps.written[place as usize].1 << 8 | u64::from(qp.state.0),
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

    /// Returns the address of the twin of a UAR page; 0 if it has none.
    fn twin(&self, hca: usize, page_id: u32) -> u64 {
        let base = self.executor.as_ref().map_or(0, |executor| executor.pages);
        let place = self.pages.get((hca, page_id));
        place.map_or(0, |place| base + u64::from(place) * u64::from(PAGE_STRIDE))
    }
}

fn failed(call: &'static str, errno: i32) -> DeviceError {
    DeviceError::Os { call, errno }
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

impl Fabric {
    /// Attaches an executor. See [`crate::device::external::softhca_attach`].
    pub(in crate::device) fn attach_executor(
        &mut self,
        executor: Executor,
    ) -> Result<(), DeviceError> {
        let bytes = [
            size_of::<HcaQp>(),
            size_of::<HcaCq>(),
            size_of::<HcaKey>(),
            size_of::<HcaQpProgress>(),
            size_of::<HcaCqProgress>(),
        ];
        let given = executor.bytes.map(|bytes| bytes as usize);
        let complete =
            executor.write.is_some() && executor.read.is_some() && executor.settle.is_some();
        if executor.version != VERSION
            || given != bytes
            || !complete
            || executor.attention.is_null()
        {
            return Err(failed("softhca_attach", libc::EINVAL));
        }
        if self.external.executor.is_some() {
            return Err(failed("softhca_attach", libc::EBUSY));
        }
        self.external.executor = Some(executor);
        crate::engine::serve_executor(true);
        // If the kernel of the executor has failed at once or does not run, this call reports it.
        let mut tables = std::mem::take(&mut self.external);
        let settled = tables.settle(&executor);
        let ended = tables.broken;
        self.external = tables;
        let settled = match ended {
            Some(errno) => Err(failed("softhca_attach", errno)),
            None => settled,
        };
        if let Err(error) = settled {
            self.detach_executor();
            return Err(error);
        }
        let all: Vec<usize> = self.external_hcas();
        for number in all {
            if let Err(error) = self.write_through(number) {
                self.detach_executor();
                return Err(error);
            }
        }
        Ok(())
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
        self.external = Tables::new();
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
        self.external.executor.is_some() && self.external.broken.is_none()
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
        let Some(executor) = self.external.executor.filter(|_| is_external) else {
            return Ok(());
        };
        let mut tables = std::mem::take(&mut self.external);
        let outcome = self.write_with(&mut tables, &executor, number);
        self.external = tables;
        outcome
    }

    fn write_with(
        &mut self,
        tables: &mut Tables,
        executor: &Executor,
        number: usize,
    ) -> Result<(), DeviceError> {
        let now_ns = self.clock.now_ns();
        let mut changes = Changes::default();
        let mut gone = Vec::new();
        if let Some(hca) = self.hca(number) {
            hca.now_ns = now_ns;
            take_places(tables, hca)?;
            changes_of(tables, executor, hca, &mut changes)?;
        }
        // Objects that have entries but do not exist any more.
        let hca = self.hca(number);
        let is_there = |kind: fn(&HcaState, u32) -> bool, object: u32| {
            hca.as_ref().is_some_and(|hca| kind(hca, object))
        };
        for (qpn, place) in tables.qps.of_hca(number) {
            if !is_there(|hca, qpn| hca.qps.get(qpn).is_some(), qpn) {
                let address = executor.qps + u64::from(place) * size_of::<HcaQp>() as u64;
                let written = &mut tables.qps.written[place as usize].0;
                changes.entry(address, written, &HcaQp::zeroed());
                gone.push((qpn, place));
            }
        }
        let mut gone_cqs = Vec::new();
        for (cqn, place) in tables.cqs.of_hca(number) {
            if !is_there(|hca, cqn| hca.cqs.get(cqn).is_some(), cqn) {
                let address = executor.cqs + u64::from(place) * size_of::<HcaCq>() as u64;
                let written = &mut tables.cqs.written[place as usize].0;
                changes.entry(address, written, &HcaCq::zeroed());
                gone_cqs.push(cqn);
            }
        }
        let there = hca.is_some();
        if !there && let Some(place) = tables.hcas.iter().position(|other| *other == Some(number)) {
            let first = place * KEYS as usize;
            for index in first..first + KEYS as usize {
                let address = executor.keys + (index * size_of::<HcaKey>()) as u64;
                changes.entry(address, &mut tables.keys[index], &HcaKey::zeroed());
            }
            tables.hcas[place] = None;
        }
        self.apply(tables, executor, &changes)?;
        for (qpn, place) in gone {
            let last = tables.qps.written[place as usize].0;
            self.count_one(tables, executor, number, place, last)?;
            tables.counted.remove(&place);
            tables.qps.leave((number, qpn));
        }
        for cqn in gone_cqs {
            tables.cqs.leave((number, cqn));
        }
        let pages = tables.pages.of_hca(number);
        for (page_id, _) in pages {
            if self
                .hca(number)
                .is_none_or(|hca| hca.uars.get(page_id).is_none())
            {
                tables.pages.leave((number, page_id));
            }
        }
        Ok(())
    }

    fn apply(
        &mut self,
        tables: &mut Tables,
        executor: &Executor,
        changes: &Changes,
    ) -> Result<(), DeviceError> {
        for address in &changes.ended {
            tables.write(executor, *address, &0u64.to_ne_bytes())?;
        }
        for (address, head) in &changes.heads {
            tables.write(executor, *address, &head.to_ne_bytes())?;
        }
        if !changes.ended.is_empty() || !changes.heads.is_empty() {
            tables.settle(executor)?;
        }
        for (address, entry) in &changes.entries {
            tables.write(executor, address + 8, &entry[8..])?;
        }
        for (address, entry) in &changes.entries {
            tables.write(executor, *address, &entry[..8])?;
        }
        let qps = tables.qps.written.len() as u64;
        if qps != tables.announced_qps {
            let address = executor.control + offset_of!(HcaControl, qps) as u64;
            tables.write(executor, address, &qps.to_ne_bytes())?;
            tables.announced_qps = qps;
        }
        if !changes.entries.is_empty() {
            crate::engine::announce();
        }
        Ok(())
    }

    /// Begins a new life of a QP, which has been reset. Doorbells from before do not count any more, and the executor begins anew when the
    /// QP is ready again. The entry of the QP must have ended.
    ///
    /// # Errors
    ///
    /// The executor failed.
    pub(crate) fn new_life(&mut self, number: usize, qpn: u32) -> Result<(), DeviceError> {
        let Some(executor) = self.external.executor else {
            return Ok(());
        };
        let Some(place) = self.external.qps.get((number, qpn)) else {
            return Ok(());
        };
        // A doorbell from before the reset does not count for the new life.
        self.carry_doorbells(number, Look::Everywhere);
        let mut tables = std::mem::take(&mut self.external);
        let last = tables.qps.written[place as usize].0;
        let counted = self.count_one(&mut tables, &executor, number, place, last);
        tables.counted.remove(&place);
        tables.qps.written[place as usize].1 += 1;
        let page = self.hca(number).map_or(0, |hca| {
            let uar = hca.qps.get(qpn).map_or(0, |qp| qp.uar);
            tables.twin(number, uar)
        });
        let cleared = counted.and_then(|()| clear_doorbells(&tables, &executor, page, qpn));
        self.external = tables;
        cleared
    }

    /// Brings the model of QP `qpn` up to date with what the executor has done.
    pub(crate) fn look_at_progress(&mut self, number: usize, qpn: u32) {
        let Some(executor) = self.external.executor else {
            return;
        };
        let Some(place) = self.external.qps.get((number, qpn)) else {
            return;
        };
        let life = self.external.qps.written[place as usize].1;
        let table = executor.qp_progress;
        let Ok(progress) = self
            .external
            .progress::<HcaQpProgress>(&executor, table, place)
        else {
            return;
        };
        let Some(hca) = self.hca(number) else {
            return;
        };
        let Some(qp) = hca.qps.get_mut(qpn).filter(|_| progress.life == life) else {
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
        let Some(executor) = self.external.executor else {
            return;
        };
        let Some(place) = self.external.cqs.get((number, cqn)) else {
            return;
        };
        let life = self.external.cqs.written[place as usize].1;
        let table = executor.cq_progress;
        let Ok(progress) = self
            .external
            .progress::<HcaCqProgress>(&executor, table, place)
        else {
            return;
        };
        let Some(hca) = self.hca(number) else {
            return;
        };
        // The progress is of an earlier life until the first entry is written.
        let Some(cq) = hca.cqs.get_mut(cqn).filter(|_| progress.life == life) else {
            return;
        };
        cq.producer = progress.producer;
        if progress.overrun != 0 {
            cq.overrun = true;
            cq.cqc.set_status(CompletionQueue::STATUS_OVERRUN);
        }
    }

    /// Brings the model up to date with QPs that the executor has failed since the last look. Returns whether the executor has reported
    /// any.
    pub(crate) fn look_for_failures(&mut self) -> bool {
        let Some(executor) = self.external.executor else {
            return false;
        };
        // SAFETY: the word stays valid while the executor is attached, which it is under this lock; all threads use the word atomically.
        let word = unsafe { AtomicU32::from_ptr(executor.attention.cast_mut()) };
        // Acquire: pairs with the executor's release after it has written which QPs it has failed.
        let raised = word.load(Ordering::Acquire);
        if raised == std::mem::replace(&mut self.external.attention, raised) {
            return false;
        }
        let names: Vec<Name> = self.external.qps.of.keys().copied().collect();
        for (number, qpn) in names {
            self.look_at_progress(number, qpn);
        }
        true
    }

    /// Adds to the counters of HCA `number` what the executor has counted since the last time.
    pub(crate) fn count(&mut self, number: usize) {
        let Some(executor) = self.external.executor else {
            return;
        };
        let mut tables = std::mem::take(&mut self.external);
        // QPs of other HCAs are counted, too, if their peers are on this HCA: their bytes count for it.
        let all: Vec<(Name, u32)> = tables
            .qps
            .of
            .iter()
            .map(|(name, place)| (*name, *place))
            .collect();
        for ((hca, _), place) in all {
            let entry = tables.qps.written[place as usize].0;
            if hca == number || entry.remote_hca as usize == number {
                // If the progress cannot be read now, it is counted later.
                let _ = self.count_one(&mut tables, &executor, hca, place, entry);
            }
        }
        self.external = tables;
    }

    fn count_one(
        &mut self,
        tables: &mut Tables,
        executor: &Executor,
        number: usize,
        place: u32,
        entry: HcaQp,
    ) -> Result<(), DeviceError> {
        let now: HcaQpProgress = tables.progress(executor, executor.qp_progress, place)?;
        if now.life != tables.qps.written[place as usize].1 {
            return Ok(());
        }
        let before = tables.counted.insert(place, now).unwrap_or_default();
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
        let Some(executor) = self.external.executor else {
            return !rung.is_empty();
        };
        for &(page_id, place, value) in &rung {
            let twin = self.external.twin(number, page_id);
            if twin != 0 {
                // If the executor's memory is gone, the doorbell is lost. Each wait for its effect has a deadline.
                let at = twin + place as u64;
                let _ = self.external.write(&executor, at, &value.to_ne_bytes());
            }
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

/// Gives each object of an HCA an entry.
fn take_places(tables: &mut Tables, hca: &HcaState) -> Result<(), DeviceError> {
    tables.keys_of(hca.number)?;
    let number = hca.number;
    let base = tables.executor_pages();
    for (page_id, uar) in hca.uars.iter() {
        if tables.pages.get((number, page_id)).is_none() {
            let place = tables.pages.take((number, page_id))?;
            uar.page
                .set_twin(base + u64::from(place) * u64::from(PAGE_STRIDE));
        }
    }
    for (cqn, _) in hca.cqs.iter() {
        tables.cqs.take((number, cqn))?;
    }
    for (qpn, _) in hca.qps.iter() {
        tables.qps.take((number, qpn))?;
    }
    Ok(())
}

/// Compares the entries that an HCA's objects need with those that were written, and adds the changes.
fn changes_of(
    tables: &mut Tables,
    executor: &Executor,
    hca: &HcaState,
    changes: &mut Changes,
) -> Result<(), DeviceError> {
    let number = hca.number;
    let keys = tables.keys_of(number)?;
    for (cqn, cq) in hca.cqs.iter() {
        let place = tables.cqs.take((number, cqn))?;
        let (written, life) = &mut tables.cqs.written[place as usize];
        let flag = |set: u32, flag: u32| if set != 0 { flag } else { 0 };
        let wanted = HcaCq {
            head: *life,
            ring: cq.ring.address(),
            record: cq.record.address(),
            entries: cq.entries(),
            stride: 64 << cq.cqc.cqe_sz(),
            flags: flag(cq.cqc.cc(), CQ_COLLAPSED) | flag(cq.cqc.oi(), CQ_IGNORES_OVERRUN),
            cqn,
            ..HcaCq::zeroed()
        };
        changes.entry(
            executor.cqs + u64::from(place) * size_of::<HcaCq>() as u64,
            written,
            &wanted,
        );
    }
    for index in 0..KEYS {
        let at = (keys + index) as usize;
        let number = hca.keys.base() + index;
        let wanted = hca
            .keys
            .get(number)
            .map_or_else(HcaKey::zeroed, |key| key_entry(number, key));
        let address = executor.keys + (at * size_of::<HcaKey>()) as u64;
        changes.entry(address, &mut tables.keys[at], &wanted);
    }
    for (qpn, qp) in hca.qps.iter() {
        let place = tables.qps.take((number, qpn))?;
        let wanted = tables.qp_entry(hca, keys, qp, qpn, place);
        let written = &mut tables.qps.written[place as usize].0;
        changes.entry(
            executor.qps + u64::from(place) * size_of::<HcaQp>() as u64,
            written,
            &wanted,
        );
    }
    Ok(())
}

/// Takes doorbells of QP `qpn` out of the twin at `page`.
fn clear_doorbells(
    tables: &Tables,
    executor: &Executor,
    page: u64,
    qpn: u32,
) -> Result<(), DeviceError> {
    for place in PLACES {
        if page == 0 {
            return Ok(());
        }
        let at = page + place as u64;
        let value: u64 = tables.read(executor, at)?;
        if value != 0 && doorbell_qpn(value) == qpn {
            tables.write(executor, at, &0u64.to_ne_bytes())?;
        }
    }
    Ok(())
}

impl Tables {
    fn executor_pages(&self) -> u64 {
        self.executor.as_ref().map_or(0, |executor| executor.pages)
    }
}
