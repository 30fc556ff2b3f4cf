//! The configuration of a launch: grid, block, memory, schedule, deadline.

use std::time::Duration;

use crate::coordinates::Dim3;
use crate::error::LaunchError;

/// The configuration of one launch of a kernel. It is checked at the launch. `Default` is one block of one warp.
#[derive(Clone, Debug)]
pub struct LaunchConfig {
    /// The number of blocks: x in 1..=2^31-1, y and z in 1..=65535.
    pub grid: Dim3,
    /// The number of threads of a block: x and y in 1..=1024, z in 1..=64, together at most 1024.
    pub block: Dim3,
    /// The bytes of dynamic shared memory of a block, at most 232,448 (sm_90).
    pub shared_bytes: usize,
    /// True if kernels may call `simt_grid_sync`.
    pub cooperative: bool,
    /// The number of OS threads that run the blocks, 1..=256. Block b runs on worker b mod `workers`. The caller is worker 0.
    pub workers: usize,
    /// The seed of the schedule. 0 is the plain order, which is the fastest; any other seed picks threads at random. With one worker, the
    /// same seed gives the same schedule (as long as the memory that threads poll behaves the same).
    pub seed: u64,
    /// True if the lanes of a warp wait for each other after parts that kernels mark (`simt_diverge`, `simt_reconverge`), as the compiler
    /// nvcc makes lanes wait after divergent branches and loops. Default false: the marks do nothing.
    pub reconverge: bool,
    /// The bytes of the stack of one CUDA thread, 8 KiB..=8 MiB. Default 32 KiB, 128 KiB in builds with a sanitizer.
    pub stack_bytes: usize,
    /// The time in which the whole launch must end. It is checked at schedule points only: a kernel that computes without ever reaching a
    /// schedule point is not stopped.
    pub deadline: Duration,
    /// The kernel's name, for reports of the [checker](crate::check).
    pub name: &'static str,
    /// The number of the GPU that this launch stands for. To the [checker](crate::check) threads on different GPUs are apart by scope sys.
    pub device: u32,
    /// A function that returns whether kernels may store to a device register at this address. It is called at each store; a store to any
    /// other register ends the launch. Default none: kernels may store to every register.
    pub registers: Option<fn(u64) -> bool>,
}

impl Default for LaunchConfig {
    fn default() -> Self {
        Self {
            grid: Dim3::from(1),
            block: Dim3::from(32),
            shared_bytes: 0,
            cooperative: false,
            workers: 1,
            seed: 0,
            reconverge: false,
            // A sanitizer makes stack frames larger.
            stack_bytes: if cfg!(any(feature = "tsan", feature = "asan")) {
                128 << 10
            } else {
                32 << 10
            },
            deadline: Duration::from_secs(60),
            name: "a kernel",
            device: 0,
            registers: None,
        }
    }
}

/// The number of lanes of a warp, as on every NVIDIA GPU.
pub(crate) const WARP_LANES: u32 = 32;

/// A checked [`LaunchConfig`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    pub(crate) grid: Dim3,
    pub(crate) block: Dim3,
    /// The number of blocks of the grid, 1..=u32::MAX.
    pub(crate) blocks: u32,
    /// The number of threads of a block, 1..=1024.
    pub(crate) threads: u32,
    pub(crate) shared_bytes: usize,
    pub(crate) stack_bytes: usize,
    pub(crate) cooperative: bool,
    pub(crate) seed: u64,
    pub(crate) reconverge: bool,
    /// The number of OS threads, 1..=256 and at most one per block.
    pub(crate) workers: u32,
    pub(crate) registers: Option<fn(u64) -> bool>,
    #[cfg(feature = "tsan")]
    pub(crate) name: &'static str,
    #[cfg(feature = "tsan")]
    pub(crate) device: u32,
}

impl Shape {
    pub(crate) fn check(config: &LaunchConfig) -> Result<Self, LaunchError> {
        let Dim3 { x, y, z } = config.grid;
        within("grid.x", x, 1, 0x7fff_ffff)?;
        within("grid.y", y, 1, 65_535)?;
        within("grid.z", z, 1, 65_535)?;
        let blocks = within(
            "blocks of the grid",
            config.grid.count(),
            1,
            u64::from(u32::MAX),
        )?;
        let Dim3 { x, y, z } = config.block;
        within("block.x", x, 1, 1024)?;
        within("block.y", y, 1, 1024)?;
        within("block.z", z, 1, 64)?;
        let threads = within("threads of a block", config.block.count(), 1, 1024)?;
        within("shared_bytes", config.shared_bytes as u128, 0, 232_448)?;
        within("stack_bytes", config.stack_bytes as u128, 8 << 10, 8 << 20)?;
        let workers = within("workers", config.workers as u128, 1, 256)?;
        Ok(Self {
            grid: config.grid,
            block: config.block,
            blocks,
            threads,
            shared_bytes: config.shared_bytes,
            stack_bytes: config.stack_bytes,
            cooperative: config.cooperative,
            seed: config.seed,
            reconverge: config.reconverge,
            workers: workers.min(blocks),
            registers: config.registers,
            #[cfg(feature = "tsan")]
            name: config.name,
            #[cfg(feature = "tsan")]
            device: config.device,
        })
    }
}

/// Returns `value` as a `u32` if it lies in `min..=max` (`max` ≤ `u32::MAX`).
fn within(
    field: &'static str,
    value: impl Into<u128>,
    min: u64,
    max: u64,
) -> Result<u32, LaunchError> {
    let value = value.into();
    if value < u128::from(min) || value > u128::from(max) {
        return Err(LaunchError::BadConfig {
            field,
            value,
            min,
            max,
        });
    }
    u32::try_from(value).map_err(|_| LaunchError::BadConfig {
        field,
        value,
        min,
        max,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(config: &LaunchConfig) -> String {
        Shape::check(config).unwrap_err().to_string()
    }

    #[test]
    fn sizes_one_past_the_limit_are_refused_with_value_and_limit() {
        let good = LaunchConfig::default;
        assert_eq!(
            refused(&LaunchConfig {
                grid: Dim3::from(0),
                ..good()
            }),
            "grid.x is 0; it must be 1 to 2147483647"
        );
        assert_eq!(
            refused(&LaunchConfig {
                block: Dim3::from(1025),
                ..good()
            }),
            "block.x is 1025; it must be 1 to 1024"
        );
        let block = Dim3::from((32, 33));
        assert_eq!(
            refused(&LaunchConfig { block, ..good() }),
            "threads of a block is 1056; it must be 1 to 1024"
        );
        assert_eq!(
            refused(&LaunchConfig {
                workers: 0,
                ..good()
            }),
            "workers is 0; it must be 1 to 256"
        );
        let grid = Dim3::from((0x7fff_ffff, 65_535, 65_535));
        let all = "blocks of the grid is 9223090559730712575; it must be 1 to 4294967295";
        assert_eq!(refused(&LaunchConfig { grid, ..good() }), all);
        assert!(
            refused(&LaunchConfig {
                shared_bytes: 232_449,
                ..good()
            })
            .starts_with("shared_bytes is 232449")
        );
        assert!(
            refused(&LaunchConfig {
                stack_bytes: 8191,
                ..good()
            })
            .starts_with("stack_bytes is 8191")
        );
    }
}
