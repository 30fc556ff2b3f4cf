//! What gpuhca, an HCA that is a kernel, shares with softhca, which keeps the objects of programs: the tables in the kernel's memory.
//!
//! Each definition stands here once. softhca makes plain bytes of it, and gpuhca makes the same struct for Rust and C++: its header asserts
//! each size and offset. So the definitions are macros, which hand their text to a macro of the crate that asks ([`entries!`],
//! [`constants!`]). What crosses the border as a Rust type is [`Executor`].
//!
//! ```
//! macro_rules! plain {
//!     (
//!         $(#[doc = $doc:literal])*
//!         $(align($align:literal))?
//!         pub struct $name:ident { $( $(#[doc = $field_doc:literal])* pub $field:ident: $ty:ty, )* }
//!     ) => {
//!         #[repr(C $(, align($align))?)]
//!         struct $name { $($field: $ty,)* }
//!     };
//! }
//! gpuhca_abi::entries!(plain);
//!
//! assert_eq!(size_of::<HcaKey>(), 64);
//! assert_eq!(gpuhca_abi::QP_RIGHT_READ, 2);
//! ```

mod constants;
mod entries;
mod executor;

pub use constants::*;
pub use executor::Executor;
