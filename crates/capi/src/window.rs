//! Windows: device memory of the same length at every rank, which kernels of every rank write and read.

// UNSAFETY: functions with C names, and pointers from C.
#![expect(unsafe_code, reason = "the C ABI")]

use std::ffi::c_void;
use std::sync::PoisonError;

use warpverbs::abi::Window;

use crate::handle::Handle;
use crate::sized::{Place, place, sized};
use crate::status::{Failure, guard, wv_status};
use crate::team::{pointer, wv_team};

/// Kind of a window: for anything, signals too. Writes to it are seen in the order in which they come.
pub const WV_WINDOW_ANY: u32 = 0;
/// Kind of a window: for data that is read only after a signal in a window of kind WV_WINDOW_ANY, or after a completion. Writes
/// to it may overtake each other on PCIe, so no kernel polls it.
pub const WV_WINDOW_DATA: u32 = 1;
/// Kind of a window: for what this rank sends. No peer gets a key of it, and none can write it.
pub const WV_WINDOW_SEND: u32 = 2;

/// A window as kernels take it, by value: the `wv::Window` of warpverbs/abi.h, byte for byte. It stays so, and has no size.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct wv_kernel_window {
    /// Its row in the tables of the team.
    pub id: u32,
    /// Local key of the first rail, big-endian.
    pub lkey_be: u32,
    /// Device address at this rank.
    pub base: u64,
    /// Length at every rank.
    pub bytes: u64,
}

const _: () = assert!(size_of::<wv_kernel_window>() == size_of::<Window>());

/// A window at this rank. Needs WV_INIT first.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct wv_window {
    /// sizeof: WV_INIT.
    pub size: usize,
    /// Device address at this rank. Byte `i` of the window has offset `i` at every rank; the addresses differ.
    pub address: *mut c_void,
    /// Length at every rank.
    pub bytes: u64,
    /// WV_WINDOW_...
    pub kind: u32,
    /// Zero.
    pub reserved: u32,
    /// What kernels take.
    pub kernel: wv_kernel_window,
}

sized!(wv_window {
    address,
    bytes,
    kind,
    reserved,
    kernel
});

fn fill(place: Place<wv_window>, kind: u32, made: &Window) -> Result<(), Failure> {
    place.fill(wv_window {
        size: 0,
        address: pointer(made.base)?,
        bytes: made.bytes,
        kind,
        reserved: 0,
        kernel: wv_kernel_window {
            id: made.id,
            lkey_be: made.lkey_be,
            base: made.base,
            bytes: made.bytes,
        },
    });
    Ok(())
}

/// Makes a window of `bytes` at every rank, filled with zeros, in device memory of the team. Collective: the founders make their
/// windows and layers together, in the same order. A rank that joins later makes the same ones, alone, before its group starts.
///
/// A kernel finds the window of a peer by the team's context (wv_team_info.context) and `window->kernel`:
/// `wv::load_peer(*team, window, peer)` of warpverbs/peer.cuh. The host reads and writes the window of its own rank by
/// wv_device_read and wv_device_write, or by copies of CUDA. It lives as long as the team, and is given back with it.
///
/// # Safety
/// `window` is a struct.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wv_window_create(
    team: *const wv_team,
    kind: u32,
    bytes: u64,
    window: *mut wv_window,
) -> wv_status {
    guard(|| {
        let team = wv_team::behind("team", team)?;
        // SAFETY: the caller's promise.
        let place = unsafe { place("window", window) }?;
        // Held, so that windows stand in the order of their numbers.
        let mut windows = team.windows.lock().unwrap_or_else(PoisonError::into_inner);
        let made = match kind {
            WV_WINDOW_ANY => team.team.window(bytes)?,
            WV_WINDOW_DATA => team.team.data_window(bytes)?,
            WV_WINDOW_SEND => team.team.send_window(bytes)?,
            other => {
                let limit = "one of WV_WINDOW_..., 0 to 2";
                return Err(Failure::argument("kind", other, limit));
            }
        };
        windows.push((kind, made));
        fill(place, kind, &made)
    })
}

/// Window `number` of those that wv_window_create has made with this handle, the first being 0: below wv_team_info.windows.
///
/// # Safety
/// `window` is a struct.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wv_window_get(
    team: *const wv_team,
    number: u32,
    window: *mut wv_window,
) -> wv_status {
    guard(|| {
        let team = wv_team::behind("team", team)?;
        // SAFETY: the caller's promise.
        let place = unsafe { place("window", window) }?;
        let windows = team.windows.lock().unwrap_or_else(PoisonError::into_inner);
        let found = windows.get(number as usize).ok_or_else(|| {
            Failure::argument("number", number, &format!("below {}", windows.len()))
        });
        let (kind, made) = found?;
        fill(place, *kind, made)
    })
}
