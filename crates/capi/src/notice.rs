//! Notices of host engines: messages for the program of a peer, alone or after a transfer.

// UNSAFETY: functions with C names, and pointers from C.
#![expect(unsafe_code, reason = "the C ABI")]

use std::ffi::c_char;
use std::ptr;

use warpverbs::engine::{EngineError, MOST_NOTICE_BYTES};

use crate::engine::{wv_engine, wv_engine_peer};
use crate::handle::Handle;
use crate::sized::{place, sized};
use crate::status::{Failure, array, guard, room_of, wv_status};
use crate::team::{fixed, millis};
use crate::transfer::{WV_TRANSFER_PENDING, state_of_outcome};

/// Most bytes of a notice.
pub const WV_NOTICE_BYTES: usize = 65536;

const _: () = assert!(WV_NOTICE_BYTES == MOST_NOTICE_BYTES);

/// A received notice. Needs WV_INIT first.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct wv_notice {
    /// sizeof: WV_INIT.
    pub size: usize,
    /// The life of the peer that has sent it.
    pub incarnation: u64,
    /// Length of the notice in bytes.
    pub bytes: u64,
    /// State of the transfer that it was sent with: WV_TRANSFER_DONE and so on. WV_TRANSFER_PENDING: it was sent alone.
    pub transfer: u32,
    /// 1: `operation` holds the first operation that failed.
    pub has_operation: u32,
    /// The operation, from 0 on.
    pub operation: u32,
    /// `syndrome` of the sender's CQE; 0: none.
    pub syndrome: u32,
    /// `vendor_err_synd` of the sender's CQE.
    pub vendor: u32,
    /// Zero.
    pub reserved: u32,
    /// Name of the peer, with a NUL.
    pub peer: [c_char; 256],
}

sized!(wv_notice {
    incarnation,
    bytes,
    transfer,
    has_operation,
    operation,
    syndrome,
    vendor,
    reserved,
    peer
});

/// Sends a notice of `bytes` bytes, at most WV_NOTICE_BYTES, to the peer's program, after those sent before. It arrives once. If
/// this connection ends before, it comes over a later connection of the same two lives. WV_WOULD_BLOCK: the peer's inbox had no
/// room for `wait_ms`, because its program took no notice; nothing was sent.
///
/// # Safety
/// `notice` holds `bytes` bytes, or is null for none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wv_engine_notify(
    peer: *const wv_engine_peer,
    notice: *const u8,
    bytes: usize,
    wait_ms: u32,
) -> wv_status {
    guard(|| {
        let peer = &wv_engine_peer::behind("peer", peer)?.peer;
        // SAFETY: the caller's promise.
        let notice = unsafe { array("notice", notice, bytes) }?;
        Ok(peer.notify_wait(notice, millis(wait_ms))?)
    })
}

/// Takes the next notice of any peer; those of one peer come in the order in which it sent them. WV_TIMEOUT: none has come for
/// `timeout_ms`. Its bytes go to `into`, which has room for `capacity` bytes, at least WV_NOTICE_BYTES, so that none is ever cut.
///
/// # Safety
/// `into` has room for `capacity` bytes; `notice` is a struct.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wv_engine_next_notice(
    engine: *const wv_engine,
    timeout_ms: u32,
    into: *mut u8,
    capacity: usize,
    notice: *mut wv_notice,
) -> wv_status {
    guard(|| {
        let engine = &wv_engine::behind("engine", engine)?.engine;
        room_of(("into", into), ("capacity", capacity), WV_NOTICE_BYTES)?;
        // SAFETY: the caller's promise.
        let place = unsafe { place("notice", notice) }?;
        let found = engine.notice(millis(timeout_ms)).ok_or_else(|| {
            if engine.is_closed() {
                return EngineError::Closing.into();
            }
            let words = format!("no notice has come for {timeout_ms} ms");
            Failure::new(wv_status::WV_TIMEOUT, words)
        })?;
        // SAFETY: the caller's promise, and no notice is longer.
        unsafe { ptr::copy_nonoverlapping(found.bytes.as_ptr(), into, found.bytes.len()) };
        let behind = found.transfer;
        let operation = behind.and_then(|behind| behind.operation);
        let cause = behind.and_then(|behind| behind.cause);
        place.fill(wv_notice {
            size: 0,
            incarnation: found.incarnation,
            bytes: found.bytes.len() as u64,
            transfer: behind.map_or(WV_TRANSFER_PENDING, |it| state_of_outcome(it.outcome)),
            has_operation: operation.is_some().into(),
            operation: operation.unwrap_or_default(),
            syndrome: cause.map_or(0, |cause| cause.syndrome.into()),
            vendor: cause.map_or(0, |cause| cause.vendor.into()),
            reserved: 0,
            peer: fixed(&found.peer),
        });
        Ok(())
    })
}
