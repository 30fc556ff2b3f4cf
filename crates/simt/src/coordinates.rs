//! Sizes and positions in a grid, and which thread of the grid is meant.

use std::fmt;

/// A size or a position in a grid or block, as CUDA's `dim3`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Dim3 {
    /// The size in the fastest dimension.
    pub x: u32,
    /// The size in the middle dimension.
    pub y: u32,
    /// The size in the slowest dimension.
    pub z: u32,
}

impl Dim3 {
    /// Returns the number of elements in a box of this size.
    #[must_use]
    pub fn count(self) -> u128 {
        u128::from(self.x) * u128::from(self.y) * u128::from(self.z)
    }

    /// Returns position number `index` in a box of this size. `x` is the fastest dimension.
    pub(crate) fn position(self, index: u32) -> Self {
        Self {
            x: index % self.x,
            y: index / self.x % self.y,
            z: index / self.x / self.y,
        }
    }
}

impl From<u32> for Dim3 {
    fn from(x: u32) -> Self {
        Self { x, y: 1, z: 1 }
    }
}

impl From<(u32, u32)> for Dim3 {
    fn from((x, y): (u32, u32)) -> Self {
        Self { x, y, z: 1 }
    }
}

impl From<(u32, u32, u32)> for Dim3 {
    fn from((x, y, z): (u32, u32, u32)) -> Self {
        Self { x, y, z }
    }
}

/// The place of a CUDA thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ThreadId {
    /// The block in the grid.
    pub block: Dim3,
    /// The number of the warp in the block.
    pub warp: u32,
    /// The number of the lane in the warp, 0..32.
    pub lane: u32,
}

impl fmt::Display for ThreadId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Dim3 { x, y, z } = self.block;
        write!(
            f,
            "block ({x},{y},{z}) warp {} lane {}",
            self.warp, self.lane
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_count_x_first() {
        let size = Dim3::from((4, 3, 2));
        assert_eq!(size.count(), 24);
        assert_eq!(size.position(0), Dim3 { x: 0, y: 0, z: 0 });
        assert_eq!(size.position(7), Dim3 { x: 3, y: 1, z: 0 });
        assert_eq!(size.position(23), Dim3 { x: 3, y: 2, z: 1 });
    }
}
