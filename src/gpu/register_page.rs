//! Pages of the machine that hold registers: a driver registers such a page as a whole, and simt maps it a second time.

use super::GpuError;
use super::file::page_bytes;

/// The number of bytes in a page of registers. A page of the machine may hold several pages of registers.
pub(super) const REGISTERS: usize = 4096;

/// Returns the bytes of a page of the machine.
pub(super) fn bytes() -> usize {
    page_bytes().max(REGISTERS)
}

/// Returns the start of the machine's page that holds the `bytes_used` bytes of registers at `host`, and their offset in it.
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
