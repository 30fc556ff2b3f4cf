//! `INVOKE_WRITE`: commands of the interface before ioctls. Their structs travel in two attributes.
//!
//! rdma-core still sends these commands for calls that never got an ioctl method of their own. A command that this module lacks gives
//! `EOPNOTSUPP`. A command whose structs are too short gives `ENOSPC`. To find out whether the kernel knows a method, rdma-core sends
//! structs that are too short on purpose.

use mlx5_prm::cmd::Opcode;
use mlx5_prm::hca_cap::{CapType, CmdHcaCap, QueryHcaCapIn, QueryHcaCapOut};

use super::event_queue::Purpose;
use super::frame::{Call, Method, Spec};
use super::handles::Object;
use super::structs::{ExQueryDeviceResp, Mlx5QueryDeviceResp, QueryDeviceResp};
use super::{ah, clock, cq, qp_modify, qp_query, regions, srq, xrcd};
use crate::device::{Context as DeviceContext, HcaConfig};
use crate::errno::Errno;
use crate::sysfs::Identity;

const CORE_IN: u16 = 0;
const CORE_OUT: u16 = 1;
const COMMAND: u16 = 2;
const UHW_IN: u16 = 0x1000;
const UHW_OUT: u16 = 0x1001;

pub(super) const METHODS: &[Method] = &[Method {
    object: 0,
    method: 0,
    attributes: &[
        Spec::bytes(CORE_IN, 0).optional(),
        Spec::output(CORE_OUT, 0).optional(),
        Spec::number(COMMAND, 8),
        Spec::bytes(UHW_IN, 0).optional(),
        Spec::output(UHW_OUT, 0).optional(),
    ],
    run: invoke,
}];

struct Command {
    number: u64,
    /// Least length of the input, with the response pointer with which commands of the first kind begin.
    input: usize,
    /// Least length of the output for which the caller must have room.
    output: usize,
    run: fn(&Call<'_>, &DeviceContext) -> Result<(), Errno>,
}

/// Bit of a command number that means the newer form of a command.
const EXTENDED: u64 = 0x8000_0000;

const COMMANDS: &[Command] = &[
    Command {
        number: 0x1,
        input: 8,
        output: 176,
        run: query_device,
    },
    Command {
        number: EXTENDED | 0x1,
        input: 8,
        output: 184,
        run: query_device_extended,
    },
    Command {
        number: 0x3,
        input: 8,
        output: 4,
        run: alloc_pd,
    },
    Command {
        number: 0x5,
        input: 56,
        output: 4,
        run: ah::create,
    },
    Command {
        number: 0x9,
        input: 40,
        output: 12,
        run: regions::register,
    },
    Command {
        number: 0xb,
        input: 48,
        output: 8,
        run: regions::reregister,
    },
    Command {
        number: 0xe,
        input: 16,
        output: 8,
        run: regions::alloc_window,
    },
    Command {
        number: 0x11,
        input: 8,
        output: 4,
        run: create_comp_channel,
    },
    Command {
        number: 0x13,
        input: 16,
        output: 8,
        run: cq::resize,
    },
    Command {
        number: 0x19,
        input: 16,
        output: 128,
        run: qp_query::query,
    },
    Command {
        number: 0x1a,
        input: 112,
        output: 0,
        run: qp_modify::modify,
    },
    Command {
        number: 0x20,
        input: 32,
        output: 16,
        run: srq::create_by_write,
    },
    Command {
        number: 0x21,
        input: 16,
        output: 0,
        run: srq::modify,
    },
    Command {
        number: 0x22,
        input: 16,
        output: 16,
        run: srq::query,
    },
    Command {
        number: 0x25,
        input: 16,
        output: 4,
        run: xrcd::open,
    },
    Command {
        number: 0x27,
        input: 48,
        output: 16,
        run: srq::create_extended_by_write,
    },
    Command {
        number: EXTENDED | 0x1a,
        input: 112,
        output: 0,
        run: qp_modify::modify_extended,
    },
    Command {
        number: EXTENDED | 0x39,
        input: 16,
        output: 0,
        run: cq::moderate,
    },
];

fn invoke(call: &Call<'_>) -> Result<(), Errno> {
    let number = call.u64(COMMAND)?;
    let command = COMMANDS
        .iter()
        .find(|command| command.number == number)
        .ok_or(Errno::EOPNOTSUPP)?;
    if call.len(CORE_IN) < command.input || call.len(CORE_OUT) < command.output {
        return Err(Errno::ENOSPC);
    }
    (command.run)(call, call.context.device()?)
}

fn query_device(call: &Call<'_>, device: &DeviceContext) -> Result<(), Errno> {
    call.put_pod(CORE_OUT, &attributes(call, device)?)
}

fn query_device_extended(call: &Call<'_>, device: &DeviceContext) -> Result<(), Errno> {
    // The input is comp_mask and a reserved word. No bits are defined.
    if call.read::<u64>(CORE_IN)? != 0 {
        return Err(Errno::EINVAL);
    }
    let base = attributes(call, device)?;
    /// Largest count and, shifted by 16 bits, longest period in microseconds.
    const MODERATION: u64 = 0xfff << 16 | 0xffff;
    let reply = ExQueryDeviceResp {
        base,
        response_length: 304,
        timestamp_mask: clock::MASK,
        hca_core_clock: clock::KHZ,
        device_cap_flags_ex: base.device_cap_flags.into(),
        cq_moderation: MODERATION,
        ..bytemuck::Zeroable::zeroed()
    };
    call.put_pod(CORE_OUT, &reply)?;
    let driver = Mlx5QueryDeviceResp {
        response_length: 104,
        ..bytemuck::Zeroable::zeroed()
    };
    call.put_pod(UHW_OUT, &driver)
}

/// Returns the attributes of a device, derived from its capabilities as the kernel derives them.
fn attributes(call: &Call<'_>, device: &DeviceContext) -> Result<QueryDeviceResp, Errno> {
    const BAD_PKEY_COUNTER: u32 = 1 << 1;
    const CHANGE_PHY_PORT: u32 = 1 << 5;
    const PORT_ACTIVE_EVENT: u32 = 1 << 10;
    const SYS_IMAGE_GUID: u32 = 1 << 11;
    const RC_RNR_NAK_GEN: u32 = 1 << 12;
    const MEM_WINDOW: u32 = 1 << 17;
    const MEM_MGT_EXTENSIONS: u32 = 1 << 21;
    const MEM_WINDOW_TYPE_2B: u32 = 1 << 24;
    const XRC: u32 = 1 << 20;
    const ATOMICS_OF_THE_HCA: u32 = 1;
    let caps = capabilities(device)?;
    let identity = call.context.identity();
    let [major, minor, patch] = identity.profile.facts().firmware.map(u64::from);
    let power = |log: u32| 1u32.checked_shl(log).unwrap_or(u32::MAX);
    // A control segment and a remote address take 32 bytes of a WQE. Each gather entry takes 16 bytes.
    let max_sge = caps.max_wqe_sz_sq().saturating_sub(32) / 16;
    Ok(QueryDeviceResp {
        fw_ver: major << 32 | minor << 16 | patch,
        node_guid: identity.node_guid,
        sys_image_guid: identity.node_guid,
        // mlx5_ib reports the largest value for every device. If a test has set a limit, it is reported, also to programs that use verbs
        // alone.
        max_mr_size: match caps.log_max_mrw_sz() {
            log if log == u32::from(HcaConfig::LOG_MAX_MR) => u64::MAX,
            log => 1u64.checked_shl(log).unwrap_or(u64::MAX),
        },
        // The device supports all powers of two from the page size up.
        page_size_cap: u64::MAX << caps.log_pg_sz().min(63),
        vendor_id: Identity::VENDOR_ID,
        vendor_part_id: identity.profile.facts().pci_device.into(),
        hw_ver: 0,
        max_qp: power(caps.log_max_qp()),
        max_qp_wr: power(caps.log_max_qp_sz()),
        device_cap_flags: BAD_PKEY_COUNTER
            | CHANGE_PHY_PORT
            | PORT_ACTIVE_EVENT
            | SYS_IMAGE_GUID
            | RC_RNR_NAK_GEN
            | MEM_MGT_EXTENSIONS
            | if caps.imaicl() == 1 {
                MEM_WINDOW | MEM_WINDOW_TYPE_2B
            } else {
                0
            }
            | if caps.xrc() == 1 { XRC } else { 0 },
        max_sge: max_sge.min(30),
        max_sge_rd: max_sge.min(30),
        max_cq: power(caps.log_max_cq()),
        max_cqe: power(caps.log_max_cq_sz()) - 1,
        max_mr: power(caps.log_max_mkey()),
        max_mw: if caps.imaicl() == 1 {
            power(caps.log_max_mkey())
        } else {
            0
        },
        max_pd: power(caps.log_max_pd()),
        max_qp_rd_atom: power(caps.log_max_ra_req_qp()),
        max_res_rd_atom: power(caps.log_max_ra_res_qp().saturating_add(caps.log_max_qp())),
        max_qp_init_rd_atom: power(caps.log_max_ra_req_qp()),
        atomic_cap: if caps.atomic() == 1 {
            ATOMICS_OF_THE_HCA
        } else {
            0
        },
        max_srq: power(caps.log_max_srq()),
        max_srq_wr: power(caps.log_max_srq_sz()) - 1,
        // This is how many entries a receive WQE holds beside the link to the next WQE.
        max_srq_sge: caps.max_wqe_sz_rq() / 16 - 1,
        max_ah: i32::MAX.unsigned_abs(),
        max_pkeys: u16::try_from(identity.first().pkeys.keys().len()).unwrap_or(1),
        local_ca_ack_delay: u8::try_from(caps.local_ca_ack_delay()).unwrap_or(u8::MAX),
        phys_port_cnt: identity.last_port(),
        ..bytemuck::Zeroable::zeroed()
    })
}

fn capabilities(device: &DeviceContext) -> Result<CmdHcaCap, Errno> {
    let input = QueryHcaCapIn::default()
        .with_opcode(u32::from(Opcode::QUERY_HCA_CAP.0))
        .with_op_mod(CapType::GENERAL.current());
    let mut output = vec![0; QueryHcaCapOut::BYTES];
    device.devx_general(input.as_bytes(), &mut output)?;
    Ok(CmdHcaCap::from_prefix(&output[16..]))
}

fn alloc_pd(call: &Call<'_>, device: &DeviceContext) -> Result<(), Errno> {
    let pdn = device.alloc_pd()?;
    let outcome = call.context.publish(Object::Pd { pdn }, |handle| {
        call.put_pod(UHW_OUT, &pdn)?;
        call.put_pod(CORE_OUT, &handle)
    });
    if outcome.is_err() {
        let _ = device.dealloc_pd(pdn);
    }
    outcome
}

fn create_comp_channel(call: &Call<'_>, _device: &DeviceContext) -> Result<(), Errno> {
    call.context
        .open_events(Purpose::Completions, |fd| call.put_pod(CORE_OUT, &fd))
}
