//! Grants of host engines: keys of their own for peers, and their end.

// UNSAFETY: functions with C names, and pointers from C.
#![expect(unsafe_code, reason = "the C ABI")]

use std::ffi::c_void;

use warpverbs::engine::{GRANT_BYTES, Grant, RegionId, Rights};

use crate::engine::{wv_engine, wv_engine_peer, wv_remote_region};
use crate::handle::Handle;
use crate::sized::place;
use crate::status::{Failure, array, guard, put, room_of, wv_status};
use crate::team::millis;

/// Bytes of a grant. The size is part of the ABI.
pub const WV_GRANT_BYTES: usize = 96;

const _: () = assert!(WV_GRANT_BYTES == GRANT_BYTES);

/// What a peer may do: read.
pub const WV_MAY_READ: u32 = 1;
/// What a peer may do: write.
pub const WV_MAY_WRITE: u32 = 2;
/// What a peer may do: both.
pub const WV_MAY_BOTH: u32 = 3;

/// Lets the peer read or write `bytes` bytes at `address` of this side, as `rights` say, by a key of its own. The grant ends after
/// `ttl_ms` (0: never), with this connection, or by wv_engine_revoke. `grant` gets WV_GRANT_BYTES bytes, which the program keeps
/// and carries to the peer.
///
/// # Safety
/// `grant` has room for `grant_bytes` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wv_engine_grant(
    peer: *const wv_engine_peer,
    address: *const c_void,
    bytes: usize,
    rights: u32,
    ttl_ms: u32,
    grant: *mut u8,
    grant_bytes: usize,
) -> wv_status {
    guard(|| {
        let peer = &wv_engine_peer::behind("peer", peer)?.peer;
        check_room(grant, grant_bytes)?;
        let limit = "WV_MAY_READ, WV_MAY_WRITE or WV_MAY_BOTH";
        let rights = Rights::of_number(rights.into())
            .ok_or_else(|| Failure::argument("rights", rights, limit))?;
        let ttl = Some(millis(ttl_ms)).filter(|ttl| !ttl.is_zero());
        let made = peer.grant(address.addr() as u64, bytes as u64, rights, ttl)?;
        // SAFETY: the caller's promise, as long as checked.
        unsafe { put("grant", grant.cast(), made.to_bytes()) }
    })
}

/// Grants the whole registration behind a region, to be read and written, without a time. `grant` as for wv_engine_grant.
///
/// # Safety
/// `grant` has room for `grant_bytes` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wv_engine_export(
    peer: *const wv_engine_peer,
    region: u64,
    grant: *mut u8,
    grant_bytes: usize,
) -> wv_status {
    guard(|| {
        let peer = &wv_engine_peer::behind("peer", peer)?.peer;
        check_room(grant, grant_bytes)?;
        let made = peer.export(RegionId::of_number(region))?;
        // SAFETY: the caller's promise, as long as checked.
        unsafe { put("grant", grant.cast(), made.to_bytes()) }
    })
}

/// Ends a grant. It returns when the HCA has destroyed the key: operations that the peer begins then fail, and the memory may be
/// used for something else. Ending a grant twice is no error.
///
/// # Safety
/// `grant` holds `bytes` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wv_engine_revoke(
    engine: *const wv_engine,
    grant: *const u8,
    bytes: usize,
) -> wv_status {
    guard(|| {
        let engine = &wv_engine::behind("engine", engine)?.engine;
        // SAFETY: the caller's promise.
        let grant = Grant::from_bytes(unsafe { array("grant", grant, bytes) }?)?;
        Ok(engine.revoke(&grant)?)
    })
}

/// Imports a grant of the peer, from its bytes. `region`, which may be NULL, gets the address by which operations name it, which is
/// no address of the peer's memory. Importing the same grant again does no harm.
///
/// # Safety
/// `grant` holds `bytes` bytes; `region` is null or a struct.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wv_engine_import_grant(
    peer: *const wv_engine_peer,
    grant: *const u8,
    bytes: usize,
    region: *mut wv_remote_region,
) -> wv_status {
    guard(|| {
        let peer = &wv_engine_peer::behind("peer", peer)?.peer;
        let place = if region.is_null() {
            None
        } else {
            // SAFETY: the caller's promise.
            Some(unsafe { place("region", region) }?)
        };
        // SAFETY: the caller's promise.
        let grant = Grant::from_bytes(unsafe { array("grant", grant, bytes) }?)?;
        peer.import_grant(&grant)?;
        if let Some(place) = place {
            place.fill(wv_remote_region {
                size: 0,
                address: grant.address,
                bytes: grant.bytes,
            });
        }
        Ok(())
    })
}

/// Forgets memory of the peer that begins at `address`: transfers that begin later do not reach it.
#[unsafe(no_mangle)]
pub extern "C" fn wv_engine_forget(peer: *const wv_engine_peer, address: u64) -> wv_status {
    guard(|| {
        wv_engine_peer::behind("peer", peer)?.peer.forget(address);
        Ok(())
    })
}

/// As wv_engine_deregister, but waits up to `timeout_ms` for transfers and grants that use the region.
#[unsafe(no_mangle)]
pub extern "C" fn wv_engine_deregister_wait(
    engine: *const wv_engine,
    region: u64,
    timeout_ms: u32,
) -> wv_status {
    guard(|| {
        let engine = &wv_engine::behind("engine", engine)?.engine;
        Ok(engine.deregister_wait(RegionId::of_number(region), millis(timeout_ms))?)
    })
}

/// Before a grant is made: checks that its bytes have room.
fn check_room(grant: *mut u8, bytes: usize) -> Result<(), Failure> {
    room_of(("grant", grant), ("grant_bytes", bytes), WV_GRANT_BYTES)
}
