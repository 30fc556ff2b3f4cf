//! The memory of one QP: the blocks that it takes from each heap, and where its parts lie in the blocks.
//!
//! ```text
//! control heap   context [ .. CQE line, records, counters ]   flags [depth]
//! queue heap     RQ [recv depth], SQ [depth]    wide CQ [depth]    receive CQ [recv depth], its record
//!                and with host queues: CQE line, records (as in the context, where they then lie idle)
//! ```
//!
//! With [`Queues::Device`] the queue heap is the control heap. With [`Queues::Host`] it is the heap in host memory.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use crate::abi::{QpContext, WQEBB_BYTES};
use crate::config::setters;
use crate::verbs::context::Context;
use crate::verbs::counters::CounterSet;
use crate::verbs::device::caps::Caps;
use crate::verbs::error::VerbsError;
use crate::verbs::limits::{CQE_BYTES, LINE_BYTES, RECORDS_BYTES, RECV_WQE_BYTES};
use crate::verbs::mailbox::{DoorbellProxy, Mailbox};
use crate::verbs::memory::heap::{ControlBlock, ControlHeap};
use crate::verbs::qp::cq::CqPlace;
use crate::verbs::qp::image::{ImagePart, QpLayout, RecvLayout};
use crate::verbs::qp::shape::{CqKind, Doorbell, QpConfig, Queues};
use crate::verbs::uar::DoorbellRegister;

/// The heaps from which a QP takes its memory, and the thread that rings for it.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct QpPlaces<'a> {
    /// The heap of context and flags; with [`Queues::Device`] of the queues too.
    pub control: &'a Arc<ControlHeap>,
    /// The heap in host memory for the queues with [`Queues::Host`].
    pub host: Option<&'a Arc<ControlHeap>>,
    /// The thread that rings with [`Doorbell::Mailbox`].
    pub proxy: Option<&'a Arc<DoorbellProxy>>,
}

setters! {
    const QpPlaces<'a> {
        with_control(control: &'a Arc<ControlHeap>),
        with_host(host: Option<&'a Arc<ControlHeap>>),
        with_proxy(proxy: Option<&'a Arc<DoorbellProxy>>),
    }
}

/// Takes device memory for everything, and no thread that rings.
impl<'a> From<&'a Arc<ControlHeap>> for QpPlaces<'a> {
    fn from(control: &'a Arc<ControlHeap>) -> Self {
        Self {
            control,
            host: None,
            proxy: None,
        }
    }
}

impl<'a> QpPlaces<'a> {
    /// Returns the heap of the queues.
    fn queues(&self, config: &QpConfig) -> Result<&'a Arc<ControlHeap>, VerbsError> {
        let heap = match config.queues {
            Queues::Device => self.control,
            Queues::Host => self.host.ok_or_else(|| {
                let limit = "QpPlaces::host: a heap in host memory";
                VerbsError::argument("heap for host queues", "not given", limit)
            })?,
        };
        if config.queues == Queues::Host && heap.host_addr().is_none() {
            return Err(VerbsError::argument(
                "heap for host queues",
                format!("device memory at {:#x}", heap.addr()),
                "host memory (HeapRegion::host)",
            ));
        }
        Ok(heap)
    }

    fn check(&self, context: &Arc<Context>) -> Result<(), VerbsError> {
        for heap in [Some(self.control), self.host].into_iter().flatten() {
            if !Arc::ptr_eq(context, heap.context()) {
                return Err(VerbsError::argument(
                    "control heap",
                    heap.context().name(),
                    format!("one of the context of the PD, {}", context.name()),
                ));
            }
        }
        Ok(())
    }
}

/// Everything that CQs and QP use, except objects of commands. It is given back in the order of the fields, the mailbox first.
#[derive(Debug)]
pub(in crate::verbs) struct Blocks {
    mailbox: Option<Mailbox>,
    pub(in crate::verbs) register: Arc<DoorbellRegister>,
    pub(in crate::verbs) counters: Option<Arc<CounterSet>>,
    /// The context, which kernels that post need. None if this process posts.
    context: Option<ControlBlock>,
    flags: Option<ControlBlock>,
    /// The receive queue, then the send queue.
    wq: ControlBlock,
    /// CQE line and records. None if they lie in the context.
    records: Option<ControlBlock>,
    /// The CQEs of a wide CQ.
    cqes: Option<ControlBlock>,
    /// The CQEs of the receive queue's CQ, and its record.
    recv_cqes: Option<ControlBlock>,
    /// The UMEM of the queues.
    umem_id: u32,
    config: QpConfig,
}

impl Blocks {
    pub(in crate::verbs) fn alloc(
        context: &Arc<Context>,
        places: &QpPlaces<'_>,
        config: &QpConfig,
    ) -> Result<Self, VerbsError> {
        places.check(context)?;
        let queues = places.queues(config)?;
        let umem_id = queues.umem_id()?;
        let mailbox = match (config.doorbell, places.proxy) {
            (Doorbell::Mailbox, Some(proxy)) => Some(proxy.mailbox()?),
            (Doorbell::Mailbox, None) => {
                let limit = "QpPlaces::proxy, the thread that rings for mailboxes";
                return Err(VerbsError::argument("doorbell proxy", "not given", limit));
            }
            _ => None,
        };
        let register = match config.doorbell {
            Doorbell::NoRecord => context.registers().without_record()?,
            _ if config.share_doorbell_register => context.registers().shared()?,
            _ => context.registers().alloc()?,
        };
        let counters = if config.own_counters && context.caps().counter_sets {
            context.counters().or_the_devices()
        } else {
            None
        };
        let (depth, recv_depth) = (u64::from(config.depth()), u64::from(config.recv_depth()));
        let line = |bytes: u64| queues.alloc(bytes, LINE_BYTES);
        let wq_bytes = recv_depth * RECV_WQE_BYTES + depth * u64::from(WQEBB_BYTES);
        Ok(Self {
            mailbox,
            register,
            counters,
            context: Some(
                places
                    .control
                    .alloc(size_of::<QpContext>() as u64, LINE_BYTES)?,
            ),
            flags: Some(
                places
                    .control
                    .alloc(depth * size_of::<u64>() as u64, LINE_BYTES)?,
            ),
            wq: line(wq_bytes)?,
            records: match config.queues {
                Queues::Device => None,
                Queues::Host => Some(line(RECORDS_BYTES)?),
            },
            cqes: match config.cq {
                CqKind::Collapsed => None,
                CqKind::Wide => Some(line(depth * CQE_BYTES)?),
            },
            recv_cqes: match recv_depth {
                0 => None,
                _ => Some(line(recv_depth * CQE_BYTES + LINE_BYTES)?),
            },
            umem_id,
            config: *config,
        })
    }

    /// Takes the blocks of a QP to which this process posts: send queue and records in `heap`, which is host memory.
    pub(in crate::verbs) fn posted_by_host(
        context: &Arc<Context>,
        heap: &Arc<ControlHeap>,
        config: &QpConfig,
    ) -> Result<Self, VerbsError> {
        let places = QpPlaces::from(heap).with_host(Some(heap));
        places.check(context)?;
        let queues = places.queues(config)?;
        let counters = if config.own_counters && context.caps().counter_sets {
            Some(context.counters().get()?)
        } else {
            None
        };
        let (depth, recv_depth) = (u64::from(config.depth()), u64::from(config.recv_depth()));
        let wq_bytes = recv_depth * RECV_WQE_BYTES + depth * u64::from(WQEBB_BYTES);
        Ok(Self {
            mailbox: None,
            register: context.registers().alloc()?,
            counters,
            context: None,
            flags: None,
            wq: queues.alloc(wq_bytes, LINE_BYTES)?,
            records: Some(queues.alloc(RECORDS_BYTES, LINE_BYTES)?),
            cqes: None,
            recv_cqes: None,
            umem_id: queues.umem_id()?,
            config: *config,
        })
    }

    /// Returns the words of the receive queue and of the send queue. Empty for queues in device memory.
    pub(in crate::verbs) fn queues(&self) -> (&[AtomicU64], &[AtomicU64]) {
        let receives = self.config.recv_depth() as usize * RECV_WQE_WORDS;
        let words = self.wq.words();
        words.split_at(receives.min(words.len()))
    }

    /// Returns the number of WQEs of the receive queue.
    pub(in crate::verbs) fn recv_depth(&self) -> u32 {
        self.config.recv_depth()
    }

    /// Returns the doorbell record as one word. None in device memory.
    pub(in crate::verbs) fn record(&self) -> Option<&AtomicU64> {
        let words = self.records.as_ref()?.words();
        words.get((SQ_DBREC - CQE) / 8)
    }

    /// Returns the place of the CQ of sends.
    pub(in crate::verbs) fn send_cq(&self) -> CqPlace {
        let wide = self.cqes.as_ref().map(ControlBlock::offset);
        CqPlace {
            umem_id: self.umem_id,
            cqe_offset: wide.unwrap_or(self.records_at(CQE).1),
            log_entries: wide.map(|_| self.config.log_depth),
            dbrec_offset: self.records_at(CQ_DBREC).1,
            uar_page: self.register.page_id(),
            counts_consumption: false,
        }
    }

    /// Returns the place of the CQ of receives. None without a receive queue.
    pub(in crate::verbs) fn recv_cq(&self) -> Option<CqPlace> {
        let block = self.recv_cqes.as_ref()?;
        let entries = u64::from(self.config.recv_depth());
        Some(CqPlace {
            umem_id: self.umem_id,
            cqe_offset: block.offset(),
            log_entries: self.config.log_recv_depth,
            dbrec_offset: block.offset() + entries * CQE_BYTES,
            uar_page: self.register.page_id(),
            counts_consumption: false,
        })
    }

    /// Returns UMEM and offset of the work queues.
    pub(in crate::verbs) fn wq(&self) -> (u32, u64) {
        (self.umem_id, self.wq.offset())
    }

    /// Returns UMEM and offset of the doorbell record. The line exists also if neither queue has a doorbell record. Then it lies idle,
    /// since firmware may insist on a UMEM for it (DOCA GPUNetIO names one for every QP).
    pub(in crate::verbs) fn dbrec(&self) -> (u32, u64) {
        (self.umem_id, self.records_at(SQ_DBREC).1)
    }

    fn has_dbrec(&self) -> bool {
        self.config.doorbell != Doorbell::NoRecord || self.recv_cqes.is_some()
    }

    /// Returns address and offset of a part of CQE line and records, which lie in a block of their own or in the context.
    fn records_at(&self, part: usize) -> (u64, u64) {
        let (block, part) = match (&self.records, &self.context) {
            (Some(block), _) => (block, part - CQE),
            (None, Some(context)) => (context, part),
            (None, None) => unreachable!("records lie in a block of their own or in the context"),
        };
        (block.addr() + part as u64, block.offset() + part as u64)
    }

    /// Returns the layout of the QP, for QP and CQs of these numbers, on a device of these capabilities.
    pub(in crate::verbs) fn layout(
        &self,
        caps: &Caps,
        qpn: u32,
        cqn: u32,
        recv_cqn: Option<u32>,
    ) -> QpLayout {
        let config = &self.config;
        let rq_bytes = u64::from(config.recv_depth()) * RECV_WQE_BYTES;
        let cqes = self.cqes.as_ref();
        let recv = recv_cqn.zip(self.recv_cqes.as_ref());
        QpLayout {
            qpn,
            cqn,
            depth: config.depth(),
            context_addr: self.context.as_ref().map_or(0, ControlBlock::addr),
            context_offset: self.context.as_ref().map_or(0, ControlBlock::offset),
            flags_addr: self.flags.as_ref().map_or(0, ControlBlock::addr),
            sq_addr: self.wq.addr() + rq_bytes,
            cqe_addr: cqes.map_or(self.records_at(CQE).0, ControlBlock::addr),
            dbrec_addr: if self.has_dbrec() {
                self.records_at(SQ_DBREC).0
            } else {
                0
            },
            doorbell_addr: self.register.addr(),
            doorbell_page_addr: self.register.page_addr(),
            mailbox_addr: self.mailbox.as_ref().map(Mailbox::addr),
            records_addr: self.records.as_ref().map(ControlBlock::addr),
            recv: recv.map(|(cqn, block)| RecvLayout {
                cqn,
                depth: config.recv_depth(),
                rq_addr: self.wq.addr(),
                cqe_addr: block.addr(),
                produced: 0,
            }),
            produced: 0,
            mode: config.mode(),
            atomics: caps.atomic_bits(),
        }
    }

    pub(in crate::verbs) fn mailbox(&self) -> Option<&Mailbox> {
        self.mailbox.as_ref()
    }

    /// Writes `parts` to the QP's memory: host memory directly, device memory by `device`.
    pub(in crate::verbs::qp) fn write<E>(
        &self,
        parts: &[ImagePart],
        device: &mut impl FnMut(u64, &[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        for part in parts {
            match self.host_block(part.addr) {
                Some((block, skip)) => block.fill_host(skip, &part.bytes),
                None => device(part.addr, &part.bytes)?,
            }
        }
        Ok(())
    }

    /// Reads from the QP's memory: from host memory directly, from device memory by `device`.
    pub(in crate::verbs::qp) fn read<E>(
        &self,
        addr: u64,
        out: &mut [u8],
        device: &mut impl FnMut(u64, &mut [u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        match self.host_block(addr) {
            Some((block, skip)) => {
                block.read_host(skip, out);
                Ok(())
            }
            None => device(addr, out),
        }
    }

    /// Returns the block of host memory that holds `addr`, and the offset in it. None if `addr` is in device memory.
    fn host_block(&self, addr: u64) -> Option<(&ControlBlock, u64)> {
        self.all()
            .filter(|block| block.is_host())
            .find_map(|block| {
                let skip = addr.checked_sub(block.addr())?;
                (skip < block.bytes()).then_some((block, skip))
            })
    }

    /// Returns the bytes taken of the control heap and, with host queues, of the heap in host memory.
    pub(in crate::verbs) fn bytes(&self) -> u64 {
        self.all().map(ControlBlock::bytes).sum()
    }

    fn all(&self) -> impl Iterator<Item = &ControlBlock> {
        let optional = [
            &self.records,
            &self.cqes,
            &self.recv_cqes,
            &self.context,
            &self.flags,
        ];
        optional.into_iter().flatten().chain([&self.wq])
    }
}

/// The number of words of a receive WQE.
const RECV_WQE_WORDS: usize = 2;
const _: () = assert!(8 * RECV_WQE_WORDS as u64 == RECV_WQE_BYTES);

/// Offsets in the context of the parts that lie in a block of their own with host queues.
const CQE: usize = QpContext::CQE_OFFSET;
const SQ_DBREC: usize = QpContext::SQ_DBREC_OFFSET;
const CQ_DBREC: usize = QpContext::CQ_DBREC_OFFSET;

const _: () = assert!((CQ_DBREC + 64 - CQE) as u64 == RECORDS_BYTES);
