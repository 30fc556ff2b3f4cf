//! A counter set, which counts the packets of this runtime's QPs apart from those of other programs on the device.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use mlx5_prm::cmd::Opcode;
use mlx5_prm::q_counter::{AllocQCounterIn, AllocQCounterOut, QueryQCounterIn, QueryQCounterOut};

use crate::verbs::device::open::OpenDevice;
use crate::verbs::error::VerbsError;
use crate::verbs::object::DevxObject;

/// A counter set of the device. A context has one set for all its QPs that ask for it ([`QpConfig::own_counters`](crate::verbs::QpConfig)).
/// The set exists while such a QP or a caller of [`CounterSet::of`] holds it.
#[derive(Debug)]
pub struct CounterSet {
    object: DevxObject<()>,
    id: u8,
}

/// The counts of a counter set since it was made. Each count stops at 2^32 - 1. PRM "Queue Counters"; the names are the manual's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PacketCounts {
    /// Writes received.
    pub rx_write_requests: u32,
    /// Reads received.
    pub rx_read_requests: u32,
    /// Atomics received.
    pub rx_atomic_requests: u32,
    /// Messages for which no receive WQE was free.
    pub out_of_buffer: u32,
    /// Requests received out of order, since packets to this port were lost.
    pub out_of_sequence: u32,
    /// Requests received more than once.
    pub duplicate_request: u32,
    /// Receiver-not-ready answers received.
    pub rnr_nak_retry_err: u32,
    /// Sequence-error answers received, since packets to the peer were lost.
    pub packet_seq_err: u32,
    /// Answers that implied a loss without being a sequence error.
    pub implied_nak_seq_err: u32,
    /// Number of times that no answer came in time.
    pub local_ack_timeout_err: u32,
    /// Work that was given up because the receiver was never ready.
    pub req_rnr_retries_exceeded: u32,
    /// Work that was given up because no answer ever came.
    pub req_transport_retries_exceeded: u32,
    /// Requests that the peer refused for lack of rights.
    pub req_remote_access_errors: u32,
    /// Requests of the peer that were refused for lack of rights.
    pub resp_remote_access_errors: u32,
    /// Work that completed in error, flushed work included.
    pub req_cqe_error: u32,
    /// Work that completed as flushed.
    pub req_cqe_flush_error: u32,
}

impl CounterSet {
    fn alloc(device: &Arc<OpenDevice>) -> Result<Self, VerbsError> {
        let input = AllocQCounterIn::default().with_opcode(u32::from(Opcode::ALLOC_Q_COUNTER.0));
        let (object, out) = DevxObject::create::<_, AllocQCounterOut>(device, &input, ())?;
        let id = out.counter_set_id();
        match u8::try_from(id) {
            Ok(id) if id != 0 => Ok(Self { object, id }),
            _ => Err(device.bad_reply("counter_set_id", id, "1 to 255: 0 is the device's own")),
        }
    }

    /// Returns the number by which commands name the set.
    #[must_use]
    pub(crate) fn id(&self) -> u8 {
        self.id
    }

    /// Returns the counts so far.
    ///
    /// # Errors
    ///
    /// The HCA's answer.
    pub fn query(&self) -> Result<PacketCounts, VerbsError> {
        let input = QueryQCounterIn::default()
            .with_opcode(u32::from(Opcode::QUERY_Q_COUNTER.0))
            .with_counter_set_id(self.id.into());
        let out = self.object.query::<_, QueryQCounterOut>(&input)?;
        Ok(PacketCounts {
            rx_write_requests: out.rx_write_requests(),
            rx_read_requests: out.rx_read_requests(),
            rx_atomic_requests: out.rx_atomic_requests(),
            out_of_buffer: out.out_of_buffer(),
            out_of_sequence: out.out_of_sequence(),
            duplicate_request: out.duplicate_request(),
            rnr_nak_retry_err: out.rnr_nak_retry_err(),
            packet_seq_err: out.packet_seq_err(),
            implied_nak_seq_err: out.implied_nak_seq_err(),
            local_ack_timeout_err: out.local_ack_timeout_err(),
            req_rnr_retries_exceeded: out.req_rnr_retries_exceeded(),
            req_transport_retries_exceeded: out.req_transport_retries_exceeded(),
            req_remote_access_errors: out.req_remote_access_errors(),
            resp_remote_access_errors: out.resp_remote_access_errors(),
            req_cqe_error: out.req_cqe_error(),
            req_cqe_flush_error: out.req_cqe_flush_error(),
        })
    }
}

/// The counter set of a context's QPs, made when a QP first asks for it.
pub(super) struct OwnCounters {
    device: Arc<OpenDevice>,
    /// True if the device has counter sets.
    has_sets: bool,
    set: Mutex<Weak<CounterSet>>,
    /// True if the device has refused a counter set.
    refused: AtomicBool,
}

impl OwnCounters {
    pub(super) fn new(device: &Arc<OpenDevice>, has_sets: bool) -> Self {
        Self {
            device: Arc::clone(device),
            has_sets,
            set: Mutex::default(),
            refused: AtomicBool::new(false),
        }
    }

    /// Returns the set, after making it if it does not exist.
    pub(super) fn get(&self) -> Result<Arc<CounterSet>, VerbsError> {
        if !self.has_sets {
            let needed = "at least 1 for a counter set";
            return Err(self.device.lacks("max_qp_cnt", 0, needed));
        }
        // A weak pointer is never half changed.
        let mut own = self.set.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(set) = own.upgrade() {
            return Ok(set);
        }
        let set = Arc::new(CounterSet::alloc(&self.device)?);
        *own = Arc::downgrade(&set);
        Ok(set)
    }

    /// Returns the set. None if the device refuses it: then the device's own counters count. The refusal is logged once, and the device is
    /// not asked again.
    pub(super) fn or_the_devices(&self) -> Option<Arc<CounterSet>> {
        if self.refused.load(Relaxed) {
            return None;
        }
        let refused = |error: &VerbsError| {
            self.refused.store(true, Relaxed);
            tracing::warn!("packets are counted with those of all programs on the device: {error}");
        };
        self.get().inspect_err(refused).ok()
    }
}
