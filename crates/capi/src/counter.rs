//! Counters of host engines: how many WRITEs that count have landed.

// UNSAFETY: functions with C names, and pointers from C.
#![expect(unsafe_code, reason = "the C ABI")]

use std::ptr;
use std::sync::Arc;

use warpverbs::engine::{Counter, EngineError, HostMemory, MOST_COUNTERS, Mirror};

use crate::engine::wv_engine;
use crate::handle::{Handle, handle};
use crate::status::{Failure, guard, put, room, wv_status};
use crate::team::millis;

/// Counters of an engine: their numbers are below this.
pub const WV_COUNTERS: u32 = 4096;

const _: () = assert!(WV_COUNTERS == MOST_COUNTERS);

fn counter(engine: *const wv_engine, id: u32) -> Result<Counter, Failure> {
    Ok(wv_engine::behind("engine", engine)?.engine.counter(id)?)
}

/// Gets the count of counter `id`: the number of WRITEs that have counted since it was set to 0. All bytes of these WRITEs are in
/// memory (acquire). Counters exist from the start of the engine, so WRITEs that come before the first call count too. Never waits.
///
/// # Safety
/// `value` is a variable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wv_engine_counter_read(
    engine: *const wv_engine,
    id: u32,
    value: *mut u64,
) -> wv_status {
    // SAFETY: the caller's promise.
    guard(|| unsafe { put("value", value, counter(engine, id)?.read()) })
}

/// Waits until counter `id` has `count` or more, for `timeout_ms` at most, else WV_TIMEOUT. In both cases `value` gets its count.
///
/// # Safety
/// `value` is a variable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wv_engine_counter_wait(
    engine: *const wv_engine,
    id: u32,
    count: u64,
    timeout_ms: u32,
    value: *mut u64,
) -> wv_status {
    guard(|| {
        room("value", value)?;
        let counter = counter(engine, id)?;
        let found = counter.wait(count, millis(timeout_ms));
        let now = found.unwrap_or_else(|| counter.read());
        // SAFETY: the caller's promise.
        unsafe { put("value", value, now) }?;
        if found.is_some() {
            return Ok(());
        }
        if wv_engine::behind("engine", engine)?.engine.is_closed() {
            return Err(EngineError::Closing.into());
        }
        let words = format!("counter {id} says {now}, not {count}, after {timeout_ms} ms");
        Err(Failure::new(wv_status::WV_TIMEOUT, words))
    })
}

/// Sets counter `id` to 0; `value` gets its count before that.
///
/// # Safety
/// `value` is a variable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wv_engine_counter_reset(
    engine: *const wv_engine,
    id: u32,
    value: *mut u64,
) -> wv_status {
    guard(|| {
        room("value", value)?;
        // SAFETY: checked above.
        unsafe { put("value", value, counter(engine, id)?.reset()) }
    })
}

/// Gets the address of counter `id`, for kernels that wait for it by loads of system scope with acquire. The program first
/// registers the memory with the driver. The address is valid until the engine is closed. All counters lie together, from the
/// beginning of a page on.
///
/// # Safety
/// `word` is a variable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wv_engine_counter_word(
    engine: *const wv_engine,
    id: u32,
    word: *mut *const u64,
) -> wv_status {
    guard(|| {
        let at = usize::try_from(counter(engine, id)?.word()).unwrap_or_default();
        // SAFETY: the caller's promise.
        unsafe { put("word", word, ptr::with_exposed_provenance(at)) }
    })
}

/// A counter and a word of the program that says the same.
#[derive(Debug)]
pub struct wv_mirror {
    #[expect(dead_code, reason = "held for its drop")]
    mirror: Mirror,
}

handle!(wv_mirror);

/// Copies the value of counter `id` into `word`, 8 aligned bytes that this process and a kernel reach. The engine writes it now and
/// at each change, until wv_mirror_destroy or the end of the engine. A kernel waits for the word by loads of system scope. When it
/// has seen a value, the bytes of as many WRITEs have landed.
///
/// # Safety
/// `word` stays memory until the mirror is destroyed or the engine is closed; `mirror` is a variable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wv_engine_counter_mirror(
    engine: *const wv_engine,
    id: u32,
    word: *mut u64,
    mirror: *mut *mut wv_mirror,
) -> wv_status {
    guard(|| {
        room("word", word)?;
        room("mirror", mirror)?;
        let counter = counter(engine, id)?;
        // SAFETY: the caller's promise: nothing uses the word after the end of the mirror.
        let memory = unsafe { HostMemory::over(word.cast(), 8, None) }?;
        let made = counter.mirror(&Arc::new(memory), 0)?;
        // SAFETY: checked above.
        unsafe { put("mirror", mirror, wv_mirror { mirror: made }.hand_out()) }
    })
}

/// Gives a mirror back: after this its word is not written. NULL is allowed.
#[unsafe(no_mangle)]
pub extern "C" fn wv_mirror_destroy(mirror: *mut wv_mirror) -> wv_status {
    guard(|| wv_mirror::take_back("mirror", mirror))
}
