//! Methods of the device itself: the context, the port, the GID table.

use super::clock;
use super::frame::{Call, Method, Spec};
use super::structs::{AllocUcontextReq, AllocUcontextResp, GidEntry, QueryPortResp};
use crate::device::NULL_KEY;
use crate::errno::Errno;
use crate::sysfs::{GidType, PortIdentity};

const OBJECT: u16 = 0;
const UHW_IN: u16 = 0x1000;
const UHW_OUT: u16 = 0x1001;
/// The attribute of the driver that gets the context in `QUERY_CONTEXT`.
const RESP_UCTX: u16 = 0x1000;

/// Number of completion vectors of a context.
pub(super) const COMPLETION_VECTORS: u32 = 4;
pub(super) const METHODS: &[Method] = &[
    Method {
        object: OBJECT,
        method: 2,
        attributes: &[Spec::number(0, 1), Spec::output(1, 42)],
        run: query_port,
    },
    Method {
        object: OBJECT,
        method: 3,
        attributes: &[
            Spec::output(0, 4).optional(),
            Spec::output(1, 8).optional(),
            Spec::bytes(UHW_IN, 8),
            Spec::output(UHW_OUT, 0),
        ],
        run: open_context,
    },
    Method {
        object: OBJECT,
        method: 4,
        attributes: &[
            Spec::output(0, 4).optional(),
            Spec::output(1, 8).optional(),
            Spec::output(RESP_UCTX, 72),
        ],
        run: query_context,
    },
    Method {
        object: OBJECT,
        method: 5,
        attributes: &[
            Spec::number(0, 8),
            Spec::number(1, 4).optional(),
            Spec::output(2, 0),
            Spec::output(3, 8),
        ],
        run: query_gid_table,
    },
    Method {
        object: OBJECT,
        method: 6,
        attributes: &[
            Spec::number(0, 4),
            Spec::number(1, 4),
            Spec::number(2, 4).optional(),
            Spec::output(3, 32),
        ],
        run: query_gid_entry,
    },
];

/// Handles `GET_CONTEXT`, which a program calls once per descriptor, before everything else.
fn open_context(call: &Call<'_>) -> Result<(), Errno> {
    const DEVX: u32 = 1;
    const DYNAMIC_UARS: u64 = 2;
    let request: AllocUcontextReq = call.read(UHW_IN)?;
    if request.comp_mask != 0
        || request.reserved0 != 0
        || request.reserved1 != 0
        || request.reserved2 != 0
        // Older libraries map a fixed set of doorbell pages by offsets that this device does not have.
        || request.lib_caps & DYNAMIC_UARS == 0
    {
        return Err(Errno::EOPNOTSUPP);
    }
    if request.total_num_bfregs == 0 || request.num_low_latency_bfregs >= request.total_num_bfregs {
        return Err(Errno::EINVAL);
    }
    let devx = request.flags & DEVX != 0;
    call.context.establish(devx)?;
    put_context(call, UHW_OUT)
}

/// Replies as `open_context` does, for a program that got the descriptor from another program.
fn query_context(call: &Call<'_>) -> Result<(), Errno> {
    call.context.device()?;
    put_context(call, RESP_UCTX)
}

fn put_context(call: &Call<'_>, driver: u16) -> Result<(), Errno> {
    /// Capability that access flags from bit 20 on may be ignored: this device has no relaxed ordering.
    const OPTIONAL_MR_ACCESS: u64 = 1;
    call.put_pod(0, &COMPLETION_VECTORS)?;
    call.put_pod(1, &OPTIONAL_MR_ACCESS)?;
    call.put_pod(driver, &ucontext(call.context.identity().last_port()))
}

/// Returns what libmlx5 must know about a context.
fn ucontext(ports: u8) -> AllocUcontextResp {
    const DUMP_FILL_MKEY: u32 = 2;
    const SQD2RTS: u32 = 8;
    const MKEY_UPDATE_TAG: u32 = 0x20;
    const QUERY_DEVICE: u8 = 1;
    /// Bit of `cmds_supp_uhw`: `CREATE_AH` returns the MAC.
    const CREATE_AH: u8 = 2;
    const NO_INLINE_NEEDED: u8 = 1;
    AllocUcontextResp {
        qp_tab_size: 1 << 17,
        bf_reg_size: 512,
        tot_bfregs: 0,
        cache_line_size: 64,
        max_sq_desc_sz: 1024,
        max_rq_desc_sz: 512,
        max_send_wqebb: 32768,
        max_recv_wr: 32768,
        max_srq_recv_wr: 32767,
        num_ports: ports.into(),
        comp_mask: DUMP_FILL_MKEY | SQD2RTS | MKEY_UPDATE_TAG,
        response_length: 72,
        cqe_version: 1,
        cmds_supp_uhw: QUERY_DEVICE | CREATE_AH,
        eth_min_inline: NO_INLINE_NEEDED,
        clock_info_versions: clock::VERSIONS,
        log_uar_size: 12,
        num_uars_per_page: 1,
        num_dyn_bfregs: 1024,
        dump_fill_mkey: NULL_KEY,
        ..bytemuck::Zeroable::zeroed()
    }
}

fn query_port(call: &Call<'_>) -> Result<(), Errno> {
    const CM_SUPPORTED: u32 = 1 << 16;
    const IP_BASED_GIDS: u32 = 1 << 26;
    const DOWN: u8 = 1;
    const ACTIVE: u8 = 4;
    const MTU_4096: u8 = 5;
    const WIDTH_4X: u8 = 2;
    const DISABLED: u8 = 3;
    const LINK_UP: u8 = 5;
    const INFINIBAND: u8 = 1;
    const ETHERNET: u8 = 2;
    const GRH_REQUIRED: u8 = 1;
    let device = call.context.device()?;
    let identity = call.context.identity();
    let of = port_named(call)?;
    let up = device.port_is_up(of.number);
    let infiniband = of.link.is_infiniband();
    let port = QueryPortResp {
        port_cap_flags: CM_SUPPORTED | if infiniband { 0 } else { IP_BASED_GIDS },
        max_msg_sz: 1 << 30,
        gid_tbl_len: u32::try_from(of.gids.len()).unwrap_or(0),
        pkey_tbl_len: u16::try_from(of.pkeys.keys().len()).unwrap_or(1),
        lid: of.lid(),
        sm_lid: of.sm_lid(),
        lmc: of.lmc,
        max_vl_num: u8::from(infiniband),
        state: if up { ACTIVE } else { DOWN },
        max_mtu: MTU_4096,
        active_mtu: of.mtu(),
        active_width: WIDTH_4X,
        active_speed: identity.profile.facts().speed,
        phys_state: if up { LINK_UP } else { DISABLED },
        link_layer: if infiniband { INFINIBAND } else { ETHERNET },
        flags: if infiniband { 0 } else { GRH_REQUIRED },
        ..bytemuck::Zeroable::zeroed()
    };
    call.put_pod(1, &port)
}

/// Returns the port whose number is in attribute 0.
fn port_named<'a>(call: &'a Call<'_>) -> Result<&'a PortIdentity, Errno> {
    let number = u8::try_from(call.u64(0)?).map_err(|_| Errno::EINVAL)?;
    let port = call.context.identity().port(number);
    port.ok_or(Errno::EINVAL)
}

/// Replies with the GID entries of all ports, with as many bytes per entry as the caller's struct has. The caller must have room for all
/// entries.
fn query_gid_table(call: &Call<'_>) -> Result<(), Errno> {
    call.context.device()?;
    if call.u64(1)? != 0 {
        return Err(Errno::EINVAL); // no flags are defined
    }
    let entry_size = usize::try_from(call.u64(0)?).map_err(|_| Errno::EINVAL)?;
    let ports = call.context.identity().ports();
    let gids: usize = ports.iter().map(|port| port.gids.len()).sum();
    if entry_size == 0 || call.len(2) / entry_size < gids {
        return Err(Errno::EINVAL);
    }
    let mut table = Vec::with_capacity(entry_size * gids);
    for port in ports {
        for index in (0..).take(port.gids.len()) {
            let mut entry = bytemuck::bytes_of(&gid_entry(port, index)?).to_vec();
            entry.resize(entry_size, 0);
            table.extend(entry);
        }
    }
    call.put(2, &table)?;
    call.put_pod(3, &(gids as u64))
}

fn query_gid_entry(call: &Call<'_>) -> Result<(), Errno> {
    call.context.device()?;
    if call.u64(2)? != 0 {
        return Err(Errno::EINVAL);
    }
    let entry = gid_entry(port_named(call)?, call.u32(1)?)?;
    call.put_pod(3, &entry)
}

fn gid_entry(port: &PortIdentity, index: u32) -> Result<GidEntry, Errno> {
    let (kind, gid) = port.gids.get(index as usize).ok_or(Errno::EINVAL)?;
    Ok(GidEntry {
        gid: *gid,
        gid_index: index,
        port_num: port.number.into(),
        gid_type: match kind {
            GidType::InfiniBand => 0,
            GidType::RoceV1 => 1,
            GidType::RoceV2 => 2,
        },
        netdev_ifindex: port
            .interface_of(index as usize)
            .map_or(0, |interface| interface.index),
    })
}
