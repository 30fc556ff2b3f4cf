//! Queue pairs made by verbs.
//!
//! The kernel pins the memory that libmlx5 has allocated: the receive ring first, the send ring directly after it. Then it sends
//! the commands that a program with DevX would send.

use super::frame::{Call, Method, Spec};
use super::handles::Object;
use super::listeners::Listener;
use super::pinned::Pinned;
use super::qp_rules::{Kind, State};
use super::structs::{Mlx5CreateQp, Mlx5CreateQpResp, QpCap};
use crate::device::Context as DeviceContext;
use crate::errno::Errno;
use crate::uverbs::queues::{Known, VerbsQp};
use bytemuck::Zeroable;
use mlx5_prm::cmd::Opcode;
use mlx5_prm::qp::{CreateQpIn, CreateQpOut, Qpc};
use std::sync::{Arc, Mutex};

const QP: u16 = 4;
const HANDLE: u16 = 0;
const XRCD: u16 = 1;
const PD: u16 = 2;
const SRQ: u16 = 3;
const SEND_CQ: u16 = 4;
const RECEIVE_CQ: u16 = 5;
const INDIRECTION_TABLE: u16 = 6;
const USER_HANDLE: u16 = 7;
const CAP: u16 = 8;
const TYPE: u16 = 9;
const FLAGS: u16 = 0xa;
const SOURCE_QPN: u16 = 0xb;
const EVENT_FD: u16 = 0xc;
const RESP_CAP: u16 = 0xd;
const RESP_QPN: u16 = 0xe;
const DESTROY_HANDLE: u16 = 0;
const DESTROY_RESP: u16 = 1;
const UHW_IN: u16 = 0x1000;
const UHW_OUT: u16 = 0x1001;

pub(super) const METHODS: &[Method] = &[
    Method {
        object: QP,
        method: 0,
        attributes: &[
            Spec::object(HANDLE),
            Spec::object(XRCD).optional(),
            Spec::object(PD).optional(),
            Spec::object(SRQ).optional(),
            Spec::object(SEND_CQ).optional(),
            Spec::object(RECEIVE_CQ).optional(),
            Spec::object(INDIRECTION_TABLE).optional(),
            Spec::number(USER_HANDLE, 8),
            Spec::bytes(CAP, 20),
            Spec::number(TYPE, 4),
            Spec::number(FLAGS, 4).optional(),
            Spec::number(SOURCE_QPN, 4).optional(),
            Spec::object(EVENT_FD).optional(),
            Spec::output(RESP_CAP, 20),
            Spec::output(RESP_QPN, 4),
            Spec::bytes(UHW_IN, 24),
            Spec::output(UHW_OUT, 0).optional(),
        ],
        run: create,
    },
    Method {
        object: QP,
        method: 1,
        attributes: &[Spec::object(DESTROY_HANDLE), Spec::output(DESTROY_RESP, 4)],
        run: destroy,
    },
];

fn create(call: &Call<'_>) -> Result<(), Errno> {
    let device = call.context.device()?;
    let kind = Kind::of_verbs(call.u64(TYPE)?).ok_or(Errno::EOPNOTSUPP)?;
    let signal_all = signals_all(call.u32(FLAGS)?)?;
    if call.has(INDIRECTION_TABLE) || call.has(SOURCE_QPN) {
        return Err(Errno::EOPNOTSUPP);
    }
    let cap: QpCap = call.read(CAP)?;
    let request: Mlx5CreateQp = call.read(UHW_IN)?;
    check_flags(&request)?;
    let sizes = Sizes::of(call, kind, &cap, &request)?;
    let mut memory = Vec::new();
    let qpc = resources(call, kind)?
        .with_st(kind.service())
        .with_pm_state(Qpc::PM_STATE_MIGRATED)
        .with_uar_page(request.bfreg_index)
        .with_user_index(user_index(&request)?);
    let (qpc, wq_umem) = if kind == Kind::XrcTarget {
        // An XRC target has no queues: the SRQs of its XRC domain serve it.
        (qpc.with_no_sq(1), 0)
    } else {
        sizes.put(qpc, device, &request, &mut memory)?
    };
    let input = CreateQpIn::default()
        .with_opcode(Opcode::CREATE_QP.0.into())
        .with_ece(request.ece_options)
        .with_qpc(qpc)
        .with_wq_umem_valid(1)
        .with_wq_umem_id(wq_umem);
    let mut listener = Listener::new(call.u64(USER_HANDLE)?);
    listener.asynchronous = call.asynchronous_queue(EVENT_FD)?;
    let mut output = CreateQpOut::default();
    let object = device.kernel_create(input.as_bytes(), output.as_bytes_mut())?;
    let qpn = output.qpn();
    call.context.listeners().add(object, listener);
    let queue_pair = VerbsQp {
        qpn,
        kind,
        signal_all,
        receive_wqes: sizes.receive_wqes,
        receive_sge: sizes.receive_sge,
        known: Mutex::new(Known {
            state: State::Reset,
            port: 0,
            pkey_index: 0,
            access: 0,
            responder_depth: 0,
        }),
        _memory: memory,
    };
    let outcome = call
        .context
        .publish(Object::Qp(Arc::new(queue_pair)), |handle| {
            call.put_object(HANDLE, handle)?;
            call.put_pod(RESP_CAP, &sizes.granted)?;
            call.put_pod(RESP_QPN, &qpn)?;
            call.put_pod(UHW_OUT, &driver_reply(output.ece()))
        });
    if outcome.is_err() {
        let _ = device.kernel_destroy(object);
        call.context.listeners().remove(object);
    }
    outcome
}

fn signals_all(flags: u32) -> Result<bool, Errno> {
    /// Flag that packets of this QP to a multicast group do not come back to it. No group can be joined, so none does.
    const BLOCK_MULTICAST_LOOPBACK: u32 = 1 << 1;
    const SIGNAL_ALL: u32 = 1 << 12;
    if flags & !(SIGNAL_ALL | BLOCK_MULTICAST_LOOPBACK) != 0 {
        return Err(Errno::EOPNOTSUPP);
    }
    Ok(flags & SIGNAL_ALL != 0)
}

fn check_flags(request: &Mlx5CreateQp) -> Result<(), Errno> {
    let known =
        Mlx5CreateQp::SCATTER_CQE | Mlx5CreateQp::ALLOW_SCATTER_CQE | Mlx5CreateQp::UAR_PAGE_INDEX;
    // Without a page index a page of the static UARs is meant, which do not exist.
    if request.flags & !known != 0 || request.flags & Mlx5CreateQp::UAR_PAGE_INDEX == 0 {
        return Err(Errno::EINVAL);
    }
    if request.bfreg_index > 0x00ff_ffff {
        return Err(Errno::EINVAL);
    }
    Ok(())
}

/// Returns the number that completions carry.
fn user_index(request: &Mlx5CreateQp) -> Result<u32, Errno> {
    const NONE: u32 = 0x00ff_ffff;
    if request.uidx >= NONE {
        return Err(Errno::EINVAL);
    }
    Ok(request.uidx)
}

fn driver_reply(ece_options: u32) -> Mlx5CreateQpResp {
    /// Value that says that the caller chose the page, not the kernel.
    const NO_BFREG: u32 = 1 << 31;
    Mlx5CreateQpResp {
        bfreg_index: NO_BFREG,
        ece_options,
        ..Mlx5CreateQpResp::zeroed()
    }
}

/// Returns a QP context with the objects that a QP needs.
fn resources(call: &Call<'_>, kind: Kind) -> Result<Qpc, Errno> {
    let handles = call.context.handles();
    if kind == Kind::XrcTarget {
        return Ok(Qpc::default()
            .with_rq_type(Qpc::RQ_TYPE_SRQ)
            .with_xrcd(handles.xrcd(call.object(XRCD)?)?));
    }
    if call.has(XRCD) || (call.has(SRQ) && !kind.has_receive_ring()) {
        return Err(Errno::EINVAL);
    }
    let send_cqn = handles.cq(call.object(SEND_CQ)?)?.cqn();
    let receive_cqn = if kind == Kind::XrcInitiator {
        send_cqn
    } else {
        handles.cq(call.object(RECEIVE_CQ)?)?.cqn()
    };
    let qpc = Qpc::default()
        .with_pd(handles.pd(call.object(PD)?)?)
        .with_cqn_snd(send_cqn)
        .with_cqn_rcv(receive_cqn);
    if !call.has(SRQ) {
        return Ok(qpc);
    }
    let number = handles.srq(call.object(SRQ)?)?.number();
    Ok(qpc
        .with_rq_type(Qpc::RQ_TYPE_SRQ)
        .with_srqn_rmpn_xrqn(number))
}

/// The sizes of a QP's rings.
struct Sizes {
    send_blocks: u32,
    receive_wqes: u32,
    receive_shift: u32,
    receive_sge: u32,
    granted: QpCap,
}

impl Sizes {
    /// Reads and checks the sizes that libmlx5 has computed.
    fn of(call: &Call<'_>, kind: Kind, cap: &QpCap, request: &Mlx5CreateQp) -> Result<Self, Errno> {
        let most = 1 << crate::device::limits::LOG_QUEUE;
        if cap.max_recv_wr > most {
            return Err(Errno::EINVAL);
        }
        let send_blocks = request.sq_wqe_count;
        if send_blocks > most || (send_blocks != 0 && !send_blocks.is_power_of_two()) {
            return Err(Errno::EINVAL);
        }
        let has_receive = kind.has_receive_ring() && !call.has(SRQ);
        let mut granted = *cap;
        if !has_receive {
            granted.max_recv_wr = 0;
            granted.max_recv_sge = 0;
        }
        let mut sizes = Self {
            send_blocks,
            receive_wqes: 0,
            receive_shift: 0,
            receive_sge: 0,
            granted,
        };
        if has_receive && request.rq_wqe_count != 0 {
            let wqes = request.rq_wqe_count;
            // A WQE has at least one data segment, which is 16 bytes.
            if !wqes.is_power_of_two() || wqes > most || !(4..=9).contains(&request.rq_wqe_shift) {
                return Err(Errno::EINVAL);
            }
            sizes.receive_wqes = wqes;
            sizes.receive_shift = request.rq_wqe_shift;
            sizes.receive_sge = 1 << (request.rq_wqe_shift - 4);
        }
        Ok(sizes)
    }

    /// Pins the rings and the doorbell record and puts them into the context. Returns the context and the UMEM of the rings.
    fn put(
        &self,
        qpc: Qpc,
        device: &DeviceContext,
        request: &Mlx5CreateQp,
        memory: &mut Vec<Pinned>,
    ) -> Result<(Qpc, u32), Errno> {
        let receive_bytes = u64::from(self.receive_wqes) << self.receive_shift;
        let bytes = receive_bytes + (u64::from(self.send_blocks) << 6);
        let record = Pinned::record(device, request.db_addr)?;
        let mut qpc = qpc.with_dbr_umem_valid(1).with_dbr_umem_id(record.id());
        let mut umem = record.id();
        memory.push(record);
        if bytes != 0 {
            let rings = Pinned::new(device, request.buf_addr, bytes)?;
            umem = rings.id();
            memory.push(rings);
        }
        if self.receive_wqes == 0 {
            if qpc.rq_type() == Qpc::RQ_TYPE_REGULAR {
                qpc.set_rq_type(Qpc::RQ_TYPE_NONE);
            }
        } else {
            qpc.set_log_rq_size(self.receive_wqes.trailing_zeros());
            qpc.set_log_rq_stride(self.receive_shift - 4);
        }
        if self.send_blocks == 0 {
            qpc.set_no_sq(1);
        } else {
            qpc.set_log_sq_size(self.send_blocks.trailing_zeros());
        }
        Ok((qpc, umem))
    }
}

fn destroy(call: &Call<'_>) -> Result<(), Errno> {
    let handle = call.object(DESTROY_HANDLE)?;
    let queue_pair = call.context.handles().qp(handle)?;
    let object = queue_pair.object();
    call.context.device()?.kernel_destroy(object)?;
    call.context.handles().remove(handle);
    let read = call.context.listeners().remove(object);
    call.put_pod(DESTROY_RESP, &read.asynchronous)
}
