//! Objects of rdma-sys: the program's own QPs and a team share one context and domain. One test checks the layout by which
//! Warpverbs reads the head of a context.

// UNSAFETY: calls into libibverbs, as a program with rdma-sys makes them.
#![expect(unsafe_code, reason = "calls into libibverbs")]

use std::ffi::CStr;
use std::mem::{offset_of, zeroed};
use std::ptr::null_mut;
use std::sync::{Arc, Mutex, PoisonError};

use rdma_sys::*;
use softhca::Hca;
use test_support::hca::hca;
use warpverbs::gpu::{self, GpuSelector};
use warpverbs::team::{JoinOptions, MemoryStore, TeamConfig};
use warpverbs::verbs::adopted;
use warpverbs_interop::rdma_sys::{context, mr, pd};

use orders::{drop_in, orders};

mod orders;
#[path = "../../examples/ping_pong.rs"]
mod ping_pong;

/// The example opens the first device of the list.
static ONE_DEVICE: Mutex<()> = Mutex::new(());

#[test]
fn a_program_and_a_team_share_a_context_and_a_domain() {
    let _one = ONE_DEVICE.lock().unwrap_or_else(PoisonError::into_inner);
    let hca = hca();
    ping_pong::main().unwrap();
    let live = hca.live_objects();
    assert_eq!(live.total(), 0, "{live:?}");
    assert_eq!(hca.findings(), [""; 0]);
}

/// `verbs::adopt` reads these fields of what an application hands over.
#[test]
fn the_heads_of_context_and_domain_are_as_verbs_h_has_them() {
    assert_eq!(offset_of!(ibv_context, device), 0);
    let ops = offset_of!(ibv_context, ops);
    let of = |field: usize| ops + field;
    assert_eq!(of(offset_of!(ibv_context_ops, _compat_query_device)), 8);
    assert_eq!(of(offset_of!(ibv_context_ops, _compat_query_port)), 16);
    assert_eq!(offset_of!(ibv_pd, context), 0);
}

#[test]
fn parts_that_are_dropped_in_any_order_leave_the_program_what_it_has() {
    let _one = ONE_DEVICE.lock().unwrap_or_else(PoisonError::into_inner);
    let (hca, gpu) = (hca(), gpu::open(GpuSelector::Simt).unwrap());
    let orders = orders(5);
    for order in &orders {
        let mut memory = [0u64; 512];
        // SAFETY: the types are those of libibverbs; what is opened here is closed here, when the runtime uses it no more.
        unsafe {
            let device = open(&hca);
            let domain = ibv_alloc_pd(device);
            let start = memory.as_mut_ptr().cast();
            let region = ibv_reg_mr(domain, start, size_of_val(&memory), 1);
            assert!(!domain.is_null() && !region.is_null());
            {
                let context = context(&*device).unwrap();
                let pd = pd(&context, &*domain).unwrap();
                let mr = mr(&pd, &*region).unwrap();
                let (config, store) = (TeamConfig::new(0, 1), Arc::new(MemoryStore::new()));
                let team = JoinOptions::new(config)
                    .with_pds([&*pd])
                    .with_gpu(&gpu)
                    .with_store(store)
                    .join()
                    .unwrap();
                team.window(4096).unwrap();
                let own = Own::new(device, domain);
                drop_in(
                    [
                        Box::new(context),
                        Box::new(pd),
                        Box::new(mr),
                        Box::new(team),
                        Box::new(own),
                    ],
                    order,
                );
            }
            assert_eq!(adopted(device.cast()) + adopted(domain.cast()), 0);
            let closed = [
                ibv_dereg_mr(region),
                ibv_dealloc_pd(domain),
                ibv_close_device(device),
            ];
            assert_eq!(closed, [0; 3], "{order:?}");
        }
        let live = hca.live_objects();
        assert_eq!(live.total(), 0, "{order:?}: {live:?}");
    }
    println!("{} orders of 5 parts", orders.len());
    assert_eq!(hca.findings(), [""; 0]);
}

unsafe fn open(hca: &Hca) -> *mut ibv_context {
    // SAFETY: the list is of libibverbs, ends with null, and is freed when a device of it has been opened.
    unsafe {
        let list = ibv_get_device_list(&mut 0);
        let mut at = list;
        while CStr::from_ptr(ibv_get_device_name(*at)).to_str() != Ok(hca.name()) {
            at = at.add(1);
            assert!(!(*at).is_null(), "the device is listed");
        }
        let device = ibv_open_device(*at);
        ibv_free_device_list(list);
        assert!(!device.is_null());
        device
    }
}

/// A CQ and a QP of the program.
struct Own {
    cq: *mut ibv_cq,
    qp: *mut ibv_qp,
}

impl Own {
    unsafe fn new(device: *mut ibv_context, domain: *mut ibv_pd) -> Self {
        // SAFETY: the objects are open; zeros are no values of the struct that libibverbs would not take.
        unsafe {
            let cq = ibv_create_cq(device, 16, null_mut(), null_mut(), 0);
            let mut init: ibv_qp_init_attr = zeroed();
            init.send_cq = cq;
            init.recv_cq = cq;
            init.qp_type = ibv_qp_type::IBV_QPT_RC;
            init.cap.max_send_wr = 4;
            init.cap.max_send_sge = 1;
            let qp = ibv_create_qp(domain, &raw mut init);
            assert!(!cq.is_null() && !qp.is_null());
            Self { cq, qp }
        }
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        // SAFETY: both are open, and nothing is under way.
        let ended = unsafe { [ibv_destroy_qp(self.qp), ibv_destroy_cq(self.cq)] };
        assert_eq!(ended, [0; 2]);
    }
}
