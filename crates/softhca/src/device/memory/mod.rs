//! Registered memory: which memory a key stands for, and every byte that the device reads or writes.
//!
//! A [key](keys) with its rights gives a list of [`Region`]s, and [`regions`] copies between such lists. When memory is registered,
//! [`mapping`] looks at the pages behind it. [`pending_writes`] decides when bytes of peers reach memory: at once, or as late and in as odd
//! an order as the device may place them.

mod access;
mod error;
pub(crate) mod keys;
pub(crate) mod mapping;
pub(crate) mod null;
mod observer;
pub(crate) mod pending_writes;
mod region;
pub(crate) mod regions;
pub(crate) mod translation;
pub(crate) mod umr;

pub use access::Access;
pub(crate) use error::KeyError;
pub use observer::{MemoryObserver, observe_memory};
pub(crate) use region::Region;
#[cfg(test)]
pub(crate) use region::{tests_memory, tests_region};
