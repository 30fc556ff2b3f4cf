//! What a device costs by itself: posts to rings without a NIC, and single operations.

pub mod abi;
mod case;
pub(crate) mod clock;
pub(crate) mod facts;
pub(crate) mod kernels;
pub(crate) mod others;
pub mod post;
pub(crate) mod primitives;
pub(crate) mod registers;
mod report;
mod ring;

pub use kernels::KERNELS;
