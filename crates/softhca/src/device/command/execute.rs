//! Executes commands.

use crate::device::command::call::{Call, Class, Outcome, Refusal};
use crate::device::command::{
    capabilities, cq, mkey, passed_on, qp, qp_modify, queries, srq, syndrome,
};
use crate::device::error::DeviceError;
use crate::device::faults::{Strike, ends_something};
use crate::device::names::DevxObject;
use crate::device::state::Fabric;
use crate::device::state::users::pd_users;
use mlx5_prm::cmd::{CmdIn, CmdOut, CreateOut, Opcode, Status};

/// The number of commands that are recorded at most.
const MOST_RECORDED: usize = 4096;

/// Executes one command.
///
/// `object` is the object that the caller's handle stands for. A command that names another object is not executed.
///
/// # Errors
///
/// The command was refused, with status and syndrome in `output`, or it was not executed at all.
pub(in crate::device) fn execute(
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
    if state.dead && !ends_something(opcode) {
        /// The status and syndrome by which the kernel answers for a device that has failed: `MLX5_DRIVER_STATUS_ABORTED`,
        /// `MLX5_DRIVER_SYND`.
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

/// Returns the function that executes `opcode`, if it may be sent by calls of kind `class`.
fn handler(class: Class, opcode: Opcode) -> Option<fn(&mut Call<'_>) -> Outcome> {
    Some(match (class, opcode) {
        (Class::Create, Opcode::ALLOC_PD) => alloc_pd,
        (Class::Create, Opcode::CREATE_MKEY) => mkey::create,
        (Class::Create, Opcode::CREATE_CQ) => cq::create,
        // The device has no counter sets, or other programs hold all of them.
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

/// Returns the object that a command names. All these commands have its number in the same 24 bits.
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

/// Returns the command that ends `object`.
pub(in crate::device) fn destroy_input(object: DevxObject) -> [u8; 16] {
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
    // A number of more than 24 bits names no object. The number in the command stays 0 then, which names no object either.
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
