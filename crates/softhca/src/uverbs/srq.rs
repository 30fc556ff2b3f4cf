//! Shared receive queues that are made by verbs.
//!
//! A basic SRQ is a receive memory pool of the device. An SRQ of an XRC domain is its own kind of object. This is as `mlx5_ib` makes them.
//! There is no tag matching. Source: `uverbs_std_types_srq.c` and `mlx5/srq.c` in Linux.

use super::frame::{Call, Method, Spec};
use super::handles::Object;
use super::listeners::Listener;
use super::pinned::Pinned;
use super::structs::{
    CreateSrq, CreateSrqResp, CreateXsrq, Mlx5CreateSrq, Mlx5CreateSrqResp, ModifySrq, QuerySrq,
    QuerySrqResp,
};
use crate::device::{Context as DeviceContext, DevxObject, limits};
use crate::errno::Errno;
use crate::uverbs::queues::VerbsSrq;
use mlx5_prm::cmd::Opcode;
use mlx5_prm::srq::{
    ArmXrcSrqIn, CreateRmpIn, CreateRmpOut, CreateXrcSrqIn, ModifyRmpIn, NumberIn, QueryRmpOut,
    QueryXrcSrqOut, Rmpc, Wq, XrcSrqc,
};
use std::sync::Arc;

const SRQ: u16 = 5;
const HANDLE: u16 = 0;
const PD: u16 = 1;
const XRCD: u16 = 2;
const CQ: u16 = 3;
const USER_HANDLE: u16 = 4;
const MAX_WR: u16 = 5;
const MAX_SGE: u16 = 6;
const LIMIT: u16 = 7;
const MAX_TAGS: u16 = 8;
const TYPE: u16 = 9;
const EVENT_FD: u16 = 10;
const RESP_MAX_WR: u16 = 11;
const RESP_MAX_SGE: u16 = 12;
const RESP_NUMBER: u16 = 13;
const DESTROY_HANDLE: u16 = 0;
const DESTROY_RESP: u16 = 1;
const CORE_IN: u16 = 0;
const CORE_OUT: u16 = 1;
const UHW_IN: u16 = 0x1000;
const UHW_OUT: u16 = 0x1001;

pub(super) const METHODS: &[Method] = &[
    Method {
        object: SRQ,
        method: 0,
        attributes: &[
            Spec::object(HANDLE),
            Spec::object(PD),
            Spec::object(XRCD).optional(),
            Spec::object(CQ).optional(),
            Spec::number(USER_HANDLE, 8),
            Spec::number(MAX_WR, 4),
            Spec::number(MAX_SGE, 4),
            Spec::number(LIMIT, 4),
            Spec::number(MAX_TAGS, 4).optional(),
            Spec::number(TYPE, 4),
            Spec::object(EVENT_FD).optional(),
            Spec::output(RESP_MAX_WR, 4),
            Spec::output(RESP_MAX_SGE, 4),
            Spec::output(RESP_NUMBER, 4).optional(),
            Spec::bytes(UHW_IN, 20),
            Spec::output(UHW_OUT, 4),
        ],
        run: create,
    },
    Method {
        object: SRQ,
        method: 1,
        attributes: &[Spec::object(DESTROY_HANDLE), Spec::output(DESTROY_RESP, 4)],
        run: destroy,
    },
];

/// Values of `enum ib_uverbs_srq_type`.
mod kind {
    pub(super) const BASIC: u32 = 0;
    pub(super) const XRC: u32 = 1;
}

/// A request to make an SRQ, by whichever call it came.
struct Request {
    pd: u32,
    /// Handles of the XRC domain and of the CQ, for an SRQ of an XRC domain.
    xrc: Option<(u32, u32)>,
    max_wr: u32,
    max_sge: u32,
    user_handle: u64,
}

fn create(call: &Call<'_>) -> Result<(), Errno> {
    let xrc = match call.u32(TYPE)? {
        kind::BASIC => None,
        kind::XRC => Some((call.object(XRCD)?, call.object(CQ)?)),
        _ => return Err(Errno::EOPNOTSUPP),
    };
    let request = Request {
        pd: call.object(PD)?,
        xrc,
        max_wr: call.u32(MAX_WR)?,
        max_sge: call.u32(MAX_SGE)?,
        user_handle: call.u64(USER_HANDLE)?,
    };
    make(call, &request, |handle, queue| {
        call.put_object(HANDLE, handle)?;
        call.put_pod(RESP_MAX_WR, &queue.max_wr)?;
        call.put_pod(RESP_MAX_SGE, &queue.max_sge)?;
        call.put_pod(RESP_NUMBER, &queue.number)
    })
}

/// Handles `CREATE_SRQ`, the older call for a basic SRQ.
pub(super) fn create_by_write(call: &Call<'_>, _: &DeviceContext) -> Result<(), Errno> {
    let given: CreateSrq = call.read(CORE_IN)?;
    let request = Request {
        pd: given.pd_handle,
        xrc: None,
        max_wr: given.max_wr,
        max_sge: given.max_sge,
        user_handle: given.user_handle,
    };
    make(call, &request, |handle, queue| reply(call, handle, queue))
}

/// Handles `CREATE_XSRQ`, the older call for the other kinds of SRQ.
pub(super) fn create_extended_by_write(call: &Call<'_>, _: &DeviceContext) -> Result<(), Errno> {
    let given: CreateXsrq = call.read(CORE_IN)?;
    let xrc = match given.srq_type {
        kind::BASIC => None,
        kind::XRC => Some((given.xrcd_handle, given.cq_handle)),
        _ => return Err(Errno::EOPNOTSUPP),
    };
    let request = Request {
        pd: given.pd_handle,
        xrc,
        max_wr: given.max_wr,
        max_sge: given.max_sge,
        user_handle: given.user_handle,
    };
    make(call, &request, |handle, queue| reply(call, handle, queue))
}

fn reply(call: &Call<'_>, srq_handle: u32, queue: &VerbsSrq) -> Result<(), Errno> {
    let reply = CreateSrqResp {
        srq_handle,
        max_wr: queue.max_wr,
        max_sge: queue.max_sge,
        srqn: queue.number,
    };
    call.put_pod(CORE_OUT, &reply)
}

fn make(
    call: &Call<'_>,
    request: &Request,
    tell: impl FnOnce(u32, &VerbsSrq) -> Result<(), Errno>,
) -> Result<(), Errno> {
    let device = call.context.device()?;
    let driver: Mlx5CreateSrq = call.read(UHW_IN)?;
    // The device has no signatures, so no flag is allowed.
    if driver.flags != 0 || driver.reserved0 != 0 || driver.reserved1 != 0 {
        return Err(Errno::EINVAL);
    }
    let size = Size::of(request.max_wr, request.max_sge).ok_or(Errno::EINVAL)?;
    let ring = Pinned::new(device, driver.buf_addr, size.bytes())?;
    let record = Pinned::record(device, driver.db_addr)?;
    let input = command(call, request, &driver, &size, [ring.id(), record.id()])?;
    let mut output = CreateRmpOut::default();
    let object = device.kernel_create(&input, output.as_bytes_mut())?;
    let mut listener = Listener::new(request.user_handle);
    listener.asynchronous = call.asynchronous_queue(EVENT_FD)?;
    call.context.listeners().add(object, listener);
    let queue = Arc::new(VerbsSrq {
        object,
        number: output.number(),
        max_wr: (1 << size.log_entries) - 1,
        max_sge: request.max_sge,
        _memory: [ring, record],
    });
    let told = Arc::clone(&queue);
    let outcome = call.context.publish(Object::Srq(queue), |handle| {
        let reply = Mlx5CreateSrqResp {
            srqn: told.number,
            reserved: 0,
        };
        call.put_pod(UHW_OUT, &reply)?;
        tell(handle, &told)
    });
    if outcome.is_err() {
        let _ = device.kernel_destroy(object);
        call.context.listeners().remove(object);
    }
    outcome
}

/// Returns the command that makes the SRQ.
fn command(
    call: &Call<'_>,
    request: &Request,
    driver: &Mlx5CreateSrq,
    size: &Size,
    [ring, record]: [u32; 2],
) -> Result<Vec<u8>, Errno> {
    const NO_INDEX: u32 = 0x00ff_ffff;
    let handles = call.context.handles();
    let pdn = handles.pd(request.pd)?;
    let Some((xrcd, cq)) = request.xrc else {
        let wq = Wq::default()
            .with_pd(pdn)
            .with_log_wq_stride(size.log_stride)
            .with_log_wq_sz(size.log_entries)
            .with_dbr_umem_valid(1)
            .with_dbr_umem_id(record)
            .with_wq_umem_valid(1)
            .with_wq_umem_id(ring);
        let rmpc = Rmpc::default().with_state(Rmpc::STATE_RDY).with_wq(wq);
        let input = CreateRmpIn::default()
            .with_opcode(Opcode::CREATE_RMP.0.into())
            .with_ctx(rmpc);
        return Ok(input.as_bytes().to_vec());
    };
    if driver.uidx > NO_INDEX {
        return Err(Errno::EINVAL);
    }
    let srqc = XrcSrqc::default()
        .with_log_xrc_srq_size(size.log_entries)
        .with_log_rq_stride(size.log_stride - 4)
        .with_xrcd(handles.xrcd(xrcd)?)
        .with_cqn(handles.cq(cq)?.cqn())
        .with_user_index(driver.uidx)
        .with_pd(pdn)
        .with_dbr_umem_valid(1)
        .with_dbr_umem_id(record);
    let input = CreateXrcSrqIn::default()
        .with_opcode(Opcode::CREATE_XRC_SRQ.0.into())
        .with_xrc_srq_context_entry(srqc)
        .with_xrc_srq_umem_valid(1)
        .with_xrc_srq_umem_id(ring);
    Ok(input.as_bytes().to_vec())
}

/// The size of an SRQ, as libmlx5 and the kernel compute it from the requested number of WQEs and segments.
#[derive(Debug, PartialEq, Eq)]
struct Size {
    log_entries: u32,
    log_stride: u32,
}

impl Size {
    /// Returns the size; `None` if the device cannot have such an SRQ.
    fn of(max_wr: u32, max_sge: u32) -> Option<Self> {
        const SHORTEST: u32 = 32;
        const HEADER: u32 = 16;
        let entries = max_wr.checked_add(1)?.checked_next_power_of_two()?;
        let bytes = max_sge.checked_mul(16)?.checked_add(HEADER)?;
        let stride = bytes.max(SHORTEST).checked_next_power_of_two()?;
        let size = Self {
            log_entries: entries.trailing_zeros(),
            log_stride: stride.trailing_zeros(),
        };
        let fits =
            size.log_entries <= limits::LOG_QUEUE && size.log_stride <= 4 + limits::LOG_SRQ_STRIDE;
        fits.then_some(size)
    }

    fn bytes(&self) -> u64 {
        1 << (self.log_entries + self.log_stride)
    }
}

/// Handles `MODIFY_SRQ`, which sets the limit. The length cannot be changed, as with `mlx5_ib`.
pub(super) fn modify(call: &Call<'_>, device: &DeviceContext) -> Result<(), Errno> {
    const MAX_WR: u32 = 1 << 0;
    const LIMIT: u32 = 1 << 1;
    let request: ModifySrq = call.read(CORE_IN)?;
    let queue = call.context.handles().srq(request.srq_handle)?;
    if request.attr_mask & MAX_WR != 0 {
        return Err(Errno::EINVAL);
    }
    if request.attr_mask & LIMIT == 0 {
        return Ok(());
    }
    if request.srq_limit > queue.max_wr {
        return Err(Errno::EINVAL);
    }
    let input = match queue.object {
        DevxObject::XrcSrq(number) => ArmXrcSrqIn::default()
            .with_opcode(Opcode::ARM_XRC_SRQ.0.into())
            .with_op_mod(1)
            .with_xrc_srqn(number)
            .with_lwm(request.srq_limit)
            .as_bytes()
            .to_vec(),
        _ => {
            let wq = Wq::default().with_lwm(request.srq_limit);
            let rmpc = Rmpc::default().with_state(Rmpc::STATE_RDY).with_wq(wq);
            ModifyRmpIn::default()
                .with_opcode(Opcode::MODIFY_RMP.0.into())
                .with_rmp_state(Rmpc::STATE_RDY)
                .with_rmpn(queue.number)
                .with_bitmask_lwm(1)
                .with_ctx(rmpc)
                .as_bytes()
                .to_vec()
        }
    };
    device.kernel_modify(queue.object, &input)?;
    Ok(())
}

/// Handles `QUERY_SRQ`.
pub(super) fn query(call: &Call<'_>, device: &DeviceContext) -> Result<(), Errno> {
    let request: QuerySrq = call.read(CORE_IN)?;
    let queue = call.context.handles().srq(request.srq_handle)?;
    let input = |opcode: Opcode| {
        NumberIn::default()
            .with_opcode(opcode.0.into())
            .with_number(queue.number)
    };
    let srq_limit = if let DevxObject::XrcSrq(_) = queue.object {
        let mut output = QueryXrcSrqOut::default();
        let input = input(Opcode::QUERY_XRC_SRQ);
        device.kernel_query(queue.object, input.as_bytes(), output.as_bytes_mut())?;
        output.xrc_srq_context_entry().lwm()
    } else {
        let mut output = QueryRmpOut::default();
        let input = input(Opcode::QUERY_RMP);
        device.kernel_query(queue.object, input.as_bytes(), output.as_bytes_mut())?;
        output.rmp_context().wq().lwm()
    };
    let reply = QuerySrqResp {
        max_wr: queue.max_wr,
        max_sge: queue.max_sge,
        srq_limit,
        reserved: 0,
    };
    call.put_pod(CORE_OUT, &reply)
}

fn destroy(call: &Call<'_>) -> Result<(), Errno> {
    let handle = call.object(DESTROY_HANDLE)?;
    let object = call.context.handles().srq(handle)?.object;
    call.context.device()?.kernel_destroy(object)?;
    call.context.handles().remove(handle);
    let read = call.context.listeners().remove(object);
    call.put_pod(DESTROY_RESP, &read.asynchronous)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_those_that_libmlx5_allocates() {
        let size = |max_wr, max_sge| {
            Size::of(max_wr, max_sge)
                .map(|size| (1u32 << size.log_entries, 1u32 << size.log_stride))
        };
        assert_eq!(size(1, 1), Some((2, 32)));
        assert_eq!(size(15, 2), Some((16, 64)));
        assert_eq!(size(16, 0), Some((32, 32)));
        assert_eq!(size(32767, 31), Some((32768, 512)));
        assert_eq!(size(100, 63), Some((128, 1024)));
        assert_eq!(size(100, 64), None);
        assert_eq!(size(32768, 1), None);
        assert_eq!(size(u32::MAX, 1), None);
        assert_eq!(size(1, u32::MAX), None);
    }
}
