//! The grid of the MoE kernels: as many blocks as the device runs at once, beside the blocks of other ranks on it.

use crate::gpu::Gpu;
use crate::moe::{Grid, MoeError};

/// The kernels of a layer. All of them have one grid.
const KERNELS: [&str; 6] = [
    "wv_moe_dispatch_send",
    "wv_moe_dispatch_receive",
    "wv_moe_combine_send",
    "wv_moe_combine_receive",
    "wv_moe_dispatch",
    "wv_moe_combine",
];

/// Sizes of a block that are tried, in threads. The size with the most threads in flight is taken, and of equal ones the largest:
/// fewer blocks synchronise faster.
const THREADS: [u32; 3] = [256, 384, 512];

/// The grid for a device without a limit, which is simt: large enough to show what can go wrong, and quick to run.
const UNLIMITED: Grid = Grid {
    blocks: 2,
    threads: 128,
};

/// The number of blocks of one size that fit on a device.
struct Room {
    threads: u32,
    kernel: &'static str,
    resident: u32,
    ranks: u32,
}

impl Room {
    /// Returns the room for blocks of `threads` threads on a device that `ranks` ranks share; `None` if any number fits.
    fn of(gpu: &dyn Gpu, threads: u32, ranks: u32) -> Result<Option<Self>, MoeError> {
        let mut least: Option<(u32, &'static str)> = None;
        for kernel in KERNELS {
            let Some(resident) = gpu.resident_blocks(kernel, threads, 0)? else {
                return Ok(None);
            };
            if least.is_none_or(|(fewest, _)| resident < fewest) {
                least = Some((resident, kernel));
            }
        }
        Ok(least.map(|(resident, kernel)| Self {
            threads,
            kernel,
            resident,
            ranks: ranks.max(1),
        }))
    }

    fn each(&self) -> u32 {
        self.resident / self.ranks
    }

    /// Returns a grid of `blocks` blocks, if the device has room for them.
    fn take(&self, gpu: &dyn Gpu, blocks: u32) -> Result<Grid, MoeError> {
        let (threads, each) = (self.threads, self.each());
        if blocks <= each {
            return Ok(Grid { blocks, threads });
        }
        Err(MoeError::Grid {
            blocks,
            threads,
            device: gpu.label(),
            kernel: self.kernel,
            resident: self.resident,
            ranks: self.ranks,
            each,
        })
    }
}

/// Returns the grid for each of `ranks` ranks of this process on `gpu`: `wish` if it fits, or without a wish the largest grid that
/// fits.
pub(in crate::moe) fn choose(
    gpu: &dyn Gpu,
    wish: Option<Grid>,
    ranks: u32,
) -> Result<Grid, MoeError> {
    if let Some(grid) = wish {
        check(grid)?;
        return match Room::of(gpu, grid.threads, ranks)? {
            Some(room) => room.take(gpu, grid.blocks),
            None => Ok(grid),
        };
    }
    let mut best: Option<Room> = None;
    for threads in THREADS {
        let Some(room) = Room::of(gpu, threads, ranks)? else {
            return Ok(UNLIMITED);
        };
        let flight = |room: &Room| u64::from(room.each()) * u64::from(room.threads);
        if best
            .as_ref()
            .is_none_or(|best| flight(&room) >= flight(best))
        {
            best = Some(room);
        }
    }
    let room = best.expect("at least one number of threads is tried");
    room.take(gpu, room.each().max(1))
}

/// Refuses a grid that no device could run.
fn check(grid: Grid) -> Result<(), MoeError> {
    let Grid { blocks, threads } = grid;
    if !threads.is_multiple_of(32) {
        return Err(MoeError::Multiple {
            name: "threads of a block",
            value: threads,
            of: 32,
        });
    }
    for (name, value, most) in [
        ("blocks of the grid", blocks, i32::MAX.cast_unsigned()),
        ("threads of a block", threads, 1024),
    ] {
        if !(1..=most).contains(&value) {
            return Err(MoeError::Shape {
                name,
                value,
                least: 1,
                most,
            });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gpu::simt::{SimtGpu, SimtOptions};

    fn limited(blocks: u32) -> std::sync::Arc<SimtGpu> {
        let options = SimtOptions::default().with_resident_blocks(Some(blocks));
        SimtGpu::with_options(&options).unwrap()
    }

    #[test]
    fn a_grid_is_as_large_as_the_device_has_room_for() {
        let gpu = limited(11);
        let each = |ranks| choose(gpu.as_ref(), None, ranks).unwrap().blocks;
        assert_eq!([0, 1, 2, 5, 11].map(each), [11, 11, 5, 2, 1]);
        let one = Grid {
            blocks: 1,
            threads: 32,
        };
        assert_eq!(choose(gpu.as_ref(), Some(one), 11).unwrap(), one);
        let unlimited = SimtGpu::open().unwrap();
        assert_eq!(choose(unlimited.as_ref(), None, 64).unwrap(), UNLIMITED);
    }

    #[test]
    fn a_grid_that_does_not_fit_is_refused_with_the_numbers_that_count() {
        let grid = |blocks, threads| Some(Grid { blocks, threads });
        let refused = |resident, wish, ranks| {
            let error = choose(limited(resident).as_ref(), wish, ranks).unwrap_err();
            error.to_string()
        };
        assert_eq!(
            refused(11, grid(3, 64), 5),
            "3 blocks of 64 threads do not fit: simt runs 11 such blocks of kernel wv_moe_dispatch_send at once, for 5 ranks of this process: 2 for each. Set MoeConfig::grid to no more, or put fewer ranks on the device"
        );
        assert!(refused(4, None, 5).starts_with("1 blocks of 512 threads do not fit: simt runs 4"));
        for (wish, text) in [
            (
                grid(1, 33),
                "threads of a block is 33, which is not a multiple of 32",
            ),
            (
                grid(0, 32),
                "blocks of the grid is 0; it must be 1 to 2147483647",
            ),
            (
                grid(1, 1056),
                "threads of a block is 1056; it must be 1 to 1024",
            ),
            (grid(1, 0), "threads of a block is 0; it must be 1 to 1024"),
        ] {
            assert_eq!(refused(5, wish, 1), text);
        }
    }
}
