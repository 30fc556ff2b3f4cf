//! The device of a rank: its GPU, with twins in place of UAR pages.

// UNSAFETY: reads a word of a UAR page by its address; passes launches and streams on.
#![expect(
    unsafe_code,
    reason = "a word of a UAR page; declarations of the trait"
)]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::abi::TWIN;
use warpverbs::gpu::{Gpu, GpuError, MappedMmio, RdmaSupport, RegisterKind};

/// A GPU whose kernels ring `gpuhca`.
#[derive(Debug)]
pub(super) struct RankGpu {
    gpu: Arc<dyn Gpu>,
    /// The number of blocks of the HCA's kernel and of multiprocessors of the GPU. None: the device has no multiprocessors.
    taken: Option<(u32, u32)>,
}

impl RankGpu {
    pub(super) fn new(gpu: Arc<dyn Gpu>, taken: Option<(u32, u32)>) -> Self {
        Self { gpu, taken }
    }
}

/// Returns how many of `resident` blocks on all `multiprocessors` still fit, if each of `blocks` blocks of another kernel takes a whole
/// multiprocessor.
fn beside(resident: u32, (blocks, multiprocessors): (u32, u32)) -> u32 {
    let each = resident / multiprocessors.max(1);
    each * multiprocessors.saturating_sub(blocks)
}

impl Gpu for RankGpu {
    warpverbs::forward_gpu! { gpu, label, device_id, slot, alloc_host, alloc_host_shared, buffer_id, persistent, launch }

    /// Returns the support of host memory. The HCA is a kernel of the same GPU: it takes memory by its address, and what it writes is in
    /// order.
    fn rdma(&self) -> Result<RdmaSupport, GpuError> {
        Ok(RdmaSupport::HOST)
    }

    fn map_mmio(&self, host: *mut u8, bytes: usize) -> Result<MappedMmio, GpuError> {
        let refuse = |value: String| GpuError::BadArgument {
            what: "register page",
            value,
            limit: "a page of 4096 bytes of an external HCA of softhca, whose executor is attached"
                .to_owned(),
        };
        if host.is_null() || !host.addr().is_multiple_of(4096) || bytes != 4096 {
            return Err(refuse(format!("{bytes} bytes at {host:p}")));
        }
        // SAFETY: a whole page that the caller has mapped and keeps mapped; softhca stores to this word atomically.
        let twin = unsafe { AtomicU64::from_ptr(host.add(TWIN as usize).cast()) };
        // Acquire: pairs with softhca's release when it gave the page its twin.
        match twin.load(Ordering::Acquire) {
            0 => Err(refuse(format!("{host:p} without a twin"))),
            twin => Ok(MappedMmio::elsewhere(twin)),
        }
    }

    /// Maps a page as `map_mmio` does, because a twin is memory of the GPU whatever its page is.
    fn map_mmio_as(
        &self,
        host: *mut u8,
        bytes: usize,
        _kind: RegisterKind,
    ) -> Result<MappedMmio, GpuError> {
        self.map_mmio(host, bytes)
    }

    fn resident_blocks(
        &self,
        kernel: &str,
        threads: u32,
        shared_bytes: usize,
    ) -> Result<Option<u32>, GpuError> {
        let resident = self.gpu.resident_blocks(kernel, threads, shared_bytes)?;
        Ok(match (resident, self.taken) {
            (Some(resident), Some(taken)) => Some(beside(resident, taken)),
            (resident, _) => resident,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rank_has_the_multiprocessors_that_the_hca_leaves() {
        assert_eq!(beside(132, (16, 132)), 116);
        assert_eq!(beside(264, (16, 132)), 232);
        assert_eq!(beside(264, (132, 132)), 0);
        assert_eq!(beside(264, (200, 132)), 0);
        assert_eq!(beside(0, (1, 0)), 0);
    }
}
