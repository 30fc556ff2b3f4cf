//! A counter set: what happened to the packets of this runtime's QPs, apart from those of other programs on the device.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, PoisonError};

use mlx5_prm::cmd::Opcode;
use mlx5_prm::q_counter::{AllocQCounterIn, AllocQCounterOut, QueryQCounterIn, QueryQCounterOut};

use super::command::DevxObject;
use super::context::Context;
use super::error::VerbsError;

/// A counter set of the device. A context has one for all its QPs that ask for it
/// ([`QpConfig::own_counters`](super::QpConfig)), while one of them or a caller of [`CounterSet::of`] holds it.
#[derive(Debug)]
pub struct CounterSet {
    object: DevxObject<()>,
    id: u8,
}

/// What a counter set has counted since it was made; each stops at 2^32 - 1. PRM "Queue Counters"; names are the manual's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PacketCounts {
    /// Writes received.
    pub rx_write_requests: u32,
    /// Reads received.
    pub rx_read_requests: u32,
    /// Atomics received.
    pub rx_atomic_requests: u32,
    /// Messages that found no receive WQE.
    pub out_of_buffer: u32,
    /// Requests received out of order: packets were lost on the way here.
    pub out_of_sequence: u32,
    /// Requests received again.
    pub duplicate_request: u32,
    /// Receiver-not-ready answers received.
    pub rnr_nak_retry_err: u32,
    /// Sequence-error answers received: packets were lost on the way to the peer.
    pub packet_seq_err: u32,
    /// Answers that implied a loss without being a sequence error.
    pub implied_nak_seq_err: u32,
    /// Times that no answer came in time.
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
    /// The context's own set, made if it has none yet.
    ///
    /// # Errors
    ///
    /// [`VerbsError::Capability`] if the device has no counter sets; the HCA's answer.
    pub fn of(context: &Arc<Context>) -> Result<Arc<Self>, VerbsError> {
        if !context.caps().counter_sets {
            let needed = "at least 1 for a counter set";
            return Err(context.device().lacks("max_qp_cnt", 0, needed));
        }
        let own = context.own_counters.lock();
        // A weak pointer is never half-way.
        let mut own = own.unwrap_or_else(PoisonError::into_inner);
        if let Some(set) = own.upgrade() {
            return Ok(set);
        }
        let set = Arc::new(Self::alloc(context)?);
        *own = Arc::downgrade(&set);
        Ok(set)
    }

    /// The context's own set; none, and the device's own counts, where that is refused. The refusal is logged once, and not tried
    /// again.
    pub(super) fn or_the_devices(context: &Arc<Context>) -> Option<Arc<Self>> {
        if context.counters_refused.load(Relaxed) {
            return None;
        }
        let refused = |error: &VerbsError| {
            context.counters_refused.store(true, Relaxed);
            tracing::warn!("packets are counted with those of all programs on the device: {error}");
        };
        Self::of(context).inspect_err(refused).ok()
    }

    fn alloc(context: &Arc<Context>) -> Result<Self, VerbsError> {
        let input = AllocQCounterIn::default().with_opcode(u32::from(Opcode::ALLOC_Q_COUNTER.0));
        let (object, out) = DevxObject::create::<_, AllocQCounterOut>(context, &input, ())?;
        let id = out.counter_set_id();
        match u8::try_from(id) {
            Ok(id) if id != 0 => Ok(Self { object, id }),
            _ => Err(context.bad_reply("counter_set_id", id, "1 to 255: 0 is the device's own")),
        }
    }

    /// Its number, as commands name it.
    #[must_use]
    pub(crate) fn id(&self) -> u8 {
        self.id
    }

    /// What has been counted so far.
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
