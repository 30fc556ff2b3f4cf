//! Made by bindgen from the headers of rdma-core; see tests/verbs/bindings.rs. Do not edit.

#[derive(PartialEq, Eq, Copy, Clone, Debug, Hash)]
#[repr(C, align(8))]
pub struct __BindgenOpaqueArray8<T>(pub T);
impl<T: Copy + Default, const N: usize> Default for __BindgenOpaqueArray8<[T; N]> {
    fn default() -> Self {
        Self([<T as Default>::default(); N])
    }
}
#[repr(C)]
#[derive(Default)]
pub struct __IncompleteArrayField<T>(::core::marker::PhantomData<T>, [T; 0]);
impl<T> __IncompleteArrayField<T> {
    #[inline]
    pub const fn new() -> Self {
        __IncompleteArrayField(::core::marker::PhantomData, [])
    }
    #[inline]
    pub fn as_ptr(&self) -> *const T {
        self as *const _ as *const T
    }
    #[inline]
    pub fn as_mut_ptr(&mut self) -> *mut T {
        self as *mut _ as *mut T
    }
    #[inline]
    pub unsafe fn as_slice(&self, len: usize) -> &[T] {
        unsafe { ::core::slice::from_raw_parts(self.as_ptr(), len) }
    }
    #[inline]
    pub unsafe fn as_mut_slice(&mut self, len: usize) -> &mut [T] {
        unsafe { ::core::slice::from_raw_parts_mut(self.as_mut_ptr(), len) }
    }
}
impl<T> ::core::fmt::Debug for __IncompleteArrayField<T> {
    fn fmt(&self, fmt: &mut ::core::fmt::Formatter<'_>) -> ::core::fmt::Result {
        fmt.write_str("__IncompleteArrayField")
    }
}
pub type __off_t = ::core::ffi::c_long;
#[repr(C)]
#[repr(align(8))]
#[derive(Copy, Clone)]
pub union pthread_mutex_t {
    pub _bindgen_opaque_blob: __BindgenOpaqueArray8<[u8; 40usize]>,
}
#[repr(C)]
#[repr(align(8))]
#[derive(Copy, Clone)]
pub union pthread_cond_t {
    pub _bindgen_opaque_blob: __BindgenOpaqueArray8<[u8; 48usize]>,
}
pub type __u8 = ::core::ffi::c_uchar;
pub type __u16 = ::core::ffi::c_ushort;
pub type __u32 = ::core::ffi::c_uint;
pub type __u64 = ::core::ffi::c_ulonglong;
pub type __be16 = __u16;
pub type __be32 = __u32;
pub type __be64 = __u64;
pub type off_t = __off_t;
#[repr(C)]
#[derive(Copy, Clone)]
pub union ibv_gid {
    pub raw: [u8; 16usize],
    pub global: ibv_gid__bindgen_ty_1,
}
#[repr(C)]
#[derive(Copy, Clone)]
pub struct ibv_gid__bindgen_ty_1 {
    pub subnet_prefix: __be64,
    pub interface_id: __be64,
}
pub const IBV_GID_TYPE_IB: ibv_gid_type = 0;
pub const IBV_GID_TYPE_ROCE_V1: ibv_gid_type = 1;
pub const IBV_GID_TYPE_ROCE_V2: ibv_gid_type = 2;
pub type ibv_gid_type = ::core::ffi::c_uint;
#[repr(C)]
#[derive(Copy, Clone)]
pub struct ibv_gid_entry {
    pub gid: ibv_gid,
    pub gid_index: u32,
    pub port_num: u32,
    pub gid_type: u32,
    pub ndev_ifindex: u32,
}
pub const IBV_NODE_UNKNOWN: ibv_node_type = -1;
pub const IBV_NODE_CA: ibv_node_type = 1;
pub const IBV_NODE_SWITCH: ibv_node_type = 2;
pub const IBV_NODE_ROUTER: ibv_node_type = 3;
pub const IBV_NODE_RNIC: ibv_node_type = 4;
pub const IBV_NODE_USNIC: ibv_node_type = 5;
pub const IBV_NODE_USNIC_UDP: ibv_node_type = 6;
pub const IBV_NODE_UNSPECIFIED: ibv_node_type = 7;
pub type ibv_node_type = ::core::ffi::c_int;
pub const IBV_TRANSPORT_UNKNOWN: ibv_transport_type = -1;
pub const IBV_TRANSPORT_IB: ibv_transport_type = 0;
pub const IBV_TRANSPORT_IWARP: ibv_transport_type = 1;
pub const IBV_TRANSPORT_USNIC: ibv_transport_type = 2;
pub const IBV_TRANSPORT_USNIC_UDP: ibv_transport_type = 3;
pub const IBV_TRANSPORT_UNSPECIFIED: ibv_transport_type = 4;
pub type ibv_transport_type = ::core::ffi::c_int;
pub const IBV_ATOMIC_NONE: ibv_atomic_cap = 0;
pub const IBV_ATOMIC_HCA: ibv_atomic_cap = 1;
pub const IBV_ATOMIC_GLOB: ibv_atomic_cap = 2;
pub type ibv_atomic_cap = ::core::ffi::c_uint;
#[repr(C)]
#[repr(align(8))]
#[derive(Copy, Clone)]
pub struct ibv_dm {
    pub _bindgen_opaque_blob: __BindgenOpaqueArray8<[u8; 32usize]>,
}
#[repr(C)]
#[derive(Copy, Clone)]
pub struct ibv_device_attr {
    pub fw_ver: [::core::ffi::c_char; 64usize],
    pub node_guid: __be64,
    pub sys_image_guid: __be64,
    pub max_mr_size: u64,
    pub page_size_cap: u64,
    pub vendor_id: u32,
    pub vendor_part_id: u32,
    pub hw_ver: u32,
    pub max_qp: ::core::ffi::c_int,
    pub max_qp_wr: ::core::ffi::c_int,
    pub device_cap_flags: ::core::ffi::c_uint,
    pub max_sge: ::core::ffi::c_int,
    pub max_sge_rd: ::core::ffi::c_int,
    pub max_cq: ::core::ffi::c_int,
    pub max_cqe: ::core::ffi::c_int,
    pub max_mr: ::core::ffi::c_int,
    pub max_pd: ::core::ffi::c_int,
    pub max_qp_rd_atom: ::core::ffi::c_int,
    pub max_ee_rd_atom: ::core::ffi::c_int,
    pub max_res_rd_atom: ::core::ffi::c_int,
    pub max_qp_init_rd_atom: ::core::ffi::c_int,
    pub max_ee_init_rd_atom: ::core::ffi::c_int,
    pub atomic_cap: ibv_atomic_cap,
    pub max_ee: ::core::ffi::c_int,
    pub max_rdd: ::core::ffi::c_int,
    pub max_mw: ::core::ffi::c_int,
    pub max_raw_ipv6_qp: ::core::ffi::c_int,
    pub max_raw_ethy_qp: ::core::ffi::c_int,
    pub max_mcast_grp: ::core::ffi::c_int,
    pub max_mcast_qp_attach: ::core::ffi::c_int,
    pub max_total_mcast_qp_attach: ::core::ffi::c_int,
    pub max_ah: ::core::ffi::c_int,
    pub max_fmr: ::core::ffi::c_int,
    pub max_map_per_fmr: ::core::ffi::c_int,
    pub max_srq: ::core::ffi::c_int,
    pub max_srq_wr: ::core::ffi::c_int,
    pub max_srq_sge: ::core::ffi::c_int,
    pub max_pkeys: u16,
    pub local_ca_ack_delay: u8,
    pub phys_port_cnt: u8,
}
pub const IBV_MTU_256: ibv_mtu = 1;
pub const IBV_MTU_512: ibv_mtu = 2;
pub const IBV_MTU_1024: ibv_mtu = 3;
pub const IBV_MTU_2048: ibv_mtu = 4;
pub const IBV_MTU_4096: ibv_mtu = 5;
pub type ibv_mtu = ::core::ffi::c_uint;
pub const IBV_PORT_NOP: ibv_port_state = 0;
pub const IBV_PORT_DOWN: ibv_port_state = 1;
pub const IBV_PORT_INIT: ibv_port_state = 2;
pub const IBV_PORT_ARMED: ibv_port_state = 3;
pub const IBV_PORT_ACTIVE: ibv_port_state = 4;
pub const IBV_PORT_ACTIVE_DEFER: ibv_port_state = 5;
pub type ibv_port_state = ::core::ffi::c_uint;
pub const IBV_LINK_LAYER_UNSPECIFIED: _bindgen_ty_13 = 0;
pub const IBV_LINK_LAYER_INFINIBAND: _bindgen_ty_13 = 1;
pub const IBV_LINK_LAYER_ETHERNET: _bindgen_ty_13 = 2;
pub type _bindgen_ty_13 = ::core::ffi::c_uint;
#[repr(C)]
#[derive(Copy, Clone)]
pub struct ibv_port_attr {
    pub state: ibv_port_state,
    pub max_mtu: ibv_mtu,
    pub active_mtu: ibv_mtu,
    pub gid_tbl_len: ::core::ffi::c_int,
    pub port_cap_flags: u32,
    pub max_msg_sz: u32,
    pub bad_pkey_cntr: u32,
    pub qkey_viol_cntr: u32,
    pub pkey_tbl_len: u16,
    pub lid: u16,
    pub sm_lid: u16,
    pub lmc: u8,
    pub max_vl_num: u8,
    pub sm_sl: u8,
    pub subnet_timeout: u8,
    pub init_type_reply: u8,
    pub active_width: u8,
    pub active_speed: u8,
    pub phys_state: u8,
    pub link_layer: u8,
    pub flags: u8,
    pub port_cap_flags2: u16,
}
pub const IBV_WC_SUCCESS: ibv_wc_status = 0;
pub const IBV_WC_LOC_LEN_ERR: ibv_wc_status = 1;
pub const IBV_WC_LOC_QP_OP_ERR: ibv_wc_status = 2;
pub const IBV_WC_LOC_EEC_OP_ERR: ibv_wc_status = 3;
pub const IBV_WC_LOC_PROT_ERR: ibv_wc_status = 4;
pub const IBV_WC_WR_FLUSH_ERR: ibv_wc_status = 5;
pub const IBV_WC_MW_BIND_ERR: ibv_wc_status = 6;
pub const IBV_WC_BAD_RESP_ERR: ibv_wc_status = 7;
pub const IBV_WC_LOC_ACCESS_ERR: ibv_wc_status = 8;
pub const IBV_WC_REM_INV_REQ_ERR: ibv_wc_status = 9;
pub const IBV_WC_REM_ACCESS_ERR: ibv_wc_status = 10;
pub const IBV_WC_REM_OP_ERR: ibv_wc_status = 11;
pub const IBV_WC_RETRY_EXC_ERR: ibv_wc_status = 12;
pub const IBV_WC_RNR_RETRY_EXC_ERR: ibv_wc_status = 13;
pub const IBV_WC_LOC_RDD_VIOL_ERR: ibv_wc_status = 14;
pub const IBV_WC_REM_INV_RD_REQ_ERR: ibv_wc_status = 15;
pub const IBV_WC_REM_ABORT_ERR: ibv_wc_status = 16;
pub const IBV_WC_INV_EECN_ERR: ibv_wc_status = 17;
pub const IBV_WC_INV_EEC_STATE_ERR: ibv_wc_status = 18;
pub const IBV_WC_FATAL_ERR: ibv_wc_status = 19;
pub const IBV_WC_RESP_TIMEOUT_ERR: ibv_wc_status = 20;
pub const IBV_WC_GENERAL_ERR: ibv_wc_status = 21;
pub const IBV_WC_TM_ERR: ibv_wc_status = 22;
pub const IBV_WC_TM_RNDV_INCOMPLETE: ibv_wc_status = 23;
pub type ibv_wc_status = ::core::ffi::c_uint;
pub const IBV_WC_SEND: ibv_wc_opcode = 0;
pub const IBV_WC_RDMA_WRITE: ibv_wc_opcode = 1;
pub const IBV_WC_RDMA_READ: ibv_wc_opcode = 2;
pub const IBV_WC_COMP_SWAP: ibv_wc_opcode = 3;
pub const IBV_WC_FETCH_ADD: ibv_wc_opcode = 4;
pub const IBV_WC_BIND_MW: ibv_wc_opcode = 5;
pub const IBV_WC_LOCAL_INV: ibv_wc_opcode = 6;
pub const IBV_WC_TSO: ibv_wc_opcode = 7;
pub const IBV_WC_ATOMIC_WRITE: ibv_wc_opcode = 9;
pub const IBV_WC_RECV: ibv_wc_opcode = 128;
pub const IBV_WC_RECV_RDMA_WITH_IMM: ibv_wc_opcode = 129;
pub const IBV_WC_TM_ADD: ibv_wc_opcode = 130;
pub const IBV_WC_TM_DEL: ibv_wc_opcode = 131;
pub const IBV_WC_TM_SYNC: ibv_wc_opcode = 132;
pub const IBV_WC_TM_RECV: ibv_wc_opcode = 133;
pub const IBV_WC_TM_NO_TAG: ibv_wc_opcode = 134;
pub const IBV_WC_DRIVER1: ibv_wc_opcode = 135;
pub const IBV_WC_DRIVER2: ibv_wc_opcode = 136;
pub const IBV_WC_DRIVER3: ibv_wc_opcode = 137;
pub type ibv_wc_opcode = ::core::ffi::c_uint;
pub const IBV_WC_GRH: ibv_wc_flags = 1;
pub const IBV_WC_WITH_IMM: ibv_wc_flags = 2;
pub const IBV_WC_IP_CSUM_OK: ibv_wc_flags = 4;
pub const IBV_WC_WITH_INV: ibv_wc_flags = 8;
pub const IBV_WC_TM_SYNC_REQ: ibv_wc_flags = 16;
pub const IBV_WC_TM_MATCH: ibv_wc_flags = 32;
pub const IBV_WC_TM_DATA_VALID: ibv_wc_flags = 64;
pub type ibv_wc_flags = ::core::ffi::c_uint;
#[repr(C)]
#[derive(Copy, Clone)]
pub struct ibv_wc {
    pub wr_id: u64,
    pub status: ibv_wc_status,
    pub opcode: ibv_wc_opcode,
    pub vendor_err: u32,
    pub byte_len: u32,
    pub __bindgen_anon_1: ibv_wc__bindgen_ty_1,
    pub qp_num: u32,
    pub src_qp: u32,
    pub wc_flags: ::core::ffi::c_uint,
    pub pkey_index: u16,
    pub slid: u16,
    pub sl: u8,
    pub dlid_path_bits: u8,
}
#[repr(C)]
#[derive(Copy, Clone)]
pub union ibv_wc__bindgen_ty_1 {
    pub imm_data: __be32,
    pub invalidated_rkey: u32,
}
pub const IBV_ACCESS_LOCAL_WRITE: ibv_access_flags = 1;
pub const IBV_ACCESS_REMOTE_WRITE: ibv_access_flags = 2;
pub const IBV_ACCESS_REMOTE_READ: ibv_access_flags = 4;
pub const IBV_ACCESS_REMOTE_ATOMIC: ibv_access_flags = 8;
pub const IBV_ACCESS_MW_BIND: ibv_access_flags = 16;
pub const IBV_ACCESS_ZERO_BASED: ibv_access_flags = 32;
pub const IBV_ACCESS_ON_DEMAND: ibv_access_flags = 64;
pub const IBV_ACCESS_HUGETLB: ibv_access_flags = 128;
pub const IBV_ACCESS_RELAXED_ORDERING: ibv_access_flags = 1048576;
pub type ibv_access_flags = ::core::ffi::c_uint;
#[repr(C)]
#[derive(Copy, Clone)]
pub struct ibv_mw_bind_info {
    pub mr: *mut ibv_mr,
    pub addr: u64,
    pub length: u64,
    pub mw_access_flags: ::core::ffi::c_uint,
}
#[repr(C)]
#[derive(Copy, Clone)]
pub struct ibv_pd {
    pub context: *mut ibv_context,
    pub handle: u32,
}
#[repr(C)]
#[derive(Copy, Clone)]
pub struct ibv_mr {
    pub context: *mut ibv_context,
    pub pd: *mut ibv_pd,
    pub addr: *mut ::core::ffi::c_void,
    pub length: usize,
    pub handle: u32,
    pub lkey: u32,
    pub rkey: u32,
}
pub const IBV_MW_TYPE_1: ibv_mw_type = 1;
pub const IBV_MW_TYPE_2: ibv_mw_type = 2;
pub type ibv_mw_type = ::core::ffi::c_uint;
#[repr(C)]
#[repr(align(8))]
#[derive(Copy, Clone)]
pub struct ibv_mw {
    pub _bindgen_opaque_blob: __BindgenOpaqueArray8<[u8; 32usize]>,
}
#[repr(C)]
#[derive(Copy, Clone)]
pub struct ibv_global_route {
    pub dgid: ibv_gid,
    pub flow_label: u32,
    pub sgid_index: u8,
    pub hop_limit: u8,
    pub traffic_class: u8,
}
#[repr(C)]
#[derive(Copy, Clone)]
pub struct ibv_ah_attr {
    pub grh: ibv_global_route,
    pub dlid: u16,
    pub sl: u8,
    pub src_path_bits: u8,
    pub static_rate: u8,
    pub is_global: u8,
    pub port_num: u8,
}
pub const IBV_QPT_RC: ibv_qp_type = 2;
pub const IBV_QPT_UC: ibv_qp_type = 3;
pub const IBV_QPT_UD: ibv_qp_type = 4;
pub const IBV_QPT_RAW_PACKET: ibv_qp_type = 8;
pub const IBV_QPT_XRC_SEND: ibv_qp_type = 9;
pub const IBV_QPT_XRC_RECV: ibv_qp_type = 10;
pub const IBV_QPT_DRIVER: ibv_qp_type = 255;
pub type ibv_qp_type = ::core::ffi::c_uint;
#[repr(C)]
#[derive(Copy, Clone)]
pub struct ibv_qp_cap {
    pub max_send_wr: u32,
    pub max_recv_wr: u32,
    pub max_send_sge: u32,
    pub max_recv_sge: u32,
    pub max_inline_data: u32,
}
#[repr(C)]
#[derive(Copy, Clone)]
pub struct ibv_qp_init_attr {
    pub qp_context: *mut ::core::ffi::c_void,
    pub send_cq: *mut ibv_cq,
    pub recv_cq: *mut ibv_cq,
    pub srq: *mut ibv_srq,
    pub cap: ibv_qp_cap,
    pub qp_type: ibv_qp_type,
    pub sq_sig_all: ::core::ffi::c_int,
}
pub const IBV_QP_STATE: ibv_qp_attr_mask = 1;
pub const IBV_QP_CUR_STATE: ibv_qp_attr_mask = 2;
pub const IBV_QP_EN_SQD_ASYNC_NOTIFY: ibv_qp_attr_mask = 4;
pub const IBV_QP_ACCESS_FLAGS: ibv_qp_attr_mask = 8;
pub const IBV_QP_PKEY_INDEX: ibv_qp_attr_mask = 16;
pub const IBV_QP_PORT: ibv_qp_attr_mask = 32;
pub const IBV_QP_QKEY: ibv_qp_attr_mask = 64;
pub const IBV_QP_AV: ibv_qp_attr_mask = 128;
pub const IBV_QP_PATH_MTU: ibv_qp_attr_mask = 256;
pub const IBV_QP_TIMEOUT: ibv_qp_attr_mask = 512;
pub const IBV_QP_RETRY_CNT: ibv_qp_attr_mask = 1024;
pub const IBV_QP_RNR_RETRY: ibv_qp_attr_mask = 2048;
pub const IBV_QP_RQ_PSN: ibv_qp_attr_mask = 4096;
pub const IBV_QP_MAX_QP_RD_ATOMIC: ibv_qp_attr_mask = 8192;
pub const IBV_QP_ALT_PATH: ibv_qp_attr_mask = 16384;
pub const IBV_QP_MIN_RNR_TIMER: ibv_qp_attr_mask = 32768;
pub const IBV_QP_SQ_PSN: ibv_qp_attr_mask = 65536;
pub const IBV_QP_MAX_DEST_RD_ATOMIC: ibv_qp_attr_mask = 131072;
pub const IBV_QP_PATH_MIG_STATE: ibv_qp_attr_mask = 262144;
pub const IBV_QP_CAP: ibv_qp_attr_mask = 524288;
pub const IBV_QP_DEST_QPN: ibv_qp_attr_mask = 1048576;
pub const IBV_QP_RATE_LIMIT: ibv_qp_attr_mask = 33554432;
pub type ibv_qp_attr_mask = ::core::ffi::c_uint;
pub const IBV_QPS_RESET: ibv_qp_state = 0;
pub const IBV_QPS_INIT: ibv_qp_state = 1;
pub const IBV_QPS_RTR: ibv_qp_state = 2;
pub const IBV_QPS_RTS: ibv_qp_state = 3;
pub const IBV_QPS_SQD: ibv_qp_state = 4;
pub const IBV_QPS_SQE: ibv_qp_state = 5;
pub const IBV_QPS_ERR: ibv_qp_state = 6;
pub const IBV_QPS_UNKNOWN: ibv_qp_state = 7;
pub type ibv_qp_state = ::core::ffi::c_uint;
pub const IBV_MIG_MIGRATED: ibv_mig_state = 0;
pub const IBV_MIG_REARM: ibv_mig_state = 1;
pub const IBV_MIG_ARMED: ibv_mig_state = 2;
pub type ibv_mig_state = ::core::ffi::c_uint;
#[repr(C)]
#[derive(Copy, Clone)]
pub struct ibv_qp_attr {
    pub qp_state: ibv_qp_state,
    pub cur_qp_state: ibv_qp_state,
    pub path_mtu: ibv_mtu,
    pub path_mig_state: ibv_mig_state,
    pub qkey: u32,
    pub rq_psn: u32,
    pub sq_psn: u32,
    pub dest_qp_num: u32,
    pub qp_access_flags: ::core::ffi::c_uint,
    pub cap: ibv_qp_cap,
    pub ah_attr: ibv_ah_attr,
    pub alt_ah_attr: ibv_ah_attr,
    pub pkey_index: u16,
    pub alt_pkey_index: u16,
    pub en_sqd_async_notify: u8,
    pub sq_draining: u8,
    pub max_rd_atomic: u8,
    pub max_dest_rd_atomic: u8,
    pub min_rnr_timer: u8,
    pub port_num: u8,
    pub timeout: u8,
    pub retry_cnt: u8,
    pub rnr_retry: u8,
    pub alt_port_num: u8,
    pub alt_timeout: u8,
    pub rate_limit: u32,
}
pub const IBV_WR_RDMA_WRITE: ibv_wr_opcode = 0;
pub const IBV_WR_RDMA_WRITE_WITH_IMM: ibv_wr_opcode = 1;
pub const IBV_WR_SEND: ibv_wr_opcode = 2;
pub const IBV_WR_SEND_WITH_IMM: ibv_wr_opcode = 3;
pub const IBV_WR_RDMA_READ: ibv_wr_opcode = 4;
pub const IBV_WR_ATOMIC_CMP_AND_SWP: ibv_wr_opcode = 5;
pub const IBV_WR_ATOMIC_FETCH_AND_ADD: ibv_wr_opcode = 6;
pub const IBV_WR_LOCAL_INV: ibv_wr_opcode = 7;
pub const IBV_WR_BIND_MW: ibv_wr_opcode = 8;
pub const IBV_WR_SEND_WITH_INV: ibv_wr_opcode = 9;
pub const IBV_WR_TSO: ibv_wr_opcode = 10;
pub const IBV_WR_DRIVER1: ibv_wr_opcode = 11;
pub const IBV_WR_ATOMIC_WRITE: ibv_wr_opcode = 15;
pub type ibv_wr_opcode = ::core::ffi::c_uint;
pub const IBV_SEND_FENCE: ibv_send_flags = 1;
pub const IBV_SEND_SIGNALED: ibv_send_flags = 2;
pub const IBV_SEND_SOLICITED: ibv_send_flags = 4;
pub const IBV_SEND_INLINE: ibv_send_flags = 8;
pub const IBV_SEND_IP_CSUM: ibv_send_flags = 16;
pub type ibv_send_flags = ::core::ffi::c_uint;
#[repr(C)]
#[derive(Copy, Clone)]
pub struct ibv_sge {
    pub addr: u64,
    pub length: u32,
    pub lkey: u32,
}
#[repr(C)]
#[derive(Copy, Clone)]
pub struct ibv_send_wr {
    pub wr_id: u64,
    pub next: *mut ibv_send_wr,
    pub sg_list: *mut ibv_sge,
    pub num_sge: ::core::ffi::c_int,
    pub opcode: ibv_wr_opcode,
    pub send_flags: ::core::ffi::c_uint,
    pub __bindgen_anon_1: ibv_send_wr__bindgen_ty_1,
    pub wr: ibv_send_wr__bindgen_ty_2,
    pub qp_type: ibv_send_wr__bindgen_ty_3,
    pub __bindgen_anon_2: ibv_send_wr__bindgen_ty_4,
}
#[repr(C)]
#[derive(Copy, Clone)]
pub union ibv_send_wr__bindgen_ty_1 {
    pub imm_data: __be32,
    pub invalidate_rkey: u32,
}
#[repr(C)]
#[derive(Copy, Clone)]
pub union ibv_send_wr__bindgen_ty_2 {
    pub rdma: ibv_send_wr__bindgen_ty_2__bindgen_ty_1,
    pub atomic: ibv_send_wr__bindgen_ty_2__bindgen_ty_2,
    pub ud: ibv_send_wr__bindgen_ty_2__bindgen_ty_3,
}
#[repr(C)]
#[derive(Copy, Clone)]
pub struct ibv_send_wr__bindgen_ty_2__bindgen_ty_1 {
    pub remote_addr: u64,
    pub rkey: u32,
}
#[repr(C)]
#[derive(Copy, Clone)]
pub struct ibv_send_wr__bindgen_ty_2__bindgen_ty_2 {
    pub remote_addr: u64,
    pub compare_add: u64,
    pub swap: u64,
    pub rkey: u32,
}
#[repr(C)]
#[derive(Copy, Clone)]
pub struct ibv_send_wr__bindgen_ty_2__bindgen_ty_3 {
    pub ah: *mut ibv_ah,
    pub remote_qpn: u32,
    pub remote_qkey: u32,
}
#[repr(C)]
#[derive(Copy, Clone)]
pub union ibv_send_wr__bindgen_ty_3 {
    pub xrc: ibv_send_wr__bindgen_ty_3__bindgen_ty_1,
}
#[repr(C)]
#[derive(Copy, Clone)]
pub struct ibv_send_wr__bindgen_ty_3__bindgen_ty_1 {
    pub remote_srqn: u32,
}
#[repr(C)]
#[derive(Copy, Clone)]
pub union ibv_send_wr__bindgen_ty_4 {
    pub bind_mw: ibv_send_wr__bindgen_ty_4__bindgen_ty_1,
    pub tso: ibv_send_wr__bindgen_ty_4__bindgen_ty_2,
}
#[repr(C)]
#[derive(Copy, Clone)]
pub struct ibv_send_wr__bindgen_ty_4__bindgen_ty_1 {
    pub mw: *mut ibv_mw,
    pub rkey: u32,
    pub bind_info: ibv_mw_bind_info,
}
#[repr(C)]
#[derive(Copy, Clone)]
pub struct ibv_send_wr__bindgen_ty_4__bindgen_ty_2 {
    pub hdr: *mut ::core::ffi::c_void,
    pub hdr_sz: u16,
    pub mss: u16,
}
#[repr(C)]
#[derive(Copy, Clone)]
pub struct ibv_recv_wr {
    pub wr_id: u64,
    pub next: *mut ibv_recv_wr,
    pub sg_list: *mut ibv_sge,
    pub num_sge: ::core::ffi::c_int,
}
#[repr(C)]
#[repr(align(8))]
#[derive(Copy, Clone)]
pub struct ibv_mw_bind {
    pub _bindgen_opaque_blob: __BindgenOpaqueArray8<[u8; 48usize]>,
}
#[repr(C)]
#[repr(align(8))]
#[derive(Copy, Clone)]
pub struct ibv_srq {
    pub _bindgen_opaque_blob: __BindgenOpaqueArray8<[u8; 128usize]>,
}
#[repr(C)]
#[repr(align(8))]
#[derive(Copy, Clone)]
pub struct ibv_wq {
    pub _bindgen_opaque_blob: __BindgenOpaqueArray8<[u8; 152usize]>,
}
#[repr(C)]
#[derive(Copy, Clone)]
pub struct ibv_qp {
    pub context: *mut ibv_context,
    pub qp_context: *mut ::core::ffi::c_void,
    pub pd: *mut ibv_pd,
    pub send_cq: *mut ibv_cq,
    pub recv_cq: *mut ibv_cq,
    pub srq: *mut ibv_srq,
    pub handle: u32,
    pub qp_num: u32,
    pub state: ibv_qp_state,
    pub qp_type: ibv_qp_type,
    pub mutex: pthread_mutex_t,
    pub cond: pthread_cond_t,
    pub events_completed: u32,
}
#[repr(C)]
#[derive(Copy, Clone)]
pub struct ibv_comp_channel {
    pub context: *mut ibv_context,
    pub fd: ::core::ffi::c_int,
    pub refcnt: ::core::ffi::c_int,
}
#[repr(C)]
#[derive(Copy, Clone)]
pub struct ibv_cq {
    pub context: *mut ibv_context,
    pub channel: *mut ibv_comp_channel,
    pub cq_context: *mut ::core::ffi::c_void,
    pub handle: u32,
    pub cqe: ::core::ffi::c_int,
    pub mutex: pthread_mutex_t,
    pub cond: pthread_cond_t,
    pub comp_events_completed: u32,
    pub async_events_completed: u32,
}
#[repr(C)]
#[repr(align(8))]
#[derive(Copy, Clone)]
pub struct ibv_ah {
    pub _bindgen_opaque_blob: __BindgenOpaqueArray8<[u8; 24usize]>,
}
#[repr(C)]
#[repr(align(8))]
#[derive(Copy, Clone)]
pub struct _ibv_device_ops {
    pub _bindgen_opaque_blob: __BindgenOpaqueArray8<[u8; 16usize]>,
}
#[repr(C)]
#[derive(Copy, Clone)]
pub struct ibv_device {
    pub _ops: _ibv_device_ops,
    pub node_type: ibv_node_type,
    pub transport_type: ibv_transport_type,
    pub name: [::core::ffi::c_char; 64usize],
    pub dev_name: [::core::ffi::c_char; 64usize],
    pub dev_path: [::core::ffi::c_char; 256usize],
    pub ibdev_path: [::core::ffi::c_char; 256usize],
}
#[repr(C)]
#[derive(Debug)]
pub struct _compat_ibv_port_attr {
    _unused: [u8; 0],
}
#[repr(C)]
#[derive(Copy, Clone)]
pub struct ibv_context_ops {
    pub _compat_query_device: ::core::option::Option<
        unsafe extern "C" fn(
            context: *mut ibv_context,
            device_attr: *mut ibv_device_attr,
        ) -> ::core::ffi::c_int,
    >,
    pub _compat_query_port: ::core::option::Option<
        unsafe extern "C" fn(
            context: *mut ibv_context,
            port_num: u8,
            port_attr: *mut _compat_ibv_port_attr,
        ) -> ::core::ffi::c_int,
    >,
    pub _compat_alloc_pd:
        ::core::option::Option<unsafe extern "C" fn() -> *mut ::core::ffi::c_void>,
    pub _compat_dealloc_pd:
        ::core::option::Option<unsafe extern "C" fn() -> *mut ::core::ffi::c_void>,
    pub _compat_reg_mr: ::core::option::Option<unsafe extern "C" fn() -> *mut ::core::ffi::c_void>,
    pub _compat_rereg_mr:
        ::core::option::Option<unsafe extern "C" fn() -> *mut ::core::ffi::c_void>,
    pub _compat_dereg_mr:
        ::core::option::Option<unsafe extern "C" fn() -> *mut ::core::ffi::c_void>,
    pub alloc_mw: ::core::option::Option<
        unsafe extern "C" fn(pd: *mut ibv_pd, type_: ibv_mw_type) -> *mut ibv_mw,
    >,
    pub bind_mw: ::core::option::Option<
        unsafe extern "C" fn(
            qp: *mut ibv_qp,
            mw: *mut ibv_mw,
            mw_bind: *mut ibv_mw_bind,
        ) -> ::core::ffi::c_int,
    >,
    pub dealloc_mw:
        ::core::option::Option<unsafe extern "C" fn(mw: *mut ibv_mw) -> ::core::ffi::c_int>,
    pub _compat_create_cq:
        ::core::option::Option<unsafe extern "C" fn() -> *mut ::core::ffi::c_void>,
    pub poll_cq: ::core::option::Option<
        unsafe extern "C" fn(
            cq: *mut ibv_cq,
            num_entries: ::core::ffi::c_int,
            wc: *mut ibv_wc,
        ) -> ::core::ffi::c_int,
    >,
    pub req_notify_cq: ::core::option::Option<
        unsafe extern "C" fn(
            cq: *mut ibv_cq,
            solicited_only: ::core::ffi::c_int,
        ) -> ::core::ffi::c_int,
    >,
    pub _compat_cq_event:
        ::core::option::Option<unsafe extern "C" fn() -> *mut ::core::ffi::c_void>,
    pub _compat_resize_cq:
        ::core::option::Option<unsafe extern "C" fn() -> *mut ::core::ffi::c_void>,
    pub _compat_destroy_cq:
        ::core::option::Option<unsafe extern "C" fn() -> *mut ::core::ffi::c_void>,
    pub _compat_create_srq:
        ::core::option::Option<unsafe extern "C" fn() -> *mut ::core::ffi::c_void>,
    pub _compat_modify_srq:
        ::core::option::Option<unsafe extern "C" fn() -> *mut ::core::ffi::c_void>,
    pub _compat_query_srq:
        ::core::option::Option<unsafe extern "C" fn() -> *mut ::core::ffi::c_void>,
    pub _compat_destroy_srq:
        ::core::option::Option<unsafe extern "C" fn() -> *mut ::core::ffi::c_void>,
    pub post_srq_recv: ::core::option::Option<
        unsafe extern "C" fn(
            srq: *mut ibv_srq,
            recv_wr: *mut ibv_recv_wr,
            bad_recv_wr: *mut *mut ibv_recv_wr,
        ) -> ::core::ffi::c_int,
    >,
    pub _compat_create_qp:
        ::core::option::Option<unsafe extern "C" fn() -> *mut ::core::ffi::c_void>,
    pub _compat_query_qp:
        ::core::option::Option<unsafe extern "C" fn() -> *mut ::core::ffi::c_void>,
    pub _compat_modify_qp:
        ::core::option::Option<unsafe extern "C" fn() -> *mut ::core::ffi::c_void>,
    pub _compat_destroy_qp:
        ::core::option::Option<unsafe extern "C" fn() -> *mut ::core::ffi::c_void>,
    pub post_send: ::core::option::Option<
        unsafe extern "C" fn(
            qp: *mut ibv_qp,
            wr: *mut ibv_send_wr,
            bad_wr: *mut *mut ibv_send_wr,
        ) -> ::core::ffi::c_int,
    >,
    pub post_recv: ::core::option::Option<
        unsafe extern "C" fn(
            qp: *mut ibv_qp,
            wr: *mut ibv_recv_wr,
            bad_wr: *mut *mut ibv_recv_wr,
        ) -> ::core::ffi::c_int,
    >,
    pub _compat_create_ah:
        ::core::option::Option<unsafe extern "C" fn() -> *mut ::core::ffi::c_void>,
    pub _compat_destroy_ah:
        ::core::option::Option<unsafe extern "C" fn() -> *mut ::core::ffi::c_void>,
    pub _compat_attach_mcast:
        ::core::option::Option<unsafe extern "C" fn() -> *mut ::core::ffi::c_void>,
    pub _compat_detach_mcast:
        ::core::option::Option<unsafe extern "C" fn() -> *mut ::core::ffi::c_void>,
    pub _compat_async_event:
        ::core::option::Option<unsafe extern "C" fn() -> *mut ::core::ffi::c_void>,
}
#[repr(C)]
#[derive(Copy, Clone)]
pub struct ibv_context {
    pub device: *mut ibv_device,
    pub ops: ibv_context_ops,
    pub cmd_fd: ::core::ffi::c_int,
    pub async_fd: ::core::ffi::c_int,
    pub num_comp_vectors: ::core::ffi::c_int,
    pub mutex: pthread_mutex_t,
    pub abi_compat: *mut ::core::ffi::c_void,
}
pub const MLX5_IB_UAPI_DEVX_CR_EV_CH_FLAGS_OMIT_DATA: mlx5_ib_uapi_devx_create_event_channel_flags =
    1;
pub type mlx5_ib_uapi_devx_create_event_channel_flags = ::core::ffi::c_uint;
#[repr(C)]
pub struct mlx5_ib_uapi_devx_async_event_hdr {
    pub cookie: __u64,
    pub out_data: __IncompleteArrayField<__u8>,
}
#[repr(C)]
#[repr(align(8))]
#[derive(Copy, Clone)]
pub struct mlx5dv_qp {
    pub _bindgen_opaque_blob: __BindgenOpaqueArray8<[u8; 96usize]>,
}
#[repr(C)]
#[derive(Copy, Clone)]
pub struct mlx5dv_qp__bindgen_ty_1 {
    pub buf: *mut ::core::ffi::c_void,
    pub wqe_cnt: u32,
    pub stride: u32,
}
#[repr(C)]
#[derive(Copy, Clone)]
pub struct mlx5dv_qp__bindgen_ty_2 {
    pub buf: *mut ::core::ffi::c_void,
    pub wqe_cnt: u32,
    pub stride: u32,
}
#[repr(C)]
#[derive(Copy, Clone)]
pub struct mlx5dv_qp__bindgen_ty_3 {
    pub reg: *mut ::core::ffi::c_void,
    pub size: u32,
}
#[repr(C)]
#[repr(align(8))]
#[derive(Copy, Clone)]
pub struct mlx5dv_cq {
    pub _bindgen_opaque_blob: __BindgenOpaqueArray8<[u8; 48usize]>,
}
#[repr(C)]
#[repr(align(8))]
#[derive(Copy, Clone)]
pub struct mlx5dv_srq {
    pub _bindgen_opaque_blob: __BindgenOpaqueArray8<[u8; 48usize]>,
}
#[repr(C)]
#[repr(align(8))]
#[derive(Copy, Clone)]
pub struct mlx5dv_rwq {
    pub _bindgen_opaque_blob: __BindgenOpaqueArray8<[u8; 32usize]>,
}
#[repr(C)]
#[repr(align(8))]
#[derive(Copy, Clone)]
pub struct mlx5dv_dm {
    pub _bindgen_opaque_blob: __BindgenOpaqueArray8<[u8; 32usize]>,
}
#[repr(C)]
#[derive(Copy, Clone)]
pub struct mlx5dv_ah {
    pub av: *mut mlx5_wqe_av,
    pub comp_mask: u64,
}
#[repr(C)]
#[derive(Copy, Clone)]
pub struct mlx5dv_pd {
    pub pdn: u32,
    pub comp_mask: u64,
}
#[repr(C)]
#[derive(Copy, Clone)]
pub struct mlx5dv_obj {
    pub qp: mlx5dv_obj__bindgen_ty_1,
    pub cq: mlx5dv_obj__bindgen_ty_2,
    pub srq: mlx5dv_obj__bindgen_ty_3,
    pub rwq: mlx5dv_obj__bindgen_ty_4,
    pub dm: mlx5dv_obj__bindgen_ty_5,
    pub ah: mlx5dv_obj__bindgen_ty_6,
    pub pd: mlx5dv_obj__bindgen_ty_7,
}
#[repr(C)]
#[derive(Copy, Clone)]
pub struct mlx5dv_obj__bindgen_ty_1 {
    pub in_: *mut ibv_qp,
    pub out: *mut mlx5dv_qp,
}
#[repr(C)]
#[derive(Copy, Clone)]
pub struct mlx5dv_obj__bindgen_ty_2 {
    pub in_: *mut ibv_cq,
    pub out: *mut mlx5dv_cq,
}
#[repr(C)]
#[derive(Copy, Clone)]
pub struct mlx5dv_obj__bindgen_ty_3 {
    pub in_: *mut ibv_srq,
    pub out: *mut mlx5dv_srq,
}
#[repr(C)]
#[derive(Copy, Clone)]
pub struct mlx5dv_obj__bindgen_ty_4 {
    pub in_: *mut ibv_wq,
    pub out: *mut mlx5dv_rwq,
}
#[repr(C)]
#[derive(Copy, Clone)]
pub struct mlx5dv_obj__bindgen_ty_5 {
    pub in_: *mut ibv_dm,
    pub out: *mut mlx5dv_dm,
}
#[repr(C)]
#[derive(Copy, Clone)]
pub struct mlx5dv_obj__bindgen_ty_6 {
    pub in_: *mut ibv_ah,
    pub out: *mut mlx5dv_ah,
}
#[repr(C)]
#[derive(Copy, Clone)]
pub struct mlx5dv_obj__bindgen_ty_7 {
    pub in_: *mut ibv_pd,
    pub out: *mut mlx5dv_pd,
}
pub const MLX5DV_OBJ_QP: mlx5dv_obj_type = 1;
pub const MLX5DV_OBJ_CQ: mlx5dv_obj_type = 2;
pub const MLX5DV_OBJ_SRQ: mlx5dv_obj_type = 4;
pub const MLX5DV_OBJ_RWQ: mlx5dv_obj_type = 8;
pub const MLX5DV_OBJ_DM: mlx5dv_obj_type = 16;
pub const MLX5DV_OBJ_AH: mlx5dv_obj_type = 32;
pub const MLX5DV_OBJ_PD: mlx5dv_obj_type = 64;
pub type mlx5dv_obj_type = ::core::ffi::c_uint;
#[repr(C)]
#[derive(Copy, Clone)]
pub struct mlx5_wqe_av {
    pub key: mlx5_wqe_av__bindgen_ty_1,
    pub dqp_dct: __be32,
    pub stat_rate_sl: u8,
    pub fl_mlid: u8,
    pub rlid: __be16,
    pub reserved0: [u8; 4usize],
    pub rmac: [u8; 6usize],
    pub tclass: u8,
    pub hop_limit: u8,
    pub grh_gid_fl: __be32,
    pub rgid: [u8; 16usize],
}
#[repr(C)]
#[derive(Copy, Clone)]
pub union mlx5_wqe_av__bindgen_ty_1 {
    pub qkey: mlx5_wqe_av__bindgen_ty_1__bindgen_ty_1,
    pub dc_key: __be64,
}
#[repr(C)]
#[derive(Copy, Clone)]
pub struct mlx5_wqe_av__bindgen_ty_1__bindgen_ty_1 {
    pub qkey: __be32,
    pub reserved: __be32,
}
pub const MLX5DV_CONTEXT_FLAGS_DEVX: mlx5dv_context_attr_flags = 1;
pub type mlx5dv_context_attr_flags = ::core::ffi::c_uint;
#[repr(C)]
#[derive(Copy, Clone)]
pub struct mlx5dv_context_attr {
    pub flags: u32,
    pub comp_mask: u64,
}
#[repr(C)]
#[derive(Debug)]
pub struct mlx5dv_devx_obj {
    _unused: [u8; 0],
}
#[repr(C)]
#[derive(Copy, Clone)]
pub struct mlx5dv_devx_umem {
    pub umem_id: u32,
}
#[repr(C)]
#[derive(Copy, Clone)]
pub struct mlx5dv_devx_umem_in {
    pub addr: *mut ::core::ffi::c_void,
    pub size: usize,
    pub access: u32,
    pub pgsz_bitmap: u64,
    pub comp_mask: u64,
    pub dmabuf_fd: ::core::ffi::c_int,
}
#[repr(C)]
#[derive(Copy, Clone)]
pub struct mlx5dv_devx_uar {
    pub reg_addr: *mut ::core::ffi::c_void,
    pub base_addr: *mut ::core::ffi::c_void,
    pub page_id: u32,
    pub mmap_off: off_t,
    pub comp_mask: u64,
}
#[repr(C)]
#[derive(Copy, Clone)]
pub struct mlx5dv_devx_event_channel {
    pub fd: ::core::ffi::c_int,
}
pub struct Rdma {
    __library: ::libloading::Library,
    pub ibv_get_device_list: Result<
        unsafe extern "C" fn(num_devices: *mut ::core::ffi::c_int) -> *mut *mut ibv_device,
        ::libloading::Error,
    >,
    pub ibv_free_device_list:
        Result<unsafe extern "C" fn(list: *mut *mut ibv_device), ::libloading::Error>,
    pub ibv_get_device_name: Result<
        unsafe extern "C" fn(device: *mut ibv_device) -> *const ::core::ffi::c_char,
        ::libloading::Error,
    >,
    pub ibv_open_device: Result<
        unsafe extern "C" fn(device: *mut ibv_device) -> *mut ibv_context,
        ::libloading::Error,
    >,
    pub ibv_close_device: Result<
        unsafe extern "C" fn(context: *mut ibv_context) -> ::core::ffi::c_int,
        ::libloading::Error,
    >,
    pub ibv_query_device: Result<
        unsafe extern "C" fn(
            context: *mut ibv_context,
            device_attr: *mut ibv_device_attr,
        ) -> ::core::ffi::c_int,
        ::libloading::Error,
    >,
    pub ibv_query_port: Result<
        unsafe extern "C" fn(
            context: *mut ibv_context,
            port_num: u8,
            port_attr: *mut _compat_ibv_port_attr,
        ) -> ::core::ffi::c_int,
        ::libloading::Error,
    >,
    pub _ibv_query_gid_table: Result<
        unsafe extern "C" fn(
            context: *mut ibv_context,
            entries: *mut ibv_gid_entry,
            max_entries: usize,
            flags: u32,
            entry_size: usize,
        ) -> isize,
        ::libloading::Error,
    >,
    pub ibv_alloc_pd:
        Result<unsafe extern "C" fn(context: *mut ibv_context) -> *mut ibv_pd, ::libloading::Error>,
    pub ibv_dealloc_pd:
        Result<unsafe extern "C" fn(pd: *mut ibv_pd) -> ::core::ffi::c_int, ::libloading::Error>,
    pub ibv_reg_mr: Result<
        unsafe extern "C" fn(
            pd: *mut ibv_pd,
            addr: *mut ::core::ffi::c_void,
            length: usize,
            access: ::core::ffi::c_int,
        ) -> *mut ibv_mr,
        ::libloading::Error,
    >,
    pub ibv_reg_mr_iova: Result<
        unsafe extern "C" fn(
            pd: *mut ibv_pd,
            addr: *mut ::core::ffi::c_void,
            length: usize,
            iova: u64,
            access: ::core::ffi::c_int,
        ) -> *mut ibv_mr,
        ::libloading::Error,
    >,
    pub ibv_reg_dmabuf_mr: Result<
        unsafe extern "C" fn(
            pd: *mut ibv_pd,
            offset: u64,
            length: usize,
            iova: u64,
            fd: ::core::ffi::c_int,
            access: ::core::ffi::c_int,
        ) -> *mut ibv_mr,
        ::libloading::Error,
    >,
    pub ibv_dereg_mr:
        Result<unsafe extern "C" fn(mr: *mut ibv_mr) -> ::core::ffi::c_int, ::libloading::Error>,
    pub ibv_create_comp_channel: Result<
        unsafe extern "C" fn(context: *mut ibv_context) -> *mut ibv_comp_channel,
        ::libloading::Error,
    >,
    pub ibv_destroy_comp_channel: Result<
        unsafe extern "C" fn(channel: *mut ibv_comp_channel) -> ::core::ffi::c_int,
        ::libloading::Error,
    >,
    pub ibv_create_cq: Result<
        unsafe extern "C" fn(
            context: *mut ibv_context,
            cqe: ::core::ffi::c_int,
            cq_context: *mut ::core::ffi::c_void,
            channel: *mut ibv_comp_channel,
            comp_vector: ::core::ffi::c_int,
        ) -> *mut ibv_cq,
        ::libloading::Error,
    >,
    pub ibv_destroy_cq:
        Result<unsafe extern "C" fn(cq: *mut ibv_cq) -> ::core::ffi::c_int, ::libloading::Error>,
    pub ibv_get_cq_event: Result<
        unsafe extern "C" fn(
            channel: *mut ibv_comp_channel,
            cq: *mut *mut ibv_cq,
            cq_context: *mut *mut ::core::ffi::c_void,
        ) -> ::core::ffi::c_int,
        ::libloading::Error,
    >,
    pub ibv_ack_cq_events: Result<
        unsafe extern "C" fn(cq: *mut ibv_cq, nevents: ::core::ffi::c_uint),
        ::libloading::Error,
    >,
    pub ibv_create_qp: Result<
        unsafe extern "C" fn(pd: *mut ibv_pd, qp_init_attr: *mut ibv_qp_init_attr) -> *mut ibv_qp,
        ::libloading::Error,
    >,
    pub ibv_modify_qp: Result<
        unsafe extern "C" fn(
            qp: *mut ibv_qp,
            attr: *mut ibv_qp_attr,
            attr_mask: ::core::ffi::c_int,
        ) -> ::core::ffi::c_int,
        ::libloading::Error,
    >,
    pub ibv_query_qp: Result<
        unsafe extern "C" fn(
            qp: *mut ibv_qp,
            attr: *mut ibv_qp_attr,
            attr_mask: ::core::ffi::c_int,
            init_attr: *mut ibv_qp_init_attr,
        ) -> ::core::ffi::c_int,
        ::libloading::Error,
    >,
    pub ibv_destroy_qp:
        Result<unsafe extern "C" fn(qp: *mut ibv_qp) -> ::core::ffi::c_int, ::libloading::Error>,
    pub ibv_create_ah: Result<
        unsafe extern "C" fn(pd: *mut ibv_pd, attr: *mut ibv_ah_attr) -> *mut ibv_ah,
        ::libloading::Error,
    >,
    pub ibv_destroy_ah:
        Result<unsafe extern "C" fn(ah: *mut ibv_ah) -> ::core::ffi::c_int, ::libloading::Error>,
    pub mlx5dv_init_obj: Result<
        unsafe extern "C" fn(obj: *mut mlx5dv_obj, obj_type: u64) -> ::core::ffi::c_int,
        ::libloading::Error,
    >,
    pub mlx5dv_is_supported:
        Result<unsafe extern "C" fn(device: *mut ibv_device) -> bool, ::libloading::Error>,
    pub mlx5dv_open_device: Result<
        unsafe extern "C" fn(
            device: *mut ibv_device,
            attr: *mut mlx5dv_context_attr,
        ) -> *mut ibv_context,
        ::libloading::Error,
    >,
    pub mlx5dv_devx_obj_create: Result<
        unsafe extern "C" fn(
            context: *mut ibv_context,
            in_: *const ::core::ffi::c_void,
            inlen: usize,
            out: *mut ::core::ffi::c_void,
            outlen: usize,
        ) -> *mut mlx5dv_devx_obj,
        ::libloading::Error,
    >,
    pub mlx5dv_devx_obj_query: Result<
        unsafe extern "C" fn(
            obj: *mut mlx5dv_devx_obj,
            in_: *const ::core::ffi::c_void,
            inlen: usize,
            out: *mut ::core::ffi::c_void,
            outlen: usize,
        ) -> ::core::ffi::c_int,
        ::libloading::Error,
    >,
    pub mlx5dv_devx_obj_modify: Result<
        unsafe extern "C" fn(
            obj: *mut mlx5dv_devx_obj,
            in_: *const ::core::ffi::c_void,
            inlen: usize,
            out: *mut ::core::ffi::c_void,
            outlen: usize,
        ) -> ::core::ffi::c_int,
        ::libloading::Error,
    >,
    pub mlx5dv_devx_obj_destroy: Result<
        unsafe extern "C" fn(obj: *mut mlx5dv_devx_obj) -> ::core::ffi::c_int,
        ::libloading::Error,
    >,
    pub mlx5dv_devx_general_cmd: Result<
        unsafe extern "C" fn(
            context: *mut ibv_context,
            in_: *const ::core::ffi::c_void,
            inlen: usize,
            out: *mut ::core::ffi::c_void,
            outlen: usize,
        ) -> ::core::ffi::c_int,
        ::libloading::Error,
    >,
    pub mlx5dv_devx_umem_reg: Result<
        unsafe extern "C" fn(
            ctx: *mut ibv_context,
            addr: *mut ::core::ffi::c_void,
            size: usize,
            access: u32,
        ) -> *mut mlx5dv_devx_umem,
        ::libloading::Error,
    >,
    pub mlx5dv_devx_umem_reg_ex: Result<
        unsafe extern "C" fn(
            ctx: *mut ibv_context,
            umem_in: *mut mlx5dv_devx_umem_in,
        ) -> *mut mlx5dv_devx_umem,
        ::libloading::Error,
    >,
    pub mlx5dv_devx_umem_dereg: Result<
        unsafe extern "C" fn(umem: *mut mlx5dv_devx_umem) -> ::core::ffi::c_int,
        ::libloading::Error,
    >,
    pub mlx5dv_devx_alloc_uar: Result<
        unsafe extern "C" fn(context: *mut ibv_context, flags: u32) -> *mut mlx5dv_devx_uar,
        ::libloading::Error,
    >,
    pub mlx5dv_devx_free_uar:
        Result<unsafe extern "C" fn(devx_uar: *mut mlx5dv_devx_uar), ::libloading::Error>,
    pub mlx5dv_devx_query_eqn: Result<
        unsafe extern "C" fn(
            context: *mut ibv_context,
            vector: u32,
            eqn: *mut u32,
        ) -> ::core::ffi::c_int,
        ::libloading::Error,
    >,
    pub mlx5dv_devx_create_event_channel: Result<
        unsafe extern "C" fn(
            context: *mut ibv_context,
            flags: mlx5_ib_uapi_devx_create_event_channel_flags,
        ) -> *mut mlx5dv_devx_event_channel,
        ::libloading::Error,
    >,
    pub mlx5dv_devx_destroy_event_channel: Result<
        unsafe extern "C" fn(event_channel: *mut mlx5dv_devx_event_channel),
        ::libloading::Error,
    >,
    pub mlx5dv_devx_subscribe_devx_event: Result<
        unsafe extern "C" fn(
            event_channel: *mut mlx5dv_devx_event_channel,
            obj: *mut mlx5dv_devx_obj,
            events_sz: u16,
            events_num: *mut u16,
            cookie: u64,
        ) -> ::core::ffi::c_int,
        ::libloading::Error,
    >,
    pub mlx5dv_devx_get_event: Result<
        unsafe extern "C" fn(
            event_channel: *mut mlx5dv_devx_event_channel,
            event_data: *mut mlx5_ib_uapi_devx_async_event_hdr,
            event_resp_len: usize,
        ) -> isize,
        ::libloading::Error,
    >,
}
impl Rdma {
    pub unsafe fn new<P>(path: P) -> Result<Self, ::libloading::Error>
    where
        P: AsRef<::std::ffi::OsStr>,
    {
        let path = path.as_ref();
        let library = unsafe { ::libloading::Library::new(path) }?;
        unsafe { Self::from_library(library) }
    }
    pub unsafe fn from_library<L>(library: L) -> Result<Self, ::libloading::Error>
    where
        L: Into<::libloading::Library>,
    {
        let __library = library.into();
        let ibv_get_device_list =
            unsafe { __library.get(b"ibv_get_device_list\0") }.map(|sym| *sym);
        let ibv_free_device_list =
            unsafe { __library.get(b"ibv_free_device_list\0") }.map(|sym| *sym);
        let ibv_get_device_name =
            unsafe { __library.get(b"ibv_get_device_name\0") }.map(|sym| *sym);
        let ibv_open_device = unsafe { __library.get(b"ibv_open_device\0") }.map(|sym| *sym);
        let ibv_close_device = unsafe { __library.get(b"ibv_close_device\0") }.map(|sym| *sym);
        let ibv_query_device = unsafe { __library.get(b"ibv_query_device\0") }.map(|sym| *sym);
        let ibv_query_port = unsafe { __library.get(b"ibv_query_port\0") }.map(|sym| *sym);
        let _ibv_query_gid_table =
            unsafe { __library.get(b"_ibv_query_gid_table\0") }.map(|sym| *sym);
        let ibv_alloc_pd = unsafe { __library.get(b"ibv_alloc_pd\0") }.map(|sym| *sym);
        let ibv_dealloc_pd = unsafe { __library.get(b"ibv_dealloc_pd\0") }.map(|sym| *sym);
        let ibv_reg_mr = unsafe { __library.get(b"ibv_reg_mr\0") }.map(|sym| *sym);
        let ibv_reg_mr_iova = unsafe { __library.get(b"ibv_reg_mr_iova\0") }.map(|sym| *sym);
        let ibv_reg_dmabuf_mr = unsafe { __library.get(b"ibv_reg_dmabuf_mr\0") }.map(|sym| *sym);
        let ibv_dereg_mr = unsafe { __library.get(b"ibv_dereg_mr\0") }.map(|sym| *sym);
        let ibv_create_comp_channel =
            unsafe { __library.get(b"ibv_create_comp_channel\0") }.map(|sym| *sym);
        let ibv_destroy_comp_channel =
            unsafe { __library.get(b"ibv_destroy_comp_channel\0") }.map(|sym| *sym);
        let ibv_create_cq = unsafe { __library.get(b"ibv_create_cq\0") }.map(|sym| *sym);
        let ibv_destroy_cq = unsafe { __library.get(b"ibv_destroy_cq\0") }.map(|sym| *sym);
        let ibv_get_cq_event = unsafe { __library.get(b"ibv_get_cq_event\0") }.map(|sym| *sym);
        let ibv_ack_cq_events = unsafe { __library.get(b"ibv_ack_cq_events\0") }.map(|sym| *sym);
        let ibv_create_qp = unsafe { __library.get(b"ibv_create_qp\0") }.map(|sym| *sym);
        let ibv_modify_qp = unsafe { __library.get(b"ibv_modify_qp\0") }.map(|sym| *sym);
        let ibv_query_qp = unsafe { __library.get(b"ibv_query_qp\0") }.map(|sym| *sym);
        let ibv_destroy_qp = unsafe { __library.get(b"ibv_destroy_qp\0") }.map(|sym| *sym);
        let ibv_create_ah = unsafe { __library.get(b"ibv_create_ah\0") }.map(|sym| *sym);
        let ibv_destroy_ah = unsafe { __library.get(b"ibv_destroy_ah\0") }.map(|sym| *sym);
        let mlx5dv_init_obj = unsafe { __library.get(b"mlx5dv_init_obj\0") }.map(|sym| *sym);
        let mlx5dv_is_supported =
            unsafe { __library.get(b"mlx5dv_is_supported\0") }.map(|sym| *sym);
        let mlx5dv_open_device = unsafe { __library.get(b"mlx5dv_open_device\0") }.map(|sym| *sym);
        let mlx5dv_devx_obj_create =
            unsafe { __library.get(b"mlx5dv_devx_obj_create\0") }.map(|sym| *sym);
        let mlx5dv_devx_obj_query =
            unsafe { __library.get(b"mlx5dv_devx_obj_query\0") }.map(|sym| *sym);
        let mlx5dv_devx_obj_modify =
            unsafe { __library.get(b"mlx5dv_devx_obj_modify\0") }.map(|sym| *sym);
        let mlx5dv_devx_obj_destroy =
            unsafe { __library.get(b"mlx5dv_devx_obj_destroy\0") }.map(|sym| *sym);
        let mlx5dv_devx_general_cmd =
            unsafe { __library.get(b"mlx5dv_devx_general_cmd\0") }.map(|sym| *sym);
        let mlx5dv_devx_umem_reg =
            unsafe { __library.get(b"mlx5dv_devx_umem_reg\0") }.map(|sym| *sym);
        let mlx5dv_devx_umem_reg_ex =
            unsafe { __library.get(b"mlx5dv_devx_umem_reg_ex\0") }.map(|sym| *sym);
        let mlx5dv_devx_umem_dereg =
            unsafe { __library.get(b"mlx5dv_devx_umem_dereg\0") }.map(|sym| *sym);
        let mlx5dv_devx_alloc_uar =
            unsafe { __library.get(b"mlx5dv_devx_alloc_uar\0") }.map(|sym| *sym);
        let mlx5dv_devx_free_uar =
            unsafe { __library.get(b"mlx5dv_devx_free_uar\0") }.map(|sym| *sym);
        let mlx5dv_devx_query_eqn =
            unsafe { __library.get(b"mlx5dv_devx_query_eqn\0") }.map(|sym| *sym);
        let mlx5dv_devx_create_event_channel =
            unsafe { __library.get(b"mlx5dv_devx_create_event_channel\0") }.map(|sym| *sym);
        let mlx5dv_devx_destroy_event_channel =
            unsafe { __library.get(b"mlx5dv_devx_destroy_event_channel\0") }.map(|sym| *sym);
        let mlx5dv_devx_subscribe_devx_event =
            unsafe { __library.get(b"mlx5dv_devx_subscribe_devx_event\0") }.map(|sym| *sym);
        let mlx5dv_devx_get_event =
            unsafe { __library.get(b"mlx5dv_devx_get_event\0") }.map(|sym| *sym);
        Ok(Rdma {
            __library,
            ibv_get_device_list,
            ibv_free_device_list,
            ibv_get_device_name,
            ibv_open_device,
            ibv_close_device,
            ibv_query_device,
            ibv_query_port,
            _ibv_query_gid_table,
            ibv_alloc_pd,
            ibv_dealloc_pd,
            ibv_reg_mr,
            ibv_reg_mr_iova,
            ibv_reg_dmabuf_mr,
            ibv_dereg_mr,
            ibv_create_comp_channel,
            ibv_destroy_comp_channel,
            ibv_create_cq,
            ibv_destroy_cq,
            ibv_get_cq_event,
            ibv_ack_cq_events,
            ibv_create_qp,
            ibv_modify_qp,
            ibv_query_qp,
            ibv_destroy_qp,
            ibv_create_ah,
            ibv_destroy_ah,
            mlx5dv_init_obj,
            mlx5dv_is_supported,
            mlx5dv_open_device,
            mlx5dv_devx_obj_create,
            mlx5dv_devx_obj_query,
            mlx5dv_devx_obj_modify,
            mlx5dv_devx_obj_destroy,
            mlx5dv_devx_general_cmd,
            mlx5dv_devx_umem_reg,
            mlx5dv_devx_umem_reg_ex,
            mlx5dv_devx_umem_dereg,
            mlx5dv_devx_alloc_uar,
            mlx5dv_devx_free_uar,
            mlx5dv_devx_query_eqn,
            mlx5dv_devx_create_event_channel,
            mlx5dv_devx_destroy_event_channel,
            mlx5dv_devx_subscribe_devx_event,
            mlx5dv_devx_get_event,
        })
    }
    pub unsafe fn ibv_get_device_list(
        &self,
        num_devices: *mut ::core::ffi::c_int,
    ) -> *mut *mut ibv_device {
        unsafe {
            (self
                .ibv_get_device_list
                .as_ref()
                .expect("Expected function, got error."))(num_devices)
        }
    }
    pub unsafe fn ibv_free_device_list(&self, list: *mut *mut ibv_device) {
        unsafe {
            (self
                .ibv_free_device_list
                .as_ref()
                .expect("Expected function, got error."))(list)
        }
    }
    pub unsafe fn ibv_get_device_name(
        &self,
        device: *mut ibv_device,
    ) -> *const ::core::ffi::c_char {
        unsafe {
            (self
                .ibv_get_device_name
                .as_ref()
                .expect("Expected function, got error."))(device)
        }
    }
    pub unsafe fn ibv_open_device(&self, device: *mut ibv_device) -> *mut ibv_context {
        unsafe {
            (self
                .ibv_open_device
                .as_ref()
                .expect("Expected function, got error."))(device)
        }
    }
    pub unsafe fn ibv_close_device(&self, context: *mut ibv_context) -> ::core::ffi::c_int {
        unsafe {
            (self
                .ibv_close_device
                .as_ref()
                .expect("Expected function, got error."))(context)
        }
    }
    pub unsafe fn ibv_query_device(
        &self,
        context: *mut ibv_context,
        device_attr: *mut ibv_device_attr,
    ) -> ::core::ffi::c_int {
        unsafe {
            (self
                .ibv_query_device
                .as_ref()
                .expect("Expected function, got error."))(context, device_attr)
        }
    }
    pub unsafe fn ibv_query_port(
        &self,
        context: *mut ibv_context,
        port_num: u8,
        port_attr: *mut _compat_ibv_port_attr,
    ) -> ::core::ffi::c_int {
        unsafe {
            (self
                .ibv_query_port
                .as_ref()
                .expect("Expected function, got error."))(context, port_num, port_attr)
        }
    }
    pub unsafe fn _ibv_query_gid_table(
        &self,
        context: *mut ibv_context,
        entries: *mut ibv_gid_entry,
        max_entries: usize,
        flags: u32,
        entry_size: usize,
    ) -> isize {
        unsafe {
            (self
                ._ibv_query_gid_table
                .as_ref()
                .expect("Expected function, got error."))(
                context,
                entries,
                max_entries,
                flags,
                entry_size,
            )
        }
    }
    pub unsafe fn ibv_alloc_pd(&self, context: *mut ibv_context) -> *mut ibv_pd {
        unsafe {
            (self
                .ibv_alloc_pd
                .as_ref()
                .expect("Expected function, got error."))(context)
        }
    }
    pub unsafe fn ibv_dealloc_pd(&self, pd: *mut ibv_pd) -> ::core::ffi::c_int {
        unsafe {
            (self
                .ibv_dealloc_pd
                .as_ref()
                .expect("Expected function, got error."))(pd)
        }
    }
    pub unsafe fn ibv_reg_mr(
        &self,
        pd: *mut ibv_pd,
        addr: *mut ::core::ffi::c_void,
        length: usize,
        access: ::core::ffi::c_int,
    ) -> *mut ibv_mr {
        unsafe {
            (self
                .ibv_reg_mr
                .as_ref()
                .expect("Expected function, got error."))(pd, addr, length, access)
        }
    }
    pub unsafe fn ibv_reg_mr_iova(
        &self,
        pd: *mut ibv_pd,
        addr: *mut ::core::ffi::c_void,
        length: usize,
        iova: u64,
        access: ::core::ffi::c_int,
    ) -> *mut ibv_mr {
        unsafe {
            (self
                .ibv_reg_mr_iova
                .as_ref()
                .expect("Expected function, got error."))(pd, addr, length, iova, access)
        }
    }
    pub unsafe fn ibv_reg_dmabuf_mr(
        &self,
        pd: *mut ibv_pd,
        offset: u64,
        length: usize,
        iova: u64,
        fd: ::core::ffi::c_int,
        access: ::core::ffi::c_int,
    ) -> *mut ibv_mr {
        unsafe {
            (self
                .ibv_reg_dmabuf_mr
                .as_ref()
                .expect("Expected function, got error."))(
                pd, offset, length, iova, fd, access
            )
        }
    }
    pub unsafe fn ibv_dereg_mr(&self, mr: *mut ibv_mr) -> ::core::ffi::c_int {
        unsafe {
            (self
                .ibv_dereg_mr
                .as_ref()
                .expect("Expected function, got error."))(mr)
        }
    }
    pub unsafe fn ibv_create_comp_channel(
        &self,
        context: *mut ibv_context,
    ) -> *mut ibv_comp_channel {
        unsafe {
            (self
                .ibv_create_comp_channel
                .as_ref()
                .expect("Expected function, got error."))(context)
        }
    }
    pub unsafe fn ibv_destroy_comp_channel(
        &self,
        channel: *mut ibv_comp_channel,
    ) -> ::core::ffi::c_int {
        unsafe {
            (self
                .ibv_destroy_comp_channel
                .as_ref()
                .expect("Expected function, got error."))(channel)
        }
    }
    pub unsafe fn ibv_create_cq(
        &self,
        context: *mut ibv_context,
        cqe: ::core::ffi::c_int,
        cq_context: *mut ::core::ffi::c_void,
        channel: *mut ibv_comp_channel,
        comp_vector: ::core::ffi::c_int,
    ) -> *mut ibv_cq {
        unsafe {
            (self
                .ibv_create_cq
                .as_ref()
                .expect("Expected function, got error."))(
                context,
                cqe,
                cq_context,
                channel,
                comp_vector,
            )
        }
    }
    pub unsafe fn ibv_destroy_cq(&self, cq: *mut ibv_cq) -> ::core::ffi::c_int {
        unsafe {
            (self
                .ibv_destroy_cq
                .as_ref()
                .expect("Expected function, got error."))(cq)
        }
    }
    pub unsafe fn ibv_get_cq_event(
        &self,
        channel: *mut ibv_comp_channel,
        cq: *mut *mut ibv_cq,
        cq_context: *mut *mut ::core::ffi::c_void,
    ) -> ::core::ffi::c_int {
        unsafe {
            (self
                .ibv_get_cq_event
                .as_ref()
                .expect("Expected function, got error."))(channel, cq, cq_context)
        }
    }
    pub unsafe fn ibv_ack_cq_events(&self, cq: *mut ibv_cq, nevents: ::core::ffi::c_uint) {
        unsafe {
            (self
                .ibv_ack_cq_events
                .as_ref()
                .expect("Expected function, got error."))(cq, nevents)
        }
    }
    pub unsafe fn ibv_create_qp(
        &self,
        pd: *mut ibv_pd,
        qp_init_attr: *mut ibv_qp_init_attr,
    ) -> *mut ibv_qp {
        unsafe {
            (self
                .ibv_create_qp
                .as_ref()
                .expect("Expected function, got error."))(pd, qp_init_attr)
        }
    }
    pub unsafe fn ibv_modify_qp(
        &self,
        qp: *mut ibv_qp,
        attr: *mut ibv_qp_attr,
        attr_mask: ::core::ffi::c_int,
    ) -> ::core::ffi::c_int {
        unsafe {
            (self
                .ibv_modify_qp
                .as_ref()
                .expect("Expected function, got error."))(qp, attr, attr_mask)
        }
    }
    pub unsafe fn ibv_query_qp(
        &self,
        qp: *mut ibv_qp,
        attr: *mut ibv_qp_attr,
        attr_mask: ::core::ffi::c_int,
        init_attr: *mut ibv_qp_init_attr,
    ) -> ::core::ffi::c_int {
        unsafe {
            (self
                .ibv_query_qp
                .as_ref()
                .expect("Expected function, got error."))(qp, attr, attr_mask, init_attr)
        }
    }
    pub unsafe fn ibv_destroy_qp(&self, qp: *mut ibv_qp) -> ::core::ffi::c_int {
        unsafe {
            (self
                .ibv_destroy_qp
                .as_ref()
                .expect("Expected function, got error."))(qp)
        }
    }
    pub unsafe fn ibv_create_ah(&self, pd: *mut ibv_pd, attr: *mut ibv_ah_attr) -> *mut ibv_ah {
        unsafe {
            (self
                .ibv_create_ah
                .as_ref()
                .expect("Expected function, got error."))(pd, attr)
        }
    }
    pub unsafe fn ibv_destroy_ah(&self, ah: *mut ibv_ah) -> ::core::ffi::c_int {
        unsafe {
            (self
                .ibv_destroy_ah
                .as_ref()
                .expect("Expected function, got error."))(ah)
        }
    }
    pub unsafe fn mlx5dv_init_obj(
        &self,
        obj: *mut mlx5dv_obj,
        obj_type: u64,
    ) -> ::core::ffi::c_int {
        unsafe {
            (self
                .mlx5dv_init_obj
                .as_ref()
                .expect("Expected function, got error."))(obj, obj_type)
        }
    }
    pub unsafe fn mlx5dv_is_supported(&self, device: *mut ibv_device) -> bool {
        unsafe {
            (self
                .mlx5dv_is_supported
                .as_ref()
                .expect("Expected function, got error."))(device)
        }
    }
    pub unsafe fn mlx5dv_open_device(
        &self,
        device: *mut ibv_device,
        attr: *mut mlx5dv_context_attr,
    ) -> *mut ibv_context {
        unsafe {
            (self
                .mlx5dv_open_device
                .as_ref()
                .expect("Expected function, got error."))(device, attr)
        }
    }
    pub unsafe fn mlx5dv_devx_obj_create(
        &self,
        context: *mut ibv_context,
        in_: *const ::core::ffi::c_void,
        inlen: usize,
        out: *mut ::core::ffi::c_void,
        outlen: usize,
    ) -> *mut mlx5dv_devx_obj {
        unsafe {
            (self
                .mlx5dv_devx_obj_create
                .as_ref()
                .expect("Expected function, got error."))(
                context, in_, inlen, out, outlen
            )
        }
    }
    pub unsafe fn mlx5dv_devx_obj_query(
        &self,
        obj: *mut mlx5dv_devx_obj,
        in_: *const ::core::ffi::c_void,
        inlen: usize,
        out: *mut ::core::ffi::c_void,
        outlen: usize,
    ) -> ::core::ffi::c_int {
        unsafe {
            (self
                .mlx5dv_devx_obj_query
                .as_ref()
                .expect("Expected function, got error."))(obj, in_, inlen, out, outlen)
        }
    }
    pub unsafe fn mlx5dv_devx_obj_modify(
        &self,
        obj: *mut mlx5dv_devx_obj,
        in_: *const ::core::ffi::c_void,
        inlen: usize,
        out: *mut ::core::ffi::c_void,
        outlen: usize,
    ) -> ::core::ffi::c_int {
        unsafe {
            (self
                .mlx5dv_devx_obj_modify
                .as_ref()
                .expect("Expected function, got error."))(obj, in_, inlen, out, outlen)
        }
    }
    pub unsafe fn mlx5dv_devx_obj_destroy(&self, obj: *mut mlx5dv_devx_obj) -> ::core::ffi::c_int {
        unsafe {
            (self
                .mlx5dv_devx_obj_destroy
                .as_ref()
                .expect("Expected function, got error."))(obj)
        }
    }
    pub unsafe fn mlx5dv_devx_general_cmd(
        &self,
        context: *mut ibv_context,
        in_: *const ::core::ffi::c_void,
        inlen: usize,
        out: *mut ::core::ffi::c_void,
        outlen: usize,
    ) -> ::core::ffi::c_int {
        unsafe {
            (self
                .mlx5dv_devx_general_cmd
                .as_ref()
                .expect("Expected function, got error."))(
                context, in_, inlen, out, outlen
            )
        }
    }
    pub unsafe fn mlx5dv_devx_umem_reg(
        &self,
        ctx: *mut ibv_context,
        addr: *mut ::core::ffi::c_void,
        size: usize,
        access: u32,
    ) -> *mut mlx5dv_devx_umem {
        unsafe {
            (self
                .mlx5dv_devx_umem_reg
                .as_ref()
                .expect("Expected function, got error."))(ctx, addr, size, access)
        }
    }
    pub unsafe fn mlx5dv_devx_umem_reg_ex(
        &self,
        ctx: *mut ibv_context,
        umem_in: *mut mlx5dv_devx_umem_in,
    ) -> *mut mlx5dv_devx_umem {
        unsafe {
            (self
                .mlx5dv_devx_umem_reg_ex
                .as_ref()
                .expect("Expected function, got error."))(ctx, umem_in)
        }
    }
    pub unsafe fn mlx5dv_devx_umem_dereg(&self, umem: *mut mlx5dv_devx_umem) -> ::core::ffi::c_int {
        unsafe {
            (self
                .mlx5dv_devx_umem_dereg
                .as_ref()
                .expect("Expected function, got error."))(umem)
        }
    }
    pub unsafe fn mlx5dv_devx_alloc_uar(
        &self,
        context: *mut ibv_context,
        flags: u32,
    ) -> *mut mlx5dv_devx_uar {
        unsafe {
            (self
                .mlx5dv_devx_alloc_uar
                .as_ref()
                .expect("Expected function, got error."))(context, flags)
        }
    }
    pub unsafe fn mlx5dv_devx_free_uar(&self, devx_uar: *mut mlx5dv_devx_uar) {
        unsafe {
            (self
                .mlx5dv_devx_free_uar
                .as_ref()
                .expect("Expected function, got error."))(devx_uar)
        }
    }
    pub unsafe fn mlx5dv_devx_query_eqn(
        &self,
        context: *mut ibv_context,
        vector: u32,
        eqn: *mut u32,
    ) -> ::core::ffi::c_int {
        unsafe {
            (self
                .mlx5dv_devx_query_eqn
                .as_ref()
                .expect("Expected function, got error."))(context, vector, eqn)
        }
    }
    pub unsafe fn mlx5dv_devx_create_event_channel(
        &self,
        context: *mut ibv_context,
        flags: mlx5_ib_uapi_devx_create_event_channel_flags,
    ) -> *mut mlx5dv_devx_event_channel {
        unsafe {
            (self
                .mlx5dv_devx_create_event_channel
                .as_ref()
                .expect("Expected function, got error."))(context, flags)
        }
    }
    pub unsafe fn mlx5dv_devx_destroy_event_channel(
        &self,
        event_channel: *mut mlx5dv_devx_event_channel,
    ) {
        unsafe {
            (self
                .mlx5dv_devx_destroy_event_channel
                .as_ref()
                .expect("Expected function, got error."))(event_channel)
        }
    }
    pub unsafe fn mlx5dv_devx_subscribe_devx_event(
        &self,
        event_channel: *mut mlx5dv_devx_event_channel,
        obj: *mut mlx5dv_devx_obj,
        events_sz: u16,
        events_num: *mut u16,
        cookie: u64,
    ) -> ::core::ffi::c_int {
        unsafe {
            (self
                .mlx5dv_devx_subscribe_devx_event
                .as_ref()
                .expect("Expected function, got error."))(
                event_channel,
                obj,
                events_sz,
                events_num,
                cookie,
            )
        }
    }
    pub unsafe fn mlx5dv_devx_get_event(
        &self,
        event_channel: *mut mlx5dv_devx_event_channel,
        event_data: *mut mlx5_ib_uapi_devx_async_event_hdr,
        event_resp_len: usize,
    ) -> isize {
        unsafe {
            (self
                .mlx5dv_devx_get_event
                .as_ref()
                .expect("Expected function, got error."))(
                event_channel, event_data, event_resp_len
            )
        }
    }
}
