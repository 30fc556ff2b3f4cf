//! Commands: bytes in, bytes out, any bytes.
//!
//! The kernel lets a user process send commands of five kinds only, each through a call of its own; [`Class`] is that kind.
//! Status and syndrome of a refusal go into the output. A command buffer that is too short for even those is refused before it
//! counts as executed.

mod capabilities;
mod cq;
mod mkey;
mod passed_on;
mod qp;
mod qp_modify;
mod queries;
pub mod syndrome;

pub(super) use capabilities::general as general_capabilities;
pub(super) use cq::remove_cq;
pub(super) use mkey::access as access_of;
pub(super) use qp::remove_qp;

use super::context::{DevxObject, pd_users};
use super::error::DeviceError;
use super::faults::{self, Strike};
use super::for_judges::srq_commands as srq;
use super::state::{Fabric, HcaState, Slot};
use mlx5_prm::cmd::{CmdIn, CmdOut, CreateOut, Opcode, Status};

/// By which call a command may be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Class {
    Create,
    Modify,
    Query,
    Destroy,
    General,
}

/// Why a command is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Refusal {
    status: Status,
    syndrome: u32,
}

impl Refusal {
    pub(super) const fn new(status: Status, syndrome: u32) -> Self {
        Self { status, syndrome }
    }

    pub(super) const fn bad_param(syndrome: u32) -> Self {
        Self::new(Status::BAD_PARAM, syndrome)
    }

    pub(super) const fn bad_resource(syndrome: u32) -> Self {
        Self::new(Status::BAD_RES, syndrome)
    }

    pub(super) const FULL: Self = Self::new(Status::NO_RES, syndrome::NO_MORE_OBJECTS);
}

/// What a command is executed on.
pub(super) struct Call<'a> {
    fabric: &'a mut Fabric,
    hca: usize,
    pub(super) context: u32,
    pub(super) input: &'a [u8],
    output: &'a mut [u8],
}

impl Call<'_> {
    /// The HCA and its wire. They exist: the context that this call came through is open.
    fn slot(&mut self) -> Result<&mut Slot, Refusal> {
        self.fabric.slot(self.hca).ok_or(Refusal::new(
            Status::BAD_SYS_STATE,
            syndrome::NO_SUCH_DEVICE,
        ))
    }

    /// The state of the HCA that the context of this call has opened.
    pub(super) fn hca(&mut self) -> Result<&mut HcaState, Refusal> {
        Ok(&mut self.slot()?.state)
    }

    /// Refuses inputs shorter than `bytes`.
    pub(super) fn need_input(&self, bytes: usize) -> Result<(), Refusal> {
        if self.input.len() < bytes {
            return Err(Refusal::new(Status::BAD_INP_LEN, syndrome::INPUT_TOO_SHORT));
        }
        Ok(())
    }

    /// Puts a reply out, as much of it as the buffer holds.
    pub(super) fn reply(&mut self, reply: &[u8]) {
        let bytes = self.output.len().min(reply.len());
        self.output[..bytes].copy_from_slice(&reply[..bytes]);
    }

    /// Replies with the number of a new object.
    pub(super) fn reply_number(&mut self, number: u32) {
        // PANIC: the tables' numbers have 24 bits.
        self.reply(CreateOut::default().with_number(number).as_bytes());
    }
}

pub(super) type Outcome = Result<Option<DevxObject>, Refusal>;

/// So many commands are recorded at most.
const MOST_RECORDED: usize = 4096;

/// Executes one command.
///
/// `object` is the one that the caller's handle stands for; a command that names another is not executed.
///
/// # Errors
///
/// Refused, with status and syndrome in `output`; or not executed at all.
pub(super) fn execute(
    fabric: &mut Fabric,
    hca: usize,
    context: u32,
    class: Class,
    object: Option<DevxObject>,
    input: &[u8],
    output: &mut [u8],
) -> Result<Option<DevxObject>, DeviceError> {
    for bytes in [input.len(), output.len()] {
        if bytes < CmdIn::BYTES {
            return Err(DeviceError::ShortCommand {
                bytes,
                limit: CmdIn::BYTES,
            });
        }
    }
    let opcode = CmdIn::from_prefix(input).op();
    let wrong = DeviceError::WrongCommand { opcode };
    let run = match handler(class, opcode) {
        Some(run) => run,
        None if passed_on::is_passed_on(class, input) => {
            |_: &mut Call<'_>| Err(Refusal::new(Status::BAD_OP, syndrome::UNKNOWN_OPCODE))
        }
        None => return Err(wrong),
    };
    let state = fabric.hca(hca).ok_or(DeviceError::NoDevice)?;
    if state.contexts.get(context).is_none() {
        return Err(DeviceError::NoObject {
            what: "open context",
            number: context,
        });
    }
    if object.is_some_and(|object| named(opcode, input) != Some(object)) {
        return Err(wrong);
    }
    output.fill(0);
    if state.dead && !faults::ends_something(opcode) {
        /// What the kernel answers for a device that has failed: `MLX5_DRIVER_STATUS_ABORTED`, `MLX5_DRIVER_SYND`.
        const ABORTED: (u32, u32) = (0xfe, 0xbadd_00de);
        let header = CmdOut::default()
            .with_status(ABORTED.0)
            .with_syndrome(ABORTED.1);
        output[..CmdOut::BYTES].copy_from_slice(header.as_bytes());
        return Err(DeviceError::Dead { opcode });
    }
    let qpn = CreateOut::from_prefix(input).number();
    if is_transition(opcode) || opcode == Opcode::QUERY_QP {
        fabric.look_at_progress(hca, qpn);
    }
    if opcode == Opcode::QUERY_CQ {
        fabric.look_at_cq(hca, mlx5_prm::cq::QueryCqIn::from_prefix(input).cqn());
    }
    let state = fabric.hca(hca).ok_or(DeviceError::NoDevice)?;
    if let Some(recorded) = state
        .recorded
        .as_mut()
        .filter(|all| all.len() < MOST_RECORDED)
    {
        recorded.push(input.to_vec());
    }
    let outcome = match state.faults.strike(opcode) {
        Some(Strike::NoMemory) => return Err(DeviceError::NoMemory { opcode }),
        Some(Strike::Refused(status, syndrome)) => Err(Refusal { status, syndrome }),
        None => run(&mut Call {
            fabric,
            hca,
            context,
            input,
            output,
        }),
    };
    if outcome.is_ok() && !matches!(class, Class::Query | Class::General) {
        fabric.write_through(hca)?;
        if opcode == Opcode::TO_RST_QP {
            fabric.new_life(hca, qpn)?;
        }
    }
    outcome.map_err(|refusal| {
        output.fill(0);
        let header = CmdOut::default()
            .with_status(refusal.status.0.into())
            .with_syndrome(refusal.syndrome);
        output[..CmdOut::BYTES].copy_from_slice(header.as_bytes());
        DeviceError::Refused {
            opcode,
            status: refusal.status,
            syndrome: refusal.syndrome,
        }
    })
}

/// The function that executes `opcode`, if it may be sent by calls of `class`.
fn handler(class: Class, opcode: Opcode) -> Option<fn(&mut Call<'_>) -> Outcome> {
    Some(match (class, opcode) {
        (Class::Create, Opcode::ALLOC_PD) => alloc_pd,
        (Class::Create, Opcode::CREATE_MKEY) => mkey::create,
        (Class::Create, Opcode::CREATE_CQ) => cq::create,
        // The device has no counter sets, or others hold all of them.
        (Class::Create, Opcode::ALLOC_Q_COUNTER) => |_| Err(Refusal::FULL),
        (Class::Create, Opcode::CREATE_QP) => qp::create,
        (Class::Create, Opcode::CREATE_RMP) => srq::create_rmp,
        (Class::Create, Opcode::CREATE_XRC_SRQ) => srq::create_xrc_srq,
        (Class::Create, Opcode::ALLOC_XRCD) => srq::alloc_xrcd,
        (Class::Destroy, Opcode::DESTROY_RMP) => srq::destroy_rmp,
        (Class::Destroy, Opcode::DESTROY_XRC_SRQ) => srq::destroy_xrc_srq,
        (Class::Destroy, Opcode::DEALLOC_XRCD) => srq::dealloc_xrcd,
        (Class::Query, Opcode::QUERY_RMP) => srq::query_rmp,
        (Class::Query, Opcode::QUERY_XRC_SRQ) => srq::query_xrc_srq,
        (Class::Modify, Opcode::MODIFY_RMP) => srq::modify_rmp,
        (Class::Modify, Opcode::ARM_XRC_SRQ) => srq::arm_xrc_srq,
        (Class::Destroy, Opcode::DEALLOC_PD) => dealloc_pd,
        (Class::Destroy, Opcode::DESTROY_MKEY) => mkey::destroy,
        (Class::Destroy, Opcode::DESTROY_CQ) => cq::destroy,
        (Class::Destroy, Opcode::DESTROY_QP) => qp::destroy,
        (Class::Query, Opcode::QUERY_MKEY) => mkey::query,
        (Class::Query, Opcode::QUERY_CQ) => cq::query,
        (Class::Query, Opcode::QUERY_QP) => qp::query,
        (Class::Modify, Opcode::MODIFY_CQ) => cq::modify,
        (Class::Modify, _) if is_transition(opcode) => qp_modify::modify,
        (Class::General, Opcode::QUERY_HCA_CAP) => capabilities::query,
        (Class::General, Opcode::QUERY_ROCE_ADDRESS) => queries::roce_address,
        (Class::General, Opcode::QUERY_NIC_VPORT_CONTEXT) => queries::vport_context,
        (Class::General, Opcode::QUERY_LAG) => queries::lag,
        _ => return None,
    })
}

fn is_transition(opcode: Opcode) -> bool {
    matches!(
        opcode,
        Opcode::RST2INIT_QP
            | Opcode::INIT2INIT_QP
            | Opcode::INIT2RTR_QP
            | Opcode::RTR2RTS_QP
            | Opcode::RTS2RTS_QP
            | Opcode::SQERR2RTS_QP
            | Opcode::TO_ERR_QP
            | Opcode::TO_RST_QP
            | Opcode::RTS2SQD_QP
            | Opcode::SQD2RTS_QP
            | Opcode::SQD_RTS_QP
    )
}

/// The object that a command names; all of them do so in the same 24 bits.
fn named(opcode: Opcode, input: &[u8]) -> Option<DevxObject> {
    let number = CreateOut::from_prefix(input).number();
    match opcode {
        Opcode::DEALLOC_PD => Some(DevxObject::Pd(number)),
        Opcode::DESTROY_MKEY | Opcode::QUERY_MKEY => Some(DevxObject::Mkey(number)),
        Opcode::DESTROY_CQ | Opcode::QUERY_CQ | Opcode::MODIFY_CQ => Some(DevxObject::Cq(number)),
        Opcode::DESTROY_QP | Opcode::QUERY_QP => Some(DevxObject::Qp(number)),
        Opcode::DESTROY_RMP | Opcode::QUERY_RMP | Opcode::MODIFY_RMP => {
            Some(DevxObject::Rmp(number))
        }
        Opcode::DESTROY_XRC_SRQ | Opcode::QUERY_XRC_SRQ | Opcode::ARM_XRC_SRQ => {
            Some(DevxObject::XrcSrq(number))
        }
        Opcode::DEALLOC_XRCD => Some(DevxObject::Xrcd(number)),
        _ if is_transition(opcode) => Some(DevxObject::Qp(number)),
        _ => None,
    }
}

/// The command that ends `object`.
pub(super) fn destroy_input(object: DevxObject) -> [u8; 16] {
    let (opcode, number) = match object {
        DevxObject::Pd(pdn) => (Opcode::DEALLOC_PD, pdn),
        DevxObject::Mkey(index) => (Opcode::DESTROY_MKEY, index),
        DevxObject::Cq(cqn) => (Opcode::DESTROY_CQ, cqn),
        DevxObject::Qp(qpn) => (Opcode::DESTROY_QP, qpn),
        DevxObject::Rmp(number) => (Opcode::DESTROY_RMP, number),
        DevxObject::XrcSrq(number) => (Opcode::DESTROY_XRC_SRQ, number),
        DevxObject::Xrcd(number) => (Opcode::DEALLOC_XRCD, number),
    };
    let mut input = [0; 16];
    input[..2].copy_from_slice(&opcode.0.to_be_bytes());
    // A number of more than 24 bits names no object: it stays 0 then, which is none either.
    if number < 1 << 24 {
        input[8..12].copy_from_slice(&number.to_be_bytes());
    }
    input
}

fn alloc_pd(call: &mut Call<'_>) -> Outcome {
    let context = call.context;
    let pdn = call.hca()?.pds.insert(context).ok_or(Refusal::FULL)?;
    call.reply_number(pdn);
    Ok(Some(DevxObject::Pd(pdn)))
}

fn dealloc_pd(call: &mut Call<'_>) -> Outcome {
    let context = call.context;
    let pdn = CreateOut::from_prefix(call.input).number();
    let hca = call.hca()?;
    if hca.pds.get(pdn) != Some(&context) {
        return Err(Refusal::bad_resource(syndrome::NO_SUCH_PD));
    }
    if pd_users(hca, pdn) != 0 {
        return Err(Refusal::new(Status::RES_BUSY, syndrome::PD_IN_USE));
    }
    hca.pds.remove(pdn);
    Ok(None)
}

/// A part of a UMEM of this context.
pub(super) fn umem_part(
    hca: &HcaState,
    context: u32,
    id: u32,
    offset: u64,
    bytes: u64,
    outside: u32,
) -> Result<super::memory::Region, Refusal> {
    let umem = hca
        .umems
        .get(id)
        .filter(|umem| umem.context == context)
        .ok_or(Refusal::bad_resource(syndrome::NO_SUCH_UMEM))?;
    umem.region
        .part(offset, bytes)
        .ok_or(Refusal::bad_param(outside))
}

/// The start of a ring in its UMEM: `offset` bytes and `page_offset` units of 64.
pub(super) fn ring_start(offset: u64, page_offset: u32) -> Result<u64, Refusal> {
    let start = offset
        .checked_add(u64::from(page_offset) * 64)
        .ok_or(Refusal::bad_param(syndrome::QUEUE_OUTSIDE_UMEM))?;
    if !start.is_multiple_of(64) {
        return Err(Refusal::bad_param(syndrome::QUEUE_MISALIGNED));
    }
    Ok(start)
}

/// A doorbell record of 8 bytes.
pub(super) fn record_part(
    hca: &HcaState,
    context: u32,
    id: u32,
    offset: u64,
) -> Result<super::memory::Region, Refusal> {
    let record = umem_part(hca, context, id, offset, 8, syndrome::DBR_OUTSIDE_UMEM)?;
    if !record.address().is_multiple_of(8) {
        return Err(Refusal::bad_param(syndrome::DBR_MISALIGNED));
    }
    Ok(record)
}

/// Refuses a UAR page that is not one of this context.
fn need_uar(hca: &HcaState, context: u32, page_id: u32) -> Result<(), Refusal> {
    hca.uars
        .get(page_id)
        .filter(|uar| uar.context == context)
        .map(|_| ())
        .ok_or(Refusal::bad_resource(syndrome::NO_SUCH_UAR))
}
