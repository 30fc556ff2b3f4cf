//! Builds kernels in build scripts: compiles `.cu` files for the CPU and lists their kernels.
//!
//! ```no_run
//! // build.rs
//! simt::build::kernels(["kernels/saxpy.cu"]).include("kernels/include").compile();
//! ```
//!
//! ```ignore
//! // lib.rs or main.rs: `pub static KERNELS: &[simt::Kernel]`
//! include!(concat!(env!("OUT_DIR"), "/simt_kernels.rs"));
//! ```
//!
//! Sources are compiled with `-x c++ -std=c++20 -O2 -fno-strict-aliasing -fexceptions -ffp-contract=off -g1`, whatever the profile. The
//! compiler is that of the `cc` crate: `$CXX`, else `c++`. `SIMT_DEBUG_PACKAGE` names a file that is compiled for a debugger. A kernel is
//! listed when its source says `SIMT_EXPORT(name)` or `WV_EXPORT(name)`.

mod compiler;
mod error;
mod kernels;
mod objects;
mod reuse;
mod scan;
mod script;

pub use compiler::include_dir;
pub use error::BuildError;
pub use kernels::{Kernels, kernels};
