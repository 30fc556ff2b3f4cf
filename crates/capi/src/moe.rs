//! Layers, handles of calls, and how a call went.

// UNSAFETY: functions with C names, and pointers from C.
#![expect(unsafe_code, reason = "the C ABI")]

use std::ffi::c_char;
use std::ptr;
use std::sync::Arc;
use std::time::Duration;

use warpverbs::moe::{
    Deadlines, Format, Moe, MoeCall, MoeConfig, MoeError, Returns, RowLayout, Scales,
    required_bytes,
};
use warpverbs::team::Team;

use crate::handle::{Handle, handle};
use crate::sized::{place, read, sized};
use crate::status::{Failure, guard, put, room, text, wv_status};
use crate::team::wv_team;

/// wv_moe_config.format: BF16.
pub const WV_FORMAT_BF16: u32 = 0;
/// wv_moe_config.format: FP8 (e4m3) with one scale for each 128 channels; scales by wv_moe_config.scales.
pub const WV_FORMAT_FP8: u32 = 1;
/// wv_moe_config.format: bytes that the library does not look into.
pub const WV_FORMAT_OPAQUE: u32 = 2;
/// wv_moe_config.scales: f32.
pub const WV_SCALES_F32: u32 = 0;
/// wv_moe_config.scales: f32, rounded up to a power of two.
pub const WV_SCALES_POWER_OF_TWO: u32 = 1;
/// wv_moe_config.scales: the exponent byte of such a power, four to a 32-bit word.
pub const WV_SCALES_UE8M0: u32 = 2;
/// wv_moe_config.layout: rows by local expert.
pub const WV_LAYOUT_EXPERT_MAJOR: u32 = 0;
/// wv_moe_config.layout: rows by source rank, each token once.
pub const WV_LAYOUT_RANK_MAJOR: u32 = 1;
/// wv_moe_config.returns: combine sends back one sum for each rank.
pub const WV_RETURNS_SUMS: u32 = 0;
/// wv_moe_config.returns: combine sends back one row for each expert.
pub const WV_RETURNS_ROWS: u32 = 1;

/// The shape of a layer. All ranks give the same. Needs WV_INIT first. If all fields after `max_tokens` are 0, rows are BF16 and
/// come by expert, and combine returns sums.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct wv_moe_config {
    /// sizeof: WV_INIT.
    pub size: usize,
    /// BF16 elements of a token.
    pub hidden: u32,
    /// Experts of all ranks together.
    pub experts: u32,
    /// Experts that a token may choose.
    pub top_k: u32,
    /// Most tokens that a rank dispatches in one call.
    pub max_tokens: u32,
    /// Format of a token: WV_FORMAT_...
    pub format: u32,
    /// The scales of FP8: WV_SCALES_...
    pub scales: u32,
    /// WV_FORMAT_OPAQUE: bytes of a token.
    pub payload_bytes: u32,
    /// WV_FORMAT_OPAQUE: bytes of its scales.
    pub scale_bytes: u32,
    /// How dispatch lays out what it received: WV_LAYOUT_...
    pub layout: u32,
    /// What combine returns to the source of a token: WV_RETURNS_...
    pub returns: u32,
    /// Most expert slots of each rank, for placements that change. 0: as many as the first placement uses.
    pub local_experts: u32,
    /// Zero.
    pub reserved: u32,
}

sized!(wv_moe_config {
    hidden,
    experts,
    top_k,
    max_tokens,
    format,
    scales,
    payload_bytes,
    scale_bytes,
    layout,
    returns,
    local_experts,
    reserved,
});

/// Device memory that a layer takes at each rank, in bytes. Needs WV_INIT first.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct wv_bytes {
    /// sizeof: WV_INIT.
    pub size: usize,
    /// Slots that peers write into.
    pub slots: u64,
    /// Copies that the NIC sends from.
    pub staging: u64,
    /// Signals of all peers.
    pub signals: u64,
    /// Context and state per peer.
    pub state: u64,
    /// One handle of a call.
    pub handle: u64,
    /// The caller's `recv_x`.
    pub recv_x: u64,
}

sized!(wv_bytes {
    slots,
    staging,
    signals,
    state,
    handle,
    recv_x
});

/// One MoE layer, as this rank holds it.
#[derive(Debug)]
pub struct wv_moe {
    pub(crate) moe: Arc<Moe>,
}

handle!(wv_moe);

/// The handle of one call at a time; a program with two calls open at once has two.
#[derive(Debug)]
pub struct wv_call {
    pub(crate) call: MoeCall,
    /// Outlives the handle.
    pub(crate) moe: Arc<Moe>,
}

handle!(wv_call);

/// The result of a call. Needs WV_INIT first.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct wv_call_report {
    /// sizeof: WV_INIT.
    pub size: usize,
    /// Number of the call; 0: the handle was never used.
    pub call: u32,
    /// Phases that have begun: 0 to 4.
    pub phases: u32,
    /// How each of them ended: dispatch send, dispatch receive, combine send, combine receive. 0: well.
    pub status: [u32; 4],
    /// 1: every phase so far went through for every rank.
    pub complete: u32,
    /// Ranks with which one did not.
    pub troubled_ranks: u32,
    /// 1: its dispatch has offered the staging memory for a combine with WV_COMBINE_ZERO_COPY.
    pub offered: u32,
    /// Calls of the layer at this rank, up to this one, that found no free send buffer and so sent nothing. Wraps.
    pub unbuffered: u32,
}

sized!(wv_call_report {
    call,
    phases,
    status,
    complete,
    troubled_ranks,
    offered,
    unbuffered
});

/// Waiting times of a layer, in ns. Needs WV_INIT first.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct wv_deadlines {
    /// sizeof: WV_INIT.
    pub size: usize,
    /// Longest wait of a phase. 0: the team's deadline.
    pub steady_ns: u64,
    /// The same in the first `warm_calls` calls. 0: `steady_ns`.
    pub warm_ns: u64,
    /// Longest time for which a call is held while the group changes its view; then it ends `aborted`. 0: the longer of 10 s and
    /// `steady_ns`.
    pub change_ns: u64,
    /// Calls that are warm-up.
    pub warm_calls: u32,
    /// Zero.
    pub reserved: u32,
}

sized!(wv_deadlines {
    steady_ns,
    warm_ns,
    change_ns,
    warm_calls,
    reserved
});

impl wv_moe_config {
    pub(crate) fn read(&self) -> Result<MoeConfig, Failure> {
        let format = match (self.format, self.scales) {
            (WV_FORMAT_BF16, _) => Format::Bf16,
            (WV_FORMAT_FP8, WV_SCALES_F32) => Format::Fp8(Scales::F32),
            (WV_FORMAT_FP8, WV_SCALES_POWER_OF_TWO) => Format::Fp8(Scales::PowerOfTwo),
            (WV_FORMAT_FP8, WV_SCALES_UE8M0) => Format::Fp8(Scales::Ue8m0),
            (WV_FORMAT_FP8, other) => {
                return Err(Failure::argument(
                    "scales",
                    other,
                    "one of WV_SCALES_..., 0 to 2",
                ));
            }
            (WV_FORMAT_OPAQUE, _) => Format::Opaque {
                payload_bytes: self.payload_bytes,
                scale_bytes: self.scale_bytes,
            },
            (other, _) => {
                return Err(Failure::argument(
                    "format",
                    other,
                    "one of WV_FORMAT_..., 0 to 2",
                ));
            }
        };
        let layout = match self.layout {
            WV_LAYOUT_EXPERT_MAJOR => RowLayout::ExpertMajor,
            WV_LAYOUT_RANK_MAJOR => RowLayout::RankMajor,
            other => {
                return Err(Failure::argument(
                    "layout",
                    other,
                    "one of WV_LAYOUT_..., 0 or 1",
                ));
            }
        };
        let returns = match self.returns {
            WV_RETURNS_SUMS => Returns::Sums,
            WV_RETURNS_ROWS => Returns::Rows,
            other => {
                return Err(Failure::argument(
                    "returns",
                    other,
                    "one of WV_RETURNS_..., 0 or 1",
                ));
            }
        };
        if self.reserved != 0 {
            return Err(Failure::argument("reserved", self.reserved, "0"));
        }
        Ok(MoeConfig::BF16
            .with_hidden(self.hidden)
            .with_experts(self.experts)
            .with_top_k(self.top_k)
            .with_max_tokens(self.max_tokens)
            .with_format(format)
            .with_layout(layout)
            .with_returns(returns)
            .with_local_experts(self.local_experts))
    }
}

/// Computes the device memory that a layer of this shape takes at each of `ranks`, without making anything.
///
/// # Safety
/// `config` and `bytes` are structs.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wv_required_bytes(
    config: *const wv_moe_config,
    ranks: u32,
    bytes: *mut wv_bytes,
) -> wv_status {
    guard(|| {
        // SAFETY: the caller's promise.
        let config = unsafe { read("config", config) }?.read()?;
        // SAFETY: the caller's promise.
        let place = unsafe { place("bytes", bytes) }?;
        let needed = required_bytes(&config, ranks)?;
        place.fill(wv_bytes {
            size: 0,
            slots: needed.slots,
            staging: needed.staging,
            signals: needed.signals,
            state: needed.state,
            handle: needed.handle,
            recv_x: needed.recv_x,
        });
        Ok(())
    })
}

/// Makes a layer, its experts in contiguous blocks over the ranks. Collective: `name` is used once, and all ranks make their
/// layers in the same order.
///
/// # Safety
/// `name` ends with a NUL, `config` is a struct, `moe` is where the handle goes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wv_moe_create(
    team: *const wv_team,
    name: *const c_char,
    config: *const wv_moe_config,
    moe: *mut *mut wv_moe,
) -> wv_status {
    // SAFETY: the caller's promise.
    unsafe {
        create(team, name, config, moe, |team, name, config| {
            Ok(Moe::new(team, name, config)?)
        })
    }
}

/// Makes a layer of that name and shape as `make` does.
///
/// # Safety
/// As [`wv_moe_create`].
pub(crate) unsafe fn create(
    team: *const wv_team,
    name: *const c_char,
    config: *const wv_moe_config,
    moe: *mut *mut wv_moe,
    make: impl FnOnce(&Arc<Team>, &str, MoeConfig) -> Result<Arc<Moe>, Failure>,
) -> wv_status {
    guard(|| {
        let team = wv_team::behind("team", team)?;
        // SAFETY: the caller's promise.
        let name = unsafe { text("name", name) }?;
        let name = name.ok_or_else(|| Failure::argument("name", "null", "a text"))?;
        // SAFETY: the caller's promise.
        let config = unsafe { read("config", config) }?.read()?;
        room("moe", moe)?;
        let made = wv_moe {
            moe: make(&team.team, &name, config)?,
        };
        // SAFETY: checked above.
        unsafe { put("moe", moe, made.hand_out()) }
    })
}

/// Gives a layer back. NULL is allowed. Its memory goes with its last call.
///
/// # Safety
/// No kernel of it runs.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wv_moe_destroy(moe: *mut wv_moe) -> wv_status {
    guard(|| wv_moe::take_back("moe", moe))
}

/// Gets the experts of this rank in the newest view, in the order of their local numbers. Up to `room` of them go to `experts`,
/// which may be NULL if `room` is 0; `count` gets their number.
///
/// # Safety
/// `experts` has room for `room` numbers, `count` is where the answer goes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wv_moe_local_experts(
    moe: *const wv_moe,
    experts: *mut u32,
    room: u32,
    count: *mut u32,
) -> wv_status {
    guard(|| {
        let local = wv_moe::behind("moe", moe)?.moe.local_experts();
        // Fewer than expert numbers exist.
        let number = u32::try_from(local.len()).unwrap_or(u32::MAX);
        // SAFETY: the caller's promise.
        unsafe { put("count", count, number) }?;
        let copied = number.min(room) as usize;
        if copied == 0 {
            return Ok(());
        }
        crate::status::room("experts", experts)?;
        // SAFETY: the caller's promise: room for at least `copied` numbers.
        unsafe { ptr::copy_nonoverlapping(local.as_ptr(), experts, copied) };
        Ok(())
    })
}

/// Sets how long the phases of a layer wait, and calls while the group changes, from the next call on.
///
/// # Safety
/// `deadlines` is a struct.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wv_moe_set_deadlines(
    moe: *const wv_moe,
    deadlines: *const wv_deadlines,
) -> wv_status {
    guard(|| {
        let moe = &wv_moe::behind("moe", moe)?.moe;
        // SAFETY: the caller's promise.
        let given = unsafe { read("deadlines", deadlines) }?;
        if given.reserved != 0 {
            return Err(Failure::argument("reserved", given.reserved, "0"));
        }
        let or = |ns: u64, default: Duration| match ns {
            0 => default,
            ns => Duration::from_nanos(ns),
        };
        let mut wanted = Deadlines::new(or(given.steady_ns, moe.team().config().deadline));
        wanted.warm = or(given.warm_ns, wanted.steady);
        wanted.change = or(given.change_ns, wanted.change);
        wanted.warm_calls = given.warm_calls;
        Ok(moe.set_deadlines(&wanted)?)
    })
}

/// Makes a handle for calls of a layer.
///
/// # Safety
/// `call` is where the handle goes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wv_call_create(moe: *const wv_moe, call: *mut *mut wv_call) -> wv_status {
    guard(|| {
        let moe = &wv_moe::behind("moe", moe)?.moe;
        room("call", call)?;
        let made = wv_call {
            call: moe.call()?,
            moe: Arc::clone(moe),
        };
        // SAFETY: checked above.
        unsafe { put("call", call, made.hand_out()) }
    })
}

/// Gives a call handle back. NULL is allowed.
///
/// # Safety
/// No kernel or graph uses it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wv_call_destroy(call: *mut wv_call) -> wv_status {
    guard(|| wv_call::take_back("call", call))
}

/// Gets the result of the phases that have ended, of those that are asked about. WV_INCOMPLETE if a rank's part is missing,
/// WV_PEER_MISMATCH if that is because ranks pass arguments that differ: the report is then filled in all the same, and
/// wv_last_error() says what happened with which rank. Asks the store why a rank was missed, once for each call.
///
/// # Safety
/// `report` is a struct.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wv_report(call: *const wv_call, report: *mut wv_call_report) -> wv_status {
    guard(|| {
        let call = wv_call::behind("call", call)?;
        // SAFETY: the caller's promise.
        let place = unsafe { place("report", report) }?;
        let found = call.call.report()?;
        let complete = found.is_complete();
        let troubled = found.troubled().count();
        place.fill(wv_call_report {
            size: 0,
            call: found.call,
            phases: found.stage.0,
            status: found.phases.map(|status| status.0),
            complete: complete.into(),
            troubled_ranks: u32::try_from(troubled).unwrap_or(u32::MAX),
            offered: found.offered.into(),
            unbuffered: found.unbuffered,
        });
        if complete {
            return Ok(());
        }
        if let Some(found) = call.call.difference(&found) {
            return Err(MoeError::Arguments(Box::new(found)).into());
        }
        Err(Failure::new(wv_status::WV_INCOMPLETE, found.to_string()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONFIG: wv_moe_config = wv_moe_config {
        size: size_of::<wv_moe_config>(),
        hidden: 256,
        experts: 8,
        top_k: 2,
        max_tokens: 16,
        format: 0,
        scales: 0,
        payload_bytes: 0,
        scale_bytes: 0,
        layout: 0,
        returns: 0,
        local_experts: 0,
        reserved: 0,
    };

    fn refused(config: wv_moe_config) -> String {
        config.read().unwrap_err().words
    }

    #[test]
    fn zeros_mean_bf16_by_expert_and_sums() {
        let config = CONFIG.read().unwrap();
        assert_eq!(
            config,
            MoeConfig::BF16
                .with_hidden(256)
                .with_experts(8)
                .with_top_k(2)
                .with_max_tokens(16)
        );
    }

    #[test]
    fn a_number_that_is_no_choice_is_refused_with_its_value() {
        assert_eq!(
            refused(wv_moe_config {
                format: 3,
                ..CONFIG
            }),
            "format is 3; it must be one of WV_FORMAT_..., 0 to 2"
        );
        let scales = wv_moe_config {
            format: WV_FORMAT_FP8,
            scales: 9,
            ..CONFIG
        };
        assert!(refused(scales).contains("scales is 9"));
        assert!(
            refused(wv_moe_config {
                layout: 2,
                ..CONFIG
            })
            .contains("layout is 2")
        );
        assert!(
            refused(wv_moe_config {
                returns: 2,
                ..CONFIG
            })
            .contains("returns is 2")
        );
    }

    #[test]
    fn required_bytes_are_those_of_the_library() {
        let config = CONFIG;
        let mut bytes = wv_bytes {
            size: size_of::<wv_bytes>(),
            ..wv_bytes::default()
        };
        // SAFETY: both are variables.
        let status = unsafe { wv_required_bytes(&raw const config, 4, &raw mut bytes) };
        assert_eq!(status, wv_status::WV_OK);
        let want = required_bytes(&CONFIG.read().unwrap(), 4).unwrap();
        assert_eq!((bytes.slots, bytes.handle), (want.slots, want.handle));
        // SAFETY: null is refused.
        let status = unsafe { wv_required_bytes(ptr::null(), 4, &raw mut bytes) };
        assert_eq!(status, wv_status::WV_BAD_ARGUMENT);
    }
}
