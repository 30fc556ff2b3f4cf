//! A build without the checker: nothing is noted, nothing is found.

/// A device of this process accesses `bytes` bytes at `addr` next.
pub extern "C" fn device_access(_addr: u64, _bytes: u64, _writes: bool) {}

/// Memory of the host that kernels may access.
pub fn map_host_memory(_addr: u64, _host: u64, _bytes: u64) {}

/// Memory that is given back.
pub fn unmap_memory(_addr: u64, _bytes: u64) {}
