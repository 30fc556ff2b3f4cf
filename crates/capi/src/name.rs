//! Host engines find each other by name in a store.

// UNSAFETY: functions with C names, and pointers from C.
#![expect(unsafe_code, reason = "the C ABI")]

use std::ffi::c_char;
use std::sync::Arc;

use warpverbs::config::Config;
use warpverbs::engine::EngineAddress;
use warpverbs::team::{Store, open_store};

use crate::engine::{wv_engine, wv_engine_peer};
use crate::handle::{Handle, handle};
use crate::status::{Failure, guard, put, room, text, wv_status};

/// Where engines tell their names.
#[derive(Debug)]
pub struct wv_engine_names {
    store: Arc<dyn Store>,
}

handle!(wv_engine_names);

/// Opens a store in which engines find each other: "file://DIRECTORY", "etcd://HOST:PORT/PREFIX" or "etcds://..". `run_id` separates
/// runs that use the same store. NULL, for each: what WARPVERBS_STORE and WARPVERBS_RUN_ID say.
///
/// # Safety
/// The texts are null or end with a NUL; `names` is where the handle goes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wv_engine_names_open(
    store: *const c_char,
    run_id: *const c_char,
    names: *mut *mut wv_engine_names,
) -> wv_status {
    guard(|| {
        room("names", names)?;
        // SAFETY: the caller's promise, for both texts.
        let (store, run_id) = unsafe { (text("store", store)?, text("run_id", run_id)?) };
        // A rank of two, so that a store is named: one alone would meet itself in memory.
        let config = Config::from_variables(|name| match name {
            "WARPVERBS_RANK" => Some("0".into()),
            "WARPVERBS_RANKS" => Some("2".into()),
            "WARPVERBS_STORE" if store.is_some() => store.clone().map(Into::into),
            "WARPVERBS_RUN_ID" if run_id.is_some() => run_id.clone().map(Into::into),
            _ => std::env::var_os(name),
        })?;
        let store = open_store(&config.store, &config.run_id)?;
        // SAFETY: checked above.
        unsafe { put("names", names, wv_engine_names { store }.hand_out()) }
    })
}

/// Gives the handle back. What engines have published stays. NULL is allowed.
#[unsafe(no_mangle)]
pub extern "C" fn wv_engine_names_close(names: *mut wv_engine_names) -> wv_status {
    guard(|| wv_engine_names::take_back("names", names))
}

/// Publishes that the engine listens at `address`, under its name, until wv_engine_unpublish or wv_engine_close. `address` is one of
/// this machine with its port, or a Unix socket, as wv_engine_listen gives it. WV_RANK_TAKEN: another engine has published the name. A process that is
/// killed keeps its name for at most ten seconds.
///
/// # Safety
/// `address` ends with a NUL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wv_engine_publish(
    engine: *const wv_engine,
    names: *const wv_engine_names,
    address: *const c_char,
) -> wv_status {
    guard(|| {
        let engine = &wv_engine::behind("engine", engine)?.engine;
        let names = wv_engine_names::behind("names", names)?;
        // SAFETY: the caller's promise.
        let address = unsafe { text("address", address) }?;
        let address = address.ok_or_else(|| Failure::argument("address", "null", "a text"))?;
        let parsed = address.parse::<EngineAddress>();
        let limit = "an IP address and a port, or unix:PATH";
        let address = parsed.map_err(|_| Failure::argument("address", &address, limit))?;
        Ok(engine.publish(&names.store, &address)?)
    })
}

/// Takes the engine's name out of all stores that it was published in. Once more does no harm.
#[unsafe(no_mangle)]
pub extern "C" fn wv_engine_unpublish(engine: *const wv_engine) -> wv_status {
    guard(|| {
        wv_engine::behind("engine", engine)?.engine.unpublish();
        Ok(())
    })
}

/// Connects to the engine that has published `name`, as wv_engine_connect does. WV_PEER_NOT_CONNECTED: none has, or it does not
/// answer.
///
/// # Safety
/// `name` ends with a NUL; `peer` is where the handle goes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wv_engine_connect_by_name(
    engine: *const wv_engine,
    names: *const wv_engine_names,
    name: *const c_char,
    peer: *mut *mut wv_engine_peer,
) -> wv_status {
    guard(|| {
        let engine = &wv_engine::behind("engine", engine)?.engine;
        let names = wv_engine_names::behind("names", names)?;
        room("peer", peer)?;
        // SAFETY: the caller's promise.
        let name = unsafe { text("name", name) }?;
        let name = name.ok_or_else(|| Failure::argument("name", "null", "a text"))?;
        let connected = engine.connect_by_name(names.store.as_ref(), &name)?;
        // SAFETY: checked above.
        unsafe { put("peer", peer, wv_engine_peer { peer: connected }.hand_out()) }
    })
}
