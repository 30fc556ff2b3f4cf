//! Completion queues that are made by verbs.
//!
//! The kernel pins the memory that libmlx5 has allocated and sends the command that a program with DevX would send itself.

use super::event_queue::Purpose;
use super::frame::{Call, Method, Spec};
use super::handles::Object;
use super::listeners::Listener;
use super::pinned::Pinned;
use super::structs::{DestroyCqResp, ExModifyCq, Mlx5CreateCq, Mlx5ResizeCq, ResizeCq};
use crate::device::{Context as DeviceContext, DevxObject};
use crate::errno::Errno;
use crate::uverbs::queues::{Ring, VerbsCq};
use mlx5_prm::cmd::Opcode;
use mlx5_prm::cq::{Cqc, CreateCqIn, CreateCqOut, ModifyCqIn};
use std::sync::{Arc, Mutex, PoisonError};

const CQ: u16 = 3;
const CREATE_HANDLE: u16 = 0;
const CREATE_CQE: u16 = 1;
const CREATE_USER_HANDLE: u16 = 2;
const CREATE_CHANNEL: u16 = 3;
const CREATE_VECTOR: u16 = 4;
const CREATE_FLAGS: u16 = 5;
const CREATE_RESP_CQE: u16 = 6;
const CREATE_EVENT_FD: u16 = 7;
const DESTROY_HANDLE: u16 = 0;
const DESTROY_RESP: u16 = 1;
const CORE_IN: u16 = 0;
const CORE_OUT: u16 = 1;
const UHW_IN: u16 = 0x1000;
const UHW_OUT: u16 = 0x1001;

pub(super) const METHODS: &[Method] = &[
    Method {
        object: CQ,
        method: 0,
        attributes: &[
            Spec::object(CREATE_HANDLE),
            Spec::number(CREATE_CQE, 4),
            Spec::number(CREATE_USER_HANDLE, 8),
            Spec::object(CREATE_CHANNEL).optional(),
            Spec::number(CREATE_VECTOR, 4),
            Spec::number(CREATE_FLAGS, 4).optional(),
            Spec::output(CREATE_RESP_CQE, 4),
            Spec::object(CREATE_EVENT_FD).optional(),
            Spec::bytes(UHW_IN, 24),
            Spec::output(UHW_OUT, 4),
        ],
        run: create,
    },
    Method {
        object: CQ,
        method: 1,
        attributes: &[Spec::object(DESTROY_HANDLE), Spec::output(DESTROY_RESP, 8)],
        run: destroy,
    },
];

/// Returns log2 of the number of entries of a CQ for `cqe` entries and one more, as the kernel rounds it.
fn log_entries(cqe: u32) -> Result<u32, Errno> {
    let entries = cqe.checked_add(1).ok_or(Errno::EINVAL)?;
    let entries = entries.checked_next_power_of_two().ok_or(Errno::EINVAL)?;
    Ok(entries.trailing_zeros())
}

/// Returns `cqe_sz` of the context: 0 is 64 bytes, 1 is 128 bytes.
fn cqe_size_code(bytes: u32) -> Result<u32, Errno> {
    match bytes {
        64 => Ok(0),
        128 => Ok(1),
        _ => Err(Errno::EINVAL),
    }
}

fn ring_bytes(cqe_bytes: u32, log_entries: u32) -> Result<u64, Errno> {
    u64::from(cqe_bytes)
        .checked_shl(log_entries)
        .ok_or(Errno::EINVAL)
}

fn create(call: &Call<'_>) -> Result<(), Errno> {
    const TIMESTAMP: u32 = 1 << 0;
    const IGNORE_OVERRUN: u32 = 1 << 1;
    let device = call.context.device()?;
    let request: Mlx5CreateCq = call.read(UHW_IN)?;
    let flags = call.u32(CREATE_FLAGS)?;
    if flags & !(TIMESTAMP | IGNORE_OVERRUN) != 0 {
        return Err(Errno::EOPNOTSUPP);
    }
    if request.reserved0 != 0 || request.reserved1 != 0 {
        return Err(Errno::EINVAL);
    }
    // The device does not advertise padding to 128 bytes, wall-clock time stamps or compressed entries.
    if request.flags & !Mlx5CreateCq::UAR_PAGE_INDEX != 0 {
        return Err(Errno::EINVAL);
    }
    if request.cqe_comp_en != 0 {
        return Err(Errno::EOPNOTSUPP);
    }
    // Without this flag a page of the static UARs is meant, which do not exist.
    if request.flags & Mlx5CreateCq::UAR_PAGE_INDEX == 0 {
        return Err(Errno::EINVAL);
    }
    let log = log_entries(call.u32(CREATE_CQE)?)?;
    let size_code = cqe_size_code(request.cqe_size)?;
    let listener = listener(call)?;
    let eqn = device.eqn(call.u32(CREATE_VECTOR)?)?;
    if log > device_limit() {
        return Err(Errno::EINVAL);
    }
    let ring = Pinned::new(device, request.buf_addr, ring_bytes(request.cqe_size, log)?)?;
    let record = Pinned::record(device, request.db_addr)?;
    let cqc = Cqc::default()
        .with_log_cq_size(log)
        .with_cqe_sz(size_code)
        .with_oi(u32::from(flags & IGNORE_OVERRUN != 0))
        .with_uar_page(request.uar_page_index.into())
        .with_c_eqn(eqn & 0xff)
        .with_dbr_umem_valid(1)
        .with_dbr_umem_id(record.id());
    let input = CreateCqIn::default()
        .with_opcode(Opcode::CREATE_CQ.0.into())
        .with_cqc(cqc)
        .with_cq_umem_valid(1)
        .with_cq_umem_id(ring.id());
    let mut output = CreateCqOut::default();
    let object = device.kernel_create(input.as_bytes(), output.as_bytes_mut())?;
    let cqn = output.cqn();
    call.context.listeners().add(object, listener);
    let cqe = (1 << log) - 1;
    let queue = VerbsCq {
        cqn,
        ring: Mutex::new(Ring { cqe, _memory: ring }),
        _record: record,
    };
    let outcome = call.context.publish(Object::Cq(Arc::new(queue)), |handle| {
        call.put_object(CREATE_HANDLE, handle)?;
        call.put_pod(CREATE_RESP_CQE, &cqe)?;
        call.put_pod(UHW_OUT, &cqn)
    });
    if outcome.is_err() {
        let _ = device.kernel_destroy(object);
        call.context.listeners().remove(object);
    }
    outcome
}

/// Returns log2 of the most entries that a CQ can have.
fn device_limit() -> u32 {
    crate::device::limits::LOG_CQ_ENTRIES
}

/// Returns where the events of the new CQ go: to a completion channel if one is given, and to the descriptor for asynchronous events.
fn listener(call: &Call<'_>) -> Result<Listener, Errno> {
    let mut listener = Listener::new(call.u64(CREATE_USER_HANDLE)?);
    let subscriptions = call.context.subscriptions();
    if call.has(CREATE_CHANNEL) {
        let fd = call.object(CREATE_CHANNEL)?;
        let queue = subscriptions.find(fd, |purpose| purpose == Purpose::Completions)?;
        listener.completions = Some(queue);
    }
    drop(subscriptions);
    listener.asynchronous = call.asynchronous_queue(CREATE_EVENT_FD)?;
    Ok(listener)
}

fn destroy(call: &Call<'_>) -> Result<(), Errno> {
    let handle = call.object(DESTROY_HANDLE)?;
    let queue = call.context.handles().cq(handle)?;
    let object = DevxObject::Cq(queue.cqn());
    call.context.device()?.kernel_destroy(object)?;
    call.context.handles().remove(handle);
    let read = call.context.listeners().remove(object);
    call.put_pod(
        DESTROY_RESP,
        &DestroyCqResp {
            comp_events_reported: read.completions,
            async_events_reported: read.asynchronous,
        },
    )
}

/// Handles `RESIZE_CQ`: libmlx5 has allocated a new ring. The device ends the old ring with an entry that says so.
pub(super) fn resize(call: &Call<'_>, device: &DeviceContext) -> Result<(), Errno> {
    const RESIZE: u32 = 1;
    let request: ResizeCq = call.read(CORE_IN)?;
    let driver: Mlx5ResizeCq = call.read(UHW_IN)?;
    let queue = call.context.handles().cq(request.cq_handle)?;
    if driver.reserved0 != 0 || driver.reserved1 != 0 || request.cqe == 0 {
        return Err(Errno::EINVAL);
    }
    let log = log_entries(request.cqe)?;
    if log > device_limit() {
        return Err(Errno::EINVAL);
    }
    let cqe_bytes = u32::from(driver.cqe_size);
    let size_code = cqe_size_code(cqe_bytes)?;
    let mut ring = queue.ring.lock().unwrap_or_else(PoisonError::into_inner);
    let cqe = (1 << log) - 1;
    if cqe != ring.cqe {
        let memory = Pinned::new(device, driver.buf_addr, ring_bytes(cqe_bytes, log)?)?;
        let cqc = Cqc::default().with_log_cq_size(log).with_cqe_sz(size_code);
        let input = ModifyCqIn::default()
            .with_opcode(Opcode::MODIFY_CQ.0.into())
            .with_op_mod(RESIZE)
            .with_cqn(queue.cqn())
            .with_cqc(cqc)
            .with_cq_umem_valid(1)
            .with_cq_umem_id(memory.id());
        device.kernel_modify(DevxObject::Cq(queue.cqn()), input.as_bytes())?;
        *ring = Ring {
            cqe,
            _memory: memory,
        };
    }
    // The reply is `struct ib_uverbs_resize_cq_resp`: cqe and a reserved word.
    call.put_pod(CORE_OUT, &[cqe, 0])
}

/// Handles `MODIFY_CQ`, which says when completions raise an event.
pub(super) fn moderate(call: &Call<'_>, device: &DeviceContext) -> Result<(), Errno> {
    const MODERATE: u32 = 1;
    /// Bits of the fields `cq_period` and `cq_max_count`.
    const FIELDS: u32 = 1 << 0 | 1 << 1;
    /// The longest period, since the field has 12 bits.
    const LONGEST_PERIOD: u16 = 0xfff;
    let request: ExModifyCq = call.read(CORE_IN)?;
    if request.attr_mask == 0 || request.reserved != 0 {
        return Err(Errno::EINVAL);
    }
    if request.attr_mask & !MODERATE != 0 {
        return Err(Errno::EOPNOTSUPP);
    }
    if request.cq_period > LONGEST_PERIOD {
        return Err(Errno::EINVAL);
    }
    let queue = call.context.handles().cq(request.cq_handle)?;
    let cqc = Cqc::default()
        .with_cq_period(request.cq_period.into())
        .with_cq_max_count(request.cq_count.into());
    let input = ModifyCqIn::default()
        .with_opcode(Opcode::MODIFY_CQ.0.into())
        .with_cqn(queue.cqn())
        .with_modify_field_select(FIELDS)
        .with_cqc(cqc);
    device.kernel_modify(DevxObject::Cq(queue.cqn()), input.as_bytes())?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_rounded_up_to_a_power_of_two() {
        assert_eq!(log_entries(0), Ok(0));
        assert_eq!(log_entries(1), Ok(1));
        assert_eq!(log_entries(255), Ok(8));
        assert_eq!(log_entries(256), Ok(9));
        assert_eq!(log_entries(u32::MAX), Err(Errno::EINVAL));
        assert_eq!(log_entries(u32::MAX - 1), Err(Errno::EINVAL));
    }
}
