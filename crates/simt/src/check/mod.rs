//! The checker of the order of memory accesses, while kernels run. It exists in builds with the feature `tsan`; others do nothing.
//!
//! Kernels are compiled with `-fsanitize=thread`, and the compiler makes them call this module in place of libtsan. It knows what
//! libtsan does not: fences and their scopes, blocks and their L1, and a device that reads and writes memory after a doorbell.
//! Each access is compared with earlier ones of the same bytes:
//!
//! - **unordered**: two threads touch the same bytes, one writes, one by a plain (weak) access, and nothing orders them. Order
//!   comes from a chain of release fence, store, load and acquire fence of sufficient scope, from a barrier or from `__syncwarp`.
//!   Atomics conflict only where the scope of one does not hold both. A shuffle or vote orders nothing. A store that depends on a
//!   relaxed load or a shuffle does come after it.
//! - **untold**: a device reads what a thread wrote, or overwrites what it used, without a release fence before the doorbell that
//!   started the device. The fence must have scope gpu for device memory, and scope sys for host-mapped memory.
//! - **stale**: a weak load finds a sector in its block's L1 that was loaded before memory changed.
//! - **not constant**: a non-coherent load (`__ldg`, `ld.global.nc`) of bytes that a device, or a thread of the same launch, has
//!   written.
//! - **host address**: a thread uses the address that host-mapped memory has for the host, which a GPU need not have.
//!
//! The checker finds a race if both accesses happen, in whatever order, so seeds matter little. It does not see order weaker than that of
//! the schedule that ran, nor accesses of the host. It does not see races of blocks that run one after the other in one seat; with a seed
//! that is not 0 few blocks do. It looks 24 accesses of one 8-byte word back. Devices count as one device, which does everything in order.
//!
//! A launch with findings ends in `LaunchError::Findings`. Findings that no launch and no
//! `take_findings` has reported are printed when the process ends, which then exits with status 66.
//!
//! # Rooms
//!
//! Each floor may name those below it, and none above or beside it.
//!
//! ```text
//! omit.rs          operations that a test lets the checker treat as missing
//! entries.rs       what the scheduler, compiled code and devices tell the checker
//! state.rs         all that kernels and devices have done; each access is checked here
//! report.rs lines.rs l1.rs   findings in words; their lines of the source; the L1 of a block
//! shadow.rs        the last accesses to each 8 bytes
//! agent.rs         what one thread has done, seen and published
//! access.rs clock.rs finding.rs omission.rs lock.rs off.rs   plain data; the lock; a build without the checker
//! ```

#[cfg(feature = "tsan")]
mod access;
#[cfg(feature = "tsan")]
mod agent;
#[cfg(feature = "tsan")]
mod clock;
#[cfg(feature = "tsan")]
mod entries;
#[cfg(feature = "tsan")]
mod finding;
#[cfg(feature = "tsan")]
mod l1;
#[cfg(feature = "tsan")]
mod lines;
#[cfg(feature = "tsan")]
mod lock;
#[cfg(not(feature = "tsan"))]
mod off;
#[cfg(feature = "tsan")]
mod omission;
#[cfg(feature = "tsan")]
mod omit;
#[cfg(feature = "tsan")]
mod report;
#[cfg(feature = "tsan")]
mod shadow;
#[cfg(feature = "tsan")]
mod state;

#[cfg(feature = "tsan")]
pub(crate) use access::{Access, Fence, Scope};
#[cfg(feature = "tsan")]
pub use entries::{ENABLED, device_access, map_host_memory, take_findings, unmap_memory};
#[cfg(feature = "tsan")]
pub(crate) use entries::{
    arrive_at_grid, atomic, begin_launch, begin_thread, doorbell, end_launch, end_thread, fence,
    forget, leave_grid, lock, meet_block, meet_warp, plain, unlock,
};
#[cfg(feature = "tsan")]
pub use finding::{Finding, Kind};
#[cfg(not(feature = "tsan"))]
pub use off::*;
#[cfg(feature = "tsan")]
pub use omission::Omission;
#[cfg(feature = "tsan")]
pub use omit::{Omitted, omit};
