//! For build scripts: makes a set of kernels, which a device of Warpverbs takes by `Gpu::add_kernels`.
//!
//! A crate keeps its `.cu` files and their headers in a folder, PTX that it has compiled beforehand below `ptx/sm_NN` of it:
//!
//! ```no_run
//! // build.rs, of a package that depends on `warpverbs`
//! warpverbs_build::kernels("kernels").compile();
//! ```
//!
//! ```ignore
//! // lib.rs or main.rs
//! warpverbs::kernels! { static KERNELS }
//! // and where it has a device
//! gpu.add_kernels(&KERNELS)?;
//! ```
//!
//! The set holds the kernels compiled for the CPU by the C++ compiler (`simt::build` says how), and the PTX by architecture. It
//! also holds the text of every `.cu`, `.cuh` and `.h` file. NVRTC compiles that text where the set has no PTX, or where the driver
//! cannot read it. A kernel is what its source exports by `WV_EXPORT(name)`.
//!
//! For each architecture a set has PTX of all its kernels or of none. PTX that a command writes before a build is taken only if it is
//! of the sources at hand ([`Kernels::ptx_written_by`]). A package with several sets names them ([`Kernels::named`]).
//!
//! `#include <warpverbs/put.cuh>` finds the device library of the `warpverbs` that the package depends on. Its build script
//! passes the folder to those of its dependents, as `DEP_WARPVERBS_INCLUDE`.

mod error;
mod files;
mod ptx;
mod set;
mod stamp;
mod table;

pub use error::BuildError;
pub use set::{Kernels, kernels};
