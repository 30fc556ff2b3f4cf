//! Memory that kernels must not touch, for builds with the feature `asan`. Other builds do nothing.

// UNSAFETY: two functions of AddressSanitizer.
#![cfg_attr(
    feature = "asan",
    expect(unsafe_code, reason = "marks in AddressSanitizer's shadow")
)]

/// True if this build stops at accesses to poisoned memory.
pub const ENABLED: bool = cfg!(feature = "asan");

/// Poisons the `bytes` bytes at `addr`: from now on, a kernel that touches one of them ends the process with a report that names source and
/// address. The bytes are whole multiples of 8, but at the end of memory that was not poisoned before.
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
