//! Launches: what to launch, and how.

use std::fmt;
use std::time::Duration;

use super::stream::Stream;
use crate::config::setters;

/// The state that a device keeps while a kernel runs that does not end by itself.
pub(super) trait Running: Send + Sync + fmt::Debug {}

/// An announcement of a kernel that does not end by itself, by [`Gpu::persistent`](super::Gpu::persistent). Drop it after the kernel's end.
#[derive(Debug, Default)]
pub struct Persistent {
    _running: Option<Box<dyn Running>>,
}

impl Persistent {
    #[cfg(feature = "cuda")]
    pub(super) fn new(running: Box<dyn Running>) -> Self {
        Self {
            _running: Some(running),
        }
    }
}

/// Extent of a grid (in blocks) or of a block (in threads).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Dim3 {
    /// The fastest dimension.
    pub x: u32,
    /// The second dimension.
    pub y: u32,
    /// The slowest dimension.
    pub z: u32,
}

impl Dim3 {
    /// Returns the number of elements.
    #[must_use]
    pub fn count(&self) -> u64 {
        u64::from(self.x) * u64::from(self.y) * u64::from(self.z)
    }
}

impl From<u32> for Dim3 {
    fn from(x: u32) -> Self {
        Self { x, y: 1, z: 1 }
    }
}

/// One launch. Start from [`Launch::new`] and change the fields that differ.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Launch<'a> {
    /// The exported name of the kernel, `wv_...`.
    pub kernel: &'a str,
    /// Blocks of the grid.
    pub grid: Dim3,
    /// Threads of a block.
    pub block: Dim3,
    /// Dynamic shared memory of a block, in bytes. Default 0.
    pub shared_bytes: usize,
    /// True if all blocks must be resident at once, so that they may wait for each other. Default false.
    pub cooperative: bool,
    /// The stream of the launch. Default: the device's default stream.
    pub stream: Option<&'a Stream>,
    /// Seed of the schedule of threads on simt; a GPU ignores it. Default 0.
    pub seed: u64,
    /// True if on simt the lanes of a warp wait for each other after divergent branches and loops. On a GPU the compiler decides that.
    /// Default false.
    pub reconverge: bool,
    /// Longest run of the whole kernel on simt, after which it fails. A GPU ignores this, since its kernels carry deadlines of their own.
    /// Default 60 s.
    pub deadline: Duration,
}

setters! {
    const Launch<'a> {
        with_kernel(kernel: &'a str),
        with_grid(grid: Dim3),
        with_block(block: Dim3),
        with_shared_bytes(shared_bytes: usize),
        with_cooperative(cooperative: bool),
        with_stream(stream: Option<&'a Stream>),
        with_seed(seed: u64),
        with_reconverge(reconverge: bool),
        with_deadline(deadline: Duration),
    }
}

impl<'a> Launch<'a> {
    /// Returns a launch of `kernel` with `grid` blocks of `block` threads.
    #[must_use]
    pub fn new(kernel: &'a str, grid: impl Into<Dim3>, block: impl Into<Dim3>) -> Self {
        Self {
            kernel,
            grid: grid.into(),
            block: block.into(),
            shared_bytes: 0,
            cooperative: false,
            stream: None,
            seed: 0,
            reconverge: false,
            deadline: Duration::from_secs(60),
        }
    }
}
