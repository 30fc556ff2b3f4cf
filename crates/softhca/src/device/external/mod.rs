//! Execution outside of this library: an executor runs the WQEs, and softhca keeps commands, states and keys.
//!
//! An HCA with [`Execution::External`] never touches the memory that programs register. It takes regions by their address alone, so
//! they may be memory that only a GPU reaches. What the executor needs of QPs, CQs and keys stands in tables of its own memory
//! ([`Qp`], [`Cq`], [`Key`]). The engine of softhca writes them through at the end of each command, before the command returns. The
//! executor is a kernel (crate `gpuhca`), attached by [`softhca_attach`].
//!
//! # How an entry changes
//!
//! An entry begins with a head word: a life and a state, or 0 for no entry. A kernel reads the head first and uses the rest only
//! while the head is not 0. A change of an entry takes three steps, since softhca must not write the rest while a kernel may use
//! it:
//!
//! 1. It writes 0 into the heads of all entries that end or change.
//! 2. It raises the generation word and waits for the answer of the executor ([`Executor::settle`]). The answer says that each of
//!    its blocks has finished the pass in which it may have read an older head.
//! 3. It writes the new entries, heads last.
//!
//! So `DESTROY_MKEY`, `2RST`, `2ERR` and the other commands that end something return when nothing uses it any more, as with a
//! ConnectX. An executor keeps data of a QP or CQ between two passes ([`QpProgress`], [`CqProgress`]). These carry the life that
//! they belong to; a reset begins a new one.
//!
//! # Doorbells
//!
//! Each UAR page has a twin in the executor's memory with the registers at the same places. The page holds the twin's address at
//! [`TWIN`], below the registers. `map_mmio` of the executor's devices reads it, and kernels then ring the twin itself. The engine
//! thread carries over what a host rings in the page (probes, mailboxes).
//!
//! # What it does not do
//!
//! - RC QPs whose peers are external HCAs of this process, direct keys. SRQs, datagrams, XRC, windows and indirect keys are
//!   refused or grant nothing.
//! - Events of CQs, and what the checker finds by looking into rings.

// UNSAFETY: exported C functions that take a struct of function pointers.
#![expect(unsafe_code, reason = "C functions by which an executor is attached")]

mod entries;
mod tables;

pub use entries::{Cq, CqProgress, Key, Qp, QpProgress};
pub(crate) use tables::Tables;

use crate::device::DeviceError;
use crate::device::hca::world::World;
use std::ffi::c_void;
use std::str::FromStr;

/// The executor of the WQEs of an HCA.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Execution {
    /// The engine thread of this library.
    #[default]
    Engine,
    /// An executor that [`softhca_attach`] names.
    External,
}

impl Execution {
    pub(crate) const EXPECTED: &'static str = "engine or external";
}

/// A text that names no execution.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnknownExecution;

impl FromStr for Execution {
    type Err = UnknownExecution;

    fn from_str(text: &str) -> Result<Self, UnknownExecution> {
        match text {
            "engine" => Ok(Self::Engine),
            "external" => Ok(Self::External),
            _ => Err(UnknownExecution),
        }
    }
}

/// Version of [`Executor`] and of the tables.
pub const VERSION: u32 = 1;
/// Entries of the QP table, of the CQ table, and pages of twins.
pub const QPS: u32 = 8192;
/// See [`QPS`].
pub const CQS: u32 = 16384;
/// See [`QPS`].
pub const PAGES: u32 = 4096;
/// HCAs that have keys in the key table.
pub const HCAS: u32 = 64;
/// Keys of one HCA.
pub const KEYS: u32 = 1024;
/// Bytes from one twin of a UAR page to the next.
pub const PAGE_STRIDE: u64 = 4096;
/// Offset in a UAR page of the word that holds the address of its twin.
pub const TWIN: usize = 0x100;
/// Offset in the control block of the generation word, 8 bytes.
pub const CONTROL_GENERATION: u64 = 0;
/// Offset in the control block of the word that says how many entries of the QP table are in use at most, 8 bytes.
pub const CONTROL_QPS: u64 = 8;

/// An executor: where its tables are and how to reach them.
///
/// Its functions are called with the device model's lock held: they must not call libibverbs, libmlx5 or this library. Each returns
/// 0 or an `errno`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Executor {
    /// [`VERSION`] of the crate that the executor was built with; another one is refused.
    pub version: u32,
    /// Bytes of [`Qp`], [`Cq`], [`Key`], [`QpProgress`], [`CqProgress`], in this order.
    pub bytes: [u32; 5],
    /// First argument of the functions.
    pub context: *mut c_void,
    /// The control block: [`CONTROL_GENERATION`], [`CONTROL_QPS`].
    pub control: u64,
    /// Table of [`QPS`] entries of type [`Qp`].
    pub qps: u64,
    /// Table of [`CQS`] entries of type [`Cq`].
    pub cqs: u64,
    /// Table of [`HCAS`] times [`KEYS`] entries of type [`Key`].
    pub keys: u64,
    /// Table of [`QPS`] entries of type [`QpProgress`].
    pub qp_progress: u64,
    /// Table of [`CQS`] entries of type [`CqProgress`].
    pub cq_progress: u64,
    /// [`PAGES`] twins, [`PAGE_STRIDE`] apart.
    pub pages: u64,
    /// A word of host memory that the executor raises after it has failed a QP by itself.
    pub attention: *const u32,
    /// Writes bytes of this process to an address of the executor. Writes take effect in the order of the calls; one of 8 aligned bytes
    /// is seen as a whole.
    pub write: Option<extern "C" fn(*mut c_void, u64, *const u8, u64) -> i32>,
    /// Reads from an address of the executor.
    pub read: Option<extern "C" fn(*mut c_void, u64, *mut u8, u64) -> i32>,
    /// Returns when every block has seen this generation at the begin of a pass and has finished that pass. `ESHUTDOWN`: the executor
    /// has ended, and uses nothing any more.
    pub settle: Option<extern "C" fn(*mut c_void, u64) -> i32>,
}

// SAFETY: plain addresses; the caller of `softhca_attach` promises that the functions may be called from any thread.
unsafe impl Send for Executor {}

/// Attaches the executor of this process. Its external HCAs then write their tables into its memory.
///
/// Returns 0; `EINVAL` for null, another version, other sizes or a missing function; `EBUSY` while another one is attached; or what the
/// executor's functions returned.
///
/// # Safety
///
/// `executor` is null or points to an [`Executor`]. Its addresses and functions stay valid until [`softhca_detach`] has returned, and its
/// functions may be called from any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn softhca_attach(executor: *const Executor) -> i32 {
    // SAFETY: null or valid, says the caller.
    let Some(executor) = (unsafe { executor.as_ref() }) else {
        return libc::EINVAL;
    };
    attach(World::of_process(), *executor).map_or_else(|error| error.errno(), |()| 0)
}

/// Detaches the executor of this process: softhca forgets its tables. WQEs that have not run then never do.
#[unsafe(no_mangle)]
pub extern "C" fn softhca_detach() {
    let mut fabric = World::of_process().lock();
    fabric.detach_executor();
}

fn attach(world: &World, executor: Executor) -> Result<(), DeviceError> {
    world.lock().attach_executor(executor)
}
