//! `MODIFY_QP`: attributes of verbs become a transition of the programmer's manual.
//!
//! Source: `modify_qp` in Linux's uverbs, `mlx5_ib_modify_qp`, `__mlx5_ib_modify_qp` and `mlx5_set_path` in mlx5_ib.

use mlx5_prm::qp::{Ads, QpModifyIn, QpModifyOut, Qpc};

use super::ah;
use super::frame::Call;
use super::qp_rules::{self, Kind, State, mask};
use super::structs::{Mlx5ModifyQp, Mlx5ModifyQpResp, ModifyQp, QpDest};
use crate::device::{Access, Context as DeviceContext, limits};
use crate::errno::Errno;
use crate::link::Link;
use crate::profile::{LAG_PORTS, Lag};
use crate::sysfs::{GidType, Identity, PortIdentity};
use crate::uverbs::queues::{Known, VerbsQp};

const CORE_IN: u16 = 0;
const CORE_OUT: u16 = 1;
const UHW_IN: u16 = 0x1000;
const UHW_OUT: u16 = 0x1001;

/// Handles the command of the first kind.
pub(super) fn modify(call: &Call<'_>, device: &DeviceContext) -> Result<(), Errno> {
    let request: ModifyQp = call.read(CORE_IN)?;
    if request.attr_mask & !mask::STANDARD != 0 {
        return Err(Errno::EOPNOTSUPP);
    }
    run(call, device, &request, 0).map(drop)
}

/// Handles the extended command. It has also a rate limit, which this device lacks.
pub(super) fn modify_extended(call: &Call<'_>, device: &DeviceContext) -> Result<(), Errno> {
    /// The reply, `struct ib_uverbs_ex_modify_qp_resp`: its length and a reserved word.
    const REPLY: [u32; 2] = [8, 0];
    let request: ModifyQp = call.read(CORE_IN)?;
    if request.attr_mask & !(mask::STANDARD | mask::RATE_LIMIT) != 0 {
        return Err(Errno::EOPNOTSUPP);
    }
    let driver: Mlx5ModifyQp = call.read(UHW_IN)?;
    if driver.comp_mask != 0 || driver.reserved != 0 {
        return Err(Errno::EOPNOTSUPP);
    }
    let ece_options = run(call, device, &request, driver.ece_options)?;
    let reply = Mlx5ModifyQpResp {
        response_length: 16,
        ece_options,
        ..bytemuck::Zeroable::zeroed()
    };
    if call.len(UHW_OUT) >= size_of::<Mlx5ModifyQpResp>() {
        call.put_pod(UHW_OUT, &reply)?;
    }
    call.put_pod(CORE_OUT, &REPLY)
}

/// Carries out the command. Returns the options of enhanced connection establishment (ECE) that the device accepts.
fn run(
    call: &Call<'_>,
    device: &DeviceContext,
    request: &ModifyQp,
    ece: u32,
) -> Result<u32, Errno> {
    let queue_pair = call.context.handles().qp(request.qp_handle)?;
    check_ranges(call.context.identity(), request)?;
    let given = qp_rules::heeded(queue_pair.kind, request.attr_mask);
    let request = &ModifyQp {
        attr_mask: given,
        ..*request
    };
    let mut known = queue_pair.known();
    let current = if given & mask::CUR_STATE != 0 {
        State::of_verbs(request.cur_qp_state).ok_or(Errno::EINVAL)?
    } else {
        known.state
    };
    let next = if given & mask::STATE != 0 {
        State::of_verbs(request.qp_state).ok_or(Errno::EINVAL)?
    } else {
        current
    };
    // No transition of these services has a rate limit.
    if !qp_rules::is_allowed(current, next, queue_pair.kind, given) {
        return Err(Errno::EINVAL);
    }
    if current == State::Reset && next == State::Reset {
        return Ok(0);
    }
    let own = call.context.identity();
    let qpc = context(own, &queue_pair, &known, request)?;
    let opcode = qp_rules::command(current, next).ok_or(Errno::EINVAL)?;
    let optional = qp_rules::optional_parameters(current, next, queue_pair.kind, given);
    let input = QpModifyIn::default()
        .with_opcode(opcode.0.into())
        .with_qpn(queue_pair.qpn)
        .with_opt_param_mask(optional)
        .with_ece(ece)
        .with_qpc(qpc);
    let output = device.kernel_modify(queue_pair.object(), input.as_bytes())?;
    known.state = next;
    if given & mask::ACCESS_FLAGS != 0 {
        known.access = request.qp_access_flags;
    }
    if given & mask::MAX_DEST_RD_ATOMIC != 0 {
        known.responder_depth = request.max_dest_rd_atomic;
    }
    if given & mask::PORT != 0 {
        known.port = request.port_num;
    }
    if given & mask::PKEY_INDEX != 0 {
        known.pkey_index = request.pkey_index;
    }
    Ok(QpModifyOut::from_prefix(&output).ece())
}

fn check_ranges(own: &Identity, request: &ModifyQp) -> Result<(), Errno> {
    const MOST_READS: u8 = 1 << limits::LOG_READS;
    let given = request.attr_mask;
    let wrong = [
        (mask::PORT, own.port(request.port_num).is_none()),
        (
            mask::PKEY_INDEX,
            usize::from(request.pkey_index) >= own.first().pkeys.keys().len(),
        ),
        (mask::MAX_QP_RD_ATOMIC, request.max_rd_atomic > MOST_READS),
        (
            mask::MAX_DEST_RD_ATOMIC,
            request.max_dest_rd_atomic > MOST_READS,
        ),
        (mask::PATH_MTU, !(1..=5).contains(&request.path_mtu)),
        // There is no migration: a QP has no alternate path.
        (mask::ALT_PATH, true),
        (mask::PATH_MIG_STATE, request.path_mig_state != 0),
        (mask::CAP, true),
    ];
    let wrong = wrong.iter().any(|(bit, wrong)| given & bit != 0 && *wrong);
    if wrong { Err(Errno::EINVAL) } else { Ok(()) }
}

/// Returns the context from which the command takes its fields.
fn context(
    own: &Identity,
    queue_pair: &VerbsQp,
    known: &Known,
    request: &ModifyQp,
) -> Result<Qpc, Errno> {
    const MTU_4096: u32 = Qpc::MTU_4096;
    /// log2 of the length of the longest datagram.
    const LOG_DATAGRAM: u32 = 12;
    let given = |bit: u32| request.attr_mask & bit != 0;
    let mut qpc = Qpc::default()
        .with_st(queue_pair.kind.service())
        .with_pm_state(Qpc::PM_STATE_MIGRATED);
    if own.lag() == Some(Lag::QueueAffinity) {
        // The kernel spreads the QPs over the ports of the group.
        qpc.set_lag_tx_port_affinity(1 + queue_pair.qpn % u32::from(LAG_PORTS));
    }
    if queue_pair.kind == Kind::Ud {
        qpc.set_mtu(MTU_4096);
        qpc.set_log_msg_max(LOG_DATAGRAM);
    } else if given(mask::PATH_MTU) {
        qpc.set_mtu(request.path_mtu.into());
        qpc.set_log_msg_max(limits::LOG_MESSAGE);
    }
    if given(mask::DEST_QPN) {
        qpc.set_remote_qpn(request.dest_qp_num & 0x00ff_ffff);
    }
    if given(mask::RNR_RETRY) {
        qpc.set_rnr_retry(u32::from(request.rnr_retry) & 7);
    }
    if given(mask::RETRY_CNT) {
        qpc.set_retry_count(u32::from(request.retry_cnt) & 7);
    }
    if given(mask::MAX_QP_RD_ATOMIC) {
        qpc.set_log_sra_max(log_of_reads(request.max_rd_atomic));
    }
    if given(mask::MAX_DEST_RD_ATOMIC) {
        qpc.set_log_rra_max(log_of_reads(request.max_dest_rd_atomic));
    }
    if given(mask::SQ_PSN) {
        qpc.set_next_send_psn(request.sq_psn & 0x00ff_ffff);
    }
    if given(mask::RQ_PSN) {
        qpc.set_next_rcv_psn(request.rq_psn & 0x00ff_ffff);
    }
    if given(mask::MIN_RNR_TIMER) {
        qpc.set_min_rnr_nak(u32::from(request.min_rnr_timer) & 0x1f);
    }
    if given(mask::QKEY) {
        qpc.set_q_key(request.qkey);
    }
    if given(mask::ACCESS_FLAGS) || given(mask::MAX_DEST_RD_ATOMIC) {
        set_rights(&mut qpc, known, request);
    }
    *qpc.primary_address_path_mut() = path(own, known, request)?;
    Ok(qpc)
}

/// Returns log2 of the number of reads in the context, which is a power of two not less than `wanted` (`__mlx5_ib_modify_qp` since Linux
/// 6.12).
fn log_of_reads(wanted: u8) -> u32 {
    u32::from(wanted).next_power_of_two().ilog2()
}

/// Sets the rights of peers. Without resources of the responder peers may only write.
fn set_rights(qpc: &mut Qpc, known: &Known, request: &ModifyQp) {
    let given = |bit: u32| request.attr_mask & bit != 0;
    let depth = if given(mask::MAX_DEST_RD_ATOMIC) {
        request.max_dest_rd_atomic
    } else {
        known.responder_depth
    };
    let mut access = if given(mask::ACCESS_FLAGS) {
        request.qp_access_flags
    } else {
        known.access
    };
    if depth == 0 {
        access &= Access::REMOTE_WRITE.0;
    }
    let has = |right: Access| u32::from(access & right.0 != 0);
    qpc.set_rwe(has(Access::REMOTE_WRITE));
    qpc.set_rre(has(Access::REMOTE_READ));
    qpc.set_rae(has(Access::REMOTE_ATOMIC));
    if has(Access::REMOTE_ATOMIC) != 0 {
        qpc.set_atomic_mode(Qpc::ATOMIC_MODE_UP_TO_8B);
    }
}

fn path(own: &Identity, known: &Known, request: &ModifyQp) -> Result<Ads, Errno> {
    let given = |bit: u32| request.attr_mask & bit != 0;
    let mut path = Ads::default();
    if given(mask::PORT) {
        path.set_vhca_port_num(request.port_num.into());
    }
    if given(mask::AV) {
        let port = if given(mask::PORT) {
            request.port_num
        } else {
            known.port
        };
        // The kernel uses the GID table of the port that the address names.
        let of = own.port(request.dest.port_num).ok_or(Errno::EINVAL)?;
        let address = match own.link {
            Link::Ethernet => address(of, &request.dest)?,
            Link::InfiniBand => infiniband_address(&request.dest)?,
        };
        path = address.with_vhca_port_num(port.into());
    }
    path.set_pkey_index(if given(mask::PKEY_INDEX) {
        request.pkey_index.into()
    } else {
        known.pkey_index.into()
    });
    if given(mask::TIMEOUT) {
        path.set_ack_timeout(u32::from(request.timeout) & 0x1f);
    }
    Ok(path)
}

/// Returns an address vector of RoCE. It always has a GID, whose MAC the kernel finds.
fn address(own: &PortIdentity, dest: &QpDest) -> Result<Ads, Errno> {
    if dest.is_global == 0 {
        return Err(Errno::EINVAL);
    }
    let mac = ah::mac(own, dest.sgid_index, dest.dgid)?;
    // The GRH of v1 has a traffic class, but no code point.
    let code_point = match own.gids.get(usize::from(dest.sgid_index)) {
        Some((GidType::RoceV2, _)) => dest.traffic_class >> 2,
        _ => 0,
    };
    Ok(Ads::default()
        .with_grh(1)
        .with_rgid_rip(dest.dgid)
        .with_src_addr_index(dest.sgid_index.into())
        .with_hop_limit(dest.hop_limit.into())
        .with_tclass(dest.traffic_class.into())
        .with_dscp(code_point.into())
        .with_flow_label(dest.flow_label & 0x000f_ffff)
        .with_stat_rate(u32::from(dest.static_rate) & 0xf)
        .with_sl(u32::from(dest.sl) & 0xf)
        .with_eth_prio(u32::from(dest.sl) & 7)
        .with_rlid(dest.dlid.into())
        .with_mlid(u32::from(dest.src_path_bits) & 0x7f)
        .with_rmac(mac))
}

/// Returns an address vector of `InfiniBand`. It has a GID only if it has a GRH.
fn infiniband_address(dest: &QpDest) -> Result<Ads, Errno> {
    // The GID table has only one entry.
    if dest.is_global != 0 && dest.sgid_index != 0 {
        return Err(Errno::EINVAL);
    }
    let path = Ads::default()
        .with_rlid(dest.dlid.into())
        .with_mlid(u32::from(dest.src_path_bits) & 0x7f)
        .with_stat_rate(u32::from(dest.static_rate) & 0xf)
        .with_sl(u32::from(dest.sl) & 0xf);
    if dest.is_global == 0 {
        return Ok(path);
    }
    Ok(path
        .with_grh(1)
        .with_rgid_rip(dest.dgid)
        .with_hop_limit(dest.hop_limit.into())
        .with_tclass(dest.traffic_class.into())
        .with_flow_label(dest.flow_label & 0x000f_ffff))
}
