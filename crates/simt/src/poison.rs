//! Memory that kernels must not touch, for builds with feature `asan`; nothing in others.

// UNSAFETY: two functions of AddressSanitizer.
#![cfg_attr(
    feature = "asan",
    expect(unsafe_code, reason = "marks in AddressSanitizer's shadow")
)]

/// Whether this build stops at accesses of poisoned memory.
pub const ENABLED: bool = cfg!(feature = "asan");

/// From now on, a kernel that touches one of the `bytes` bytes at `addr` ends the process with a report that names source and
/// address. Whole multiples of 8 bytes, but at the end of memory that was not poisoned before.
pub fn poison(addr: u64, bytes: u64) {
    #[cfg(feature = "asan")]
    {
        unsafe extern "C" {
            fn __asan_poison_memory_region(addr: *const std::ffi::c_void, bytes: usize);
        }
        let (Ok(addr), Ok(bytes)) = (usize::try_from(addr), usize::try_from(bytes)) else {
            return;
        };
        // SAFETY: marks shadow memory only; every address of the process has some.
        unsafe {
            __asan_poison_memory_region(std::ptr::with_exposed_provenance(addr), bytes);
        }
    }
    #[cfg(not(feature = "asan"))]
    let _ = (addr, bytes);
}
