//! The descriptor by which a peer learns of a registered region, and the count of the users of a region.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use crate::engine::error::EngineError;
use crate::engine::memory::carried::{Opened, seal};
use crate::engine::route::rails::RailKeys;
use crate::gpu::Gpu;

/// Bytes of a descriptor as [`Descriptor::to_bytes`] gives it. The size is part of the format.
pub const DESCRIPTOR_BYTES: usize = 72;
/// The first bytes of a descriptor, which name the form and its version.
const MAGIC: [u8; 4] = *b"WVR\x02";

/// What a peer needs to know of a region. Programs may carry it themselves, as bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Descriptor {
    /// The life of the engine that has the region.
    pub incarnation: u64,
    /// The address of the first byte.
    pub address: u64,
    /// The number of bytes.
    pub bytes: u64,
    /// The keys, by rail.
    pub rkeys: RailKeys,
}

impl Descriptor {
    /// Returns the bytes that a program carries to the peer, with a checksum.
    #[must_use]
    pub fn to_bytes(self) -> [u8; DESCRIPTOR_BYTES] {
        let words = [self.incarnation, self.address, self.bytes];
        seal(MAGIC, self.rkeys, &words)
    }

    /// Parses the bytes of a descriptor, from any source.
    ///
    /// # Errors
    /// [`EngineError::Descriptor`] says what is wrong.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, EngineError> {
        let bad = |what| EngineError::Descriptor { what };
        let whole = bytes.try_into();
        let whole = whole.map_err(|_| bad("its length is not 72 bytes"))?;
        let opened = Opened::<DESCRIPTOR_BYTES>::new(MAGIC, whole).map_err(bad)?;
        let (address, bytes) = opened.range(16).map_err(bad)?;
        Ok(Self {
            incarnation: opened.word(8),
            address,
            bytes,
            rkeys: opened.rkeys().map_err(bad)?,
        })
    }
}

/// The number of users of a region, and whether it takes more users.
#[derive(Debug)]
pub(in crate::engine) struct Users {
    count: AtomicU32,
    is_open: AtomicBool,
    /// The GPU that copies the region's memory.
    copier: Option<Arc<dyn Gpu>>,
}

impl Default for Users {
    fn default() -> Self {
        Self::of(None)
    }
}

impl Users {
    /// Returns the count of a region that has no users yet. This GPU copies its memory.
    pub(in crate::engine) fn of(copier: Option<Arc<dyn Gpu>>) -> Self {
        Self {
            count: AtomicU32::new(0),
            is_open: AtomicBool::new(true),
            copier,
        }
    }

    /// Returns the GPU that copies the region's memory. None: the memory is the host's, or its GPU makes no copies.
    pub(in crate::engine) fn copier(&self) -> Option<&Arc<dyn Gpu>> {
        self.copier.as_ref()
    }

    /// Counts one more user. Returns false, and counts nothing, if the region is being taken away.
    pub(in crate::engine) fn enter(&self) -> bool {
        // SeqCst: either this thread sees that the region is closed, or the thread that closes it sees this user.
        self.count.fetch_add(1, Ordering::SeqCst);
        let is_open = self.is_open.load(Ordering::SeqCst);
        if !is_open {
            self.leave();
        }
        is_open
    }

    pub(in crate::engine) fn leave(&self) {
        self.count.fetch_sub(1, Ordering::SeqCst);
    }

    /// Takes no more users. If it has users, it stays open, and the error is their number.
    pub(in crate::engine) fn close(&self) -> Result<(), u32> {
        self.is_open.store(false, Ordering::SeqCst);
        match self.count.load(Ordering::SeqCst) {
            0 => Ok(()),
            count => {
                self.open();
                Err(count)
            }
        }
    }

    pub(in crate::engine) fn open(&self) {
        self.is_open.store(true, Ordering::SeqCst);
    }
}
