//! The page of the machine that holds registers: a driver registers it, and simt maps it a second time, as a whole.

use super::GpuError;
use super::file::page_bytes;

/// Bytes of a page of registers. A page of the machine may hold several.
pub(super) const REGISTERS: usize = 4096;

/// Bytes of the page of the machine.
pub(super) fn bytes() -> usize {
    page_bytes().max(REGISTERS)
}

/// First byte of the page of the machine with the `bytes_used` bytes of registers at `host`, and where in it they begin.
pub(super) fn of(host: *mut u8, bytes_used: usize) -> Result<(*mut u8, usize), GpuError> {
    let room = REGISTERS - host.addr() % REGISTERS;
    if host.is_null() || !host.addr().is_multiple_of(8) || bytes_used == 0 || bytes_used > room {
        return Err(GpuError::BadArgument {
            what: "register page",
            value: format!("{bytes_used} bytes at {host:p}"),
            limit: format!("at least one byte at a multiple of 8, within a page of {REGISTERS}"),
        });
    }
    let offset = host.addr() % bytes();
    Ok((host.map_addr(|addr| addr - offset), offset))
}
