//! Launching the test kernels by name.

#![allow(dead_code, reason = "each test file uses its part")]

use std::ffi::c_void;
use std::thread;
use std::time::{Duration, Instant};

use simt::{LaunchConfig, LaunchError, LaunchStats};

/// Launches a test kernel with the given argument array.
pub(crate) fn run(
    name: &str,
    args: &mut [*mut c_void],
    config: &LaunchConfig,
) -> Result<LaunchStats, LaunchError> {
    let kernel = simt_tests::KERNELS
        .iter()
        .find(|kernel| kernel.name == name)
        .unwrap_or_else(|| panic!("no kernel {name}"));
    // SAFETY: each test passes what the kernel in tests/kernels/ declares, and keeps it alive during the call.
    unsafe { simt::launch(kernel.entry, args, config) }
}

/// How long a test waits for what must happen: it only ends a hang.
pub(crate) const HANG: Duration = Duration::from_secs(240);

/// Waits until `happened`. After [`HANG`] the test fails with `what` was waited for.
#[track_caller]
pub(crate) fn until(what: &str, mut happened: impl FnMut() -> bool) {
    let end = Instant::now() + HANG;
    while !happened() {
        assert!(Instant::now() < end, "not within {HANG:?}: {what}");
        thread::yield_now();
    }
}

/// One block (or some) of `threads`, plain order.
pub(crate) fn shape(blocks: u32, threads: u32) -> LaunchConfig {
    LaunchConfig {
        grid: blocks.into(),
        block: threads.into(),
        ..LaunchConfig::default()
    }
}

/// The argument array of a launch. For use within the call of `run` only: the values live until the end of the statement.
#[macro_export]
macro_rules! args {
    ($($value:expr),* $(,)?) => { &mut [$( std::ptr::from_mut(&mut { $value }).cast::<std::ffi::c_void>() ),*] };
}
