//! The executor of external HCAs in a test: `gpuhca` on the CPU, one for all tests of the process.

// UNSAFETY: two C functions of the software HCA.
#![expect(unsafe_code, reason = "C symbols of softhca")]

use std::ffi::c_void;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use gpuhca::{Gpuhca, Options, Softhca};
use softhca::device::external::{Executor, softhca_attach, softhca_detach};

use crate::hca::connect;
use crate::kernels::open;
use warpverbs::gpu::GpuSelector;

/// The softhca that is linked into this program.
pub fn linked_softhca() -> Softhca {
    unsafe extern "C" fn attach(executor: *const c_void) -> i32 {
        // SAFETY: `gpuhca` gives its executor, which has the layout of softhca's.
        unsafe { softhca_attach(executor.cast::<Executor>()) }
    }
    // SAFETY: they are softhca's.
    unsafe { Softhca::linked(attach, softhca_detach) }
}

/// A test starts and stops kernels by itself.
static BY_HAND: AtomicBool = AtomicBool::new(false);

/// `gpuhca` on the CPU with these options. From now on [`ensure`] starts none in this process.
///
/// # Panics
///
/// If another one is attached in this process.
pub fn start(change: impl FnOnce(Options) -> Options) -> Gpuhca {
    BY_HAND.store(true, Ordering::Relaxed);
    run(change)
}

fn run(change: impl FnOnce(Options) -> Options) -> Gpuhca {
    connect();
    let gpu = open(GpuSelector::Simt).expect("simt");
    let options = change(Options::on(gpu.as_ref()));
    Gpuhca::start(gpu, linked_softhca(), &options).expect("gpuhca on the CPU")
}

/// Starts the one of this process, which runs until the process ends.
pub fn ensure() {
    static RUNNING: OnceLock<Gpuhca> = OnceLock::new();
    if !BY_HAND.load(Ordering::Relaxed) {
        RUNNING.get_or_init(|| run(|options| options));
    }
}
