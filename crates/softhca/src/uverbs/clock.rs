//! The clock page of the device, which libmlx5 maps. By it time stamps of CQEs become times of day.
//!
//! The page is in the context's memfd, at the offset that libmlx5 asks `mmap` for. The kernel rewrites its page from time to time, since
//! the clock of a NIC has a rate of its own and wraps. The clock of this device counts nanoseconds and never wraps, so its page is written
//! once.

use std::time::{SystemTime, UNIX_EPOCH};

use bytemuck::{Pod, Zeroable};
use mlx5_prm::doorbell::uar;

use crate::clock::now_ns;
use crate::device::{Context, DeviceError};

/// Ticks of the clock per millisecond.
pub(super) const KHZ: u64 = 1_000_000;
/// Bits of a time stamp that count.
pub(super) const MASK: u64 = u64::MAX;
/// Versions of the page, a bit each. The first version is the only one.
pub(super) const VERSIONS: u8 = 1;

/// Offset at which libmlx5 maps the page: `MLX5_IB_MMAP_CLOCK_INFO` in the command field of a page number, version 0 below it.
const OFFSET: u64 = (7 << 8) * uar::PAGE_BYTES as u64;
const _: () = assert!(OFFSET < Context::FIRST_UAR_OFFSET);

/// The page, `struct mlx5_ib_clock_info` in `mlx5-abi.h`.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct ClockInfo {
    /// Bit 0 is set while the page is written.
    sign: u32,
    reserved: u32,
    /// Time of day at `cycles`.
    nsec: u64,
    cycles: u64,
    frac: u64,
    /// Factor by which cycles become nanoseconds, before `shift` shifts them down.
    mult: u32,
    shift: u32,
    mask: u64,
    /// Longest time between two changes of the page, in nanoseconds.
    overflow_period: u64,
}
const _: () = assert!(size_of::<ClockInfo>() == 56);

/// Writes the clock page of `device`.
pub(super) fn publish(device: &Context) -> Result<(), DeviceError> {
    let since_epoch = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    let page = ClockInfo {
        nsec: u64::try_from(since_epoch.as_nanos()).unwrap_or(u64::MAX / 2),
        cycles: now_ns(),
        mult: 1,
        mask: MASK,
        overflow_period: MASK / 2,
        ..Zeroable::zeroed()
    };
    device.publish(OFFSET, bytemuck::bytes_of(&page))
}
