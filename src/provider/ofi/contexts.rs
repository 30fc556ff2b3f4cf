//! Contexts of operations under way, one for each. The provider uses the memory of a context until the operation has completed, or its
//! endpoint is closed.

// UNSAFETY: gives memory of this value to other threads, none of which reads it.
#![expect(unsafe_code, reason = "memory that the provider writes")]

use std::cell::UnsafeCell;
use std::ffi::c_void;
use std::fmt;

use libfabric_abi::bindings::fi_context2;

/// The contexts of one endpoint.
pub(super) struct Pool(Box<[Context]>);

#[derive(Default)]
#[repr(C, align(64))]
struct Context(UnsafeCell<fi_context2>);

const BYTES: usize = size_of::<Context>();

// SAFETY: only the provider reads and writes the contexts; this process uses only their addresses.
unsafe impl Send for Pool {}
// SAFETY: as for Send.
unsafe impl Sync for Pool {}

impl Pool {
    /// Returns a pool with this number of contexts.
    pub(super) fn new(count: u16) -> Self {
        Self((0..count).map(|_| Context::default()).collect())
    }

    /// Returns the number of contexts.
    pub(super) fn count(&self) -> u16 {
        u16::try_from(self.0.len()).unwrap_or(u16::MAX)
    }

    /// Returns a context for a call. Null: there is none with this number.
    pub(super) fn context(&self, number: u16) -> *mut c_void {
        let context = self.0.get(usize::from(number));
        context.map_or(std::ptr::null_mut(), |it| it.0.get().cast())
    }

    /// Returns the address of the first context.
    pub(super) fn first(&self) -> usize {
        self.0.as_ptr().addr()
    }

    /// Returns the number of the context at this address, if one begins there.
    pub(super) fn number_at(&self, address: usize) -> Option<u16> {
        let from = address.checked_sub(self.first())?;
        let number = u16::try_from(from / BYTES).ok()?;
        let is_one = from.is_multiple_of(BYTES) && number < self.count();
        is_one.then_some(number)
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} contexts at {:#x}", self.count(), self.first())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_addresses_of_contexts_have_numbers() {
        let pool = Pool::new(3);
        for number in 0..3 {
            let address = pool.context(number).addr();
            assert!(address.is_multiple_of(align_of::<fi_context2>()));
            assert_eq!(pool.number_at(address), Some(number));
            for other in [address + 1, address + BYTES / 2, address - 1] {
                assert_eq!(pool.number_at(other), None);
            }
        }
        assert!(pool.context(3).is_null());
        for other in [0, pool.first() + 3 * BYTES, usize::MAX] {
            assert_eq!(pool.number_at(other), None);
        }
    }
}
