//! Structs of shared receive queues and XRC domains, laid out as in the kernel's headers.

use bytemuck::{Pod, Zeroable};

/// `struct ib_uverbs_create_srq` in `ib_user_verbs.h`.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub(super) struct CreateSrq {
    /// Where `write()` put its reply; no meaning in an ioctl.
    pub(super) response: u64,
    pub(super) user_handle: u64,
    pub(super) pd_handle: u32,
    pub(super) max_wr: u32,
    pub(super) max_sge: u32,
    /// Not looked at: a queue is made without a limit (`mlx5_ib`).
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
