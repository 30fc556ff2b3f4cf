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
#[repr(C)]
#[repr(align(8))]
#[derive(Copy, Clone)]
pub struct ibv_dm {
    pub _bindgen_opaque_blob: __BindgenOpaqueArray8<[u8; 32usize]>,
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
#[repr(align(8))]
#[derive(Copy, Clone)]
pub struct ibv_pd {
    pub _bindgen_opaque_blob: __BindgenOpaqueArray8<[u8; 16usize]>,
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
#[repr(align(8))]
#[derive(Copy, Clone)]
pub struct ibv_qp {
    pub _bindgen_opaque_blob: __BindgenOpaqueArray8<[u8; 160usize]>,
}
#[repr(C)]
#[repr(align(8))]
#[derive(Copy, Clone)]
pub struct ibv_cq {
    pub _bindgen_opaque_blob: __BindgenOpaqueArray8<[u8; 128usize]>,
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
#[repr(align(8))]
#[derive(Copy, Clone)]
pub struct ibv_context {
    pub _bindgen_opaque_blob: __BindgenOpaqueArray8<[u8; 328usize]>,
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
    pub ibv_close_device: Result<
        unsafe extern "C" fn(context: *mut ibv_context) -> ::core::ffi::c_int,
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
        let ibv_close_device = unsafe { __library.get(b"ibv_close_device\0") }.map(|sym| *sym);
        let ibv_query_port = unsafe { __library.get(b"ibv_query_port\0") }.map(|sym| *sym);
        let _ibv_query_gid_table =
            unsafe { __library.get(b"_ibv_query_gid_table\0") }.map(|sym| *sym);
        let ibv_alloc_pd = unsafe { __library.get(b"ibv_alloc_pd\0") }.map(|sym| *sym);
        let ibv_dealloc_pd = unsafe { __library.get(b"ibv_dealloc_pd\0") }.map(|sym| *sym);
        let ibv_reg_mr = unsafe { __library.get(b"ibv_reg_mr\0") }.map(|sym| *sym);
        let ibv_reg_dmabuf_mr = unsafe { __library.get(b"ibv_reg_dmabuf_mr\0") }.map(|sym| *sym);
        let ibv_dereg_mr = unsafe { __library.get(b"ibv_dereg_mr\0") }.map(|sym| *sym);
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
            ibv_close_device,
            ibv_query_port,
            _ibv_query_gid_table,
            ibv_alloc_pd,
            ibv_dealloc_pd,
            ibv_reg_mr,
            ibv_reg_dmabuf_mr,
            ibv_dereg_mr,
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
    pub unsafe fn ibv_close_device(&self, context: *mut ibv_context) -> ::core::ffi::c_int {
        unsafe {
            (self
                .ibv_close_device
                .as_ref()
                .expect("Expected function, got error."))(context)
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
