//! Device memory of the simt backend: anonymous pages, or pages of a file that other processes can map, tracked while they live.
//!
//! Each allocation is a mapping of its own between two inaccessible pages. So a kernel that runs off either end stops at that page instead
//! of in a neighbouring allocation. Pages cost nothing until they are touched (`MAP_NORESERVE`). Copies from the host are checked against
//! the live allocations, and go word by word through atomics. A kernel or the software HCA may write the same memory at the same time. Then
//! the copy sees each word as it was before or after that write, never a torn word.

// UNSAFETY: maps and unmaps memory, and copies to and from it by address.
#![expect(unsafe_code, reason = "mmap, and atomics in mapped memory")]

use std::ptr::NonNull;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::gpu::arena::Arena;
use crate::gpu::file::{self, Mapping, SharedFile};
use crate::gpu::memory::{DeviceMemory, Hold, HostMapped, MemoryDmabuf};
use crate::gpu::ranges::{Ranges, check_request};
use crate::gpu::share::{Name, refused};
use crate::gpu::{CopyPiece, GpuError, MemoryHandle, OpenedMemory};

use super::mapped::Reached;

/// The number of inaccessible bytes on either side of an allocation.
const GUARD: usize = 4096;

/// The memory of one device.
#[derive(Debug, Default)]
pub(super) struct SimtArena {
    live: Mutex<Ranges>,
    /// The kinds of DMA-BUFs as which the software HCA takes the files of device memory.
    exports: Exports,
    budget: Option<Budget>,
}

/// The number of bytes of device memory, and how many are free.
#[derive(Debug)]
struct Budget {
    total: u64,
    free: AtomicU64,
}

impl Budget {
    fn take(&self, bytes: usize) -> Result<(), GpuError> {
        let left = |free: u64| free.checked_sub(bytes as u64);
        match self.free.fetch_update(Relaxed, Relaxed, left) {
            Ok(_) => Ok(()),
            Err(free) => Err(no_memory(
                "device",
                bytes,
                format!("{free} of {} bytes are free on simt", self.total),
            )),
        }
    }

    fn give_back(&self, bytes: usize) {
        self.free.fetch_add(bytes as u64, Relaxed);
    }
}

/// The kinds of DMA-BUFs that device memory has.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Exports {
    pub(super) plain: bool,
    pub(super) across_pcie: bool,
}

impl Exports {
    fn any(self) -> bool {
        self.plain || self.across_pcie
    }
}

impl SimtArena {
    /// Makes the memory of a device that has `bytes` bytes. None: as many as the system gives.
    pub(super) fn new(exports: Exports, bytes: Option<u64>) -> Self {
        Self {
            exports,
            budget: bytes.map(|total| Budget {
                total,
                free: AtomicU64::new(total),
            }),
            ..Self::default()
        }
    }

    pub(super) fn exports(&self) -> bool {
        self.exports.any()
    }

    fn device(
        self: &Arc<Self>,
        bytes: usize,
        align: usize,
        shown: bool,
    ) -> Result<DeviceMemory, GpuError> {
        let mut allocation = Allocation::new(self, bytes, align, "device")?;
        if let Some(budget) = &self.budget {
            budget.take(bytes)?;
            allocation.taken = bytes;
        }
        allocation.shown = shown;
        if shown || self.exports() {
            allocation.file = Some(allocation.put_in_file()?);
        }
        self.lock().insert(allocation.addr(), bytes);
        Ok(allocation.into_memory(bytes))
    }

    pub(super) fn number(&self, addr: u64) -> Option<u64> {
        self.lock().number(addr)
    }

    fn lock(&self) -> MutexGuard<'_, Ranges> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Arena for Arc<SimtArena> {
    fn alloc(&self, bytes: usize, align: usize) -> Result<DeviceMemory, GpuError> {
        self.device(bytes, align, false)
    }

    /// Allocates as `alloc` does, in a file that other processes can map.
    fn alloc_shared(&self, bytes: usize, align: usize) -> Result<DeviceMemory, GpuError> {
        self.device(bytes, align, true)
    }

    unsafe fn wrap_memory(&self, addr: u64, bytes: usize) -> Result<DeviceMemory, GpuError> {
        self.lock().lend(addr, bytes)?;
        let lent = Lent {
            arena: Arc::clone(self),
            addr,
            _reached: Reached::new(addr, bytes),
        };
        Ok(DeviceMemory::new(addr, bytes, Box::new(lent)))
    }

    unsafe fn lend_memory(&self, addr: u64, bytes: usize) -> Result<DeviceMemory, GpuError> {
        // Any memory of this process may be lent, if it can be memory at all.
        Ranges::default().lend(addr, bytes)?;
        Ok(DeviceMemory::new(addr, bytes, Box::new(ForHcas)))
    }

    /// Maps pages of a file twice: once for kernels, and once for the host and an HCA.
    fn map_host(&self, bytes: usize) -> Result<HostMapped, GpuError> {
        let mut kernels = Allocation::new(self, bytes, 64, "host")?;
        let file = kernels.put_in_file()?;
        let host = Mapping::new(file.fd(), kernels.length)
            .map_err(|error| no_memory("host", bytes, error))?;
        let (start, addr) = (host.start(), kernels.addr());
        let seen = start.as_ptr().expose_provenance() as u64;
        self.lock().count(bytes);
        ::simt::check::map_host_memory(addr, seen, bytes as u64);
        let pages = HostPages {
            _kernels: kernels,
            _host: host,
        };
        // SAFETY: `host` is `bytes` zeroed bytes on a page boundary, and is held by the result.
        Ok(unsafe { HostMapped::new(start, addr, bytes, Box::new(pages)) })
    }

    fn allocated(&self) -> u64 {
        self.lock().taken()
    }

    fn check_range(&self, addr: u64, bytes: usize) -> Result<(), GpuError> {
        self.lock().check(addr, bytes)
    }

    fn write(&self, addr: u64, bytes: &[u8]) -> Result<(), GpuError> {
        // The lock is held through the copy, so that no thread unmaps the allocation meanwhile.
        let live = self.lock();
        live.check(addr, bytes.len())?;
        let to = host(addr);
        // SAFETY: the range has just been found inside one live allocation.
        unsafe { copy(to, bytes.len(), |at, word| word.write(&bytes[at..])) };
        Ok(())
    }

    fn read(&self, addr: u64, out: &mut [u8]) -> Result<(), GpuError> {
        let live = self.lock();
        live.check(addr, out.len())?;
        let from = host(addr);
        // SAFETY: as in `write`.
        unsafe { copy(from, out.len(), |at, word| word.read(&mut out[at..])) };
        Ok(())
    }
}

/// Returns the pointer to device memory at `addr`, which is memory of this process.
#[expect(
    clippy::cast_possible_truncation,
    reason = "simt runs on 64-bit hosts only"
)]
fn host(addr: u64) -> *mut u8 {
    std::ptr::with_exposed_provenance_mut(addr as usize)
}

/// A part of a copy: a byte or an aligned word of device memory.
enum Word<'a> {
    Byte(&'a AtomicU8),
    Eight(&'a AtomicU64),
}

impl Word<'_> {
    fn bytes(&self) -> usize {
        match self {
            Self::Byte(_) => 1,
            Self::Eight(_) => 8,
        }
    }

    fn write(&self, from: &[u8]) {
        match self {
            Self::Byte(byte) => byte.store(from[0], Relaxed),
            Self::Eight(word) => {
                let mut bytes = [0; 8];
                bytes.copy_from_slice(&from[..8]);
                word.store(u64::from_ne_bytes(bytes), Relaxed);
            }
        }
    }

    fn read(&self, to: &mut [u8]) {
        match self {
            Self::Byte(byte) => to[0] = byte.load(Relaxed),
            Self::Eight(word) => to[..8].copy_from_slice(&word.load(Relaxed).to_ne_bytes()),
        }
    }
}

/// Calls `step` for `bytes` bytes at `start`: first single bytes up to an 8-byte boundary, then words, then single bytes.
///
/// # Safety
///
/// The range is mapped, readable and writable, and stays so during the call.
unsafe fn copy(start: *mut u8, bytes: usize, mut step: impl FnMut(usize, Word<'_>)) {
    let mut at = 0;
    while at < bytes {
        // SAFETY: `at` is inside the range.
        let place = unsafe { start.add(at) };
        let word = if place.addr().is_multiple_of(8) && bytes - at >= 8 {
            // SAFETY: aligned and inside the range; other access is atomic or by C++ code and the HCA, which Rust cannot see.
            Word::Eight(unsafe { AtomicU64::from_ptr(place.cast()) })
        } else {
            // SAFETY: as above, without the need of alignment.
            Word::Byte(unsafe { AtomicU8::from_ptr(place) })
        };
        let width = word.bytes();
        step(at, word);
        at += width;
    }
}

/// A live mapping, including its guards.
#[derive(Debug)]
struct Allocation {
    arena: Arc<SimtArena>,
    mapping: NonNull<u8>,
    mapping_bytes: usize,
    start: NonNull<u8>,
    /// Bytes at `start` that are not guards.
    length: usize,
    /// The file that holds the allocation. None for anonymous pages.
    file: Option<SharedFile>,
    /// True if other processes may map the file.
    shown: bool,
    /// Bytes taken from the device's budget.
    taken: usize,
    /// The entry in the table of reached ranges. None once this is being dropped.
    reached: Option<Reached>,
}

/// Memory of the caller, while this device uses it.
#[derive(Debug)]
struct Lent {
    arena: Arc<SimtArena>,
    addr: u64,
    _reached: Reached,
}

impl Hold for Lent {}

impl Drop for Lent {
    fn drop(&mut self) {
        // No copy is under way: copies hold this lock.
        self.arena.lock().remove(self.addr);
    }
}

/// Memory of the caller that HCAs alone reach.
#[derive(Debug)]
struct ForHcas;

impl Hold for ForHcas {}

/// Host memory that kernels reach: the owner of both its mappings.
#[derive(Debug)]
struct HostPages {
    _kernels: Allocation,
    _host: Mapping,
}

impl Hold for HostPages {}

// SAFETY: the pointers are only used to unmap; access is through the arena or atomics.
unsafe impl Send for Allocation {}
// SAFETY: as for Send.
unsafe impl Sync for Allocation {}

impl Hold for Allocation {
    fn name(&self) -> Result<Option<Name>, GpuError> {
        let shown = self.file.as_ref().filter(|_| self.shown);
        Ok(shown.map(|file| Name::File(file.name())))
    }

    fn dmabuf(&self, pcie: bool) -> Result<Option<MemoryDmabuf>, GpuError> {
        let exported = if pcie {
            self.arena.exports.across_pcie
        } else {
            self.arena.exports.plain
        };
        let Some(file) = self.file.as_ref().filter(|_| exported) else {
            return Ok(None);
        };
        let fd = file.fd().try_clone();
        let fd = fd.map_err(|error| no_memory("descriptor of", self.length, error))?;
        Ok(Some(MemoryDmabuf {
            fd,
            offset: 0,
            pcie,
        }))
    }
}

impl Allocation {
    /// Returns the address of the first byte for kernels.
    fn addr(&self) -> u64 {
        self.start.as_ptr().expose_provenance() as u64
    }

    fn into_memory(self, bytes: usize) -> DeviceMemory {
        DeviceMemory::new(self.addr(), bytes, Box::new(self))
    }

    /// Replaces zeroed pages that no kernel has used yet by zeroed pages of a file.
    fn put_in_file(&mut self) -> Result<SharedFile, GpuError> {
        let refused = |error: std::io::Error| no_memory("shared", self.length, error);
        let file = SharedFile::new(self.length).map_err(refused)?;
        let at = self.start.as_ptr();
        // SAFETY: these bytes are this allocation's own, and no other code knows them yet.
        unsafe { file::map(at, self.length, libc::MAP_FIXED, file.fd()) }.map_err(refused)?;
        Ok(file)
    }

    fn new(
        arena: &Arc<SimtArena>,
        bytes: usize,
        align: usize,
        kind: &'static str,
    ) -> Result<Self, GpuError> {
        check_request(bytes, align)?;
        let refused = |error: std::io::Error| no_memory(kind, bytes, error);
        let too_long = || no_memory(kind, bytes, "longer than the address space");
        let align = align.max(GUARD);
        let length = bytes.checked_next_multiple_of(GUARD).ok_or_else(too_long)?;
        let mapping_bytes = length.checked_add(align + GUARD).ok_or_else(too_long)?;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: a new mapping at an address of the kernel's choice.
        let mapping = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                mapping_bytes,
                libc::PROT_NONE,
                flags,
                -1,
                0,
            )
        };
        let mapping = match NonNull::new(mapping.cast::<u8>()) {
            Some(mapping) if mapping.as_ptr().cast() != libc::MAP_FAILED => mapping,
            _ => return Err(refused(std::io::Error::last_os_error())),
        };
        // At least one guard page lies in front: the start is the first multiple of `align` after it.
        let front = (mapping.addr().get() + GUARD).next_multiple_of(align) - mapping.addr().get();
        // SAFETY: front <= align, for `mapping` and `align` are multiples of GUARD; so `front + length` is inside the mapping.
        let start = unsafe { mapping.add(front) };
        let addr = start.as_ptr().expose_provenance() as u64;
        let allocation = Self {
            arena: Arc::clone(arena),
            mapping,
            mapping_bytes,
            start,
            length,
            file: None,
            shown: false,
            taken: 0,
            reached: Some(Reached::new(addr, bytes)),
        };
        let rights = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: `length` bytes at `start` are part of the new mapping, which no other code knows.
        if unsafe { libc::mprotect(start.as_ptr().cast(), length, rights) } != 0 {
            return Err(refused(std::io::Error::last_os_error()));
        }
        ::simt::poison::poison(addr + bytes as u64, (length - bytes) as u64);
        Ok(allocation)
    }
}

fn no_memory(kind: &'static str, bytes: usize, detail: impl ToString) -> GpuError {
    GpuError::OutOfMemory {
        kind,
        bytes,
        detail: detail.to_string(),
    }
}

impl Drop for Allocation {
    fn drop(&mut self) {
        if let Some(budget) = &self.arena.budget {
            budget.give_back(self.taken);
        }
        let mut live = self.arena.lock();
        live.remove(self.start.addr().get() as u64);
        ::simt::check::unmap_memory(self.mapping.addr().get() as u64, self.mapping_bytes as u64);
        if ::simt::poison::ENABLED {
            // The mapping stays, so that no other memory gets its address and late accesses are reported as such.
            let start = self.start.addr().get() as u64;
            ::simt::poison::poison(start, self.length as u64);
            return;
        }
        drop(self.reached.take());
        // SAFETY: the mapping is this allocation's own, unmapped once; code that still uses it breaks the contract of
        // `Gpu::launch` or of the registration.
        unsafe { libc::munmap(self.mapping.as_ptr().cast(), self.mapping_bytes) };
    }
}

/// Opens memory that another process has named.
pub(super) fn open(handle: &MemoryHandle) -> Result<OpenedMemory, GpuError> {
    let Name::File(name) = &handle.name else {
        return Err(refused("it is memory of a GPU, and kernels run on the CPU"));
    };
    let mapping = name.map(handle.bytes()).map_err(refused)?;
    let addr = mapping.start().as_ptr().expose_provenance() as u64;
    Ok(OpenedMemory::new(
        addr,
        handle.bytes(),
        handle.bytes(),
        Box::new(Opened {
            _reached: Reached::new(addr, mapping.bytes()),
            mapping,
        }),
    ))
}

/// # Safety
///
/// As [`Gpu::copy`](crate::gpu::Gpu::copy), in memory of this process.
pub(super) unsafe fn copy_pieces(pieces: &[CopyPiece]) {
    for piece in pieces {
        let bytes = usize::try_from(piece.bytes).unwrap_or(usize::MAX);
        // SAFETY: the caller's promise. Kernels and HCAs may use the bytes meanwhile, which Rust cannot see.
        unsafe { libc::memmove(host(piece.to).cast(), host(piece.from).cast(), bytes) };
    }
}

/// A mapping of another process's memory. Its fields are dropped in this order for the reason that [`Reached`] gives.
#[derive(Debug)]
struct Opened {
    _reached: Reached,
    mapping: Mapping,
}

impl Hold for Opened {}

impl Drop for Opened {
    fn drop(&mut self) {
        let start = self.mapping.start().addr().get() as u64;
        ::simt::check::unmap_memory(start, self.mapping.bytes() as u64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: Exports = Exports {
        plain: true,
        across_pcie: false,
    };
    use crate::gpu::ranges::MAX_ALIGN;

    #[test]
    fn memory_is_zero_aligned_and_reads_back_at_every_offset() {
        let arena = Arc::new(SimtArena::default());
        for align in [1, 64, 4096, 1 << 16, MAX_ALIGN] {
            let memory = arena.alloc(100, align).unwrap();
            assert!(memory.addr().is_multiple_of(align as u64), "align {align}");
            let mut out = [0xaa; 100];
            arena.read(memory.addr(), &mut out).unwrap();
            assert_eq!(out, [0; 100]);
            for offset in 0..16 {
                let bytes: Vec<u8> = (0..37).map(|n| n + offset).collect();
                arena
                    .write(memory.addr() + u64::from(offset), &bytes)
                    .unwrap();
                let mut out = vec![0; 37];
                arena
                    .read(memory.addr() + u64::from(offset), &mut out)
                    .unwrap();
                assert_eq!(out, bytes, "offset {offset}");
            }
        }
    }

    #[test]
    fn freed_memory_cannot_be_copied_and_too_much_is_refused() {
        let arena = Arc::new(SimtArena::default());
        let memory = arena.alloc(100, 8).unwrap();
        let addr = memory.addr();
        arena.write(addr + 99, &[1]).unwrap();
        assert!(arena.write(addr + 99, &[1, 2]).is_err());
        drop(memory);
        assert!(arena.read(addr, &mut [0]).is_err());
        for bytes in [usize::MAX, 1 << 60] {
            let refusal = arena.alloc(bytes, 8).unwrap_err();
            assert!(matches!(refusal, GpuError::OutOfMemory { .. }), "{refusal}");
        }
        assert!(arena.lock().is_empty());
    }

    #[test]
    fn no_more_memory_is_in_use_than_the_device_has() {
        let arena = Arc::new(SimtArena::new(PLAIN, Some(1000)));
        let first = arena.alloc(600, 8).unwrap();
        let second = arena.alloc_shared(400, 8).unwrap();
        for bytes in [1, 400, usize::MAX / 2] {
            let refusal = arena.alloc(bytes, 8).unwrap_err().to_string();
            assert!(refusal.starts_with("no device memory for "), "{refusal}");
        }
        drop(second);
        let refusal = arena.alloc(401, 8).unwrap_err().to_string();
        let said = "no device memory for 401 bytes: 400 of 1000 bytes are free on simt; smaller";
        assert!(refusal.starts_with(said), "{refusal}");
        drop(first);
        drop(arena.alloc(1000, 8).unwrap());
        // Host memory and memory of the caller do not count as device memory.
        drop(arena.map_host(5000).unwrap());
        drop(arena.alloc(1000, 8).unwrap());
    }

    #[test]
    fn kernels_and_the_host_see_the_same_words_at_different_addresses() {
        let arena = Arc::new(SimtArena::default());
        let mapped = arena.map_host(5000).unwrap();
        assert_ne!(mapped.addr(), mapped.host_addr());
        mapped.u64_at(8).store(0x1122_3344_5566_7788, Relaxed);
        // SAFETY: an aligned word of the mapping for kernels, which lives; none runs.
        let word = unsafe { AtomicU64::from_ptr(host(mapped.addr() + 8).cast()) };
        assert_eq!(word.swap(7, Relaxed), 0x1122_3344_5566_7788);
        assert_eq!(mapped.u32_at(8).load(Relaxed), 7);
        for addr in [mapped.addr(), mapped.host_addr()] {
            assert!(
                arena.check_range(addr, 1).is_err(),
                "copies go to device memory"
            );
        }
        assert_eq!(arena.allocated(), 5000);
    }

    #[test]
    fn exported_memory_is_read_by_its_descriptor_and_has_no_shared_handle() {
        let arena = Arc::new(SimtArena::new(PLAIN, None));
        let memory = arena.alloc(5000, 64).unwrap();
        assert!(memory.handle().unwrap().is_none());
        let exported = memory.dmabufs().unwrap();
        let [dmabuf] = &exported[..] else {
            panic!("{exported:?}");
        };
        assert_eq!((dmabuf.offset, dmabuf.pcie), (0, false));
        arena.write(memory.addr() + 4999, &[7]).unwrap();
        let file = std::fs::File::from(dmabuf.fd.try_clone().unwrap());
        let mut out = [0; 2];
        std::os::unix::fs::FileExt::read_exact_at(&file, &mut out, 4999).unwrap();
        assert_eq!(out, [7, 0]);
        let shared = arena.alloc_shared(64, 64).unwrap();
        assert_eq!(shared.dmabufs().unwrap().len(), 1);
        assert!(shared.handle().unwrap().is_some());
        let plain = Arc::new(SimtArena::default());
        let shared = plain.alloc_shared(64, 64).unwrap();
        assert!(shared.dmabufs().unwrap().is_empty());
    }

    #[test]
    fn shared_memory_is_zero_between_guards_and_opens_at_another_address() {
        let arena = Arc::new(SimtArena::default());
        let memory = arena.alloc_shared(5000, 1 << 16).unwrap();
        assert!(memory.addr().is_multiple_of(1 << 16));
        assert!(arena.alloc(64, 64).unwrap().handle().unwrap().is_none());
        let handle = memory.handle().unwrap().unwrap();
        let text = serde_json::to_string(&handle).unwrap();
        let opened = open(&serde_json::from_str(&text).unwrap()).unwrap();
        assert_ne!(opened.addr(), memory.addr());
        assert_eq!(opened.bytes(), 5000);
        arena.write(memory.addr() + 4992, &[1; 8]).unwrap();
        let word = host(opened.addr() + 4992).cast::<u64>();
        // SAFETY: an aligned word of the mapping, which lives; no other code uses it.
        let word = unsafe { AtomicU64::from_ptr(word) };
        assert_eq!(word.swap(2, Relaxed), u64::from_ne_bytes([1; 8]));
        let mut out = [0; 8];
        arena.read(memory.addr() + 4992, &mut out).unwrap();
        assert_eq!(out, 2_u64.to_ne_bytes());
        drop(memory);
        assert!(arena.lock().is_empty());
        open(&handle).unwrap_err();
        assert_eq!(word.load(Relaxed), 2, "what is open stays");
    }

    #[test]
    #[should_panic(expected = "a word of 8 bytes at 16 of 16 host-mapped bytes")]
    fn a_host_mapped_word_outside_is_a_bug() {
        let host = Arc::new(SimtArena::default()).map_host(16).unwrap();
        let _ = host.u64_at(16);
    }
}
