//! Structs of queues that the kernel and user space exchange, laid out as in the kernel's headers.

use bytemuck::{Pod, Zeroable};

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
    /// `flags`: `uar_page_index` is given.
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
    /// Where `write()` put its reply; no meaning in an ioctl.
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
    /// In blocks of 64 bytes.
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
    /// `flags`: the device may put received bytes into completions. It may also not do so.
    pub(super) const SCATTER_CQE: u32 = 1 << 1;
    /// `flags`: also where completions are 128 bytes long.
    pub(super) const ALLOW_SCATTER_CQE: u32 = 1 << 8;
    /// `flags`: `bfreg_index` is a page id.
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
    /// Where `write()` put its reply; no meaning in an ioctl.
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
