//! Copies by a GPU of host memory whose pages may be gone. A driver that meets a missing page ends the process. So such copies go through
//! buffers of this process.

// UNSAFETY: copies between addresses.
#![expect(unsafe_code, reason = "copies of memory")]

use file_memory::Gone;

use crate::gpu::CopyPiece;
use crate::provider::files;

/// The buffers that stand in for such memory during a copy.
#[derive(Debug, Default)]
pub(super) struct Staged {
    buffers: Vec<Vec<u8>>,
    /// The copies from buffers to such memory, which follow the copy of the GPU.
    back: Vec<CopyPiece>,
}

impl Staged {
    /// Puts buffers in the place of memory that may be gone, and fills the buffers that are read.
    ///
    /// # Errors
    /// A page is gone.
    ///
    /// # Safety
    /// As [`crate::gpu::Gpu::copy`], but for pages of files that were truncated.
    pub(super) unsafe fn new(copies: &mut [CopyPiece]) -> Result<Self, Gone> {
        let mut staged = Self::default();
        for copy in copies {
            let (from, to, bytes) = (copy.from, copy.to, copy.bytes);
            if files::may_be_gone(from, bytes) {
                copy.from = staged.buffer(bytes);
                // SAFETY: the caller's promise; the target is a buffer of as many bytes.
                unsafe { files::copy(from, copy.from, bytes) }?;
            }
            if files::may_be_gone(to, bytes) {
                copy.to = staged.buffer(bytes);
                let from = copy.to;
                staged.back.push(CopyPiece { to, from, bytes });
            }
        }
        Ok(staged)
    }

    /// Returns the address of a new buffer.
    fn buffer(&mut self, bytes: u64) -> u64 {
        let mut buffer = vec![0; usize::try_from(bytes).unwrap_or(usize::MAX)];
        let address = buffer.as_mut_ptr().expose_provenance() as u64;
        self.buffers.push(buffer);
        address
    }

    /// Makes the copies that follow the copy of the GPU.
    ///
    /// # Errors
    /// A page is gone.
    ///
    /// # Safety
    /// As [`Self::new`].
    pub(super) unsafe fn finish(self) -> Result<(), Gone> {
        for CopyPiece { to, from, bytes } in &self.back {
            // SAFETY: the caller's promise; the source is a buffer of as many bytes.
            unsafe { files::copy(*from, *to, *bytes) }?;
        }
        Ok(())
    }
}
