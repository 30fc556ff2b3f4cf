//! The struct by which a process tells softhca where the tables are, and by which functions softhca reaches them.

// UNSAFETY: a struct of addresses goes to other threads.
#![expect(
    unsafe_code,
    reason = "says that the addresses of an executor may be used on any thread"
)]

use std::ffi::c_void;

/// An executor: where its tables are and how to reach them.
///
/// softhca calls its functions with a lock held: they must not call libibverbs, libmlx5 or softhca. Each returns 0 or an `errno`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Executor {
    /// [`VERSION`](crate::VERSION) of the crate that the executor was built with. Another version is refused.
    pub version: u32,
    /// Sizes in bytes of `HcaQp`, `HcaCq`, `HcaKey`, `HcaQpProgress` and `HcaCqProgress`, in this order.
    pub bytes: [u32; 5],
    /// First argument of the functions.
    pub context: *mut c_void,
    /// Address of an `HcaControl`.
    pub control: u64,
    /// Table of [`QPS`](crate::QPS) entries of type `HcaQp`.
    pub qps: u64,
    /// Table of [`CQS`](crate::CQS) entries of type `HcaCq`.
    pub cqs: u64,
    /// Table of [`HCAS`](crate::HCAS) times [`KEYS`](crate::KEYS) entries of type `HcaKey`.
    pub keys: u64,
    /// Table of [`QPS`](crate::QPS) entries of type `HcaQpProgress`.
    pub qp_progress: u64,
    /// Table of [`CQS`](crate::CQS) entries of type `HcaCqProgress`.
    pub cq_progress: u64,
    /// Address of [`PAGES`](crate::PAGES) twins, [`PAGE_STRIDE`](crate::PAGE_STRIDE) apart.
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
