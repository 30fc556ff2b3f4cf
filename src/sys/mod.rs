//! Bindings over verbs.h and mlx5dv.h, opened by dlopen: one binary for machines with and without RDMA.
//!
//! [`Rdma`] is the table of functions. It is resolved once per process through libmlx5, which brings libibverbs with it, and once more
//! through libibverbs alone for devices that need no libmlx5: that table lacks the functions of libmlx5. Nothing else of the crate names a C
//! symbol. The table holds only functions that the libraries export. What verbs.h defines inline is in `inline`: posting and polling. The
//! runtime does not use the extended query of a port.

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
pub(crate) mod inline;
mod kick;
mod load;

pub(crate) use bindings::Rdma;
pub use error::{LoadError, MissingFunction};
pub(crate) use kick::softhca_kick;
pub(crate) use load::hide;
