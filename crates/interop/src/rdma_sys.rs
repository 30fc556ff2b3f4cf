//! Contexts, domains and memory regions of rdma-sys.
//!
//! ```
//! use rdma_sys::{ibv_alloc_pd, ibv_close_device, ibv_dealloc_pd, ibv_free_device_list, ibv_get_device_list, ibv_open_device};
//! use warpverbs_interop::rdma_sys::{context, pd};
//!
//! # let _hca = softhca::Hca::new().unwrap(); // where there is no ConnectX
//! # // softhca is preloaded or linked; each call is checked by the tests of this crate.
//! unsafe {
//!     let list = ibv_get_device_list(&mut 0);
//!     let device = ibv_open_device(*list);
//!     ibv_free_device_list(list);
//!     let domain = ibv_alloc_pd(device);
//!     {
//!         let context = context(&*device).unwrap();
//!         let _pd = pd(&context, &*domain).unwrap(); // for JoinOptions::with_pds
//!     }
//!     assert_eq!((ibv_dealloc_pd(domain), ibv_close_device(device)), (0, 0));
//! }
//! ```
//!
//! What was handed over cannot go before its use:
//!
//! ```compile_fail,E0505
//! use rdma_sys::ibv_context;
//! unsafe fn early(device: Box<ibv_context>) {
//!     let context = unsafe { warpverbs_interop::rdma_sys::context(&device) }.unwrap();
//!     drop(device);
//!     println!("{}", context.name());
//! }
//! ```
//!
//! ```compile_fail,E0597
//! use std::sync::Arc;
//! use rdma_sys::{ibv_context, ibv_pd};
//! use warpverbs::verbs::Pd;
//! use warpverbs_interop::{Lent, rdma_sys};
//! unsafe fn longer<'a>(device: &'a ibv_context, domain: ibv_pd) -> Lent<'a, Arc<Pd>> {
//!     let context = unsafe { rdma_sys::context(device) }.unwrap();
//!     let pd: Lent<'a, Arc<Pd>> = unsafe { rdma_sys::pd(&context, &domain) }.unwrap();
//!     pd
//! }
//! ```

// UNSAFETY: hands objects of libibverbs on by address.
#![expect(unsafe_code, reason = "objects of libibverbs by address")]

use std::ffi::c_void;
use std::ptr;
use std::sync::Arc;

use ::rdma_sys::{ibv_context, ibv_mr, ibv_pd};
use warpverbs::verbs::{Context, Mr, Pd, VerbsError};

use crate::Lent;

/// A device that the program has opened.
///
/// # Errors
///
/// As [`Context::adopt`].
///
/// # Safety
///
/// `context` is one that libibverbs has opened. It stays open while a clone of the result, or anything made of one, lives:
/// [`adopted`](warpverbs::verbs::adopted) counts them.
pub unsafe fn context(context: &ibv_context) -> Result<Lent<'_, Arc<Context>>, VerbsError> {
    // SAFETY: the caller's promise.
    unsafe { Context::adopt(address(context)) }.map(Lent::new)
}

/// A domain that the program has allocated on that device.
///
/// # Errors
///
/// As [`Pd::adopt`].
///
/// # Safety
///
/// `pd` is one that libibverbs has allocated. It stays allocated while a clone of the result, or anything made of one, lives.
pub unsafe fn pd<'a>(
    context: &Lent<'a, Arc<Context>>,
    pd: &'a ibv_pd,
) -> Result<Lent<'a, Arc<Pd>>, VerbsError> {
    // SAFETY: the caller's promise.
    unsafe { Pd::adopt(context, address(pd)) }.map(Lent::new)
}

/// A region that the program has registered in that domain.
///
/// # Errors
///
/// As [`Mr::adopt`].
///
/// # Safety
///
/// `mr` is one that libibverbs has registered. It stays registered while a request names a key of it.
pub unsafe fn mr<'a>(pd: &Lent<'a, Arc<Pd>>, mr: &'a ibv_mr) -> Result<Lent<'a, Mr>, VerbsError> {
    // SAFETY: the caller's promise.
    unsafe { Mr::adopt(pd, address(mr)) }.map(Lent::new)
}

fn address<T>(of: &T) -> *mut c_void {
    ptr::from_ref(of).cast_mut().cast()
}
