//! Completion queues: one collapsed entry, or a ring of them.

use std::sync::Arc;

use mlx5_prm::cmd::Opcode;
use mlx5_prm::cq::{Cqc, CreateCqIn, CreateCqOut, QueryCqIn, QueryCqOut};

use crate::verbs::context::Context;
use crate::verbs::error::VerbsError;
use crate::verbs::events::Events;
use crate::verbs::object::DevxObject;

/// The place of a CQ: offsets in one UMEM.
#[derive(Clone, Copy, Debug)]
pub(in crate::verbs) struct CqPlace {
    pub(in crate::verbs) umem_id: u32,
    /// The offset of the first 64-byte CQE.
    pub(in crate::verbs) cqe_offset: u64,
    /// log2 of the number of CQEs. None for one collapsed CQE.
    pub(in crate::verbs) log_entries: Option<u8>,
    /// The offset of the 8-byte doorbell record.
    pub(in crate::verbs) dbrec_offset: u64,
    /// The page of the register by which the CQ is armed.
    pub(in crate::verbs) uar_page: u32,
    /// True if the device checks how far software has consumed before it writes. That is so only for a CQ whose consumer reports that.
    pub(in crate::verbs) counts_consumption: bool,
}

/// A CQ that never has more completions under way than entries, by construction. So most CQs need no consumer index (`oi`).
///
/// In a collapsed CQ every completion overwrites the one entry (`cc`), and pollers turn its 16-bit counter into an index. Any other CQ is a
/// ring, in which the owner bit of an entry changes with each lap. `M` holds the CQ's memory.
#[derive(Debug)]
pub(in crate::verbs) struct Cq<M> {
    object: DevxObject<M>,
    cqn: u32,
    log_entries: Option<u8>,
}

impl<M> Cq<M> {
    pub(in crate::verbs) fn create(
        context: &Arc<Context>,
        place: &CqPlace,
        memory: M,
    ) -> Result<Self, VerbsError> {
        let cqc = Cqc::default()
            .with_cc(place.log_entries.is_none().into())
            .with_oi((!place.counts_consumption).into())
            .with_log_cq_size(place.log_entries.unwrap_or(0).into())
            .with_uar_page(place.uar_page)
            .with_c_eqn(context.device().event_queue()?)
            .with_dbr_umem_valid(1)
            .with_dbr_umem_id(place.umem_id)
            .with_dbr_addr(place.dbrec_offset);
        let input = CreateCqIn::default()
            .with_opcode(u32::from(Opcode::CREATE_CQ.0))
            .with_cqc(cqc)
            .with_cq_umem_offset(place.cqe_offset)
            .with_cq_umem_id(place.umem_id)
            .with_cq_umem_valid(1);
        let (object, out) = DevxObject::create::<_, CreateCqOut>(context.device(), &input, memory)?;
        let cqn = out.cqn();
        Ok(Self {
            object,
            cqn,
            log_entries: place.log_entries,
        })
    }

    pub(in crate::verbs) fn cqn(&self) -> u32 {
        self.cqn
    }

    pub(in crate::verbs) fn memory(&self) -> &M {
        self.object.memory()
    }

    /// Returns how many entries the HCA has written, modulo 2^24. 0 for a collapsed CQ, where no caller needs it. A reset of the QP does
    /// not set this number back, so software goes on from it.
    pub(in crate::verbs) fn produced(&self) -> Result<u32, VerbsError> {
        if self.log_entries.is_none() {
            return Ok(0);
        }
        let input = QueryCqIn::default()
            .with_opcode(u32::from(Opcode::QUERY_CQ.0))
            .with_cqn(self.cqn);
        let out = self.object.query::<_, QueryCqOut>(&input)?;
        Ok(out.cqc().producer_counter())
    }

    /// Makes `events` report, with this cookie, the first entry after an arming.
    pub(in crate::verbs) fn subscribe(
        &self,
        events: &Events,
        cookie: u64,
    ) -> Result<(), VerbsError> {
        events.subscribe_cq(&self.object, cookie)
    }

    /// Destroys the CQ. Returns an error if that failed.
    pub(in crate::verbs) fn destroy(self) -> Result<(), VerbsError> {
        self.object.destroy()
    }
}
