//! What verbs.h defines inline: calls through the table of operations of a context, which its provider has filled.
//!
//! Each function here is the one of verbs.h with its name. An operation that a provider lacks is an error number, as a program in C would
//! get it from a provider that refuses.

use crate::sys::bindings::{ibv_context_ops, ibv_cq, ibv_qp, ibv_recv_wr, ibv_send_wr, ibv_wc};

/// Takes up to `entries.len()` completions. Returns their number, or a negative number for a failure.
///
/// # Safety
///
/// `cq` is alive through the call.
pub(crate) unsafe fn ibv_poll_cq(cq: *mut ibv_cq, entries: &mut [ibv_wc]) -> i32 {
    // SAFETY: a CQ that is alive has a context that is open.
    let poll = unsafe { (*(*cq).context).ops.poll_cq };
    let most = i32::try_from(entries.len()).unwrap_or(i32::MAX);
    match poll {
        // SAFETY: the CQ is alive, and the array has as many entries as stated.
        Some(poll) => unsafe { poll(cq, most, entries.as_mut_ptr()) },
        None => -libc::EOPNOTSUPP,
    }
}

/// Asks for an event of the next completion. Returns 0, or an error number.
///
/// # Safety
///
/// `cq` is alive through the call.
pub(crate) unsafe fn ibv_req_notify_cq(cq: *mut ibv_cq) -> i32 {
    // SAFETY: a CQ that is alive has a context that is open.
    let notify = unsafe { (*(*cq).context).ops.req_notify_cq };
    match notify {
        // SAFETY: the CQ is alive. 0: any completion, not only solicited ones.
        Some(notify) => unsafe { notify(cq, 0) },
        None => libc::EOPNOTSUPP,
    }
}

/// Posts a list of requests. Returns 0, or an error number; then `bad` is the first request that was not taken.
///
/// # Safety
///
/// `qp` is alive through the call. The list, its ranges, and the bytes of its inline requests are valid through the call.
pub(crate) unsafe fn ibv_post_send(
    qp: *mut ibv_qp,
    first: *mut ibv_send_wr,
    bad: &mut *mut ibv_send_wr,
) -> i32 {
    // SAFETY: the caller's promise.
    let post = unsafe { operations(qp) }.post_send;
    match post {
        // SAFETY: the caller's promise.
        Some(post) => unsafe { post(qp, first, bad) },
        None => {
            *bad = first;
            libc::EOPNOTSUPP
        }
    }
}

/// Posts a list of receive requests. Returns 0, or an error number; then `bad` is the first request that was not taken.
///
/// # Safety
///
/// `qp` is alive through the call, and the list is valid through it.
pub(crate) unsafe fn ibv_post_recv(
    qp: *mut ibv_qp,
    first: *mut ibv_recv_wr,
    bad: &mut *mut ibv_recv_wr,
) -> i32 {
    // SAFETY: the caller's promise.
    let post = unsafe { operations(qp) }.post_recv;
    match post {
        // SAFETY: the caller's promise.
        Some(post) => unsafe { post(qp, first, bad) },
        None => {
            *bad = first;
            libc::EOPNOTSUPP
        }
    }
}

/// Returns the operations of a QP's context.
///
/// # Safety
///
/// `qp` is alive as long as the result is used.
unsafe fn operations<'a>(qp: *mut ibv_qp) -> &'a ibv_context_ops {
    // SAFETY: a QP that is alive has a context that is open, whose table does not change.
    unsafe { &(*(*qp).context).ops }
}
