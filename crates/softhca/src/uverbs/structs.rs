//! Structs that the kernel and user space exchange, laid out as in the kernel's headers.

use bytemuck::{Pod, Zeroable};

/// `struct mlx5_ib_alloc_ucontext_req_v2` in `mlx5-abi.h`.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub(super) struct AllocUcontextReq {
    pub(super) total_num_bfregs: u32,
    pub(super) num_low_latency_bfregs: u32,
    /// Bit 0: DevX.
    pub(super) flags: u32,
    pub(super) comp_mask: u32,
    pub(super) max_cqe_version: u8,
    pub(super) reserved0: u8,
    pub(super) reserved1: u16,
    pub(super) reserved2: u32,
    /// Bit 0: 4 KiB UAR pages; bit 1: dynamic UARs.
    pub(super) lib_caps: u64,
}
const _: () = assert!(size_of::<AllocUcontextReq>() == 32);

/// `struct mlx5_ib_alloc_ucontext_resp` in `mlx5-abi.h`.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub(super) struct AllocUcontextResp {
    pub(super) qp_tab_size: u32,
    /// Bytes of a BlueFlame register; libmlx5 alternates between its two halves.
    pub(super) bf_reg_size: u32,
    /// 0 selects dynamic UARs.
    pub(super) tot_bfregs: u32,
    pub(super) cache_line_size: u32,
    pub(super) max_sq_desc_sz: u16,
    pub(super) max_rq_desc_sz: u16,
    pub(super) max_send_wqebb: u32,
    pub(super) max_recv_wr: u32,
    pub(super) max_srq_recv_wr: u32,
    pub(super) num_ports: u16,
    pub(super) flow_action_flags: u16,
    pub(super) comp_mask: u32,
    pub(super) response_length: u32,
    pub(super) cqe_version: u8,
    pub(super) cmds_supp_uhw: u8,
    pub(super) eth_min_inline: u8,
    pub(super) clock_info_versions: u8,
    pub(super) hca_core_clock_offset: u64,
    pub(super) log_uar_size: u32,
    pub(super) num_uars_per_page: u32,
    pub(super) num_dyn_bfregs: u32,
    pub(super) dump_fill_mkey: u32,
}
const _: () = assert!(size_of::<AllocUcontextResp>() == 72);

/// `struct ib_uverbs_query_device_resp` in `ib_user_verbs.h`.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub(super) struct QueryDeviceResp {
    pub(super) fw_ver: u64,
    /// GUID in network byte order, as `sys_image_guid` is.
    pub(super) node_guid: [u8; 8],
    pub(super) sys_image_guid: [u8; 8],
    pub(super) max_mr_size: u64,
    pub(super) page_size_cap: u64,
    pub(super) vendor_id: u32,
    pub(super) vendor_part_id: u32,
    pub(super) hw_ver: u32,
    pub(super) max_qp: u32,
    pub(super) max_qp_wr: u32,
    pub(super) device_cap_flags: u32,
    pub(super) max_sge: u32,
    pub(super) max_sge_rd: u32,
    pub(super) max_cq: u32,
    pub(super) max_cqe: u32,
    pub(super) max_mr: u32,
    pub(super) max_pd: u32,
    pub(super) max_qp_rd_atom: u32,
    pub(super) max_ee_rd_atom: u32,
    pub(super) max_res_rd_atom: u32,
    pub(super) max_qp_init_rd_atom: u32,
    pub(super) max_ee_init_rd_atom: u32,
    pub(super) atomic_cap: u32,
    pub(super) max_ee: u32,
    pub(super) max_rdd: u32,
    pub(super) max_mw: u32,
    pub(super) max_raw_ipv6_qp: u32,
    pub(super) max_raw_ethy_qp: u32,
    pub(super) max_mcast_grp: u32,
    pub(super) max_mcast_qp_attach: u32,
    pub(super) max_total_mcast_qp_attach: u32,
    pub(super) max_ah: u32,
    pub(super) max_fmr: u32,
    pub(super) max_map_per_fmr: u32,
    pub(super) max_srq: u32,
    pub(super) max_srq_wr: u32,
    pub(super) max_srq_sge: u32,
    pub(super) max_pkeys: u16,
    pub(super) local_ca_ack_delay: u8,
    pub(super) phys_port_cnt: u8,
    pub(super) reserved: [u8; 4],
}
const _: () = assert!(size_of::<QueryDeviceResp>() == 176);

/// `struct ib_uverbs_ex_query_device_resp`: `QueryDeviceResp`, and further fields. Fields without a counterpart in this model are zero.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub(super) struct ExQueryDeviceResp {
    pub(super) base: QueryDeviceResp,
    pub(super) comp_mask: u32,
    pub(super) response_length: u32,
    /// Capabilities of on-demand paging.
    pub(super) odp: [u64; 3],
    pub(super) timestamp_mask: u64,
    pub(super) hca_core_clock: u64,
    pub(super) device_cap_flags_ex: u64,
    /// Capabilities of RSS, raw packets and tag matching.
    pub(super) lacking: [u64; 6],
    /// Largest count and longest period of moderation, 16 bits each.
    pub(super) cq_moderation: u64,
    /// Device memory and paging of XRC.
    pub(super) rest: [u64; 2],
}
const _: () = assert!(size_of::<ExQueryDeviceResp>() == 304);

/// `struct mlx5_ib_query_device_resp`. Its capabilities concern raw packets, compression and the like.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub(super) struct Mlx5QueryDeviceResp {
    pub(super) comp_mask: u32,
    pub(super) response_length: u32,
    pub(super) capabilities: [u32; 23],
    pub(super) dci_streams: [u8; 2],
    pub(super) reserved: u16,
}
const _: () = assert!(size_of::<Mlx5QueryDeviceResp>() == 104);

/// `struct ib_uverbs_query_port_resp_ex` in `ib_user_ioctl_verbs.h`.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub(super) struct QueryPortResp {
    pub(super) port_cap_flags: u32,
    pub(super) max_msg_sz: u32,
    pub(super) bad_pkey_cntr: u32,
    pub(super) qkey_viol_cntr: u32,
    pub(super) gid_tbl_len: u32,
    pub(super) pkey_tbl_len: u16,
    pub(super) lid: u16,
    pub(super) sm_lid: u16,
    pub(super) state: u8,
    pub(super) max_mtu: u8,
    pub(super) active_mtu: u8,
    pub(super) lmc: u8,
    pub(super) max_vl_num: u8,
    pub(super) sm_sl: u8,
    pub(super) subnet_timeout: u8,
    pub(super) init_type_reply: u8,
    pub(super) active_width: u8,
    pub(super) active_speed: u8,
    pub(super) phys_state: u8,
    pub(super) link_layer: u8,
    pub(super) flags: u8,
    pub(super) reserved: u8,
    pub(super) port_cap_flags2: u16,
    pub(super) reserved2: [u8; 6],
}
const _: () = assert!(size_of::<QueryPortResp>() == 48);

/// `struct ib_uverbs_gid_entry` in `ib_user_ioctl_verbs.h`.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub(super) struct GidEntry {
    pub(super) gid: [u8; 16],
    pub(super) gid_index: u32,
    pub(super) port_num: u32,
    /// 0 InfiniBand, 1 RoCE v1, 2 RoCE v2.
    pub(super) gid_type: u32,
    pub(super) netdev_ifindex: u32,
}
const _: () = assert!(size_of::<GidEntry>() == 32);

/// `struct ib_uverbs_create_ah` in `ib_user_verbs.h`, its `ib_uverbs_ah_attr` and `ib_uverbs_global_route` included.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub(super) struct CreateAh {
    /// Address for the reply of `write()`; no meaning in an ioctl.
    pub(super) response: u64,
    pub(super) user_handle: u64,
    pub(super) pd_handle: u32,
    pub(super) reserved0: u32,
    pub(super) dgid: [u8; 16],
    pub(super) flow_label: u32,
    pub(super) sgid_index: u8,
    pub(super) hop_limit: u8,
    pub(super) traffic_class: u8,
    pub(super) reserved1: u8,
    pub(super) dlid: u16,
    pub(super) sl: u8,
    pub(super) src_path_bits: u8,
    pub(super) static_rate: u8,
    pub(super) is_global: u8,
    pub(super) port_num: u8,
    pub(super) reserved2: u8,
}
const _: () = assert!(size_of::<CreateAh>() == 56);

/// `struct mlx5_ib_create_ah_resp` in `mlx5-abi.h`.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub(super) struct CreateAhResp {
    pub(super) response_length: u32,
    pub(super) dmac: [u8; 6],
    pub(super) reserved: [u8; 6],
}
const _: () = assert!(size_of::<CreateAhResp>() == 16);

/// `struct ib_uverbs_reg_mr` in `ib_user_verbs.h`.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub(super) struct RegMr {
    /// Address for the reply of `write()`; no meaning in an ioctl.
    pub(super) response: u64,
    pub(super) start: u64,
    pub(super) length: u64,
    /// Address that the device uses for `start`.
    pub(super) hca_va: u64,
    pub(super) pd_handle: u32,
    pub(super) access_flags: u32,
}
const _: () = assert!(size_of::<RegMr>() == 40);

/// `struct ib_uverbs_reg_mr_resp` in `ib_user_verbs.h`.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub(super) struct RegMrResp {
    pub(super) mr_handle: u32,
    pub(super) lkey: u32,
    pub(super) rkey: u32,
}
const _: () = assert!(size_of::<RegMrResp>() == 12);

/// `struct ib_uverbs_rereg_mr` in `ib_user_verbs.h`.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub(super) struct ReregMr {
    /// Address for the reply of `write()`; no meaning in an ioctl.
    pub(super) response: u64,
    pub(super) mr_handle: u32,
    /// The bits that say what changes: bit 0 the memory, bit 1 the domain, bit 2 the rights.
    pub(super) flags: u32,
    pub(super) start: u64,
    pub(super) length: u64,
    pub(super) hca_va: u64,
    pub(super) pd_handle: u32,
    pub(super) access_flags: u32,
}
const _: () = assert!(size_of::<ReregMr>() == 48);

/// `struct ib_uverbs_rereg_mr_resp` in `ib_user_verbs.h`.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub(super) struct ReregMrResp {
    pub(super) lkey: u32,
    pub(super) rkey: u32,
}
const _: () = assert!(size_of::<ReregMrResp>() == 8);

/// `struct ib_uverbs_alloc_mw` in `ib_user_verbs.h`.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub(super) struct AllocMw {
    /// Address for the reply of `write()`; no meaning in an ioctl.
    pub(super) response: u64,
    pub(super) pd_handle: u32,
    pub(super) mw_type: u8,
    pub(super) reserved: [u8; 3],
}
const _: () = assert!(size_of::<AllocMw>() == 16);

/// `struct ib_uverbs_alloc_mw_resp` in `ib_user_verbs.h`.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub(super) struct AllocMwResp {
    pub(super) mw_handle: u32,
    pub(super) rkey: u32,
}
const _: () = assert!(size_of::<AllocMwResp>() == 8);

/// `struct mlx5_ib_create_cq` in `mlx5-abi.h`.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub(super) struct Mlx5CreateCq {
    pub(super) buf_addr: u64,
    pub(super) db_addr: u64,
    pub(super) cqe_size: u32,
    pub(super) cqe_comp_en: u8,
    pub(super) cqe_comp_res_format: u8,
    pub(super) flags: u16,
    pub(super) uar_page_index: u16,
    pub(super) reserved0: u16,
    pub(super) reserved1: u32,
}
const _: () = assert!(size_of::<Mlx5CreateCq>() == 32);

impl Mlx5CreateCq {
    /// Bit of `flags`: `uar_page_index` is given.
    pub(super) const UAR_PAGE_INDEX: u16 = 1 << 1;
}

/// `struct ib_uverbs_destroy_cq_resp` in `ib_user_verbs.h`.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub(super) struct DestroyCqResp {
    pub(super) comp_events_reported: u32,
    pub(super) async_events_reported: u32,
}

/// `struct ib_uverbs_resize_cq` in `ib_user_verbs.h`.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub(super) struct ResizeCq {
    /// Address for the reply of `write()`; no meaning in an ioctl.
    pub(super) response: u64,
    pub(super) cq_handle: u32,
    pub(super) cqe: u32,
}
const _: () = assert!(size_of::<ResizeCq>() == 16);

/// `struct mlx5_ib_resize_cq` in `mlx5-abi.h`.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub(super) struct Mlx5ResizeCq {
    pub(super) buf_addr: u64,
    pub(super) cqe_size: u16,
    pub(super) reserved0: u16,
    pub(super) reserved1: u32,
}
const _: () = assert!(size_of::<Mlx5ResizeCq>() == 16);

/// `struct ib_uverbs_ex_modify_cq` in `ib_user_verbs.h`.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub(super) struct ExModifyCq {
    pub(super) cq_handle: u32,
    pub(super) attr_mask: u32,
    pub(super) cq_count: u16,
    pub(super) cq_period: u16,
    pub(super) reserved: u32,
}
const _: () = assert!(size_of::<ExModifyCq>() == 16);

/// `struct ib_uverbs_qp_cap` in `ib_user_ioctl_verbs.h`.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub(super) struct QpCap {
    pub(super) max_send_wr: u32,
    pub(super) max_recv_wr: u32,
    pub(super) max_send_sge: u32,
    pub(super) max_recv_sge: u32,
    pub(super) max_inline_data: u32,
}
const _: () = assert!(size_of::<QpCap>() == 20);

/// `struct mlx5_ib_create_qp` in `mlx5-abi.h`.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub(super) struct Mlx5CreateQp {
    pub(super) buf_addr: u64,
    pub(super) db_addr: u64,
    /// Length of the send ring in blocks of 64 bytes.
    pub(super) sq_wqe_count: u32,
    pub(super) rq_wqe_count: u32,
    pub(super) rq_wqe_shift: u32,
    pub(super) flags: u32,
    pub(super) uidx: u32,
    /// UAR page id, with [`Self::UAR_PAGE_INDEX`].
    pub(super) bfreg_index: u32,
    pub(super) sq_buf_addr: u64,
    pub(super) ece_options: u32,
    pub(super) reserved: u32,
}
const _: () = assert!(size_of::<Mlx5CreateQp>() == 56);

impl Mlx5CreateQp {
    /// Bit of `flags`: the device may put received bytes into completions. It need not do so.
    pub(super) const SCATTER_CQE: u32 = 1 << 1;
    /// Bit of `flags`: the device may do so also if completions are 128 bytes long.
    pub(super) const ALLOW_SCATTER_CQE: u32 = 1 << 8;
    /// Bit of `flags`: `bfreg_index` is a page id.
    pub(super) const UAR_PAGE_INDEX: u32 = 1 << 10;
}

/// `struct mlx5_ib_create_qp_resp` in `mlx5-abi.h`.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub(super) struct Mlx5CreateQpResp {
    pub(super) bfreg_index: u32,
    pub(super) ece_options: u32,
    pub(super) comp_mask: u32,
    pub(super) tirn: u32,
    pub(super) tisn: u32,
    pub(super) rqn: u32,
    pub(super) sqn: u32,
    pub(super) reserved1: u32,
    pub(super) tir_icm_addr: u64,
}
const _: () = assert!(size_of::<Mlx5CreateQpResp>() == 40);

/// `struct ib_uverbs_qp_dest` in `ib_user_verbs.h`.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub(super) struct QpDest {
    pub(super) dgid: [u8; 16],
    pub(super) flow_label: u32,
    pub(super) dlid: u16,
    pub(super) reserved: u16,
    pub(super) sgid_index: u8,
    pub(super) hop_limit: u8,
    pub(super) traffic_class: u8,
    pub(super) sl: u8,
    pub(super) src_path_bits: u8,
    pub(super) static_rate: u8,
    pub(super) is_global: u8,
    pub(super) port_num: u8,
}
const _: () = assert!(size_of::<QpDest>() == 32);

/// `struct ib_uverbs_modify_qp` in `ib_user_verbs.h`.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub(super) struct ModifyQp {
    pub(super) dest: QpDest,
    pub(super) alt_dest: QpDest,
    pub(super) qp_handle: u32,
    pub(super) attr_mask: u32,
    pub(super) qkey: u32,
    pub(super) rq_psn: u32,
    pub(super) sq_psn: u32,
    pub(super) dest_qp_num: u32,
    pub(super) qp_access_flags: u32,
    pub(super) pkey_index: u16,
    pub(super) alt_pkey_index: u16,
    pub(super) qp_state: u8,
    pub(super) cur_qp_state: u8,
    pub(super) path_mtu: u8,
    pub(super) path_mig_state: u8,
    pub(super) en_sqd_async_notify: u8,
    pub(super) max_rd_atomic: u8,
    pub(super) max_dest_rd_atomic: u8,
    pub(super) min_rnr_timer: u8,
    pub(super) port_num: u8,
    pub(super) timeout: u8,
    pub(super) retry_cnt: u8,
    pub(super) rnr_retry: u8,
    pub(super) alt_port_num: u8,
    pub(super) alt_timeout: u8,
    pub(super) reserved: [u8; 2],
}
const _: () = assert!(size_of::<ModifyQp>() == 112);

/// `struct mlx5_ib_modify_qp` in `mlx5-abi.h`.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub(super) struct Mlx5ModifyQp {
    pub(super) comp_mask: u32,
    pub(super) max_burst_sz: u32,
    pub(super) typical_pkt_sz: u16,
    pub(super) reserved: u16,
    pub(super) ece_options: u32,
}
const _: () = assert!(size_of::<Mlx5ModifyQp>() == 16);

/// `struct mlx5_ib_modify_qp_resp` in `mlx5-abi.h`.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub(super) struct Mlx5ModifyQpResp {
    pub(super) response_length: u32,
    pub(super) dctn: u32,
    pub(super) ece_options: u32,
    pub(super) reserved: u32,
}
const _: () = assert!(size_of::<Mlx5ModifyQpResp>() == 16);

/// `struct ib_uverbs_query_qp` in `ib_user_verbs.h`.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub(super) struct QueryQp {
    /// Address for the reply of `write()`; no meaning in an ioctl.
    pub(super) response: u64,
    pub(super) qp_handle: u32,
    pub(super) attr_mask: u32,
}
const _: () = assert!(size_of::<QueryQp>() == 16);

/// `struct ib_uverbs_query_qp_resp` in `ib_user_verbs.h`.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub(super) struct QueryQpResp {
    pub(super) dest: QpDest,
    pub(super) alt_dest: QpDest,
    pub(super) max_send_wr: u32,
    pub(super) max_recv_wr: u32,
    pub(super) max_send_sge: u32,
    pub(super) max_recv_sge: u32,
    pub(super) max_inline_data: u32,
    pub(super) qkey: u32,
    pub(super) rq_psn: u32,
    pub(super) sq_psn: u32,
    pub(super) dest_qp_num: u32,
    pub(super) qp_access_flags: u32,
    pub(super) pkey_index: u16,
    pub(super) alt_pkey_index: u16,
    pub(super) qp_state: u8,
    pub(super) cur_qp_state: u8,
    pub(super) path_mtu: u8,
    pub(super) path_mig_state: u8,
    pub(super) sq_draining: u8,
    pub(super) max_rd_atomic: u8,
    pub(super) max_dest_rd_atomic: u8,
    pub(super) min_rnr_timer: u8,
    pub(super) port_num: u8,
    pub(super) timeout: u8,
    pub(super) retry_cnt: u8,
    pub(super) rnr_retry: u8,
    pub(super) alt_port_num: u8,
    pub(super) alt_timeout: u8,
    pub(super) sq_sig_all: u8,
    pub(super) reserved: [u8; 5],
}
const _: () = assert!(size_of::<QueryQpResp>() == 128);

/// `struct ib_uverbs_create_srq` in `ib_user_verbs.h`.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub(super) struct CreateSrq {
    /// Address for the reply of `write()`; no meaning in an ioctl.
    pub(super) response: u64,
    pub(super) user_handle: u64,
    pub(super) pd_handle: u32,
    pub(super) max_wr: u32,
    pub(super) max_sge: u32,
    /// Limit of the SRQ, which is ignored: an SRQ is made without a limit (`mlx5_ib`).
    pub(super) srq_limit: u32,
}
const _: () = assert!(size_of::<CreateSrq>() == 32);

/// `struct ib_uverbs_create_xsrq` in `ib_user_verbs.h`.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub(super) struct CreateXsrq {
    pub(super) response: u64,
    pub(super) user_handle: u64,
    pub(super) srq_type: u32,
    pub(super) pd_handle: u32,
    pub(super) max_wr: u32,
    pub(super) max_sge: u32,
    pub(super) srq_limit: u32,
    pub(super) max_num_tags: u32,
    pub(super) xrcd_handle: u32,
    pub(super) cq_handle: u32,
}
const _: () = assert!(size_of::<CreateXsrq>() == 48);

/// `struct ib_uverbs_create_srq_resp` in `ib_user_verbs.h`.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub(super) struct CreateSrqResp {
    pub(super) srq_handle: u32,
    pub(super) max_wr: u32,
    pub(super) max_sge: u32,
    pub(super) srqn: u32,
}

/// `struct mlx5_ib_create_srq` in `mlx5-abi.h`.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub(super) struct Mlx5CreateSrq {
    pub(super) buf_addr: u64,
    pub(super) db_addr: u64,
    pub(super) flags: u32,
    pub(super) reserved0: u32,
    pub(super) uidx: u32,
    pub(super) reserved1: u32,
}
const _: () = assert!(size_of::<Mlx5CreateSrq>() == 32);

/// `struct mlx5_ib_create_srq_resp` in `mlx5-abi.h`.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub(super) struct Mlx5CreateSrqResp {
    pub(super) srqn: u32,
    pub(super) reserved: u32,
}

/// `struct ib_uverbs_modify_srq` in `ib_user_verbs.h`.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub(super) struct ModifySrq {
    pub(super) srq_handle: u32,
    pub(super) attr_mask: u32,
    pub(super) max_wr: u32,
    pub(super) srq_limit: u32,
}

/// `struct ib_uverbs_query_srq` in `ib_user_verbs.h`.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub(super) struct QuerySrq {
    pub(super) response: u64,
    pub(super) srq_handle: u32,
    pub(super) reserved: u32,
}

/// `struct ib_uverbs_query_srq_resp` in `ib_user_verbs.h`.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub(super) struct QuerySrqResp {
    pub(super) max_wr: u32,
    pub(super) max_sge: u32,
    pub(super) srq_limit: u32,
    pub(super) reserved: u32,
}

/// `struct ib_uverbs_open_xrcd` in `ib_user_verbs.h`.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub(super) struct OpenXrcd {
    pub(super) response: u64,
    pub(super) fd: i32,
    pub(super) oflags: i32,
}
const _: () = assert!(size_of::<OpenXrcd>() == 16);
