//! Queue pairs that take WQEs as bytes: `mlx5dv_wr_raw_wqe`.

use std::ffi::{c_int, c_void};
use std::io;
use std::ptr;

use super::queue_pair::{Cap, Qp, QpAttr};
use super::verbs::Cq;
use super::{Device, Pd, ibverbs, mlx5, not_null, zero};
use libloading::Symbol;

/// `enum ibv_qp_type`.
pub(crate) const UD: u32 = 4;
/// `IBV_WC_DRIVER2`: the completion opcode of a raw WQE.
pub(crate) const RAW_WQE: u32 = 136;

/// `struct ibv_qp_init_attr_ex`.
#[repr(C)]
struct InitAttrEx {
    context: *mut c_void,
    send_cq: *mut c_void,
    recv_cq: *mut c_void,
    srq: *mut c_void,
    cap: Cap,
    kind: u32,
    signal_all: c_int,
    comp_mask: u32,
    pd: *mut c_void,
    rest: [u64; 7],
    send_ops: u64,
}

/// `struct mlx5dv_qp_init_attr`.
#[repr(C)]
struct DvInitAttr {
    comp_mask: u64,
    create_flags: u32,
    dynamic: [u64; 2],
    send_ops: u64,
}
const _: () = assert!(size_of::<InitAttrEx>() == 136 && size_of::<DvInitAttr>() == 40);

/// As `wr_raw_wqe` wants it.
#[repr(C, align(64))]
struct Wqe([u8; 1024]);

impl Device {
    /// Returns a queue pair that may post raw WQEs.
    pub(crate) fn create_raw_qp(
        &self,
        pd: &Pd,
        kind: u32,
        cap: Cap,
        send: &Cq,
        recv: &Cq,
    ) -> io::Result<Qp> {
        const PD: u32 = 1;
        const SEND_OPS: u32 = 64;
        const WITH_SEND: u64 = 4;
        const DV_SEND_OPS: u64 = 4;
        const WITH_RAW_WQE: u64 = 8;
        let create = symbol!(
            mlx5(),
            "mlx5dv_create_qp",
            fn(*mut c_void, *mut InitAttrEx, *mut DvInitAttr) -> *mut c_void
        );
        let mut attr = InitAttrEx {
            context: ptr::null_mut(),
            send_cq: send.0,
            recv_cq: recv.0,
            srq: ptr::null_mut(),
            cap,
            kind,
            signal_all: 0,
            comp_mask: PD | SEND_OPS,
            pd: pd.0,
            rest: [0; 7],
            send_ops: WITH_SEND,
        };
        let mut own = DvInitAttr {
            comp_mask: DV_SEND_OPS,
            create_flags: 0,
            dynamic: [0; 2],
            send_ops: WITH_RAW_WQE,
        };
        // SAFETY: a live context, PD and CQ, and attributes.
        let qp = unsafe { create(self.context, &mut attr, &mut own) };
        Ok(Qp(not_null(qp)?))
    }
}

/// Calls the function pointer `offset` bytes into a struct of libibverbs or libmlx5 whose first argument is the struct.
macro_rules! member {
    ($object:expr, $offset:expr, fn($($argument:ty),*) $(-> $result:ty)?) => {{
        // SAFETY: a live struct of the header, which has a function of this signature at this offset.
        unsafe {
            let place = $object.cast::<u8>().add($offset).cast::<*const c_void>();
            std::mem::transmute::<*const c_void, unsafe extern "C" fn($($argument),*) $(-> $result)?>(place.read())
        }
    }};
}

impl Qp {
    /// Reset to ready-to-send, as a queue pair of datagrams.
    pub(crate) fn open_datagrams(&self, qkey: u32) {
        const INIT: c_int = 0x1 | 0x10 | 0x20 | 0x40;
        const SQ_PSN: c_int = 0x1_0000;
        let mut attr = QpAttr {
            state: 1,
            port: 1,
            qkey,
            ..QpAttr::default()
        };
        for (state, mask) in [(1, INIT), (2, 0x1), (3, 0x1 | SQ_PSN)] {
            attr.state = state;
            self.modify(&attr, mask).unwrap();
        }
    }

    /// Posts a WQE of whole units; libmlx5 writes its index.
    pub(crate) fn post_raw(&self, wr_id: u64, wqe: &[u8]) {
        // `struct ibv_qp_ex` and `struct mlx5dv_qp_ex`.
        const WR_ID: usize = 168;
        const WR_START: usize = 320;
        const WR_COMPLETE: usize = 328;
        const WR_RAW_WQE: usize = 72;
        let extended = symbol!(ibverbs(), "ibv_qp_to_qp_ex", fn(*mut c_void) -> *mut c_void);
        let own = symbol!(
            mlx5(),
            "mlx5dv_qp_ex_from_ibv_qp_ex",
            fn(*mut c_void) -> *mut c_void
        );
        let mut aligned = Wqe([0; 1024]);
        aligned.0[..wqe.len()].copy_from_slice(wqe);
        // SAFETY: a live queue pair that was made with send operations.
        let (verbs, own) = unsafe {
            let verbs = not_null(extended(self.0)).unwrap();
            (verbs, not_null(own(verbs)).unwrap())
        };
        let start = member!(verbs, WR_START, fn(*mut c_void));
        let raw = member!(own, WR_RAW_WQE, fn(*mut c_void, *const Wqe));
        let complete = member!(verbs, WR_COMPLETE, fn(*mut c_void) -> c_int);
        // SAFETY: a live queue pair; the WQE is as long as its control segment says.
        zero(unsafe {
            start(verbs);
            verbs.cast::<u8>().add(WR_ID).cast::<u64>().write(wr_id);
            raw(own, &aligned);
            complete(verbs)
        })
        .unwrap();
    }
}
