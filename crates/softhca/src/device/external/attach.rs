//! The C functions by which a process attaches its executor.

// UNSAFETY: exported C functions that take a struct of function pointers.
#![expect(unsafe_code, reason = "C functions by which an executor is attached")]

use crate::device::DeviceError;
use crate::device::world::World;
use gpuhca_abi::Executor;

/// Attaches the executor of this process. External HCAs of the process then write their tables into the memory of the executor.
///
/// Returns 0; `EINVAL` for null, another version, other sizes or a missing function; `EBUSY` while another executor is attached; or the
/// error that a function of the executor returned.
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

/// Detaches the executor of this process: softhca forgets its tables. WQEs that have not run before never run.
#[unsafe(no_mangle)]
pub extern "C" fn softhca_detach() {
    let mut fabric = World::of_process().lock();
    fabric.detach_executor();
}

fn attach(world: &World, executor: Executor) -> Result<(), DeviceError> {
    world.lock().attach_executor(executor)
}
