//! How much memory of this process is resident.

// UNSAFETY: asks the allocator to give back what is free.
#![expect(unsafe_code, reason = "malloc_trim of glibc")]

/// Returns the resident memory of this process, KiB.
pub(super) fn kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let number = line.and_then(|line| line.split_whitespace().next());
    number.and_then(|number| number.parse().ok()).unwrap_or(0)
}

/// Returns the resident memory after the allocator has given back pages that no allocation uses, KiB. Only glibc's allocator is asked to.
pub(super) fn kib_in_use() -> u64 {
    // SAFETY: the function takes the locks of the allocator, and touches no allocation.
    #[cfg(target_env = "gnu")]
    unsafe {
        libc::malloc_trim(0);
    }
    kib()
}
