//! Memory of a GPU for engines: no thread of this process reaches it by its address, so a copy in place of the HCA's is a crash.

// UNSAFETY: takes the rights of pages of device memory away; implements `Gpu`, whose functions may be unsafe to call.
#![expect(unsafe_code, reason = "pages without rights, and the trait `Gpu`")]

use std::fmt;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};

use test_support::limits::HANG;
use warpverbs::gpu::simt::{SimtGpu, SimtOptions};
use warpverbs::gpu::{CopyPiece, DeviceMemory, Gpu, GpuError, RdmaSupport, WriteOrdering};
use warpverbs::internal::engine::GpuMemory;

/// Device memory of which HCAs get DMA-BUFs.
pub(crate) struct Sealed {
    pub(crate) memory: Arc<GpuMemory>,
    file: File,
}

impl Sealed {
    pub(crate) fn new(gpu: &Arc<dyn Gpu>, bytes: u64) -> Self {
        let length = usize::try_from(bytes).unwrap();
        let memory = Arc::new(gpu.alloc(length, 4096).unwrap());
        let dmabuf = memory.dmabuf(false).unwrap().expect("it has DMA-BUFs");
        assert_eq!(dmabuf.offset, 0);
        seal(&memory);
        let memory = GpuMemory::new(gpu, &memory).unwrap();
        Self {
            memory: Arc::new(memory),
            file: dmabuf.fd.into(),
        }
    }

    pub(crate) fn at(&self, offset: u64) -> u64 {
        self.memory.address() + offset
    }

    pub(crate) fn fill(&self, seed: u64) -> Vec<u8> {
        let mut bytes = self.bytes();
        fastrand::Rng::with_seed(seed).fill(&mut bytes);
        self.file.write_all_at(&bytes, 0).unwrap();
        bytes
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut bytes = vec![0; usize::try_from(self.memory.bytes()).unwrap()];
        self.file.read_exact_at(&mut bytes, 0).unwrap();
        bytes
    }
}

/// Threads of this process get no right to it.
pub(crate) fn seal(memory: &DeviceMemory) {
    protect(memory.addr(), memory.bytes(), libc::PROT_NONE);
}

/// Threads get these rights to memory that tests use by its DMA-BUF, or while its GPU copies.
fn protect(address: u64, bytes: usize, rights: i32) {
    let first = std::ptr::with_exposed_provenance_mut(usize::try_from(address).unwrap());
    let bytes = bytes.next_multiple_of(4096);
    // SAFETY: whole pages of an allocation that no thread uses by its address at this time.
    let changed = unsafe { libc::mprotect(first, bytes, rights) };
    assert_eq!(changed, 0, "{}", std::io::Error::last_os_error());
}

/// A device that copies between addresses. Threads reach its memory while it does so, and at no other time.
#[derive(Debug)]
pub(crate) struct Copying {
    simt: Arc<SimtGpu>,
    within: &'static str,
    sealed: Mutex<Vec<(u64, usize)>>,
    /// Bytes that it has copied.
    pub(crate) copied: AtomicU64,
    /// It copies nothing, and says so.
    pub(crate) refuses: AtomicBool,
}

impl Copying {
    /// One that reaches devices with the same word.
    pub(crate) fn new(within: &'static str) -> Arc<Self> {
        let options = SimtOptions::default().with_dmabufs(true);
        Arc::new(Self {
            simt: SimtGpu::with_options(&options).unwrap(),
            within,
            sealed: Mutex::default(),
            copied: AtomicU64::new(0),
            refuses: AtomicBool::new(false),
        })
    }

    /// Memory of it.
    pub(crate) fn sealed(self: &Arc<Self>, bytes: u64) -> Sealed {
        let gpu: Arc<dyn Gpu> = Arc::<Self>::clone(self);
        let sealed = Sealed::new(&gpu, bytes);
        let place = (sealed.at(0), usize::try_from(bytes).unwrap());
        self.sealed.lock().unwrap().push(place);
        sealed
    }
}

impl Gpu for Copying {
    warpverbs::forward_gpu! { simt, map_mmio, resident_blocks, launch, buffer_id }

    fn label(&self) -> String {
        format!("a GPU within {}", self.within)
    }

    fn device_id(&self) -> String {
        self.within.to_owned()
    }

    fn rdma(&self) -> Result<RdmaSupport, GpuError> {
        self.simt.rdma()
    }

    fn copies_within(&self) -> Option<&'static str> {
        Some(self.within)
    }

    unsafe fn copy(&self, pieces: &[CopyPiece]) -> Result<(), GpuError> {
        let sealed = self.sealed.lock().unwrap();
        if self.refuses.load(Ordering::Relaxed) {
            return Err(refusal());
        }
        let rights = libc::PROT_READ | libc::PROT_WRITE;
        sealed
            .iter()
            .for_each(|(at, bytes)| protect(*at, *bytes, rights));
        // SAFETY: the caller's promise.
        let copied = unsafe { self.simt.copy(pieces) };
        sealed
            .iter()
            .for_each(|(at, bytes)| protect(*at, *bytes, libc::PROT_NONE));
        let bytes: u64 = pieces.iter().map(|piece| piece.bytes).sum();
        self.copied.fetch_add(bytes, Ordering::Relaxed);
        copied
    }
}

/// A device with DMA-BUFs.
pub(crate) fn gpu() -> Arc<dyn Gpu> {
    simt()
}

fn simt() -> Arc<SimtGpu> {
    let options = SimtOptions::default()
        .with_dmabufs(true)
        .with_dmabufs_across_pcie(true)
        .with_copies(false);
    SimtGpu::with_options(&options).unwrap()
}

/// Such a device that says what a test wants: of its support of HCAs, of buffers, and when it has flushed.
pub(crate) struct Posed {
    simt: Arc<SimtGpu>,
    support: RdmaSupport,
    /// The number of every buffer; 0: what simt says.
    pub(crate) buffer: AtomicU64,
    gate: Mutex<Option<Held>>,
}

/// What a flush says when it begins, and waits for.
type Held = (SyncSender<()>, Receiver<Result<(), GpuError>>);

/// The other end of a flush: it has begun, and ends so.
pub(crate) struct Gate {
    begun: Receiver<()>,
    end: SyncSender<Result<(), GpuError>>,
}

impl Gate {
    pub(crate) fn begun(&self) {
        self.begun.recv_timeout(HANG).expect("it flushes");
    }

    pub(crate) fn end(&self, with: Result<(), GpuError>) {
        self.end.send(with).unwrap();
    }
}

/// Returns how it refuses.
pub(crate) fn refusal() -> GpuError {
    GpuError::NotOpened {
        why: "as planned".to_owned(),
    }
}

impl Posed {
    pub(crate) fn new(support: RdmaSupport) -> Arc<Self> {
        Arc::new(Self {
            simt: simt(),
            support,
            buffer: AtomicU64::new(0),
            gate: Mutex::default(),
        })
    }

    /// One that shows writes after a flush by the host.
    pub(crate) fn unordered() -> Arc<Self> {
        Self::new(RdmaSupport {
            write_ordering: WriteOrdering::None,
            flush_by_host: true,
            ..RdmaSupport::HOST
        })
    }

    /// The next flush waits here.
    pub(crate) fn gate(&self) -> Gate {
        let ((begins, begun), (end, ends)) = (sync_channel(8), sync_channel(8));
        *self.gate.lock().unwrap() = Some((begins, ends));
        Gate { begun, end }
    }
}

impl fmt::Debug for Posed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Posed")
    }
}

impl Gpu for Posed {
    warpverbs::forward_gpu! { simt, map_mmio, resident_blocks, launch }

    fn label(&self) -> String {
        "a posed GPU".to_owned()
    }

    fn device_id(&self) -> String {
        "posed".to_owned()
    }

    fn rdma(&self) -> Result<RdmaSupport, GpuError> {
        Ok(self.support)
    }

    fn buffer_id(&self, addr: u64) -> Result<Option<u64>, GpuError> {
        match self.buffer.load(Ordering::Relaxed) {
            0 => self.simt.buffer_id(addr),
            number => Ok(Some(number)),
        }
    }

    fn flush_writes(&self) -> Result<(), GpuError> {
        match self.gate.lock().unwrap().take() {
            None => Ok(()),
            Some((begins, ends)) => {
                begins.send(()).unwrap();
                ends.recv_timeout(HANG).expect("the test ends it")
            }
        }
    }
}
