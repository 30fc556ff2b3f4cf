//! The executor of external HCAs in a test: one `gpuhca` on the CPU for all tests of the process.

// UNSAFETY: two C functions of the software HCA.
#![expect(unsafe_code, reason = "C symbols of softhca")]

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use gpuhca::{Gpuhca, Options, Softhca};
use softhca::device::external::{softhca_attach, softhca_detach};

use crate::hca::connect;
use crate::kernels::open;
use warpverbs::gpu::GpuSelector;

/// Returns the softhca that is linked into this program.
pub fn linked_softhca() -> Softhca {
    // SAFETY: they are softhca's.
    unsafe { Softhca::linked(softhca_attach, softhca_detach) }
}

/// True if a test starts and stops the executor itself.
static BY_HAND: AtomicBool = AtomicBool::new(false);

/// Starts `gpuhca` on the CPU with these options. From now on [`ensure`] starts no other in this process.
///
/// # Panics
///
/// If another `gpuhca` is attached in this process.
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

/// Starts the `gpuhca` of this process, if it does not run. It runs until the process ends.
pub fn ensure() {
    static RUNNING: OnceLock<Gpuhca> = OnceLock::new();
    if !BY_HAND.load(Ordering::Relaxed) {
        RUNNING.get_or_init(|| run(|options| options));
    }
}
