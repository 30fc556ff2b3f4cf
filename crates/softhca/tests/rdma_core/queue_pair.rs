//! Queue pairs through libibverbs.

use std::ffi::{c_int, c_void};
use std::io;
use std::ptr;

use super::verbs::{Cq, operation};
use super::{Mr, Pd, ibverbs, not_null, zero};
use libloading::Symbol;

const POST_SEND: usize = 25;
const POST_RECV: usize = 26;

/// `struct ibv_qp`; destroyed by [`Qp::destroy`].
pub(crate) struct Qp(pub(crate) *mut c_void);

/// `enum ibv_qp_type`.
pub(crate) const RC: u32 = 2;

/// `struct ibv_qp_cap`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct Cap {
    pub(crate) send_wr: u32,
    pub(crate) recv_wr: u32,
    pub(crate) send_sge: u32,
    pub(crate) recv_sge: u32,
    pub(crate) inline: u32,
}

/// `struct ibv_qp_init_attr`.
#[repr(C)]
pub(crate) struct InitAttr {
    pub(crate) context: *mut c_void,
    pub(crate) send_cq: *mut c_void,
    pub(crate) recv_cq: *mut c_void,
    pub(crate) srq: *mut c_void,
    pub(crate) cap: Cap,
    pub(crate) kind: u32,
    pub(crate) signal_all: c_int,
}

/// `struct ibv_ah_attr`, its `ibv_global_route` included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C, align(8))]
pub(crate) struct Path {
    pub(crate) gid: [u8; 16],
    pub(crate) flow_label: u32,
    pub(crate) gid_index: u8,
    pub(crate) hop_limit: u8,
    pub(crate) traffic_class: u8,
    pub(crate) lid: u16,
    pub(crate) sl: u8,
    pub(crate) path_bits: u8,
    pub(crate) rate: u8,
    pub(crate) is_global: u8,
    pub(crate) port: u8,
}

/// `struct ibv_qp_attr`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct QpAttr {
    pub(crate) state: u32,
    pub(crate) current_state: u32,
    pub(crate) mtu: u32,
    pub(crate) migration: u32,
    pub(crate) qkey: u32,
    pub(crate) rq_psn: u32,
    pub(crate) sq_psn: u32,
    pub(crate) remote_qpn: u32,
    pub(crate) access: u32,
    pub(crate) cap: Cap,
    pub(crate) path: Path,
    pub(crate) alternate: Path,
    pub(crate) pkey_index: u16,
    pub(crate) alternate_pkey_index: u16,
    pub(crate) drained_notice: u8,
    pub(crate) draining: u8,
    pub(crate) max_rd_atomic: u8,
    pub(crate) max_dest_rd_atomic: u8,
    pub(crate) min_rnr_timer: u8,
    pub(crate) port: u8,
    pub(crate) timeout: u8,
    pub(crate) retry_count: u8,
    pub(crate) rnr_retry: u8,
    pub(crate) alternate_port: u8,
    pub(crate) alternate_timeout: u8,
    pub(crate) rate_limit: u32,
}
const _: () = assert!(size_of::<QpAttr>() == 144 && size_of::<Path>() == 32);

/// Masks of the three steps of a reliable connection.
pub(crate) mod steps {
    /// State, access, partition key, port.
    pub(crate) const INIT: c_int = 0x1 | 0x8 | 0x10 | 0x20;
    /// State, path, MTU, remote QP, PSN, depth, RNR timer.
    pub(crate) const RTR: c_int = 0x1 | 0x80 | 0x100 | 0x10_0000 | 0x1000 | 0x2_0000 | 0x8000;
    /// State, timeout, retries, PSN, depth.
    pub(crate) const RTS: c_int = 0x1 | 0x200 | 0x400 | 0x800 | 0x1_0000 | 0x2000;

    use std::ffi::c_int;
}

/// `struct ibv_sge`.
#[derive(Clone, Copy)]
#[repr(C)]
struct Sge {
    address: u64,
    bytes: u32,
    lkey: u32,
}

/// `struct ibv_recv_wr`.
#[repr(C)]
struct RecvWr {
    wr_id: u64,
    next: *mut RecvWr,
    sge: *const Sge,
    sges: c_int,
}

/// `struct ibv_send_wr`, as far as RDMA needs it.
#[repr(C)]
struct SendWr {
    wr_id: u64,
    next: *mut SendWr,
    sge: *const Sge,
    sges: c_int,
    opcode: u32,
    flags: u32,
    immediate: u32,
    remote_address: u64,
    rkey: u32,
    rest: [u32; 13],
}
const _: () = assert!(size_of::<SendWr>() <= 128);

/// What to send.
#[derive(Clone, Copy)]
pub(crate) struct Send<'a> {
    pub(crate) wr_id: u64,
    pub(crate) from: &'a Mr,
    pub(crate) address: u64,
    pub(crate) bytes: u32,
    /// `enum ibv_wr_opcode`: 0 RDMA WRITE, 2 SEND.
    pub(crate) opcode: u32,
    /// Solicited event.
    pub(crate) solicited: bool,
    /// Remote address and key of a WRITE.
    pub(crate) remote: (u64, u32),
}

impl Pd {
    pub(crate) fn create_qp(&self, kind: u32, cap: Cap, send: &Cq, recv: &Cq) -> io::Result<Qp> {
        let create = symbol!(
            ibverbs(),
            "ibv_create_qp",
            fn(*mut c_void, *mut InitAttr) -> *mut c_void
        );
        let mut attr = InitAttr {
            context: ptr::null_mut(),
            send_cq: send.0,
            recv_cq: recv.0,
            srq: ptr::null_mut(),
            cap,
            kind,
            signal_all: 0,
        };
        // SAFETY: a live PD and attributes.
        Ok(Qp(not_null(unsafe { create(self.0, &mut attr) })?))
    }
}

impl Qp {
    /// `struct ibv_qp`: six pointers, handle, number.
    pub(crate) fn qpn(&self) -> u32 {
        // SAFETY: a live queue pair.
        unsafe { self.0.cast::<u32>().add(13).read() }
    }

    pub(crate) fn handle(&self) -> u32 {
        // SAFETY: a live queue pair.
        unsafe { self.0.cast::<u32>().add(12).read() }
    }

    pub(crate) fn modify(&self, attr: &QpAttr, mask: c_int) -> io::Result<()> {
        let modify = symbol!(
            ibverbs(),
            "ibv_modify_qp",
            fn(*mut c_void, *const QpAttr, c_int) -> c_int
        );
        // SAFETY: a live queue pair and attributes.
        zero(unsafe { modify(self.0, attr, mask) })
    }

    pub(crate) fn query(&self) -> QpAttr {
        let query = symbol!(
            ibverbs(),
            "ibv_query_qp",
            fn(*mut c_void, *mut QpAttr, c_int, *mut InitAttr) -> c_int
        );
        let mut attr = QpAttr::default();
        // SAFETY: an all-zero InitAttr is one of null pointers and zeros.
        let mut init: InitAttr = unsafe { std::mem::zeroed() };
        // SAFETY: a live queue pair and places for the answers.
        zero(unsafe { query(self.0, &mut attr, 0xf_ffff, &mut init) }).unwrap();
        attr
    }

    /// Reset to ready-to-send, towards `remote_qpn` at `gid`.
    pub(crate) fn connect(&self, gid: [u8; 16], remote_qpn: u32) {
        let mut attr = QpAttr {
            state: 1,
            access: 0xf,
            port: 1,
            ..QpAttr::default()
        };
        self.modify(&attr, steps::INIT).unwrap();
        attr = QpAttr {
            state: 2,
            mtu: 5,
            remote_qpn,
            rq_psn: 77,
            max_dest_rd_atomic: 4,
            min_rnr_timer: 12,
            path: Path {
                gid,
                gid_index: 3,
                hop_limit: 64,
                is_global: 1,
                port: 1,
                ..Path::default()
            },
            ..attr
        };
        self.modify(&attr, steps::RTR).unwrap();
        attr = QpAttr {
            state: 3,
            // 137 s, longer than a test waits.
            timeout: 22,
            retry_count: 7,
            rnr_retry: 7,
            sq_psn: 77,
            max_rd_atomic: 4,
            ..attr
        };
        self.modify(&attr, steps::RTS).unwrap();
    }

    pub(crate) fn post_recv(&self, wr_id: u64, mr: &Mr, address: u64, bytes: u32) {
        let post = operation!(
            self.0,
            POST_RECV,
            fn(*mut c_void, *mut RecvWr, *mut *mut RecvWr) -> c_int
        );
        let sge = Sge {
            address,
            bytes,
            lkey: mr.lkey(),
        };
        let mut request = RecvWr {
            wr_id,
            next: ptr::null_mut(),
            sge: &sge,
            sges: 1,
        };
        let mut bad = ptr::null_mut();
        // SAFETY: a live queue pair and one request.
        zero(unsafe { post(self.0, &mut request, &mut bad) }).unwrap();
    }

    pub(crate) fn post_send(&self, send: Send<'_>) {
        const SIGNALED: u32 = 2;
        const SOLICITED: u32 = 4;
        let post = operation!(
            self.0,
            POST_SEND,
            fn(*mut c_void, *mut SendWr, *mut *mut SendWr) -> c_int
        );
        let sge = Sge {
            address: send.address,
            bytes: send.bytes,
            lkey: send.from.lkey(),
        };
        let mut request = SendWr {
            wr_id: send.wr_id,
            next: ptr::null_mut(),
            sge: &sge,
            sges: 1,
            opcode: send.opcode,
            flags: SIGNALED | if send.solicited { SOLICITED } else { 0 },
            immediate: 0,
            remote_address: send.remote.0,
            rkey: send.remote.1,
            rest: [0; 13],
        };
        let mut bad = ptr::null_mut();
        // SAFETY: a live queue pair and one request.
        zero(unsafe { post(self.0, &mut request, &mut bad) }).unwrap();
    }

    pub(crate) fn destroy(self) -> io::Result<()> {
        let destroy = symbol!(ibverbs(), "ibv_destroy_qp", fn(*mut c_void) -> c_int);
        // SAFETY: a live queue pair.
        zero(unsafe { destroy(self.0) })
    }
}
