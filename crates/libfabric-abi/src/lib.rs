//! The C ABI of libfabric, for programs that open the library at run time and for libraries that stand in for it.
//!
//! [`bindings`] is what bindgen makes of the headers of libfabric 1.17: structures, constants and the tables of operations. A test makes
//! it again and compares. [`later`] has what later releases added and the project uses. [`calls`] are the functions that the headers
//! define inline, over the tables. [`Functions`] are the six functions that are symbols, with their versions.
//!
//! The crate links nothing. It has what a user of RMA over RDM endpoints needs, and what a library must fill for one. Names are those of
//! the headers.
//!
//! # Versions
//!
//! libfabric 2.x has larger structures behind the same names of functions, told apart by versions of symbols. [`SYMBOLS`] are those
//! of 1.17, which all later releases have kept. Structures that cross the border have only grown at their ends. A library made of later headers
//! allocates its own, larger `fi_info`, so a program makes hints by `fi_dupinfo` of null and never by itself. What a program allocates
//! (`fi_mr_attr`, `fi_cq_err_entry`, `fi_cq_attr`) is read and written up to the API version that it asked for: with one of 1.20 or later
//! it must be the structure of [`later`], which an older library takes as well.

#[expect(
    missing_docs,
    non_camel_case_types,
    clippy::all,
    clippy::undocumented_unsafe_blocks,
    clippy::allow_attributes,
    clippy::allow_attributes_without_reason,
    unsafe_code,
    reason = "generated"
)]
pub mod bindings;
pub mod calls;
pub mod errors;
mod functions;
pub mod later;
mod load;
mod version;

pub use functions::{Functions, SYMBOLS, Symbol};
pub use load::LoadError;
pub use version::{LATEST_API, LEAST_API, Version};

/// No address: an entry of an address vector that could not be made.
pub const FI_ADDR_NOTAVAIL: u64 = u64::MAX;

/// No address in particular.
pub const FI_ADDR_UNSPEC: u64 = u64::MAX;

/// No key: what a registration has that was not made.
pub const FI_KEY_NOTAVAIL: u64 = u64::MAX;
