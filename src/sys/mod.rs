//! Bindings over verbs.h and mlx5dv.h, opened by dlopen: one binary for machines with and without RDMA.
//!
//! [`Rdma`] is the table of functions, resolved once per process through libmlx5, which brings libibverbs with it. Nothing else
//! of the crate names a C symbol. It holds only functions that the libraries export. The runtime does not use the functions that
//! verbs.h defines inline: posting, polling, the extended query of a port.

// UNSAFETY: foreign functions are declared and looked up here; calling them is up to `verbs`.
#![expect(unsafe_code, reason = "dlopen and foreign functions")]

#[expect(
    missing_docs,
    non_camel_case_types,
    clippy::all,
    clippy::ptr_as_ptr,
    clippy::undocumented_unsafe_blocks,
    reason = "generated"
)]
pub mod bindings;
mod error;
mod kick;
mod load;

pub(crate) use bindings::Rdma;
pub use error::{LoadError, MissingFunction};
pub(crate) use kick::softhca_kick;
pub(crate) use load::hide;
