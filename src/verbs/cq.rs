//! Completion queues of one collapsed entry.

use std::sync::Arc;

use mlx5_prm::cmd::Opcode;
use mlx5_prm::cq::{Cqc, CreateCqIn, CreateCqOut};

use super::command::DevxObject;
use super::context::Context;
use super::error::VerbsError;

/// Where a CQ lies: offsets in one UMEM.
#[derive(Clone, Copy, Debug)]
pub(super) struct CqPlace {
    pub(super) umem_id: u32,
    /// Of the 64-byte CQE.
    pub(super) cqe_offset: u64,
    /// Of the 8-byte doorbell record.
    pub(super) dbrec_offset: u64,
    /// Page of the register for arming; the runtime never arms.
    pub(super) uar_page: u32,
}

/// A CQ of length 1: every completion overwrites the entry (`cc`), and nobody counts consumption (`oi`). Pollers turn the
/// 16-bit counter of the newest entry into an index. `M` is what holds its memory.
#[derive(Debug)]
pub(super) struct Cq<M> {
    object: DevxObject<M>,
    cqn: u32,
}

impl<M> Cq<M> {
    pub(super) fn create(
        context: &Arc<Context>,
        place: &CqPlace,
        memory: M,
    ) -> Result<Self, VerbsError> {
        let cqc = Cqc::default()
            .with_cc(1)
            .with_oi(1)
            .with_log_cq_size(0)
            .with_uar_page(place.uar_page)
            .with_c_eqn(context.event_queue()?)
            .with_dbr_umem_valid(1)
            .with_dbr_umem_id(place.umem_id)
            .with_dbr_addr(place.dbrec_offset);
        let input = CreateCqIn::default()
            .with_opcode(u32::from(Opcode::CREATE_CQ.0))
            .with_cqc(cqc)
            .with_cq_umem_offset(place.cqe_offset)
            .with_cq_umem_id(place.umem_id)
            .with_cq_umem_valid(1);
        let (object, out) = DevxObject::create::<_, CreateCqOut>(context, &input, memory)?;
        let cqn = out.cqn();
        Ok(Self { object, cqn })
    }

    pub(super) fn cqn(&self) -> u32 {
        self.cqn
    }

    pub(super) fn memory(&self) -> &M {
        self.object.memory()
    }
}
