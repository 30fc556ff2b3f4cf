//! Software HCAs that the device list must contain.
//!
//! If softhca were not linked, the device list would be empty, and tests would pass without testing anything. So [`hca`] panics if its
//! device is not listed, and no test treats zero devices as a reason to skip.

// UNSAFETY: two C functions of the software HCA.
#![expect(unsafe_code, reason = "C symbols of softhca")]

use std::sync::atomic::AtomicU32;

use softhca::{Hca, HcaConfig};
use warpverbs::verbs::device_list;

unsafe extern "C" {
    safe fn softhca_wake_word() -> *const AtomicU32;
    safe fn softhca_kick();
}

/// Tells the HCA that a doorbell was stored.
pub extern "C" fn kick() {
    softhca_kick();
}

/// Returns a new software HCA, which libibverbs lists.
pub fn hca() -> Hca {
    hca_with(HcaConfig::default())
}

/// Lets kernels on the CPU and the HCAs of this process wake each other.
pub fn connect() {
    // SAFETY: the word is a static of softhca, used atomically by all threads.
    let wake = unsafe { softhca_wake_word().as_ref() }.expect("softhca has a wake word");
    warpverbs::internal::connect(wake, kick);
}

/// Returns a new software HCA with this configuration.
pub fn hca_with(config: HcaConfig) -> Hca {
    connect();
    // Only a build with the feature `tsan` does anything here.
    if simt::check::ENABLED {
        softhca::device::observe_memory(simt::check::device_access);
    }
    let hca = Hca::with_config(config).expect("a software HCA");
    let listed = device_list().expect("the device list");
    let found = listed.iter().find(|device| device.name == hca.name());
    let found = found.unwrap_or_else(|| panic!("{} is not listed: {listed:?}", hca.name()));
    assert!(found.mlx5 && found.is_soft(), "{found:?}");
    hca
}
