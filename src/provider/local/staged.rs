//! Copies by a GPU of memory of the host whose pages may be gone: a driver that meets one ends the process. So they go by way of memory
//! of ours.

// UNSAFETY: copies between addresses.
#![expect(unsafe_code, reason = "copies of memory")]

use file_memory::Gone;

use crate::gpu::CopyPiece;
use crate::provider::files;

/// What stands in for such memory during a copy.
#[derive(Debug, Default)]
pub(super) struct Staged {
    buffers: Vec<Vec<u8>>,
    /// Copies that are left when the GPU has copied.
    back: Vec<CopyPiece>,
}

impl Staged {
    /// Names memory of ours in the place of memory that may be gone, with its bytes where they are read.
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

    /// The GPU has copied: so do the rest.
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
