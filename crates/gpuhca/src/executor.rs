//! The C functions that softhca calls, by which it reaches the executor's memory and waits for passes of the kernel.

// UNSAFETY: functions that softhca calls with pointers; the launch of the kernel.
#![expect(unsafe_code, reason = "C functions and a kernel launch")]

use std::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use super::GpuhcaError;
use super::abi::{
    GpuhcaParams, HcaCq, HcaCqProgress, HcaHostWords, HcaKey, HcaQp, HcaQpProgress, VERSION,
};
use gpuhca_abi::Executor;
use warpverbs::deadline::Looks;
use warpverbs::gpu::{Event, Gpu, HostMapped, Launch};

/// How long softhca waits for the blocks to finish a pass.
const PATIENCE: Duration = Duration::from_secs(20);

/// The addresses of the tables in the GPU's memory.
pub(super) struct Addresses {
    pub(super) control: u64,
    pub(super) qps: u64,
    pub(super) cqs: u64,
    pub(super) keys: u64,
    pub(super) qp_progress: u64,
    pub(super) cq_progress: u64,
    pub(super) pages: u64,
}

/// What softhca's calls need, from any thread.
#[derive(Debug)]
pub(super) struct Shared {
    gpu: Arc<dyn Gpu>,
    host: HostMapped,
    seen: HostMapped,
    blocks: u32,
    event: Event,
    attached: AtomicBool,
}

impl Shared {
    pub(super) fn new(
        gpu: Arc<dyn Gpu>,
        host: HostMapped,
        seen: HostMapped,
        blocks: u32,
        event: Event,
    ) -> Self {
        Self {
            gpu,
            host,
            seen,
            blocks,
            event,
            attached: AtomicBool::new(false),
        }
    }

    pub(super) fn blocks(&self) -> u32 {
        self.blocks
    }

    pub(super) fn ask_to_stop(&self) {
        let stop = self.host.u32_at(std::mem::offset_of!(HcaHostWords, stop));
        stop.store(1, Ordering::Release);
    }

    /// Notes whether the executor is attached. Returns whether it was attached before.
    pub(super) fn set_attached(&self, attached: bool) -> bool {
        self.attached.swap(attached, Ordering::AcqRel)
    }

    /// Waits until each block has finished a pass that began with `generation`. Returns 0, `ETIMEDOUT` if a block has not done so in time,
    /// or `ESHUTDOWN` if the kernel has ended. A kernel that has ended no longer uses the tables.
    fn settle(&self, generation: u64) -> i32 {
        let mut looks = Looks::within(PATIENCE);
        for block in 0..self.blocks as usize {
            let seen = self.seen.u64_at(block * size_of::<u64>());
            // Acquire: pairs with the block's release at the end of its pass. Generations are far from wrapping.
            while seen.load(Ordering::Acquire) < generation {
                if self.event.is_done() {
                    return libc::ESHUTDOWN;
                }
                if looks.next().is_none() {
                    return libc::ETIMEDOUT;
                }
                thread::yield_now();
            }
        }
        0
    }
}

/// Returns the executor that softhca is to attach: these tables, and functions that use `shared`, which must outlive the attachment.
pub(super) fn executor(addresses: &Addresses, shared: &Arc<Shared>) -> Executor {
    let bytes = |bytes: usize| u32::try_from(bytes).unwrap_or(u32::MAX);
    let attention = std::mem::offset_of!(HcaHostWords, attention);
    Executor {
        version: VERSION,
        bytes: [
            bytes(size_of::<HcaQp>()),
            bytes(size_of::<HcaCq>()),
            bytes(size_of::<HcaKey>()),
            bytes(size_of::<HcaQpProgress>()),
            bytes(size_of::<HcaCqProgress>()),
        ],
        context: Arc::as_ptr(shared).cast_mut().cast(),
        control: addresses.control,
        qps: addresses.qps,
        cqs: addresses.cqs,
        keys: addresses.keys,
        qp_progress: addresses.qp_progress,
        cq_progress: addresses.cq_progress,
        pages: addresses.pages,
        attention: shared.host.u32_at(attention).as_ptr(),
        write: Some(write),
        read: Some(read),
        settle: Some(settle),
    }
}

/// # Safety
///
/// `context` is the context of an attached [`Executor`].
unsafe fn shared<'a>(context: *mut c_void) -> &'a Shared {
    // SAFETY: the caller's promise; `Gpuhca` keeps it until softhca has detached.
    unsafe { &*context.cast::<Shared>() }
}

extern "C" fn write(context: *mut c_void, address: u64, bytes: *const u8, count: u64) -> i32 {
    // SAFETY: softhca calls with what it was given, and with that many bytes.
    let (shared, bytes) = unsafe {
        let count = usize::try_from(count).unwrap_or(0);
        (shared(context), std::slice::from_raw_parts(bytes, count))
    };
    shared.gpu.write(address, bytes).map_or(libc::EIO, |()| 0)
}

extern "C" fn read(context: *mut c_void, address: u64, bytes: *mut u8, count: u64) -> i32 {
    // SAFETY: softhca calls with what it was given, and with room for that many bytes, which are initialised.
    let (shared, bytes) = unsafe {
        let count = usize::try_from(count).unwrap_or(0);
        (
            shared(context),
            std::slice::from_raw_parts_mut(bytes, count),
        )
    };
    shared.gpu.read(address, bytes).map_or(libc::EIO, |()| 0)
}

extern "C" fn settle(context: *mut c_void, generation: u64) -> i32 {
    // SAFETY: softhca calls with what it was given.
    let shared = unsafe { shared(context) };
    shared.settle(generation)
}

/// Starts the kernel.
pub(super) fn launch(
    gpu: &dyn Gpu,
    launch: &Launch<'_>,
    params: &GpuhcaParams,
) -> Result<Event, GpuhcaError> {
    // SAFETY: the parameters are those of the kernel. Its tables and words live in `Gpuhca`, which keeps them until it has ended,
    // or for ever. What softhca writes into the tables names memory that its users have registered. It ends an entry before the
    // command returns that lets the users free that memory.
    Ok(unsafe { gpu.launch(launch, bytemuck::bytes_of(params)) }?)
}
