//! Memory that this process has resident.

// UNSAFETY: asks the allocator to give back what is free.
#![expect(unsafe_code, reason = "malloc_trim of glibc")]

/// All of it, KiB.
pub(super) fn kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let number = line.and_then(|line| line.split_whitespace().next());
    number.and_then(|number| number.parse().ok()).unwrap_or(0)
}

/// What is left when the allocator has given back the pages that no allocation uses, KiB. Allocators other than glibc's keep theirs.
pub(super) fn kib_in_use() -> u64 {
    // SAFETY: the function takes the locks of the allocator, and touches no allocation.
    #[cfg(target_env = "gnu")]
    unsafe {
        libc::malloc_trim(0);
    }
    kib()
}
