//! A CQ of many QPs, whose entries one thread of this process reaps.
//!
//! The thread reports to the HCA how much it has consumed, so the HCA would find an overrun. An overrun never happens by construction. Each
//! QP takes a share of as many entries as it can post WQEs, since in error each WQE completes, signalled or not.
//!
//! A thread that wants to sleep arms the CQ, looks once more, and then waits for the channel. That look finds an entry that came before the
//! arming, and a later entry raises an event. Two CQs of one thread share a channel.

use std::mem::offset_of;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering, fence};

use mlx5_prm::cqe::{Cqe64, CqeOpcode};
use mlx5_prm::doorbell::cq_record;

use crate::sys;
use crate::verbs::context::Context;
use crate::verbs::error::VerbsError;
use crate::verbs::events::Events;
use crate::verbs::limits::{CQE_BYTES, LINE_BYTES, in_range};
use crate::verbs::memory::heap::{ControlBlock, ControlHeap};
use crate::verbs::qp::cq::{Cq, CqPlace};
use crate::verbs::uar::DoorbellRegister;

/// The number of words of an entry.
const WORDS: usize = 8;
/// The word of an entry whose second half is the immediate.
const IMMEDIATE: usize = 4;
const _: () = assert!(offset_of!(Cqe64, imm_inval_pkey) == 8 * IMMEDIATE + 4);
const _: () = assert!(8 * WORDS as u64 == CQE_BYTES);
/// The value of `op_own` in an entry that the HCA has not written.
const INVALID: u64 = (CqeOpcode::INVALID.0 as u64) << 60;
/// The lowest bit of the sequence in an arm word.
const SEQUENCE_SHIFT: u32 = 28;
/// The cookie of the events of a CQ.
const COOKIE: u64 = 1;

/// The memory and the register of a CQ of many QPs.
#[derive(Debug)]
struct Memory {
    register: Arc<DoorbellRegister>,
    cqes: ControlBlock,
    record: ControlBlock,
}

/// A CQ of many QPs. Only one thread reaps, and that thread counts what it has consumed.
#[derive(Debug)]
pub(crate) struct SharedCq {
    cq: Cq<Memory>,
    log_entries: u8,
    /// Number of entries in the shares of QPs.
    shared: AtomicU32,
    /// The channel that reports entries after an arming. It is closed after the CQ.
    events: Arc<Events>,
}

/// A completion of a QP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    /// The QP of the completion.
    pub(crate) qpn: u32,
    /// The queue of the WQE.
    pub(crate) queue: Queue,
    /// Index of the WQE, modulo 2^16. For a send WQE it is the index of its first WQEBB.
    pub(crate) index: u16,
    /// `vendor_err_synd << 8 | syndrome` if the WQE has failed.
    pub(crate) failed: Option<u16>,
}

/// A queue of a QP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Queue {
    /// The send queue.
    Send,
    /// The receive queue, with the immediate of the peer's WRITE.
    Receive(Option<u32>),
}

impl SharedCq {
    /// Creates a CQ of `1 << log_entries` entries in the host memory of `heap`.
    ///
    /// # Errors
    ///
    /// [`VerbsError::BadArgument`] for more entries than the device has, or a heap in device memory; else the error of the step that
    /// failed.
    pub(crate) fn create(
        heap: &Arc<ControlHeap>,
        log_entries: u8,
    ) -> Result<Arc<Self>, VerbsError> {
        let events = Events::silent(heap.context())?;
        Self::create_with(heap, log_entries, Arc::new(events))
    }

    /// Creates a CQ as `create` does, with the channel of this one.
    ///
    /// # Errors
    ///
    /// As [`SharedCq::create`].
    pub(crate) fn beside(
        &self,
        heap: &Arc<ControlHeap>,
        log_entries: u8,
    ) -> Result<Arc<Self>, VerbsError> {
        Self::create_with(heap, log_entries, Arc::clone(&self.events))
    }

    fn create_with(
        heap: &Arc<ControlHeap>,
        log_entries: u8,
        events: Arc<Events>,
    ) -> Result<Arc<Self>, VerbsError> {
        let context = heap.context();
        let most = context.caps().log_max_cq_sz.min(22);
        in_range("log_entries of a CQ", log_entries, 4, most)?;
        let memory = Memory {
            register: context.registers().alloc()?,
            cqes: heap.alloc(CQE_BYTES << log_entries, LINE_BYTES)?,
            record: heap.alloc(LINE_BYTES, LINE_BYTES)?,
        };
        if memory.record.words().is_empty() {
            let value = format!("device memory at {:#x}", heap.addr());
            let limit = "host memory (HeapRegion::host)";
            return Err(VerbsError::argument(
                "heap for a CQ of the host",
                value,
                limit,
            ));
        }
        for entry in memory.cqes.words().chunks_exact(WORDS) {
            entry[WORDS - 1].store(INVALID, Ordering::Relaxed);
        }
        memory.record.words()[0].store(0, Ordering::Relaxed);
        let place = CqPlace {
            umem_id: heap.umem_id()?,
            cqe_offset: memory.cqes.offset(),
            log_entries: Some(log_entries),
            dbrec_offset: memory.record.offset(),
            uar_page: memory.register.page_id(),
            counts_consumption: true,
        };
        let cq = Cq::create(context, &place, memory)?;
        cq.subscribe(&events, COOKIE)?;
        Ok(Arc::new(Self {
            cq,
            log_entries,
            shared: AtomicU32::new(0),
            events,
        }))
    }

    /// Takes a share of `entries` entries.
    ///
    /// # Errors
    ///
    /// [`VerbsError::BadArgument`] if fewer entries are in no share, or for a QP of another device.
    pub(in crate::verbs) fn share(
        self: &Arc<Self>,
        context: &Arc<Context>,
        entries: u32,
    ) -> Result<CqShare, VerbsError> {
        let own = self.events.device();
        if !Arc::ptr_eq(own, context.device()) {
            let limit = format!("one of the context of the PD, {}", context.name());
            return Err(VerbsError::argument("CQ", own.name(), limit));
        }
        let most = 1u32 << self.log_entries;
        let take = |shared: u32| shared.checked_add(entries).filter(|sum| *sum <= most);
        let taken = self
            .shared
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, take);
        match taken {
            Ok(_) => Ok(CqShare {
                cq: Arc::clone(self),
                entries,
            }),
            Err(shared) => Err(VerbsError::argument(
                "entries of a CQ for one more QP",
                entries,
                format!(
                    "at most the {} of {most} that no other QP has",
                    most - shared
                ),
            )),
        }
    }

    /// Returns whether at least `entries` entries are in no QP's share.
    pub(crate) fn has_room(&self, entries: u32) -> bool {
        let shared = self.shared.load(Ordering::Relaxed);
        entries <= (1 << self.log_entries) - shared
    }

    /// Returns entry number `consumed`, if the HCA has written it.
    pub(crate) fn entry(&self, consumed: u32) -> Option<Entry> {
        let nth = (consumed & ((1 << self.log_entries) - 1)) as usize;
        let words = self.cq.memory().cqes.words();
        let words = words.get(nth * WORDS..(nth + 1) * WORDS)?;
        // Acquire: pairs with the HCA, which writes the last word last.
        let last = words[WORDS - 1].load(Ordering::Acquire).to_le_bytes();
        let [_, high, mid, low, counter_high, counter_low, _, op_own] = last;
        let opcode = CqeOpcode(op_own >> 4);
        let lap = (consumed >> self.log_entries) & 1;
        if opcode == CqeOpcode::INVALID || u32::from(op_own & 1) != lap {
            return None;
        }
        let is_error = opcode == CqeOpcode::REQ_ERR || opcode == CqeOpcode::RESP_ERR;
        let failed = is_error.then(|| {
            let [.., vendor, syndrome] = words[WORDS - 2].load(Ordering::Relaxed).to_le_bytes();
            u16::from_be_bytes([vendor, syndrome])
        });
        let queue = match opcode {
            CqeOpcode::RESP_WR_IMM => {
                let [.., a, b, c, d] = words[IMMEDIATE].load(Ordering::Relaxed).to_le_bytes();
                Queue::Receive(Some(u32::from_be_bytes([a, b, c, d])))
            }
            CqeOpcode::RESP_ERR
            | CqeOpcode::RESP_SEND
            | CqeOpcode::RESP_SEND_IMM
            | CqeOpcode::RESP_SEND_INV => Queue::Receive(None),
            _ => Queue::Send,
        };
        Some(Entry {
            queue,
            qpn: u32::from_be_bytes([0, high, mid, low]),
            index: u16::from_be_bytes([counter_high, counter_low]),
            failed,
        })
    }

    /// Reports to the HCA that it may overwrite the entries before number `consumed`.
    pub(crate) fn consume(&self, consumed: u32) {
        let record = &self.cq.memory().record.words()[0];
        let [_, _, _, _, arm @ ..] = record.load(Ordering::Relaxed).to_le_bytes();
        record.store(record_word(consumed, arm), Ordering::Release);
    }

    /// Arms the CQ: the next entry from number `consumed` on raises an event, also if it has been written already. `sequence` counts
    /// armings.
    pub(crate) fn arm(&self, consumed: u32, sequence: u32) {
        let memory = self.cq.memory();
        let word = (sequence & 3) << SEQUENCE_SHIFT | (consumed & cq_record::INDEX_MASK);
        let arm = word.to_be_bytes();
        memory.record.words()[0].store(record_word(consumed, arm), Ordering::Release);
        // This orders the record before the register.
        fence(Ordering::SeqCst);
        let [a, b, c, d] = arm;
        let [e, f, g, h] = self.cq.cqn().to_be_bytes();
        memory
            .register
            .arm(u64::from_le_bytes([a, b, c, d, e, f, g, h]));
        if let Some(kick) = sys::softhca_kick() {
            kick();
        }
    }

    /// Returns the descriptor of the channel, which is readable after an event.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.events.fd()
    }

    /// Takes all events that wait. Each event stands for one arming, so they are few.
    ///
    /// # Errors
    ///
    /// [`VerbsError::Call`].
    pub(crate) fn take_events(&self) -> Result<(), VerbsError> {
        while self.events.next()?.is_some() {}
        Ok(())
    }
}

/// Returns both words of the record. The second is the arm word as it lies in memory.
fn record_word(consumed: u32, arm: [u8; 4]) -> u64 {
    let [a, b, c, d] = (consumed & cq_record::INDEX_MASK).to_be_bytes();
    let [e, f, g, h] = arm;
    u64::from_le_bytes([a, b, c, d, e, f, g, h])
}

/// The share of one QP in a CQ. Its drop gives the entries back.
#[derive(Debug)]
pub(in crate::verbs) struct CqShare {
    cq: Arc<SharedCq>,
    entries: u32,
}

impl CqShare {
    pub(in crate::verbs) fn cqn(&self) -> u32 {
        self.cq.cq.cqn()
    }
}

impl Drop for CqShare {
    fn drop(&mut self) {
        self.cq.shared.fetch_sub(self.entries, Ordering::Relaxed);
    }
}

const _: () = {
    assert!(size_of::<Cqe64>() == 8 * WORDS);
    assert!(cq_record::CONSUMER_INDEX == 0 && cq_record::ARM == 4);
};
