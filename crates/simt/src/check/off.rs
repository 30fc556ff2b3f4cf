//! A build without the checker: its functions do nothing.

/// True if this build has the checker.
pub const ENABLED: bool = false;

/// Notes nothing of an access of a device.
pub extern "C" fn device_access(_addr: u64, _bytes: u64, _writes: bool) {}

/// Notes nothing of memory of the host that kernels may access.
pub fn map_host_memory(_addr: u64, _host: u64, _bytes: u64) {}

/// Notes nothing of memory that is given back.
pub fn unmap_memory(_addr: u64, _bytes: u64) {}
