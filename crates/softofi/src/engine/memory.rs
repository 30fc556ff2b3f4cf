//! Copies between the program's memory and buffers of the library, by the kernel: memory that is gone is an error, as it is on a device.

// UNSAFETY: memory of the program by address.
#![expect(unsafe_code, reason = "memory of the program by address")]

use file_memory::{Gone, copy};

/// Reads memory of the program.
pub(crate) fn read(from: usize, to: &mut [u8]) -> Result<(), Gone> {
    let target = to.as_mut_ptr().expose_provenance();
    // SAFETY: the target is a buffer of ours. The source is registered, or given with an operation that is under way: the program
    // keeps no reference to it that this could break, since a device would read it as well.
    unsafe { copy(from, target, to.len()) }
}

/// Writes memory of the program.
pub(crate) fn write(from: &[u8], to: usize) -> Result<(), Gone> {
    let source = from.as_ptr().expose_provenance();
    // SAFETY: the source is a buffer of ours. The target is registered for that, or given with a read that is under way.
    unsafe { copy(source, to, from.len()) }
}
