//! The places of an executor's tables, and the functions by which softhca reaches them.

// UNSAFETY: a struct of addresses goes to other threads.
#![expect(
    unsafe_code,
    reason = "says that the addresses of an executor may be used on any thread"
)]

use std::ffi::c_void;

/// Version of [`Executor`] and of the tables.
pub const VERSION: u32 = 1;
/// Number of entries of the QP table.
pub const QPS: u32 = 8192;
/// Number of entries of the CQ table.
pub const CQS: u32 = 16384;
/// Number of twins of UAR pages.
pub const PAGES: u32 = 4096;
/// Number of HCAs that have keys in the key table.
pub const HCAS: u32 = 64;
/// Number of keys of one HCA.
pub const KEYS: u32 = 1024;
/// Bytes from one twin of a UAR page to the next.
pub const PAGE_STRIDE: u64 = 4096;
/// Offset in a UAR page of the word that holds the address of its twin.
pub const TWIN: usize = 0x100;
/// Offset in the control block of the generation word, 8 bytes.
pub const CONTROL_GENERATION: u64 = 0;
/// Offset in the control block of the word, 8 bytes, that bounds the entries of the QP table that are in use.
pub const CONTROL_QPS: u64 = 8;

/// An executor: where its tables are and how to reach them.
///
/// The device model calls its functions with its lock held: they must not call libibverbs, libmlx5 or this library. Each returns 0 or an
/// `errno`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Executor {
    /// [`VERSION`] of the crate that the executor was built with. Another version is refused.
    pub version: u32,
    /// Sizes in bytes of `Qp`, `Cq`, `Key`, `QpProgress`, `CqProgress`, in this order.
    pub bytes: [u32; 5],
    /// First argument of the functions.
    pub context: *mut c_void,
    /// Address of the control block: [`CONTROL_GENERATION`], [`CONTROL_QPS`].
    pub control: u64,
    /// Table of [`QPS`] entries of type [`Qp`](super::entries::Qp).
    pub qps: u64,
    /// Table of [`CQS`] entries of type [`Cq`](super::entries::Cq).
    pub cqs: u64,
    /// Table of [`HCAS`] times [`KEYS`] entries of type [`Key`](super::entries::Key).
    pub keys: u64,
    /// Table of [`QPS`] entries of type [`QpProgress`](super::entries::QpProgress).
    pub qp_progress: u64,
    /// Table of [`CQS`] entries of type [`CqProgress`](super::entries::CqProgress).
    pub cq_progress: u64,
    /// Address of [`PAGES`] twins, [`PAGE_STRIDE`] apart.
    pub pages: u64,
    /// A word of host memory that the executor raises after it has failed a QP by itself.
    pub attention: *const u32,
    /// Writes bytes of this process to an address of the executor. Writes take effect in the order of the calls. A write of 8 aligned bytes
    /// is seen as a whole.
    pub write: Option<extern "C" fn(*mut c_void, u64, *const u8, u64) -> i32>,
    /// Reads from an address of the executor.
    pub read: Option<extern "C" fn(*mut c_void, u64, *mut u8, u64) -> i32>,
    /// Returns when every block has seen this generation at the beginning of a pass and has finished that pass. `ESHUTDOWN`: the executor
    /// has ended, and uses no entry any more.
    pub settle: Option<extern "C" fn(*mut c_void, u64) -> i32>,
}

// SAFETY: plain addresses; the caller of `softhca_attach` promises that the functions may be called from any thread.
unsafe impl Send for Executor {}
