//! A context with one of everything but a QP, and the commands that made it.

use super::{Memory, create};
use mlx5_prm::cmd::{Opcode, Status};
use mlx5_prm::cq::{Cqc, CreateCqIn};
use mlx5_prm::qp::{CreateQpIn, QpModifyIn, Qpc};
use softhca::device::{Access, Context};
use softhca::{DeviceError, Hca};
use std::fmt::Debug;

/// What a QP needs, made step by step; any step may fail.
pub struct Bringup {
    /// The context that all belong to.
    pub context: Context,
    /// Rings, records and contexts of the queues.
    pub memory: Memory,
    /// The protection domain.
    pub pdn: u32,
    /// `memory` as the device knows it.
    pub umem: u32,
    /// The UAR page.
    pub page_id: u32,
    /// The completion queue.
    pub cqn: u32,
}

/// Everything that a QP needs, in a new context of `hca`.
pub fn bring_up(hca: &Hca) -> Result<Bringup, DeviceError> {
    bring_up_in(Context::open(hca.name())?)
}

#[expect(
    unsafe_code,
    reason = "registers memory that outlives the registration"
)]
/// As `bring_up`, in `context`.
pub fn bring_up_in(context: Context) -> Result<Bringup, DeviceError> {
    // In this order, so that the context goes first also where a step fails.
    let (memory, context) = (Memory::new(1 << 16), context);
    let pdn = context.alloc_pd()?;
    // SAFETY: the context goes before the memory: as local variables and as fields.
    let mr = unsafe {
        context.reg_mr(
            pdn,
            memory.address(),
            memory.bytes(),
            memory.address(),
            Access(15),
        )
    };
    let mr = mr?;
    // SAFETY: as above.
    let umem = unsafe { context.reg_umem(memory.address(), memory.bytes(), Access(1)) }?;
    let page_id = context.alloc_uar()?.page_id;
    let eqn = context.eqn(0)?;
    let (_, cqn) = create(&context, create_cq(umem, page_id, eqn).as_bytes())?;
    let (object, qpn) = create(&context, create_qp(pdn, umem, page_id, cqn).as_bytes())?;
    for opcode in [Opcode::RST2INIT_QP, Opcode::TO_ERR_QP, Opcode::TO_RST_QP] {
        let input = QpModifyIn::default()
            .with_opcode(opcode.0.into())
            .with_qpn(qpn);
        context.devx_modify(object, input.as_bytes(), &mut [0; 16])?;
    }
    context.devx_destroy(object)?;
    context.dereg_mr(mr.lkey)?;
    Ok(Bringup {
        context,
        memory,
        pdn,
        umem,
        page_id,
        cqn,
    })
}

/// Returns the command that makes a completion queue.
pub fn create_cq(umem: u32, page_id: u32, eqn: u32) -> CreateCqIn {
    let cqc = Cqc::default()
        .with_dbr_umem_id(umem)
        .with_uar_page(page_id)
        .with_c_eqn(eqn)
        .with_log_cq_size(2);
    CreateCqIn::default()
        .with_opcode(Opcode::CREATE_CQ.0.into())
        .with_cqc(cqc)
        .with_cq_umem_offset(4096)
        .with_cq_umem_id(umem)
}

/// Returns the command that makes a QP.
pub fn create_qp(pdn: u32, umem: u32, page_id: u32, cqn: u32) -> CreateQpIn {
    let qpc = Qpc::default()
        .with_pd(pdn)
        .with_log_sq_size(4)
        .with_rq_type(Qpc::RQ_TYPE_NONE)
        .with_uar_page(page_id)
        .with_cqn_snd(cqn)
        .with_cqn_rcv(cqn)
        .with_dbr_umem_id(umem)
        .with_dbr_addr(64);
    CreateQpIn::default()
        .with_opcode(Opcode::CREATE_QP.0.into())
        .with_qpc(qpc)
        .with_wq_umem_offset(8192)
        .with_wq_umem_id(umem)
}

/// Status and syndrome of a command that must have been refused.
pub fn refused<T: Debug>(outcome: Result<T, DeviceError>) -> (Status, u32) {
    match outcome {
        Err(DeviceError::Refused {
            status, syndrome, ..
        }) => (status, syndrome),
        other => panic!("{other:?} is not a refusal"),
    }
}
