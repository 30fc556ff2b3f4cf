//! What kernels cast to FP8 is what the reference makes of it. A GPU from sm_89 on has an instruction for that.

// UNSAFETY: starts a kernel.
#![expect(unsafe_code, reason = "launches a kernel")]

use bytemuck::{Pod, Zeroable, bytes_of};
use moe_reference::format::e4m3_from_f32;
use test_support::device::{launch, read, test_gpu};
use test_support::limits::HANG;

/// `E4m3Params` of the kernel.
#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct Params {
    out: u64,
    first: u32,
    step: u32,
    count: u32,
    reserved: u32,
}

/// f32 whose lower bits are all zero, ties among them, and their neighbours on both sides.
#[test]
fn every_pair_of_numbers_has_the_fp8_that_the_reference_has() {
    let gpu = test_gpu();
    let on_simt = gpu.label() == "simt";
    // A GPU takes 2^24 numbers in no time; simt takes those that BF16 has.
    let bits = if on_simt { 16 } else { 24 };
    let (step, count) = (1u32 << (32 - bits), 1u32 << (bits - 1));
    let out = gpu.alloc(2 * count as usize, 128).unwrap();
    let (blocks, threads) = if on_simt { (1, 32) } else { (64, 256) };
    let spec = launch("wv_test_e4m3", blocks, threads, 0);
    for first in [0, 1, step - 1] {
        let params = Params {
            out: out.addr(),
            first,
            step,
            count,
            reserved: 0,
        };
        // SAFETY: the parameters are those of the kernel; `out` has room for `count` pairs and lives past the wait.
        let event = unsafe { gpu.launch(&spec, bytes_of(&params)) }.unwrap();
        gpu.wait(&event, HANG).unwrap();
        let found: Vec<u8> = read(gpu.as_ref(), out.addr(), 2 * count as usize);
        for (number, found) in (0u32..).zip(found) {
            let value = f32::from_bits(first + number * step);
            let wanted = e4m3_from_f32(value);
            assert_eq!(found, wanted, "{value:?} ({:#010x})", value.to_bits());
        }
    }
}
