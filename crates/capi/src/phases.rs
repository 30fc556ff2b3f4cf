//! Launches: phases apart, and both phases of dispatch or combine as one kernel.

// UNSAFETY: functions with C names, and pointers from C.
#![expect(unsafe_code, reason = "the C ABI")]

use std::ffi::c_void;
use std::time::Duration;

use warpverbs::gpu::Stream;
use warpverbs::moe::{CombineInput, CombineOutput, DispatchInput, DispatchOutput, Moe, MoeCall};

use crate::handle::Handle;
use crate::moe::wv_call;
use crate::sized::{read, sized};
use crate::status::{Failure, guard, wv_status};
use crate::team::wv_team;

/// Flag of wv_dispatch_input: `x` is FP8 already, and `x_scales` holds its scales.
pub const WV_DISPATCH_QUANTIZED: u32 = 1;
/// Flag of wv_dispatch_input: no combine follows, so the call ends with the receive phase of its dispatch.
pub const WV_DISPATCH_ONLY: u32 = 2;
/// Flag of wv_dispatch_input: choices are int64_t.
pub const WV_DISPATCH_IDS_64: u32 = 4;
/// Flag of wv_dispatch_output: `active` is the caller's own mask. Entries of ranks whose rows did not arrive become 0, the others
/// stay.
pub const WV_DISPATCH_IN_PLACE: u32 = 1;
/// Flag of wv_dispatch_output: `recv_stats` is the address of int32_t, which wrap.
pub const WV_DISPATCH_STATS_32: u32 = 2;
/// Flag of wv_combine_input: `y` lies in the layer's own staging memory already.
pub const WV_COMBINE_ZERO_COPY: u32 = 1;
/// Flag of wv_combine_input: every weight counts as 1.
pub const WV_COMBINE_UNWEIGHTED: u32 = 2;
/// Flag of wv_combine_output: a token that lost experts is divided by the share of its weights that is left.
pub const WV_COMBINE_RENORMALISE: u32 = 4;
/// Flag of wv_combine_output: `active` is the caller's own mask. Entries of ranks whose rows were not added become 0, the others
/// stay.
pub const WV_COMBINE_IN_PLACE: u32 = 16;

/// Input of a dispatch: device memory, unchanged until the stream is past the send phase. Needs WV_INIT first. Zero means: not
/// used.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct wv_dispatch_input {
    /// sizeof: WV_INIT.
    pub size: usize,
    /// Tokens `[tokens, row bytes]` in the layer's format, or BF16 that dispatch casts. 16-byte aligned.
    pub x: *const c_void,
    /// Their scales `[tokens, scale bytes]`: for FP8 of the caller and for opaque tokens.
    pub x_scales: *const c_void,
    /// Choices `[tokens, top_k]`, -1 for none. With WV_DISPATCH_IDS_64 the address of int64_t.
    pub experts: *const i32,
    /// Weights `[tokens, top_k]`. NULL: all are 1.
    pub weights: *const f32,
    /// Which ranks take part: `[ranks]`, 0 for those that do not. NULL: all.
    pub active: *const u32,
    /// Longest wait of each phase of the call, ns. 0: the layer's.
    pub deadline_ns: u64,
    /// Number of tokens, at most max_tokens.
    pub tokens: u32,
    /// WV_DISPATCH_...
    pub flags: u32,
}

sized!(wv_dispatch_input {
    x,
    x_scales,
    experts,
    weights,
    active,
    deadline_ns,
    tokens,
    flags
});

/// Output of a dispatch: device memory. Needs WV_INIT first. `rows` is [local experts, ranks * max_tokens], or by rank [ranks, max_tokens].
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct wv_dispatch_output {
    /// sizeof: WV_INIT.
    pub size: usize,
    /// Tokens `[rows, row bytes]`. 16-byte aligned.
    pub recv_x: *mut c_void,
    /// Their scales, where the format has any.
    pub recv_scales: *mut c_void,
    /// Rows of each local expert, or of each rank.
    pub counts: *mut u32,
    /// Row of its rank's input that each row is: `[rows]`.
    pub src_info: *mut u32,
    /// By expert: begin << 32 | count of the rows of each rank: `[local experts, ranks]`.
    pub layout_range: *mut u64,
    /// By rank: local experts of each row, -1 none: `[rows, top_k]`.
    pub recv_experts: *mut i32,
    /// By rank: their weights: `[rows, top_k]`.
    pub recv_weights: *mut f32,
    /// Added to: rows of each local expert; int32_t with WV_DISPATCH_STATS_32. NULL: not kept.
    pub recv_stats: *mut u64,
    /// Added to: nanoseconds, whatever the clock of the GPU, waited for each rank. NULL: not kept.
    pub wait_ns: *mut u64,
    /// Output: 1 for each rank whose rows arrived, 0 for the others: `[ranks]`. NULL: not written.
    pub active: *mut u32,
    /// WV_DISPATCH_IN_PLACE | WV_DISPATCH_STATS_32.
    pub flags: u32,
    /// Zero.
    pub reserved: u32,
    /// Output: the address of this call's staging memory, as wv_combine_staging has it; 0 if the caller may not write to it. NULL:
    /// not written.
    pub staging: *mut u64,
}

sized!(wv_dispatch_output {
    recv_x,
    recv_scales,
    counts,
    src_info,
    layout_range,
    recv_experts,
    recv_weights,
    recv_stats,
    wait_ns,
    active,
    flags,
    reserved,
    staging
});

/// Input of a combine: device memory. Needs WV_INIT first.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct wv_combine_input {
    /// sizeof: WV_INIT.
    pub size: usize,
    /// The experts' results for `recv_x`, BF16, in the same places. 16-byte aligned.
    pub y: *const c_void,
    /// WV_COMBINE_ZERO_COPY | WV_COMBINE_UNWEIGHTED.
    pub flags: u32,
    /// Zero.
    pub reserved: u32,
    /// Longest wait of each phase of the combine, ns. 0: that of its dispatch.
    pub deadline_ns: u64,
    /// With WV_COMBINE_ZERO_COPY, in the shape of `y`: from where a call copies whose dispatch offered no staging memory
    /// (`staging` 0 of the dispatch output). NULL: such a combine is refused. 16-byte aligned.
    pub copy_from: *const c_void,
}

sized!(wv_combine_input {
    y,
    flags,
    reserved,
    deadline_ns,
    copy_from
});

/// Output of a combine: device memory. Needs WV_INIT first.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct wv_combine_output {
    /// sizeof: WV_INIT.
    pub size: usize,
    /// BF16 `[tokens, hidden]`. 16-byte aligned.
    pub out: *mut c_void,
    /// 1 for each token all of whose experts contributed: `[tokens]`.
    pub token_valid: *mut u8,
    /// Weights `[tokens, top_k]` in a layer that returns every expert's row. NULL: those of dispatch.
    pub weights: *const f32,
    /// Added to: nanoseconds, whatever the clock of the GPU, waited for each rank. NULL: not kept.
    pub wait_ns: *mut u64,
    /// Output: 1 for each rank whose rows were added, 0 for the others: `[ranks]`. NULL: not written.
    pub active: *mut u32,
    /// WV_COMBINE_RENORMALISE | WV_COMBINE_IN_PLACE.
    pub flags: u32,
    /// Zero.
    pub reserved: u32,
}

sized!(wv_combine_output {
    out,
    token_valid,
    weights,
    wait_ns,
    active,
    flags,
    reserved
});

/// The device address that a pointer is.
fn address<T>(pointer: *const T) -> u64 {
    pointer.expose_provenance() as u64
}

/// Refuses flags that are none.
fn flags(name: &str, set: u32, known: u32) -> Result<(), Failure> {
    match set & !known {
        0 => Ok(()),
        _ => Err(Failure::argument(
            name,
            format!("{set:#x}"),
            &format!("a subset of {known:#x}"),
        )),
    }
}

impl wv_dispatch_input {
    fn read(&self) -> Result<DispatchInput, Failure> {
        let known = WV_DISPATCH_QUANTIZED | WV_DISPATCH_ONLY | WV_DISPATCH_IDS_64;
        flags("flags of the dispatch input", self.flags, known)?;
        Ok(DispatchInput::default()
            .with_x(address(self.x))
            .with_x_scales(address(self.x_scales))
            .with_experts(address(self.experts))
            .with_weights(address(self.weights))
            .with_active(address(self.active))
            .with_tokens(self.tokens)
            .with_ids_64(self.flags & WV_DISPATCH_IDS_64 != 0)
            .with_quantized(self.flags & WV_DISPATCH_QUANTIZED != 0)
            .with_no_combine(self.flags & WV_DISPATCH_ONLY != 0)
            .with_deadline(own_deadline(self.deadline_ns)))
    }
}

impl wv_dispatch_output {
    fn read(&self) -> Result<DispatchOutput, Failure> {
        let known = WV_DISPATCH_IN_PLACE | WV_DISPATCH_STATS_32;
        flags("flags of the dispatch output", self.flags, known)?;
        Ok(DispatchOutput::default()
            .with_recv_x(address(self.recv_x))
            .with_recv_scales(address(self.recv_scales))
            .with_counts(address(self.counts))
            .with_src_info(address(self.src_info))
            .with_layout_range(address(self.layout_range))
            .with_recv_experts(address(self.recv_experts))
            .with_recv_weights(address(self.recv_weights))
            .with_recv_stats(address(self.recv_stats))
            .with_stats_32(self.flags & WV_DISPATCH_STATS_32 != 0)
            .with_wait_ns(address(self.wait_ns))
            .with_active(address(self.active))
            .with_staging(address(self.staging))
            .with_active_in_place(self.flags & WV_DISPATCH_IN_PLACE != 0))
    }
}

/// A deadline of the caller's; 0: none.
fn own_deadline(ns: u64) -> Option<Duration> {
    (ns != 0).then(|| Duration::from_nanos(ns))
}

impl wv_combine_input {
    fn read(&self) -> Result<CombineInput, Failure> {
        let known = WV_COMBINE_ZERO_COPY | WV_COMBINE_UNWEIGHTED;
        flags("flags of the combine input", self.flags, known)?;
        Ok(CombineInput::default()
            .with_y(address(self.y))
            .with_zero_copy(self.flags & WV_COMBINE_ZERO_COPY != 0)
            .with_copy_from(address(self.copy_from))
            .with_unweighted(self.flags & WV_COMBINE_UNWEIGHTED != 0)
            .with_deadline(own_deadline(self.deadline_ns)))
    }
}

impl wv_combine_output {
    fn read(&self) -> Result<CombineOutput, Failure> {
        let known = WV_COMBINE_RENORMALISE | WV_COMBINE_IN_PLACE;
        flags("flags of the combine output", self.flags, known)?;
        Ok(CombineOutput::default()
            .with_out(address(self.out))
            .with_token_valid(address(self.token_valid))
            .with_weights(address(self.weights))
            .with_wait_ns(address(self.wait_ns))
            .with_active(address(self.active))
            .with_active_in_place(self.flags & WV_COMBINE_IN_PLACE != 0)
            .with_renormalise(self.flags & WV_COMBINE_RENORMALISE != 0))
    }
}

/// A launch of `call` in the stream that C names so.
///
/// # Safety
/// `stream` as [`wv_team::stream`].
unsafe fn launch(
    call: *const wv_call,
    stream: *mut c_void,
    body: impl FnOnce(&Moe, &MoeCall, &Stream) -> Result<(), Failure>,
) -> wv_status {
    guard(|| {
        let call = wv_call::behind("call", call)?;
        // SAFETY: the caller's promise.
        let stream = unsafe { wv_team::stream(call.moe.team(), stream) }?;
        body(&call.moe, &call.call, &stream)
    })
}

/// Launches the send phase of dispatch: takes the number of the call and sends the tokens. All ranks launch the same phases
/// in the same order, each phase of a call once and in turn.
///
/// # Safety
/// `input` is a struct whose arrays have the lengths that its fields say, `stream` a stream of the GPU or null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wv_dispatch_send(
    call: *const wv_call,
    input: *const wv_dispatch_input,
    stream: *mut c_void,
) -> wv_status {
    // SAFETY: the caller's promise, here and below.
    unsafe {
        launch(call, stream, |moe, call, stream| {
            let input = read("input", input)?.read()?;
            moe.dispatch_send(stream, call, &input)?;
            Ok(())
        })
    }
}

/// Launches the receive phase of dispatch: waits for the tokens of every rank and lays them out.
///
/// # Safety
/// As wv_dispatch_send, with the arrays of `output`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wv_dispatch_receive(
    call: *const wv_call,
    output: *const wv_dispatch_output,
    stream: *mut c_void,
) -> wv_status {
    // SAFETY: the caller's promise.
    unsafe {
        launch(call, stream, |moe, call, stream| {
            let output = read("output", output)?.read()?;
            moe.dispatch_receive(stream, call, &output)?;
            Ok(())
        })
    }
}

/// Launches both phases of dispatch as one kernel.
///
/// # Safety
/// As wv_dispatch_send and wv_dispatch_receive.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wv_dispatch(
    call: *const wv_call,
    input: *const wv_dispatch_input,
    output: *const wv_dispatch_output,
    stream: *mut c_void,
) -> wv_status {
    // SAFETY: the caller's promise.
    unsafe {
        launch(call, stream, |moe, call, stream| {
            let input = read("input", input)?.read()?;
            let output = read("output", output)?.read()?;
            moe.dispatch(stream, call, &input, &output)?;
            Ok(())
        })
    }
}

/// Launches the send phase of combine: adds up the experts' rows of each token and sends the sums back, or the rows
/// (WV_RETURNS_ROWS).
///
/// # Safety
/// As wv_dispatch_send, with the arrays of `input`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wv_combine_send(
    call: *const wv_call,
    input: *const wv_combine_input,
    stream: *mut c_void,
) -> wv_status {
    // SAFETY: the caller's promise.
    unsafe {
        launch(call, stream, |moe, call, stream| {
            let input = read("input", input)?.read()?;
            moe.combine_send(stream, call, &input)?;
            Ok(())
        })
    }
}

/// Launches the receive phase of combine: waits for every rank and adds up the returned rows.
///
/// # Safety
/// As wv_dispatch_send, with the arrays of `output`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wv_combine_receive(
    call: *const wv_call,
    output: *const wv_combine_output,
    stream: *mut c_void,
) -> wv_status {
    // SAFETY: the caller's promise.
    unsafe {
        launch(call, stream, |moe, call, stream| {
            let output = read("output", output)?.read()?;
            moe.combine_receive(stream, call, &output)?;
            Ok(())
        })
    }
}

/// Launches both phases of combine as one kernel.
///
/// # Safety
/// As wv_combine_send and wv_combine_receive.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wv_combine(
    call: *const wv_call,
    input: *const wv_combine_input,
    output: *const wv_combine_output,
    stream: *mut c_void,
) -> wv_status {
    // SAFETY: the caller's promise.
    unsafe {
        launch(call, stream, |moe, call, stream| {
            let input = read("input", input)?.read()?;
            let output = read("output", output)?.read()?;
            moe.combine(stream, call, &input, &output)?;
            Ok(())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::CStr;
    use std::ptr;

    use crate::status::wv_last_error;

    #[test]
    fn a_missing_call_is_a_bad_argument() {
        // SAFETY: null is refused before anything else is looked at.
        let status = unsafe { wv_dispatch(ptr::null(), ptr::null(), ptr::null(), ptr::null_mut()) };
        assert_eq!(status, wv_status::WV_BAD_ARGUMENT);
        // SAFETY: the text of this thread.
        let words = unsafe { CStr::from_ptr(wv_last_error()) };
        assert!(words.to_str().unwrap().starts_with("call is null"));
    }

    /// A struct of C in which only `size` is set.
    fn zeroed<T: crate::sized::Struct>() -> T {
        // SAFETY: integers and pointers, of which all may be zero.
        unsafe { std::mem::zeroed() }
    }

    #[test]
    fn each_flag_is_the_option_of_its_name() {
        let none = zeroed::<wv_dispatch_input>().read().unwrap();
        assert_eq!(none, DispatchInput::default());
        let wide = wv_dispatch_input {
            flags: WV_DISPATCH_IDS_64,
            ..zeroed()
        };
        assert_eq!(wide.read().unwrap(), none.with_ids_64(true));
        let none = zeroed::<wv_dispatch_output>().read().unwrap();
        assert_eq!(none, DispatchOutput::default());
        let of_flags = |flags| wv_dispatch_output { flags, ..zeroed() }.read();
        let in_place = of_flags(WV_DISPATCH_IN_PLACE).unwrap();
        assert_eq!(in_place, none.with_active_in_place(true));
        let narrow = of_flags(WV_DISPATCH_STATS_32).unwrap();
        assert_eq!(narrow, none.with_stats_32(true));
        assert_eq!(
            of_flags(4).unwrap_err().words,
            "flags of the dispatch output is 0x4; it must be a subset of 0x3"
        );
        let back = wv_combine_input {
            deadline_ns: 7,
            ..zeroed()
        };
        let own = CombineInput::default().with_deadline(Some(Duration::from_nanos(7)));
        assert_eq!(back.read().unwrap(), own);
        let sums = wv_combine_output {
            flags: WV_COMBINE_IN_PLACE,
            ..zeroed()
        };
        let want = CombineOutput::default().with_active_in_place(true);
        assert_eq!(sums.read().unwrap(), want);
    }

    #[test]
    fn a_struct_of_an_older_header_says_nothing_of_what_came_later() {
        let output = wv_dispatch_output {
            size: std::mem::offset_of!(wv_dispatch_output, flags),
            flags: u32::MAX,
            staging: ptr::dangling_mut(),
            ..zeroed()
        };
        // SAFETY: as long as its size says, and longer.
        let known = unsafe { read("output", &raw const output) }.unwrap();
        assert_eq!(known.read().unwrap(), DispatchOutput::default());
    }

    #[test]
    fn unknown_flags_are_refused_with_their_value() {
        let input = wv_combine_input {
            size: size_of::<wv_combine_input>(),
            y: ptr::null(),
            flags: 8,
            reserved: 0,
            deadline_ns: 0,
            copy_from: ptr::null(),
        };
        let error = input.read().unwrap_err();
        assert_eq!(
            error.words,
            "flags of the combine input is 0x8; it must be a subset of 0x3"
        );
    }
}
